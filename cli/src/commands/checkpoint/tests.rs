//! The commands over a place and a store in a folder: two checkpoints that are kept, one that was left behind, one that
//! was never committed.

use super::choice::{Chosen, PlaceChoice};
use super::ls::lines;
use super::verify::verified;
use crate::table_file;
use crate::table_file::tests::rows_in;
use shoal_master::document::{Document, KeptCheckpoint, Wanted};
use shoal_runner::at_rest::AtRest;
use shoal_runner::model_state::ModelState;
use shoal_runner::table_state::samples::{copy, table};
use shoal_runtime::cluster::block_copy::{Segment, SegmentRow, WHOLE, encode_row};
use shoal_runtime::cluster::checkpoint::{Cut, Origin};
use shoal_runtime::cluster::initial::Initial;
use shoal_runtime::cluster::schedule::Schedule;
use shoal_runtime::cluster::{
    BlockCopy, BlockId, CheckpointId, CheckpointManifest, Declaration, Incarnation, JobId, JobSettings,
    Ledger, ManifestRecord, Mode, Parameter, Precision, Rewind, Rule, StateName, Table, Term, Version,
};
use shoal_runtime::host::checkpoints::{commit, load, write_pieces};
use shoal_runtime::host::rpc::Security;
use shoal_runtime::host::storage::Storage;
use shoal_runtime::host::store;
use std::path::Path;
use tempfile::TempDir;

fn job() -> JobSettings {
    JobSettings {
        job: JobId("test".into()),
        seed: 7,
        epochs: 1,
        microbatch_records: 1,
        microbatches_per_step: 2,
        shuffle_run: 1,
        records: 10,
        manifest_fingerprint: [0; 32],
        lease_ttl_millis: 1000,
        mode: Mode::SYNC,
        gradients: Precision::F32,
        warm_start: None,
        evaluated: None,
    }
}

/// One block of three values and their velocities.
fn declaration() -> Declaration {
    let rule = Rule::Momentum { momentum: 0.5 };
    let weight = Parameter::new("w", &[3], rule, Schedule::constant(0.1), Initial::Zeros);
    Declaration { parameters: vec![weight], block_elements: 0 }
}

fn bytes(values: [f32; 3]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Writes the checkpoint of a number: all values are twice the number, at version 4 times the number.
async fn written(storage: &Storage, number: u64) -> ManifestRecord {
    let (checkpoint, version) = (CheckpointId(number), Version(4 * number));
    let copy = BlockCopy {
        block: BlockId(0),
        rewind: Rewind(1),
        name: StateName { term: Term(1), version },
        published: version,
        parameters: bytes([2.0 * number as f32; 3]).into(),
        earlier: Vec::new(),
        slots: vec![bytes([0.5; 3]).into()],
        ledger: Ledger::default(),
        segment: None,
    };
    let origin = Origin { job: job().job, checkpoint, writer: Incarnation::new(1, 1), sequence: 1 };
    let file = write_pieces(storage, &origin, [copy.into()]).await.unwrap();
    let cut = Some(Cut { rewind: Rewind(1), version });
    let manifest = CheckpointManifest::assemble(job(), declaration(), checkpoint, cut, vec![file]).unwrap();
    commit(storage, &manifest).await.unwrap()
}

fn choice(run: &Path) -> PlaceChoice {
    PlaceChoice { place: None, store: None, store_tls: None, plaintext: false, run: run.to_owned() }
}

/// Checkpoints 1 to 4, of which the store keeps 2 and 3, and knows 3 as the newest; 5 has no manifest.
async fn run_folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let storage = Storage::open(state.join("checkpoints").to_str().unwrap()).await.unwrap();
    let wanted = Wanted { pservers: 1, trainers: 1, replicas: 0, exclude_max: 0 };
    let mut document = Document::new(job(), wanted).elected("test");
    for number in 1..=5 {
        let record = written(&storage, number).await;
        if (2..=3).contains(&number) {
            let version = Version(4 * number);
            document.checkpoints.push(KeptCheckpoint { record, version, rewind: Rewind(1), oldest: None });
        }
    }
    storage.delete(&CheckpointId(5).manifest_object()).await.unwrap();
    let store = store::open(state.to_str().unwrap(), &Security::Loopback, None).unwrap();
    let _leadership = store.lead("test").await.unwrap();
    store.swap(None, document.to_bytes().into()).await.unwrap();
    folder
}

