//! A checkpoint of what changed, and the one that it rests on: both are needed, found and read.

use super::*;
use crate::cluster::Table;
use crate::cluster::checkpoint::{Cut, WrittenFile};
use crate::cluster::initial::Initial;
use crate::cluster::schedule::Schedule;
use crate::cluster::{Declaration, Parameter, Rewind, Rule, Version};
use crate::wire::proto;

/// A table of one bucket, which is block 0.
fn table() -> Declaration {
    let row = Parameter::new("t", &[3], Rule::Sgd, Schedule::constant(0.1), Initial::Zeros);
    let table = Table { buckets: 1, ..Table::default() };
    Declaration { parameters: vec![row.as_table(table)], block_elements: 0 }
}

fn copy(version: u64, freed: Option<Vec<u32>>) -> BlockCopy {
    let delta = freed.map(|freed| proto::Delta { freed });
    let segment = proto::Segment { first: 0, end: u32::MAX, candidates: Bytes::new(), delta };
    BlockCopy { segment: Some(segment), ..sample::copy(0, version) }
}

fn manifest(checkpoint: u64, version: u64, written: Vec<WrittenFile>) -> CheckpointManifest {
    let cut = Some(Cut { rewind: Rewind(2), version: Version(version) });
    let id = CheckpointId(checkpoint);
    CheckpointManifest::assemble(sample::settings(), table(), id, cut, written).unwrap()
}

/// Checkpoint 1 whole, checkpoint 2 with what changed since.
async fn write(storage: &Storage) -> [(ManifestRecord, CheckpointManifest); 2] {
    let whole = write_pieces(storage, &sample::origin(1, 0), [copy(5, None)]).await.unwrap();
    let first = manifest(1, 5, vec![whole]);
    let changed = write_pieces(storage, &sample::origin(2, 0), [copy(6, Some(vec![4]))]).await.unwrap();
    let mut written = vec![changed];
    written.extend(first.beneath(&written));
    let second = manifest(2, 6, written);
    let records = [commit(storage, &first).await.unwrap(), commit(storage, &second).await.unwrap()];
    [(records[0], first), (records[1], second)]
}

#[tokio::test]
async fn what_changed_is_read_with_what_it_rests_on() {
    let (_, storage) = memory();
    let [_, (record, manifest)] = write(&storage).await;
    assert_eq!(load(&storage, &record).await.unwrap(), manifest);
    assert_eq!((manifest.version(), manifest.oldest()), (Version(6), CheckpointId(1)));
    let [changed, whole] = manifest.pieces_of(BlockId(0)) else { panic!("two pieces") };
    assert_eq!(
        read_piece(&storage, &manifest, &layout(&manifest), changed).await.unwrap(),
        copy(6, Some(vec![4]))
    );
    assert_eq!(read_piece(&storage, &manifest, &layout(&manifest), whole).await.unwrap(), copy(5, None));
    assert_eq!(listed(&storage).await, [(1, true), (2, true)]);
    let report = verify(&storage, &record).await.unwrap();
    let bytes: u64 = manifest.files.iter().map(|file| file.bytes).sum();
    assert_eq!((report.pieces, report.faults.len(), report.bytes), (2, 0, record.bytes + bytes));
    let taken_for_whole = PieceRef { is_delta: false, ..changed.clone() };
    let error = read_piece(&storage, &manifest, &layout(&manifest), &taken_for_whole).await.unwrap_err();
    assert!(error.to_string().contains("changes, not a whole state"), "{error}");
}

#[tokio::test]
async fn without_what_it_rests_on_it_is_no_checkpoint() {
    let (_, storage) = memory();
    let [(_, first), (record, second)] = write(&storage).await;
    let object = first.files[0].object();
    storage.delete(&object).await.unwrap();
    assert_eq!(listed(&storage).await, [(1, false), (2, false)]);
    assert_eq!(
        commit(&storage, &second).await.unwrap_err(),
        StorageError::Missing { at: storage.at(&object) }
    );
    let [_, whole] = second.pieces_of(BlockId(0)) else { panic!("two pieces") };
    assert!(matches!(
        read_piece(&storage, &second, &layout(&second), whole).await,
        Err(StorageError::Missing { .. })
    ));
    let faults = verify(&storage, &record).await.unwrap().faults;
    assert_eq!(faults.iter().map(|fault| fault.file.as_str()).collect::<Vec<_>>(), [storage.at(&object)]);
}
