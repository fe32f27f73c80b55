//! From slices to records: chunks are read ahead, checked against the manifest, and kept while a trainer stays in them.

mod cache;
mod depth;
mod reader;
mod source;
#[cfg(test)]
mod tests;

pub use reader::{ReadTask, Reader};
pub(crate) use source::WatchedSource;
pub use source::{ChunkSource, Stored};

use crate::error::panic_words;
use shoal_job::numbered::is_numbered;
use shoal_recordio::{Chunk, Limits, decode_chunk};
use shoal_runtime::cluster::Slice;
use shoal_runtime::host::processors::Processors;
use shoal_runtime::host::storage::StorageError;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

/// Why records could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file is not there, or the system failed.
    #[error(
        "cannot read {file} at offset {offset}: {said}; the file must be reachable under this path by every trainer"
    )]
    Io {
        /// The file.
        file: String,
        /// The chunk's offset in it.
        offset: u64,
        /// What the system said.
        said: std::io::Error,
    },
    /// The object is not there, its store does not answer or says no; the message names it and says what to set.
    #[error("cannot read the chunk at offset {offset}: {why}")]
    Object {
        /// The chunk's offset in it.
        offset: u64,
        /// What went wrong.
        why: StorageError,
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
    /// The chunk has no file, and is made otherwise here than by the master.
    #[error(
        "{file}, chunk at offset {offset}: this trainer makes other records than the job pinned: build master and \
         program from the same version of Shoal"
    )]
    MadeOtherwise {
        /// The name that stands for the records.
        file: String,
        /// Where the chunk would be in their file.
        offset: u64,
    },
}

/// A chunk that could not be read.
#[derive(Debug)]
pub struct Unreadable {
    /// Which microbatch of its task needs it.
    pub at: usize,
    /// Its records' indexes in the data set.
    pub records: Range<u64>,
    /// Why.
    pub source: ReadError,
}

/// The records of one microbatch: where each lies.
#[derive(Clone, Debug)]
pub struct MicrobatchRecords {
    /// The microbatch's index in the pass.
    pub microbatch: u64,
    /// In order, each with its index in the data set.
    records: Vec<(u64, RecordBytes)>,
}

/// Where a record's bytes are.
#[derive(Clone, Debug)]
pub(crate) enum RecordBytes {
    /// In a chunk that is in use as long as this is there, by its number in it.
    Shared(Arc<InUse>, u32),
    Own(Arc<[u8]>),
}

/// A decoded chunk: in use as long as tasks have it, which is not told by the chunk's own count, for a program may keep records of
/// it.
#[derive(Debug)]
pub(crate) struct InUse(Arc<Chunk<'static>>);

/// A record that a program keeps beyond its step. It is shared, not copied: with it the program has the whole chunk that the record is
/// in, beside what the trainer keeps to read from.
#[derive(Clone, Debug)]
pub struct KeptRecord(Kept);

#[derive(Clone, Debug)]
enum Kept {
    Shared(Arc<Chunk<'static>>, u32),
    Own(Arc<[u8]>),
}

impl RecordBytes {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            RecordBytes::Shared(chunk, record) => chunk.0.record(*record as usize),
            RecordBytes::Own(bytes) => bytes,
        }
    }

    /// A share for the program.
    pub(crate) fn keep(&self) -> KeptRecord {
        KeptRecord(match self {
            RecordBytes::Shared(chunk, record) => Kept::Shared(chunk.0.clone(), *record),
            RecordBytes::Own(bytes) => Kept::Own(bytes.clone()),
        })
    }
}

impl From<&[u8]> for KeptRecord {
    fn from(bytes: &[u8]) -> KeptRecord {
        KeptRecord(Kept::Own(bytes.into()))
    }
}

impl std::ops::Deref for KeptRecord {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Kept::Shared(chunk, record) => chunk.record(*record as usize),
            Kept::Own(bytes) => bytes,
        }
    }
}

impl MicrobatchRecords {
    /// Index in the data set and bytes of each record, in order.
    #[cfg(feature = "internals")]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u64, &[u8])> {
        self.places().map(|(index, place)| (index, place.bytes()))
    }

    /// Index in the data set and place of each record, in order.
    pub(crate) fn places(&self) -> impl ExactSizeIterator<Item = (u64, &RecordBytes)> {
        self.records.iter().map(|(index, place)| (*index, place))
    }
}

/// Reads a chunk and decodes it. Gives the bytes that were stored, too.
async fn read_chunk(
    source: &dyn ChunkSource,
    slice: Slice,
    processors: &Processors,
) -> Result<(Chunk<'static>, u64), ReadError> {
    let bytes = source.read(&slice).await?;
    let stored = bytes.len() as u64;
    // What is packed may become any number of bytes.
    let becomes = if is_numbered(&slice.file) { bytes.len() } else { usize::MAX };
    let (file, offset) = (slice.file.clone(), slice.chunk_offset);
    // Of a chunk on which decoding panics the master hears as of any other that cannot be read.
    let decode = move || catch_unwind(AssertUnwindSafe(|| decoded(&slice, bytes)));
    let chunk = processors.over(becomes, decode).await.unwrap_or_else(|panic| {
        let why = format!("decoding it panicked: {}", panic_words(&*panic));
        Err(ReadError::Io { file, offset, said: std::io::Error::other(why) })
    });
    Ok((chunk?, stored))
}

/// The chunk as the job pinned it, or why it is not.
fn decoded(slice: &Slice, bytes: Vec<u8>) -> Result<Chunk<'static>, ReadError> {
    let file = Path::new(&slice.file);
    let chunk = decode_chunk(file, bytes, slice.chunk_offset, slice.chunk as usize, &Limits::default())?;
    if chunk.checksum() != slice.chunk_checksum || chunk.len() != slice.chunk_records as usize {
        return Err(changed(slice));
    }
    Ok(chunk)
}

/// A chunk that is not the one that the job pinned.
fn changed(slice: &Slice) -> ReadError {
    let (file, offset) = (slice.file.clone(), slice.chunk_offset);
    match is_numbered(&file) {
        true => ReadError::MadeOtherwise { file, offset },
        false => ReadError::Changed { file, offset },
    }
}
