//! Chunks read from files and from buckets, and what is said when they are not what the job pinned.

use super::*;
use futures_util::FutureExt;
use object_store::memory::InMemory;
use object_store::path::Path as ObjectPath;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use object_store::{ObjectStore, ObjectStoreExt};
use shoal_recordio::{Index, Writer, WriterOptions};
use shoal_runtime::host::processors::Processors;
use shoal_runtime::host::storage::Buckets;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// Three chunks of one record.
fn content(seed: u8) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), WriterOptions { chunk_bytes: 1, ..Default::default() });
    for record in 0..3 {
        writer.write(&[seed, record]).unwrap();
    }
    writer.finish().unwrap()
}

/// The second chunk of `content(0)` in `file`, as a manifest pins it.
fn slice(file: &str) -> Slice {
    let chunk = Index::of_bytes(Path::new("a"), &content(0), &Limits::default()).unwrap().chunks[1].clone();
    Slice {
        file: file.to_owned(),
        chunk: 1,
        chunk_offset: chunk.offset,
        chunk_bytes: chunk.end() - chunk.offset,
        chunk_checksum: chunk.checksum,
        chunk_records: 1,
        chunk_first_record: 1,
        first_position: 0,
        records: 1,
    }
}

async fn put(store: &dyn ObjectStore, content: Vec<u8>) {
    store.put(&ObjectPath::from("deep/a"), content.into()).await.unwrap();
}

fn stored(store: Arc<dyn ObjectStore>) -> Stored {
    Stored::with_buckets(Buckets::default().with("s3://b", store))
}

async fn read(source: impl ChunkSource + 'static, slice: &Slice) -> Result<Chunk<'static>, ReadError> {
    let chunk = read_chunk(&source, slice.clone(), &Processors::all()).await;
    chunk.map(|(chunk, stored)| {
        assert_eq!(stored, slice.chunk_bytes);
        chunk
    })
}

#[tokio::test]
async fn a_chunk_is_the_same_from_a_file_and_from_a_bucket() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a");
    std::fs::write(&file, content(0)).unwrap();
    let store = Arc::new(InMemory::new());
    put(&*store, content(0)).await;
    for name in [file.to_str().unwrap(), "s3://b/deep/a"] {
        let chunk = read(stored(store.clone()), &slice(name)).await.unwrap();
        assert_eq!((chunk.len(), chunk.record(0)), (1, [0, 1].as_slice()));
    }
}

#[tokio::test]
async fn content_that_has_changed_since_it_was_pinned_is_told_by_name_and_offset() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a");
    let store = Arc::new(InMemory::new());
    std::fs::write(&file, content(7)).unwrap();
    put(&*store, content(7)).await;
    for name in [file.to_str().unwrap(), "s3://b/deep/a"] {
        let error = read(stored(store.clone()), &slice(name)).await.unwrap_err();
        assert!(matches!(&error, ReadError::Changed { offset: 26, file } if file == name), "{error}");
    }
    // One that is shorter, wholly or in part before the chunk's end.
    for bytes in [3, 40] {
        put(&*store, content(0)[..bytes].to_vec()).await;
        let error = read(stored(store.clone()), &slice("s3://b/deep/a")).await.unwrap_err();
        assert!(error.to_string().contains("s3://b/deep/a, chunk at offset 26"), "{error}");
        assert!(matches!(error, ReadError::Changed { .. }), "{error}");
    }
    let mut damaged = content(0);
    damaged[50] ^= 1;
    put(&*store, damaged).await;
    let error = read(stored(store.clone()), &slice("s3://b/deep/a")).await.unwrap_err();
    assert!(matches!(error, ReadError::Damaged(_)) && error.to_string().contains("s3://b/deep/a"), "{error}");
}

