//! The index of a file that is given piece by piece, as from a bucket: says which bytes it needs next, and reads nothing.
//! It must never differ from [`Index::of_bytes`](crate::Index::of_bytes), whatever the pieces.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::error::{Error, PayloadFault, Place};
use crate::header::{candidates, parse};
use crate::{ChunkEntry, HEADER_BYTES, Index, Layout, Limits};

/// An index in the making. Its memory is that of the index: no piece is kept.
///
/// ```
/// # use shoal_recordio::{Limits, Scan, Writer, WriterOptions};
/// # let mut writer = Writer::new(Vec::new(), WriterOptions::default());
/// # writer.write(b"one")?;
/// # let file = writer.finish()?;
/// let mut scan = Scan::new("bucket/words.recordio".as_ref(), file.len() as u64, Limits::default());
/// while let Some(needed) = scan.needs() {
///     // More than is needed is welcome: every header in it is read.
///     scan.give(&file[needed.start as usize..])?;
/// }
/// assert_eq!(scan.finish().records(), 1);
/// # Ok::<(), shoal_recordio::Error>(())
/// ```
#[derive(Debug)]
pub struct Scan {
    file: PathBuf,
    file_bytes: u64,
    limits: Limits,
    layout: Option<Layout>,
    telling: Option<Telling>,
    chunks: Vec<ChunkEntry>,
}

/// The first payload while its checksum is computed, which tells the layout.
#[derive(Debug)]
struct Telling {
    /// By ascending size, so that one pass over the payload does for all.
    candidates: VecDeque<(Layout, ChunkEntry)>,
    checksum: crc32fast::Hasher,
    /// Offset in the file of the byte after those that the checksum covers.
    to: u64,
    fault: Option<PayloadFault>,
}

impl Scan {
    /// Begins with a file of `file_bytes`; `file` is its name, for errors only.
    pub fn new(file: &Path, file_bytes: u64, limits: Limits) -> Self {
        let file = file.to_path_buf();
        Self { file, file_bytes, limits, layout: None, telling: None, chunks: Vec::new() }
    }

    /// The bytes without which it cannot go on; none once the index is whole.
    pub fn needs(&self) -> Option<Range<u64>> {
        if let Some(telling) = &self.telling {
            let (_, entry) = telling.candidates.front()?;
            return Some(telling.to..entry.end());
        }
        let offset = self.offset();
        (offset < self.file_bytes).then(|| offset..self.file_bytes.min(offset + HEADER_BYTES as u64))
    }

    /// The chunks found so far.
    pub fn chunks(&self) -> &[ChunkEntry] {
        &self.chunks
    }

    /// Takes the bytes from where [`needs`](Self::needs) begins on. Of a payload any number will do, of a header all that
    /// is needed; what follows is looked through for further headers.
    pub fn give(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let Some(Range { start, .. }) = self.needs() else { return Ok(()) };
        while let Some(needed) = self.needs() {
            let rest = bytes.get((needed.start - start) as usize..).unwrap_or_default();
            if self.telling.is_some() {
                if rest.is_empty() {
                    return Ok(());
                }
                self.tell(rest)?;
            } else {
                if (rest.len() as u64) < needed.end - needed.start {
                    return Ok(());
                }
                self.take_header(rest)?;
            }
        }
        Ok(())
    }

    /// The index, once nothing is needed any more.
    pub fn finish(self) -> Index {
        Index { layout: self.layout.unwrap_or(Layout::Go), chunks: self.chunks, file_bytes: self.file_bytes }
    }

    /// Where the next header begins.
    fn offset(&self) -> u64 {
        self.chunks.last().map_or(0, ChunkEntry::end)
    }

    fn place(&self) -> Place<'_> {
        Place { file: &self.file, offset: self.offset(), chunk: self.chunks.len() }
    }

    fn take_header(&mut self, rest: &[u8]) -> Result<(), Error> {
        let place = self.place();
        if self.chunks.len() == self.limits.max_chunks {
            return Err(place.too_large("the number of chunks", self.limits.max_chunks as u64));
        }
        let Some(header) = rest.first_chunk() else {
            return Err(place.truncated(HEADER_BYTES as u64, rest.len() as u64));
        };
        if let Some(layout) = self.layout {
            let entry = parse(place, layout, header)?;
            self.check_end(&entry)?;
            self.chunks.push(entry);
            return Ok(());
        }
        let (candidates, checksum) = (candidates(place, header)?.into(), crc32fast::Hasher::new());
        let to = self.offset() + HEADER_BYTES as u64;
        self.telling = Some(Telling { candidates, checksum, to, fault: None });
        self.tell(&[])
    }

    /// Computes on with the payload's next bytes, and judges every candidate whose end is reached.
    fn tell(&mut self, rest: &[u8]) -> Result<(), Error> {
        let Some(mut telling) = self.telling.take() else { return Ok(()) };
        let mut rest = rest;
        while let Some((layout, entry)) = telling.candidates.front() {
            self.check_end(entry)?;
            let (piece, after) = rest.split_at(rest.len().min((entry.end() - telling.to) as usize));
            telling.checksum.update(piece);
            telling.to += piece.len() as u64;
            rest = after;
            if telling.to < entry.end() {
                self.telling = Some(telling);
                return Ok(());
            }
            let computed = telling.checksum.clone().finalize();
            if computed == entry.checksum {
                self.layout = Some(*layout);
                self.chunks.push(entry.clone());
                return Ok(());
            }
            telling.fault.get_or_insert(PayloadFault::Checksum { stored: entry.checksum, computed });
            telling.candidates.pop_front();
        }
        Err(self.place().no_layout(telling.fault))
    }

    /// Makes sure that a chunk ends within the file.
    fn check_end(&self, entry: &ChunkEntry) -> Result<(), Error> {
        if entry.end() <= self.file_bytes {
            return Ok(());
        }
        let found_bytes = self.file_bytes - entry.offset - HEADER_BYTES as u64;
        Err(self.place().truncated(u64::from(entry.compressed_bytes), found_bytes))
    }
}
