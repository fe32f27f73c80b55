//! Checkpoints over memory and over a folder of this machine: what is written is what is read, listed and removed.

mod damage;
mod deltas;
mod kills;

use super::*;
use crate::cluster::BlockId;
use crate::cluster::checkpoint::CheckpointFault;
use crate::host::storage::Remedy;
use crate::wire::sample;
use bytes::Bytes;
use object_store::memory::InMemory;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn memory() -> (Arc<InMemory>, Storage) {
    let store = Arc::new(InMemory::new());
    (store.clone(), Storage::over(store, "place"))
}

/// Writes the two blocks of the sample job at `version`, each by a writer of its own, and commits them.
async fn write(
    storage: &Storage,
    checkpoint: u64,
    version: u64,
) -> Result<(ManifestRecord, CheckpointManifest), StorageError> {
    let mut written = Vec::new();
    for block in 0..2 {
        let copies = [sample::copy(block, version)];
        written.push(write_pieces(storage, &sample::origin(checkpoint, block.into()), copies).await?);
    }
    let manifest = sample::manifest(checkpoint, &written);
    Ok((commit(storage, &manifest).await?, manifest))
}

fn layout(manifest: &CheckpointManifest) -> Layout {
    Layout::new(&manifest.declaration)
}

async fn listed(storage: &Storage) -> Vec<(u64, bool)> {
    let entries = list(storage).await.unwrap();
    let is_complete = |entry: &Entry| matches!(entry.completeness, Completeness::Complete(_));
    entries.iter().map(|entry| (entry.checkpoint.0, is_complete(entry))).collect()
}

async fn why_incomplete(storage: &Storage) -> String {
    match list(storage).await.unwrap().remove(0).completeness {
        Completeness::Incomplete(why) => why,
        Completeness::Complete(record) => panic!("{record:?}"),
    }
}

async fn keeps_checkpoints(storage: &Storage) {
    let (first, _) = write(storage, 3, 5).await.unwrap();
    let (record, manifest) = write(storage, 4, 6).await.unwrap();
    assert_eq!(load(storage, &record).await.unwrap(), manifest);
    assert_eq!(load_unrecorded(storage, CheckpointId(4)).await.unwrap(), (record, manifest.clone()));
    for block in 0..2 {
        let copy = read_piece(storage, &manifest, &layout(&manifest), &manifest.pieces_of(BlockId(block))[0])
            .await
            .unwrap();
        assert_eq!(copy, sample::copy(block, 6));
    }
    let files: u64 = manifest.files.iter().map(|file| file.bytes).sum();
    let expected = Report { bytes: record.bytes + files, pieces: 2, faults: Vec::new() };
    assert_eq!(verify(storage, &record).await.unwrap(), expected);

    let entry = |record: ManifestRecord| Entry {
        checkpoint: record.checkpoint,
        completeness: Completeness::Complete(record),
    };
    assert_eq!(list(storage).await.unwrap(), [entry(first), entry(record)]);
    remove(storage, CheckpointId(3)).await.unwrap();
    remove(storage, CheckpointId(3)).await.unwrap();
    assert_eq!(list(storage).await.unwrap(), [entry(record)]);
    assert_eq!(verify(storage, &record).await.unwrap(), expected);
}