fn file(folder: &TempDir, number: u64, name: &str) -> std::path::PathBuf {
    folder.path().join("state/checkpoints").join(CheckpointId(number).folder()).join(name)
}

const PIECES: &str = "pserver-1.1-1.blocks";

async fn standings(chosen: &Chosen) -> Vec<(u64, &'static str)> {
    lines(chosen).await.unwrap().into_iter().map(|line| (line.checkpoint, line.standing)).collect()
}

#[tokio::test]
async fn ls_goes_by_the_store_which_alone_knows_the_newest() {
    let folder = run_folder().await;
    let chosen = choice(folder.path()).open().await.unwrap();
    let expected = [(1, "left behind"), (2, "kept"), (3, "newest"), (4, "left behind"), (5, "incomplete")];
    assert_eq!(standings(&chosen).await, expected);
    let third = &lines(&chosen).await.unwrap()[2];
    let length = |name| std::fs::metadata(file(&folder, 3, name)).unwrap().len();
    assert_eq!((third.version, third.bytes), (Some(12), Some(length("manifest") + length(PIECES))));
    assert!(third.written.as_ref().is_some_and(|written| written.ends_with('Z')), "{third:?}");
    let place = folder.path().join("state/checkpoints").display().to_string();
    let alone = PlaceChoice { place: Some(place), ..choice(folder.path()) }.open().await.unwrap();
    let complete = |number| (number, "complete");
    assert_eq!(standings(&alone).await[..4], [1, 2, 3, 4].map(complete));
}

#[tokio::test]
async fn ls_shows_what_the_store_knows_and_the_place_has_not() {
    let folder = run_folder().await;
    std::fs::remove_dir_all(file(&folder, 2, "")).unwrap();
    // An older manifest with everything that it names, under a newer name.
    std::fs::copy(file(&folder, 1, "manifest"), file(&folder, 3, "manifest")).unwrap();
    let chosen = choice(folder.path()).open().await.unwrap();
    assert_eq!(standings(&chosen).await[1..3], [(2, "DAMAGED"), (3, "DAMAGED")]);
}

#[tokio::test]
async fn verify_reads_what_is_kept_and_names_the_file_that_is_damaged() {
    let folder = run_folder().await;
    let chosen = choice(folder.path()).open().await.unwrap();
    let found = verified(&chosen, None).await.unwrap();
    assert_eq!(found.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [2, 3]);
    assert!(found.iter().all(|(_, report)| report.faults.is_empty() && report.pieces == 1), "{found:?}");
    let path = file(&folder, 2, PIECES);
    let mut content = std::fs::read(&path).unwrap();
    let at = content.len() / 2;
    content[at] ^= 4;
    std::fs::write(&path, content).unwrap();
    let found = verified(&chosen, None).await.unwrap();
    assert!(found[1].1.faults.is_empty() && found[0].1.faults[0].file.ends_with(PIECES), "{found:?}");
    assert_eq!(verified(&chosen, Some(3)).await.unwrap().len(), 1);
    assert!(verified(&chosen, Some(9)).await.unwrap_err().to_string().contains("no checkpoint 9"));
}

#[tokio::test]
async fn the_model_of_a_chosen_checkpoint_is_exported_and_a_damaged_one_is_not() {
    let folder = run_folder().await;
    let chosen = choice(folder.path()).open().await.unwrap();
    let model = async |number| {
        let record = chosen.record(number).await?;
        let manifest = load(&chosen.storage, &record).await?;
        ModelState::read(&AtRest::in_checkpoint(&chosen.storage, &manifest)).await
    };
    let newest = model(None).await.unwrap();
    assert_eq!((newest.version, newest.values("w").unwrap()), (12, &[6.0; 3][..]));
    assert_eq!(model(Some(1)).await.unwrap().values("w").unwrap(), [2.0; 3], "one that is left behind, too");
    let to = folder.path().join("model.safetensors");
    newest.export(&to, true).unwrap();
    let content = std::fs::read(&to).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&content).unwrap();
    let mut names = tensors.names();
    names.sort();
    assert_eq!(names.len(), 2, "{names:?}");
    std::fs::write(file(&folder, 3, PIECES), "torn").unwrap();
    assert!(model(None).await.unwrap_err().to_string().contains(PIECES));
}

