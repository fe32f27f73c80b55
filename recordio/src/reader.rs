//! Random access to a finished file through a memory map.
//! It must never keep state between calls, so that threads can share one reader.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use crate::chunk::decode_payload;
use crate::error::{Error, Place};
use crate::map::Map;
use crate::{Chunk, ChunkEntry, Compressor, HEADER_BYTES, Index, Limits};

/// A mapped and indexed file. Threads share a `&Reader` to read chunks in parallel:
///
/// ```
/// # use shoal_recordio::{Reader, Writer, WriterOptions};
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("words.recordio");
/// # let mut writer = Writer::new(std::fs::File::create(&path)?, WriterOptions { chunk_bytes: 1, ..Default::default() });
/// # for word in ["one", "two", "three"] { writer.write(word.as_bytes())?; }
/// # writer.finish()?;
/// let reader = Reader::open(&path)?;
/// let bytes: usize = std::thread::scope(|scope| {
///     let workers: Vec<_> = (0..reader.index().chunks.len())
///         .map(|chunk| scope.spawn({ let reader = &reader; move || reader.chunk(chunk) }))
///         .collect();
///     workers.into_iter().map(|worker| worker.join().unwrap().unwrap().iter().map(<[u8]>::len).sum::<usize>()).sum()
/// });
/// assert_eq!(bytes, 11);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Reader {
    file: PathBuf,
    map: Map,
    index: Index,
    limits: Limits,
}

impl Reader {
    /// Maps and indexes `path` under the default [`Limits`]. Only headers and the first payload are read.
    ///
    /// The file must be finished: content that changes later is found by its checksum, but a file that
    /// is made shorter while it is mapped ends the process (SIGBUS). Publish files by renaming them into place.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_with(path, Limits::default())
    }

    /// [`open`](Self::open) under other limits.
    pub fn open_with(path: impl AsRef<Path>, limits: Limits) -> Result<Self, Error> {
        let file = path.as_ref().to_path_buf();
        let map = Map::open(&file).map_err(|source| Error::Io { file: file.clone(), source })?;
        let index = Index::of_bytes(&file, &map, &limits)?;
        Ok(Self { file, map, index, limits })
    }

    /// Where the chunks are.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Reads, checks and decompresses chunk `chunk`, from 0. It is a copy: whatever becomes of the file, the records are
    /// those that were checked.
    pub fn chunk(&self, chunk: usize) -> Result<Chunk<'static>, Error> {
        let (place, entry, stored) = self.stored(chunk)?;
        match entry.compressor {
            // Copied before it is checked: what a mapped file holds may change between the two, a copy may not.
            Compressor::None => decode_payload(place, entry, Cow::Owned(stored.to_vec()), &self.limits),
            // Here the decompressed payload is one.
            Compressor::Snappy | Compressor::Gzip => {
                decode_payload(place, entry, Cow::Borrowed(stored), &self.limits).map(Chunk::into_owned)
            }
        }
    }

    /// The same without a copy, where the chunk is not compressed: its records are in the mapped file, and as fast to be had
    /// as they can be checked. Of a file that is written to meanwhile they may be others than those that were checked.
    pub fn view(&self, chunk: usize) -> Result<Chunk<'_>, Error> {
        let (place, entry, stored) = self.stored(chunk)?;
        decode_payload(place, entry, Cow::Borrowed(stored), &self.limits)
    }

    fn stored(&self, chunk: usize) -> Result<(Place<'_>, &ChunkEntry, &[u8]), Error> {
        let chunks = &self.index.chunks;
        let Some(entry) = chunks.get(chunk) else {
            return Err(Error::NoSuchChunk { file: self.file.clone(), chunk, chunks: chunks.len() });
        };
        let place = Place { file: &self.file, offset: entry.offset, chunk };
        // In bounds: the index was made from this map, whose length is fixed, and holds no chunk past its end.
        let stored = &self.map[entry.offset as usize + HEADER_BYTES..entry.end() as usize];
        Ok((place, entry, stored))
    }
}
