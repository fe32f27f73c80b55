//! A process that dies after any of its operations leaves nothing that looks like a checkpoint and is none.

use super::*;
use crate::host::storage::frail::{Frail, Last};
use crate::host::storage::open_folder;
use object_store::ObjectStore;
use std::sync::Mutex;

const EIO: i32 = 5;

/// What the script got done, by the answers it had.
#[derive(Default)]
struct Done {
    committed: Vec<ManifestRecord>,
    removal_begun: Vec<CheckpointId>,
}

/// Two checkpoints, the older one removed once the newer one is committed.
async fn script(storage: &Storage, done: &mut Done) -> Result<(), StorageError> {
    done.committed.push(write(storage, 3, 5).await?.0);
    done.committed.push(write(storage, 4, 6).await?.0);
    done.removal_begun.push(CheckpointId(3));
    remove(storage, CheckpointId(3)).await
}

/// Runs the script until its `changes`-th change kills it; answers whether it came that far.
async fn dies_after(inner: Arc<dyn ObjectStore>, survivor: &Storage, changes: u64, last: Last) -> bool {
    let frail = Frail::new(inner, changes, last, EIO);
    let mut done = Done::default();
    let died = script(&Storage::over(frail.clone(), "place"), &mut done).await.is_err();
    let mut complete = Vec::new();
    for entry in list(survivor).await.unwrap() {
        let Completeness::Complete(record) = entry.completeness else { continue };
        let report = verify(survivor, &record).await.unwrap();
        assert_eq!((report.pieces, report.faults), (2, Vec::new()), "after {changes}: {record:?}");
        complete.push(record);
    }
    for record in &done.committed {
        let may_be_gone = done.removal_begun.contains(&record.checkpoint);
        assert!(may_be_gone || complete.contains(record), "after {changes}: {record:?} is lost");
    }
    // Who comes after clears away what is not complete, whatever is left of it.
    for entry in list(survivor).await.unwrap() {
        if let Completeness::Incomplete(_) = entry.completeness {
            remove(survivor, entry.checkpoint).await.unwrap();
        }
    }
    let left: Vec<bool> = listed(survivor).await.iter().map(|(_, is_complete)| *is_complete).collect();
    assert_eq!(left, vec![true; complete.len()], "after {changes}");
    assert!(frail.left() == 0 || !died);
    died
}

#[tokio::test]
async fn death_after_any_change_leaves_whole_checkpoints_or_incomplete_ones() {
    for last in [Last::Lost, Last::Unanswered, Last::Answered] {
        let mut changes = 1;
        loop {
            let (store, survivor) = memory();
            if !dies_after(store, &survivor, changes, last).await {
                break;
            }
            changes += 1;
        }
        // Two files of three changes and a manifest, twice; a manifest and two files removed.
        let all = 2 * (2 * 3 + 1) + 3;
        assert_eq!(changes, if last == Last::Answered { all } else { all + 1 });
    }
}

#[tokio::test]
async fn death_after_any_change_to_a_folder_leaves_nothing_behind_that_cannot_be_cleared() {
    for last in [Last::Lost, Last::Unanswered, Last::Answered] {
        for changes in 1..18 {
            let root = tempfile::tempdir().unwrap();
            let survivor = Storage::open(root.path().to_str().unwrap()).await.unwrap();
            let local = object_store::local::LocalFileSystem::new_with_prefix(root.path()).unwrap();
            dies_after(Arc::new(local), &survivor, changes, last).await;
            let folders = std::fs::read_dir(root.path()).unwrap().count();
            assert_eq!(folders, listed(&survivor).await.len());
        }
    }
}

#[tokio::test]
async fn an_older_checkpoint_outlives_a_full_disk_and_the_next_succeeds_when_there_is_space() {
    let (store, storage) = memory();
    let (record, _) = write(&storage, 3, 5).await.unwrap();
    for changes in 1..=7 {
        let full = Storage::over(Frail::new(store.clone(), changes, Last::Lost, 28), "place");
        let error = write(&full, 4, 6).await.unwrap_err();
        assert_eq!(error.remedy(), Remedy::Fix);
        assert!(error.to_string().contains("place/checkpoint-00000004/"), "{error}");
        assert_eq!(verify(&storage, &record).await.unwrap().faults, []);
        remove(&storage, CheckpointId(4)).await.unwrap();
        assert_eq!(listed(&storage).await, [(3, true)]);
    }
    write(&storage, 4, 6).await.unwrap();
    assert_eq!(listed(&storage).await, [(3, true), (4, true)]);
}

#[tokio::test]
async fn a_manifests_deletion_is_durable_before_any_file_goes() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join(CheckpointId(4).folder());
    let left: Arc<Mutex<Vec<usize>>> = Arc::default();
    let (seen, looked_at) = (left.clone(), folder.clone());
    let sync = move |_: &std::path::Path| {
        seen.lock().unwrap().push(std::fs::read_dir(&looked_at).map_or(0, Iterator::count));
        Ok(())
    };
    let storage = open_folder("place", root.path().to_owned(), Arc::new(sync)).await.unwrap();
    write(&storage, 4, 5).await.unwrap();
    assert_eq!(left.lock().unwrap().last(), Some(&3));
    left.lock().unwrap().clear();
    remove(&storage, CheckpointId(4)).await.unwrap();
    // Synced with both files of pieces still there, and at the end.
    let left = left.lock().unwrap();
    assert_eq!((left.first(), left.last()), (Some(&2), Some(&0)));
    assert!(!folder.exists());
}
