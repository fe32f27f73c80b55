//! Where chunks come from: files of this machine, objects in buckets, and numbered records, which are made here. It must never keep or
//! judge what it reads.

use super::{ReadError, changed};
use shoal_job::numbered::is_numbered;
use shoal_recordio::numbered;
use shoal_runtime::cluster::Slice;
use shoal_runtime::cluster::waits::WaitKind;
use shoal_runtime::host::storage::{Buckets, StorageError};
use shoal_runtime::host::waits::Waits;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

/// Where chunks come from. The bytes are header and payload.
pub trait ChunkSource: Send + Sync {
    /// Reads the stored bytes of the slice's chunk. Dropped before its end, it has changed nothing.
    fn read<'a>(
        &'a self,
        slice: &'a Slice,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, ReadError>> + Send + 'a>>;
}

/// Another source whose reads in progress the trainer's waits have.
pub(crate) struct WatchedSource {
    pub(crate) source: Arc<dyn ChunkSource>,
    pub(crate) waits: Waits,
}

impl ChunkSource for WatchedSource {
    fn read<'a>(
        &'a self,
        slice: &'a Slice,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, ReadError>> + Send + 'a>> {
        Box::pin(async move {
            let _read = self.waits.begin(WaitKind::Data, slice.file.as_str());
            self.source.read(slice).await
        })
    }
}

/// Chunks under the names that the master pinned: a path is a file of this machine, a URL an object in a bucket, `records:N` no file.
#[derive(Debug, Default)]
pub struct Stored {
    buckets: Buckets,
}

impl Stored {
    /// Over buckets that are opened already, for simulations and tests.
    #[cfg(any(feature = "internals", test))]
    pub fn with_buckets(buckets: Buckets) -> Stored {
        Stored { buckets }
    }
}

impl ChunkSource for Stored {
    fn read<'a>(
        &'a self,
        slice: &'a Slice,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, ReadError>> + Send + 'a>> {
        if is_numbered(&slice.file) {
            let made = numbered::chunk(slice.chunk_offset, slice.chunk_records);
            Box::pin(std::future::ready(made.ok_or_else(|| changed(slice))))
        } else if slice.file.contains("://") {
            Box::pin(read_object(&self.buckets, slice))
        } else {
            Box::pin(read_file(slice))
        }
    }
}

async fn read_object(buckets: &Buckets, slice: &Slice) -> Result<Vec<u8>, ReadError> {
    let offset = slice.chunk_offset;
    let read = async {
        let (bucket, name) = buckets.open(&slice.file)?;
        bucket.read(name, offset..offset + slice.chunk_bytes, None).await
    };
    match read.await {
        Ok(bytes) => Ok(bytes.into()),
        // When it was pinned the chunk was all there.
        Err(StorageError::Damaged { .. }) => Err(changed(slice)),
        Err(why) => Err(ReadError::Object { offset, why }),
    }
}

/// Off the loop: a disk may take its time.
async fn read_file(slice: &Slice) -> Result<Vec<u8>, ReadError> {
    let (file, offset, bytes) = (slice.file.clone(), slice.chunk_offset, slice.chunk_bytes);
    let path = file.clone();
    let read = tokio::task::spawn_blocking(move || read_range(Path::new(&path), offset, bytes)).await;
    // The outer error is a panic in the reading thread.
    let read = read.unwrap_or_else(|panic| Err(std::io::Error::other(panic)));
    read.map_err(|said| ReadError::Io { file, offset, said })
}

fn read_range(file: &Path, offset: u64, bytes: u64) -> std::io::Result<Vec<u8>> {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::open(file)?;
    let available = file.metadata()?.len().saturating_sub(offset);
    // A file cut short gives what there is; the decoder then names what is missing.
    let mut buffer = vec![0; bytes.min(available) as usize];
    file.read_exact_at(&mut buffer, offset)?;
    Ok(buffer)
}