#[tokio::test]
async fn what_is_committed_is_loaded_read_verified_listed_and_removed() {
    keeps_checkpoints(&memory().1).await;
    let root = tempfile::tempdir().unwrap();
    keeps_checkpoints(&Storage::open(root.path().to_str().unwrap()).await.unwrap()).await;
    assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn a_manifest_is_committed_only_over_files_that_are_all_there() {
    let (_, storage) = memory();
    let origin = sample::origin(4, 0);
    let written = write_pieces(&storage, &origin, [sample::copy(0, 5), sample::copy(1, 5)]).await.unwrap();
    let mut elsewhere = written.clone();
    elsewhere.file.name = "pserver-9.9-0.blocks".into();
    match commit(&storage, &sample::manifest(4, &[elsewhere])).await.unwrap_err() {
        StorageError::Missing { at } => assert_eq!(at, "place/checkpoint-00000004/pserver-9.9-0.blocks"),
        other => panic!("{other}"),
    }
    let mut longer = written.clone();
    longer.file.bytes += 1;
    let error = commit(&storage, &sample::manifest(4, &[longer])).await.unwrap_err();
    assert!(matches!(error, StorageError::Damaged { .. }), "{error}");
    let mut unchecked = sample::manifest(4, std::slice::from_ref(&written));
    unchecked.pieces.pop();
    let error = commit(&storage, &unchecked).await.unwrap_err();
    assert!(matches!(error, StorageError::Invalid { .. }), "{error}");
    assert_eq!(why_incomplete(&storage).await, "it has no manifest");
    commit(&storage, &sample::manifest(4, &[written])).await.unwrap();
    assert_eq!(listed(&storage).await, [(4, true)]);
}

#[tokio::test]
async fn a_commit_repeated_is_the_same_and_another_commit_of_the_same_number_is_refused() {
    let (_, storage) = memory();
    let (record, manifest) = write(&storage, 4, 5).await.unwrap();
    assert_eq!(commit(&storage, &manifest).await.unwrap(), record);
    let other = CheckpointManifest { cut: None, ..manifest.clone() };
    let error = commit(&storage, &other).await.unwrap_err();
    assert!(matches!(error, StorageError::Taken { .. }) && error.remedy() == Remedy::GiveUp, "{error}");
    assert_eq!(load(&storage, &record).await.unwrap(), manifest);
}

#[tokio::test]
async fn a_file_is_never_written_over_a_retry_takes_the_next_number() {
    let (_, storage) = memory();
    let copies = || [sample::copy(0, 5), sample::copy(1, 5)];
    write_pieces(&storage, &sample::origin(4, 0), copies()).await.unwrap();
    let error = write_pieces(&storage, &sample::origin(4, 0), copies()).await.unwrap_err();
    assert!(matches!(error, StorageError::Taken { .. }), "{error}");
    let written = write_pieces(&storage, &sample::origin(4, 1), copies()).await.unwrap();
    let record = commit(&storage, &sample::manifest(4, &[written])).await.unwrap();
    // A file that no manifest names is no fault, and goes with the folder.
    assert_eq!(verify(&storage, &record).await.unwrap().faults, []);
    assert_eq!(listed(&storage).await, [(4, true)]);
    remove(&storage, CheckpointId(4)).await.unwrap();
    assert_eq!(listed(&storage).await, []);
}

#[tokio::test]
async fn pieces_that_another_file_supplies_are_read_past_and_still_checked() {
    let (store, storage) = memory();
    let copies = || [sample::copy(0, 5), sample::copy(1, 5)];
    let mut first = write_pieces(&storage, &sample::origin(4, 0), copies()).await.unwrap();
    let unused = first.pieces.remove(0);
    let mut second = write_pieces(&storage, &sample::origin(4, 1), copies()).await.unwrap();
    second.pieces.pop();
    let manifest = sample::manifest(4, &[second, first]);
    let record = commit(&storage, &manifest).await.unwrap();
    let report = verify(&storage, &record).await.unwrap();
    let files: u64 = manifest.files.iter().map(|file| file.bytes).sum();
    assert_eq!((report.pieces, report.bytes, report.faults), (2, record.bytes + files, Vec::new()));
    assert_eq!(
        read_piece(&storage, &manifest, &layout(&manifest), &manifest.pieces_of(BlockId(1))[0])
            .await
            .unwrap(),
        sample::copy(1, 5)
    );

    let object = manifest.files[0].object();
    damage::flip(&store, &object, (unused.offset as usize + 10) * 8).await;
    let faults = verify(&storage, &record).await.unwrap().faults;
    assert_eq!(faults.len(), 1);
    assert!(faults[0].to_string().contains(&object) && faults[0].what.contains("checksum"), "{}", faults[0]);
}

#[tokio::test]
async fn an_asynchronous_job_keeps_blocks_of_different_versions() {
    let (_, storage) = memory();
    let copies = [sample::copy(0, 5), sample::copy(1, 8)];
    let written = write_pieces(&storage, &sample::origin(4, 0), copies).await.unwrap();
    let id = CheckpointId(4);
    let assemble = |cut| {
        let written = vec![written.clone()];
        CheckpointManifest::assemble(sample::settings(), sample::declaration(), id, cut, written)
    };
    let manifest = assemble(None).unwrap();
    let record = commit(&storage, &manifest).await.unwrap();
    assert_eq!(load(&storage, &record).await.unwrap(), manifest);
    assert_eq!(
        read_piece(&storage, &manifest, &layout(&manifest), &manifest.pieces_of(BlockId(1))[0])
            .await
            .unwrap(),
        sample::copy(1, 8)
    );
    let cut = sample::manifest(4, &sample::written(4, 5)).cut;
    let CheckpointFault { subject, .. } = assemble(cut).unwrap_err();
    assert_eq!(subject, "block 1");
}

#[tokio::test]
async fn other_folders_of_the_place_are_left_alone() {
    let (_, storage) = memory();
    for name in ["notes", "runs/1", "checkpoint-4/manifest", "checkpoint-0000000x/manifest"] {
        storage.put(name, Bytes::from_static(b"mine")).await.unwrap();
    }
    write(&storage, 4, 5).await.unwrap();
    assert_eq!(listed(&storage).await, [(4, true)]);
    remove(&storage, CheckpointId(4)).await.unwrap();
    assert_eq!(storage.folders().await.unwrap(), ["checkpoint-0000000x", "checkpoint-4", "runs"]);
}

#[tokio::test]
async fn a_piece_of_a_file_that_the_manifest_has_not_is_an_error() {
    let (_, storage) = memory();
    let (_, manifest) = write(&storage, 4, 5).await.unwrap();
    let elsewhere = PieceRef { file: 7, ..manifest.pieces[0].clone() };
    let error = read_piece(&storage, &manifest, &layout(&manifest), &elsewhere).await.unwrap_err();
    assert!(error.to_string().contains("no file 7"), "{error}");
}

#[tokio::test]
async fn copies_are_asked_for_one_at_a_time_and_let_go_of_before_the_next() {
    const PIECES: usize = 9;
    const PIECE_BYTES: usize = 2 << 20;
    /// Counts the pieces' values that are alive.
    struct Counted(Arc<AtomicUsize>);
    impl AsRef<[u8]> for Counted {
        fn as_ref(&self) -> &[u8] {
            static VALUES: [u8; PIECE_BYTES] = [1; PIECE_BYTES];
            &VALUES
        }
    }
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let (alive, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counter, highest) = (alive.clone(), most.clone());
    let copies = (0..PIECES).map(move |block| {
        highest.fetch_max(counter.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        BlockCopy { parameters: Bytes::from_owner(Counted(counter.clone())), ..sample::copy(block as u32, 5) }
    });
    let root = tempfile::tempdir().unwrap();
    let storage = Storage::open(root.path().to_str().unwrap()).await.unwrap();
    let written = write_pieces(&storage, &sample::origin(4, 0), copies).await.unwrap();
    assert_eq!(written.pieces.len(), PIECES);
    assert_eq!((alive.load(Ordering::SeqCst), most.load(Ordering::SeqCst)), (0, 1));
}

#[tokio::test]
async fn every_operation_may_run_in_a_task_of_its_own() {
    let (_, storage) = memory();
    let all = async move {
        let copies = (0..2).map(|block| sample::copy(block, 5));
        let written = write_pieces(&storage, &sample::origin(4, 0), copies).await?;
        let record = commit(&storage, &sample::manifest(4, &[written])).await?;
        let manifest = load(&storage, &record).await?;
        read_piece(&storage, &manifest, &layout(&manifest), &manifest.pieces_of(BlockId(0))[0]).await?;
        let report = verify(&storage, &record).await?;
        list(&storage).await?;
        remove(&storage, record.checkpoint).await?;
        Ok::<Report, StorageError>(report)
    };
    assert_eq!(tokio::spawn(all).await.unwrap().unwrap().pieces, 2);
}
