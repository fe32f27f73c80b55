//! What every place promises, over memory, over a folder of this machine, and over a store that fails.

use super::frail::{Frail, Last};
use super::upload::PART_BYTES;
use super::*;
use object_store::memory::InMemory;
use std::io;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Mutex;

const ENOSPC: i32 = 28;
const EIO: i32 = 5;

fn memory() -> Storage {
    Storage::over(Arc::new(InMemory::new()), "memory")
}

/// A folder of this machine whose syncs are written down.
async fn folder(root: &FilePath) -> (Storage, Arc<Mutex<Vec<PathBuf>>>) {
    let synced: Arc<Mutex<Vec<PathBuf>>> = Arc::default();
    let log = synced.clone();
    let sync = move |path: &FilePath| {
        log.lock().unwrap().push(path.to_owned());
        folder::sync_folder(path)
    };
    (open_folder("place", root.to_owned(), Arc::new(sync)).await.unwrap(), synced)
}

fn text(error: impl ToString, needles: &[&str]) {
    let text = error.to_string();
    assert!(needles.iter().all(|needle| text.contains(needle)), "{text}: {needles:?}");
}

async fn keeps_its_promises(storage: &Storage) {
    assert_eq!(storage.list("a").await.unwrap(), []);
    storage.put("a/2", Bytes::from_static(b"two")).await.unwrap();
    storage.put("a/1", Bytes::from_static(b"")).await.unwrap();
    storage.put("top", Bytes::from_static(b"top")).await.unwrap();
    assert_eq!(storage.read("a/2", 3).await.unwrap(), "two");
    assert_eq!(storage.read_range("a/2", 1..3).await.unwrap(), "wo");
    assert_eq!(storage.bytes_of("a/2").await.unwrap(), 3);
    let listed = |name: &str, bytes| Listed { name: name.into(), bytes };
    assert_eq!(storage.list("a").await.unwrap(), [listed("1", 0), listed("2", 3)]);
    assert_eq!(storage.folders().await.unwrap(), ["a"]);

    storage.delete("a/2").await.unwrap();
    storage.delete("a/2").await.unwrap();
    let missing = StorageError::Missing { at: storage.at("a/2") };
    assert_eq!(storage.read("a/2", 3).await.unwrap_err(), missing);
    assert_eq!(storage.read_range("a/2", 0..1).await.unwrap_err(), missing);
    storage.put("a/2", Bytes::from_static(b"new")).await.unwrap();
    storage.delete_folder("a").await.unwrap();
    storage.delete_folder("a").await.unwrap();
    assert_eq!(storage.folders().await.unwrap(), [""; 0]);
    assert_eq!(storage.read("top", 3).await.unwrap(), "top");
}

#[tokio::test]
async fn memory_a_part_of_a_bucket_and_a_folder_do_the_same() {
    keeps_its_promises(&memory()).await;
    let bucket = Arc::new(InMemory::new());
    let whole = Storage::over(bucket.clone(), "bucket");
    let part = Storage { prefix: Path::from("deep/part"), ..Storage::over(bucket, "bucket/deep/part") };
    keeps_its_promises(&part).await;
    assert_eq!(whole.list("deep/part").await.unwrap(), [Listed { name: "top".into(), bytes: 3 }]);
    let root = tempfile::tempdir().unwrap();
    keeps_its_promises(&Storage::open(root.path().to_str().unwrap()).await.unwrap()).await;
}

#[tokio::test]
async fn a_name_never_gets_other_content_and_the_same_content_again_is_no_fault() {
    let root = tempfile::tempdir().unwrap();
    for storage in [memory(), folder(root.path()).await.0] {
        storage.put("a/1", Bytes::from_static(b"one")).await.unwrap();
        storage.put("a/1", Bytes::from_static(b"one")).await.unwrap();
        for other in ["oneandmore", "on", "two"] {
            let error = storage.put("a/1", Bytes::from(other)).await.unwrap_err();
            assert_eq!(error, StorageError::Taken { at: storage.at("a/1") });
        }
        let error = storage.upload("a/1").await.unwrap_err();
        assert_eq!(error, StorageError::Taken { at: storage.at("a/1") });
        assert_eq!(storage.read("a/1", 3).await.unwrap(), "one");
    }
}