/// A table with one bucket, in a checkpoint of all its rows and one of what changed since: key 9 was evicted, 5 changed, 7
/// was born in the slot of 9, 3 in one of its own.
async fn table_of_changes(storage: &Storage) -> CheckpointManifest {
    let declaration = Declaration {
        parameters: vec![table().as_table(Table { buckets: 1, ..Table::default() })],
        block_elements: 0,
    };
    let files = async |number: u64, copy: BlockCopy| {
        let checkpoint = CheckpointId(number);
        let name = StateName { term: Term(1), version: Version(number) };
        let copy = BlockCopy { name, published: name.version, ..copy };
        let origin = Origin { job: job().job, checkpoint, writer: Incarnation::new(1, 1), sequence: 1 };
        write_pieces(storage, &origin, [copy.into()]).await.unwrap()
    };
    let manifest = async |number: u64, written| {
        let cut = Some(Cut { rewind: Rewind(1), version: Version(number) });
        let declaration = declaration.clone();
        let manifest =
            CheckpointManifest::assemble(job(), declaration, CheckpointId(number), cut, written).unwrap();
        commit(storage, &manifest).await.unwrap();
        manifest
    };
    let first = manifest(1, vec![files(1, copy(&[5, 9, 2])).await]).await;
    let mut bytes = Vec::new();
    for (slot, key) in [(0, 5), (1, 7), (3, 3)] {
        let values = [-1.0, key as f32, 0.0, 0.0].map(f32::to_le_bytes);
        encode_row(SegmentRow { slot, key, last: 4, occurrences: 5, values: &values }, &mut bytes);
    }
    let segment = Segment { slots: WHOLE, candidates: Default::default(), freed: Some(Vec::new()) };
    let changes = BlockCopy { parameters: bytes.into(), segment: Some(segment), ..copy(&[]) };
    let mut written = vec![files(2, changes).await];
    written.extend(first.beneath(&written));
    manifest(2, written).await
}

#[tokio::test]
async fn a_table_is_exported_alone_as_what_changed_says_and_of_a_damaged_checkpoint_nothing_is() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Storage::open(folder.path().join("saved").to_str().unwrap()).await.unwrap();
    let manifest = table_of_changes(&storage).await;
    let job = AtRest::in_checkpoint(&storage, &manifest);
    let to = folder.path().join("exported/rows.parquet");
    assert_eq!(table_file::export(&job, "t", false, &to).await.unwrap(), 4);
    let expected = [(2, [2.0, 1.0]), (3, [-1.0, 3.0]), (5, [-1.0, 5.0]), (7, [-1.0, 7.0])];
    assert_eq!(rows_in(&std::fs::read(&to).unwrap()), expected.map(|(key, row)| (key, row.to_vec())));
    let error = table_file::export(&job, "u", false, &to).await.unwrap_err().to_string();
    assert!(error.contains("no table \"u\"; the job's tables are: t"), "{error}");

    let base = folder.path().join("saved").join(CheckpointId(1).folder()).join(PIECES);
    std::fs::write(base, "torn").unwrap();
    std::fs::remove_file(&to).unwrap();
    assert!(table_file::export(&job, "t", false, &to).await.is_err());
    assert_eq!(std::fs::read_dir(folder.path().join("exported")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_mistyped_name_is_refused_and_makes_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    assert!(choice(folder.path()).open().await.unwrap_err().to_string().contains("no run found"));
    let nowhere = folder.path().join("nowhere").display().to_string();
    let place = PlaceChoice { place: Some(nowhere.clone()), ..choice(folder.path()) };
    assert!(place.open().await.unwrap_err().to_string().contains("no such folder"));
    assert!(!Path::new(&nowhere).exists());
}
