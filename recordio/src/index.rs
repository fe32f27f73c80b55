//! Where the chunks of a file are, found by hopping from header to header.
//! It must never read a payload but the first, whose checksum tells the layout.

use std::path::Path;

use crate::chunk::checksum_of_prefix;
use crate::error::{Error, Place};
use crate::header::{parse, tell_layout};
use crate::{ChunkEntry, HEADER_BYTES, Layout, Limits};

/// The headers of one file. Everything but `file_bytes` and the first chunk's checksum is a claim until the chunk is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// The layout of all chunks; [`Layout::Go`] for an empty file.
    pub layout: Layout,
    /// The chunks in file order, without gaps.
    pub chunks: Vec<ChunkEntry>,
    /// Bytes of the file, which is where the last chunk ends.
    pub file_bytes: u64,
}

impl Index {
    /// Indexes a file that is in memory (or mapped); `file` is its name, for errors only.
    pub fn of_bytes(file: &Path, bytes: &[u8], limits: &Limits) -> Result<Self, Error> {
        if bytes.is_empty() {
            return Ok(Self { layout: Layout::Go, chunks: Vec::new(), file_bytes: 0 });
        }
        let layout = layout_of(file, bytes)?;
        let (chunks, fault) = hop(file, bytes, layout, limits);
        match fault {
            None => Ok(Self { layout, chunks, file_bytes: bytes.len() as u64 }),
            Some(fault) => Err(fault),
        }
    }

    /// Records in the file, by its headers.
    pub fn records(&self) -> u64 {
        self.chunks.iter().map(|chunk| u64::from(chunk.records)).sum()
    }

    /// The chunk that holds record `record` of the file, and which of the chunk's records it is; all from 0.
    pub fn locate(&self, record: u64) -> Option<(usize, usize)> {
        let mut left = record;
        for (chunk, entry) in self.chunks.iter().enumerate() {
            if left < u64::from(entry.records) {
                return Some((chunk, left as usize));
            }
            left -= u64::from(entry.records);
        }
        None
    }
}

/// The layout of a file that is not empty, told by its first chunk.
pub(crate) fn layout_of(file: &Path, bytes: &[u8]) -> Result<Layout, Error> {
    let place = Place { file, offset: 0, chunk: 0 };
    let header = header_at(place, bytes)?;
    let payload = &bytes[HEADER_BYTES..];
    let (layout, _) =
        tell_layout(place, header, |stored_bytes| checksum_of_prefix(place, payload, stored_bytes))?;
    Ok(layout)
}

/// The chunks that can be reached, and what stopped the hopping short of the file's end.
pub(crate) fn hop(
    file: &Path,
    bytes: &[u8],
    layout: Layout,
    limits: &Limits,
) -> (Vec<ChunkEntry>, Option<Error>) {
    let mut chunks = Vec::new();
    let mut offset = 0;
    while offset < bytes.len() as u64 {
        let place = Place { file, offset, chunk: chunks.len() };
        if chunks.len() == limits.max_chunks {
            return (chunks, Some(place.too_large("the number of chunks", limits.max_chunks as u64)));
        }
        match entry_at(place, bytes, layout) {
            Ok(entry) => {
                offset = entry.end();
                chunks.push(entry);
            }
            Err(fault) => return (chunks, Some(fault)),
        }
    }
    (chunks, None)
}

/// The header at `place`, whose payload must end within the file.
fn entry_at(place: Place<'_>, bytes: &[u8], layout: Layout) -> Result<ChunkEntry, Error> {
    let entry = parse(place, layout, header_at(place, bytes)?)?;
    if entry.end() > bytes.len() as u64 {
        let found_bytes = bytes.len() as u64 - place.offset - HEADER_BYTES as u64;
        return Err(place.truncated(u64::from(entry.compressed_bytes), found_bytes));
    }
    Ok(entry)
}

fn header_at<'b>(place: Place<'_>, bytes: &'b [u8]) -> Result<&'b [u8; HEADER_BYTES], Error> {
    let rest = &bytes[place.offset as usize..];
    rest.first_chunk().ok_or_else(|| place.truncated(HEADER_BYTES as u64, rest.len() as u64))
}