#[tokio::test]
async fn an_object_larger_than_expected_is_not_read() {
    let storage = memory();
    storage.put("a", Bytes::from(vec![0; 100])).await.unwrap();
    text(storage.read("a", 99).await.unwrap_err(), &["memory/a", "100", "99"]);
}

#[tokio::test]
async fn a_range_that_is_not_all_there_says_where_the_object_ends() {
    let root = tempfile::tempdir().unwrap();
    for storage in [memory(), folder(root.path()).await.0] {
        storage.put("a", Bytes::from(vec![0; 100])).await.unwrap();
        for range in [99..101, 100..101, 50..u64::MAX, 1 << 60..(1 << 60) + 1] {
            match storage.read_range("a", range).await.unwrap_err() {
                StorageError::Damaged { at, offset, .. } => assert_eq!((at, offset), (storage.at("a"), 100)),
                other => panic!("{other}"),
            }
        }
    }
}

#[tokio::test]
async fn an_upload_is_seen_whole_or_not_at_all_and_sends_equal_parts() {
    let root = tempfile::tempdir().unwrap();
    let inner = folder(root.path()).await.0;
    let frail = Frail::new(inner.store.clone(), u64::MAX, Last::Lost, EIO);
    let storage = Storage { store: frail.clone(), ..inner };
    let written: Vec<Bytes> = (0..5u8).map(|n| Bytes::from(vec![n; PART_BYTES / 2 - 1])).collect();
    let mut upload = storage.upload("a/1").await.unwrap();
    for bytes in &written {
        upload.write(bytes.clone()).await.unwrap();
        assert_eq!(storage.list("a").await.unwrap(), []);
    }
    upload.finish().await.unwrap();
    assert_eq!(storage.read("a/1", u64::MAX).await.unwrap(), written.concat());
    // To begin it, three parts, to end it.
    assert_eq!((frail.part_bytes_max(), u64::MAX - frail.left()), (PART_BYTES, 5));

    let mut upload = storage.upload("a/2").await.unwrap();
    upload.write(Bytes::from(vec![0; 3 * PART_BYTES])).await.unwrap();
    drop(upload);
    assert_eq!(storage.list("a").await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_full_disk_is_reported_by_place_object_and_what_to_do() {
    for changes in 1..=3 {
        let storage =
            Storage::over(Frail::new(Arc::new(InMemory::new()), changes, Last::Lost, ENOSPC), "place");
        let failed = async {
            let mut upload = storage.upload("a/1").await?;
            upload.write(Bytes::from_static(b"x")).await?;
            upload.finish().await
        };
        let error = failed.await.unwrap_err();
        assert_eq!(error.remedy(), Remedy::Fix);
        text(error, &["place/a/1", "No space left", "free some space"]);
    }
    let storage = Storage::over(Frail::new(Arc::new(InMemory::new()), 1, Last::Lost, ENOSPC), "place");
    text(storage.put("a/1", Bytes::new()).await.unwrap_err(), &["place/a/1", "free some space"]);
}

#[tokio::test]
async fn silence_on_a_repeated_put_is_not_taken_for_another_content() {
    let inner = Arc::new(InMemory::new());
    Storage::over(inner.clone(), "place").put("a", Bytes::from_static(b"x")).await.unwrap();
    // ETIMEDOUT, after the refusal to create and before what is there could be read.
    let storage = Storage::over(Frail::new(inner, 1, Last::Answered, 110), "place");
    let error = storage.put("a", Bytes::from_static(b"x")).await.unwrap_err();
    assert_eq!(error.remedy(), Remedy::Retry);
}

#[tokio::test]
async fn every_folder_above_an_object_is_synced_when_it_is_written_and_when_it_is_deleted() {
    let above = tempfile::tempdir().unwrap();
    let root = above.path().canonicalize().unwrap().join("new/place");
    let (storage, synced) = folder(&root).await;
    assert!(format!("{storage:?}").contains("fsync: true"), "{storage:?}");
    let taken = || std::mem::take(&mut *synced.lock().unwrap());
    let expected: Vec<PathBuf> = root.join("a").ancestors().take(4).map(FilePath::to_owned).collect();

    storage.put("a/1", Bytes::from_static(b"x")).await.unwrap();
    assert_eq!(taken()[..4], expected, "put");
    storage.put("a/1", Bytes::from_static(b"x")).await.unwrap();
    assert_eq!(taken()[..4], expected, "put again");
    let mut upload = storage.upload("a/2").await.unwrap();
    upload.write(Bytes::from_static(b"x")).await.unwrap();
    assert!(taken().is_empty());
    upload.finish().await.unwrap();
    assert_eq!(taken()[..4], expected, "upload");
    storage.delete("a/1").await.unwrap();
    assert_eq!(taken()[..4], expected, "delete");
    storage.delete_folder("a").await.unwrap();
    assert_eq!(taken(), std::slice::from_ref(&root), "delete a folder");
    storage.delete("a/1").await.unwrap();
    assert!(taken().contains(&root), "delete what is not there");
}

#[tokio::test]
async fn a_sync_that_fails_at_any_folder_fails_the_operation() {
    let above = tempfile::tempdir().unwrap();
    let root = above.path().canonicalize().unwrap().join("place");
    for bad in [root.join("a"), root.clone(), root.parent().unwrap().to_owned()] {
        let failing = move |path: &FilePath| match path == bad {
            true => Err(io::Error::from_raw_os_error(EIO)),
            false => Ok(()),
        };
        let storage = open_folder("place", root.clone(), Arc::new(failing)).await.unwrap();
        for error in [
            storage.put("a/1", Bytes::from_static(b"x")).await.unwrap_err(),
            storage.upload("a/2").await.unwrap().finish().await.unwrap_err(),
            storage.delete("a/1").await.unwrap_err(),
        ] {
            assert_eq!(error.remedy(), Remedy::Fix);
            text(error, &["place/a/", "look at the disk"]);
        }
        std::fs::remove_dir_all(root.join("a")).unwrap();
    }
    let failing = |_: &FilePath| Err(io::Error::from_raw_os_error(EIO));
    let storage = open_folder("place", root, Arc::new(failing)).await.unwrap();
    assert_eq!(storage.delete_folder("a").await.unwrap_err().remedy(), Remedy::Fix);
}

#[tokio::test]
async fn what_a_killed_writer_left_is_not_listed_and_goes_with_its_folder() {
    let root = tempfile::tempdir().unwrap();
    let (storage, _) = folder(root.path()).await;
    std::fs::create_dir(root.path().join("a")).unwrap();
    std::fs::write(root.path().join("a/1#1"), "half").unwrap();
    assert_eq!(
        (storage.folders().await.unwrap(), storage.list("a").await.unwrap()),
        (vec!["a".into()], vec![])
    );
    storage.put("a/1", Bytes::from_static(b"whole")).await.unwrap();
    assert_eq!(storage.read("a/1", 5).await.unwrap(), "whole");
    storage.delete_folder("a").await.unwrap();
    assert!(!root.path().join("a").exists());
}

#[tokio::test]
async fn a_place_is_a_path_or_a_url_that_this_build_knows() {
    let above = tempfile::tempdir().unwrap();
    for place in [
        above.path().join("new/folder").display().to_string(),
        format!("file://{}", above.path().join("b c").display()),
        above.path().join("new/../d").display().to_string(),
    ] {
        let storage = Storage::open(&place).await.unwrap();
        storage.put("a/1", Bytes::from_static(b"x")).await.unwrap();
        assert_eq!(storage.place(), place);
    }
    assert!(above.path().join("b c/a/1").is_file() && above.path().join("d/a/1").is_file());
    for place in ["", "memory://x", "ftp://host/x", "file://host/x", "file:///a%20b", "file://x"] {
        let error = Storage::open(place).await.unwrap_err();
        assert_eq!(error.remedy(), Remedy::Fix);
        text(error, &[place, "name a folder"]);
    }
    for feature in ["s3", "gs"] {
        let place = format!("{feature}://bucket/folder");
        if let Err(error) = Storage::open(&place).await {
            text(error, &[&place, &format!("--features {feature}")]);
        }
    }
}

#[tokio::test]
async fn a_place_that_cannot_be_a_folder_is_refused_when_it_is_opened() {
    let above = tempfile::tempdir().unwrap();
    let file = above.path().join("file");
    std::fs::write(&file, "x").unwrap();
    for place in [file.clone(), file.join("below")] {
        let error = Storage::open(place.to_str().unwrap()).await.unwrap_err();
        assert_eq!(error.remedy(), Remedy::Fix);
        text(error, &[place.to_str().unwrap(), "name a folder, not a file"]);
    }
}