#[tokio::test]
async fn an_object_that_is_gone_and_a_bucket_that_cannot_be_opened_are_told_with_the_way_out() {
    let store = Arc::new(InMemory::new());
    let error = read(stored(store), &slice("s3://b/deep/a")).await.unwrap_err().to_string();
    assert!(error.contains("offset 26") && error.contains("s3://b/deep/a: nothing is there"), "{error}");
    let error = read(Stored::default(), &slice("ftp://b/a")).await.unwrap_err().to_string();
    assert!(error.contains("s3://bucket/name"), "{error}");
    if let Err(error) = Stored::default().read(&slice("gs:///")).await {
        assert!(matches!(error, ReadError::Object { .. }), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_that_is_dropped_half_way_can_be_done_again_and_leaves_the_loop_free_meanwhile() {
    let config = ThrottleConfig { wait_get_per_call: Duration::from_secs(5), ..Default::default() };
    let store = Arc::new(ThrottledStore::new(InMemory::new(), config));
    put(&*store, content(0)).await;
    let (source, slice) = (stored(store), slice("s3://b/deep/a"));
    for _ in 0..3 {
        // The loop turns: the timer ends before the store answers.
        tokio::time::timeout(Duration::from_secs(1), source.read(&slice)).await.unwrap_err();
    }
    assert_eq!(read(source, &slice).await.unwrap().record(0), [0, 1]);
}

/// The bytes at once, of whatever file.
struct There;

impl ChunkSource for There {
    fn read<'a>(
        &'a self,
        slice: &'a Slice,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, ReadError>> + Send + 'a>> {
        let (from, bytes) = (slice.chunk_offset as usize, slice.chunk_bytes as usize);
        Box::pin(std::future::ready(Ok(content(0)[from..from + bytes].to_vec())))
    }
}

#[test]
fn a_chunk_is_decoded_off_the_loop_but_in_place_in_a_simulation() {
    let (threads, in_place) = (Processors::all(), Processors::in_place());
    let read = |processors| read_chunk(&There, slice("a"), processors);
    let one_thread = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
    one_thread.block_on(async {
        let (release, released) = std::sync::mpsc::channel();
        let busy = tokio::task::spawn_blocking(move || released.recv());
        assert!(read(&in_place).now_or_never().is_some());
        let mut decoding = Box::pin(read(&threads));
        assert!((&mut decoding).now_or_never().is_none(), "no thread is free yet");
        release.send(()).unwrap();
        assert_eq!(decoding.await.unwrap().0.record(0), [0, 1]);
        busy.await.unwrap().unwrap();
    });
}

/// The second chunk of 20,000 records without a file, as a master pins it.
fn numbered() -> Slice {
    let chunk = shoal_recordio::numbered::index(20_000).chunks[1].clone();
    Slice {
        file: "records:20000".to_owned(),
        chunk_offset: chunk.offset,
        chunk_bytes: chunk.end() - chunk.offset,
        chunk_checksum: chunk.checksum,
        chunk_records: chunk.records,
        ..slice("")
    }
}

#[tokio::test]
async fn records_without_a_file_are_made_of_the_slice_alone() {
    let chunk = read(Stored::default(), &numbered()).await.unwrap();
    let numbers: Vec<u64> =
        chunk.iter().map(|record| u64::from_le_bytes(record.try_into().unwrap())).collect();
    assert_eq!(numbers, Vec::from_iter(1 << 14..20_000));
}

#[tokio::test]
async fn records_that_are_made_otherwise_than_they_were_pinned_are_refused() {
    let pinned = numbered();
    for altered in [
        Slice { chunk_checksum: pinned.chunk_checksum ^ 1, ..pinned.clone() },
        Slice { chunk_offset: 0, ..pinned.clone() },
        Slice { chunk_offset: pinned.chunk_offset - 12, ..pinned.clone() },
        Slice { chunk_records: pinned.chunk_records - 1, ..pinned.clone() },
        Slice { chunk_records: u32::MAX, ..pinned.clone() },
    ] {
        let error = read(Stored::default(), &altered).await.unwrap_err();
        assert!(matches!(error, ReadError::MadeOtherwise { .. }), "{error}");
        assert!(error.to_string().contains("records:20000") && error.to_string().contains("same version"));
    }
}
