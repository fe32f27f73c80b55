//! From slices to records: chunks are read once, checked against the manifest, and kept while a trainer stays in them.

mod source;
#[cfg(test)]
mod tests;

pub use source::{ChunkSource, Stored};

use shoal_recordio::{Chunk, Limits, decode_chunk};
use shoal_runtime::cluster::plan::ChunkOrder;
use shoal_runtime::cluster::{JobSettings, Microbatch, Pass, Slice};
use shoal_runtime::host::storage::StorageError;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Why records could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file is not there, or the system failed.
    #[error(
        "cannot read {file} at offset {offset}: {source}; the file must be reachable under this path by every trainer"
    )]
    Io {
        /// The file.
        file: String,
        /// The chunk's offset in it.
        offset: u64,
        /// What the system said.
        source: std::io::Error,
    },
    /// The object is not there, its store does not answer or says no; the message names it and says what to set.
    #[error("cannot read the chunk at offset {offset}: {source}")]
    Object {
        /// The chunk's offset in it.
        offset: u64,
        /// What went wrong.
        source: StorageError,
    },
    /// The chunk is damaged; the message names file, offset and chunk.
    #[error(transparent)]
    Damaged(#[from] shoal_recordio::Error),
    /// The chunk is whole, but not the one that the job pinned.
    #[error(
        "{file}, chunk at offset {offset}: the data set has changed since the job pinned it: start a new job"
    )]
    Changed {
        /// The file.
        file: String,
        /// The chunk's offset in it.
        offset: u64,
    },
}

/// A chunk that could not be read.
#[derive(Debug)]
pub struct Unreadable {
    /// Its records' indexes in the data set.
    pub records: Range<u64>,
    /// Why.
    pub source: ReadError,
}

/// Bytes of stored chunks that a trainer keeps in memory.
const CACHE_BYTES_MAX: u64 = 256 << 20;

/// The chunks read last.
pub struct ChunkCache {
    source: Arc<dyn ChunkSource>,
    chunks: BTreeMap<u32, Kept>,
    bytes: u64,
    clock: u64,
    /// Stored bytes read so far.
    pub bytes_read: u64,
}

struct Kept {
    chunk: Arc<Chunk<'static>>,
    bytes: u64,
    used: u64,
}

/// The records of one microbatch: where each lies.
#[derive(Clone, Debug)]
pub struct MicrobatchRecords {
    /// The microbatch's index in the pass.
    pub microbatch: u64,
    records: Vec<(Arc<Chunk<'static>>, u32, u64)>,
}

impl MicrobatchRecords {
    /// Index in the data set and bytes of each record, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u64, &[u8])> {
        self.records.iter().map(|(chunk, record, index)| (*index, chunk.record(*record as usize)))
    }
}

impl ChunkCache {
    /// An empty cache over `source`.
    pub fn new(source: Arc<dyn ChunkSource>) -> ChunkCache {
        ChunkCache { source, chunks: BTreeMap::new(), bytes: 0, clock: 0, bytes_read: 0 }
    }

    /// The records of a microbatch of `pass`, in its order. Chunks that `is_excluded`, by their
    /// records' indexes in the data set, are not read.
    pub async fn records(
        &mut self,
        settings: &JobSettings,
        pass: Pass,
        microbatch: &Microbatch,
        is_excluded: impl Fn(&Range<u64>) -> bool,
    ) -> Result<MicrobatchRecords, Unreadable> {
        let mut records = Vec::new();
        for slice in &microbatch.slices {
            let of_chunk =
                slice.chunk_first_record..slice.chunk_first_record + u64::from(slice.chunk_records);
            if is_excluded(&of_chunk) {
                continue;
            }
            let chunk = self.chunk(slice).await;
            let chunk = chunk.map_err(|source| Unreadable { records: of_chunk, source })?;
            let order = ChunkOrder::new(settings, pass, slice.chunk, slice.chunk_records);
            for position in slice.first_position..slice.first_position + slice.records {
                let record = order.record(position);
                records.push((chunk.clone(), record, slice.chunk_first_record + u64::from(record)));
            }
        }
        Ok(MicrobatchRecords { microbatch: microbatch.index, records })
    }

    async fn chunk(&mut self, slice: &Slice) -> Result<Arc<Chunk<'static>>, ReadError> {
        self.clock += 1;
        if let Some(kept) = self.chunks.get_mut(&slice.chunk) {
            kept.used = self.clock;
            return Ok(kept.chunk.clone());
        }
        let bytes = self.source.read(slice).await?;
        let stored_bytes = bytes.len() as u64;
        self.bytes_read += stored_bytes;
        let file = Path::new(&slice.file);
        let chunk = decode_chunk(file, bytes, slice.chunk_offset, slice.chunk as usize, &Limits::default())?;
        if chunk.checksum() != slice.chunk_checksum || chunk.len() != slice.chunk_records as usize {
            return Err(ReadError::Changed { file: slice.file.clone(), offset: slice.chunk_offset });
        }
        let chunk = Arc::new(chunk);
        let kept = Kept { chunk: chunk.clone(), bytes: stored_bytes, used: self.clock };
        self.bytes += kept.bytes;
        self.chunks.insert(slice.chunk, kept);
        self.evict();
        Ok(chunk)
    }

    fn evict(&mut self) {
        while self.bytes > CACHE_BYTES_MAX && self.chunks.len() > 1 {
            let Some(oldest) = self.chunks.iter().min_by_key(|(_, kept)| kept.used).map(|(id, _)| *id) else {
                return;
            };
            if let Some(kept) = self.chunks.remove(&oldest) {
                self.bytes -= kept.bytes;
            }
        }
    }
}

impl std::fmt::Debug for ChunkCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ChunkCache({} chunks, {} bytes)", self.chunks.len(), self.bytes)
    }
}
