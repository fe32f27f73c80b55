//! The 20 bytes before each payload, in both layouts, and how the layouts are told apart.
//! It must never touch a payload itself: the caller computes checksums.

use std::fmt;

use crate::error::{Error, HeaderFault, PayloadFault, Place};

/// Bytes of a chunk's header, in both layouts.
pub const HEADER_BYTES: usize = 20;

pub(crate) const MAGIC: u32 = 0x0102_0304;

/// The order of the header's fields, which no field names: it is told by which checksum holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Checksum, compressor, size, records: PaddlePaddle's Go library and EDL; what this crate writes.
    Go,
    /// Records, checksum, compressor, size: PaddlePaddle Fluid's C++ library.
    Fluid,
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Go => "go",
            Self::Fluid => "fluid",
        })
    }
}

/// How a payload is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compressor {
    /// As it is.
    #[default]
    None,
    /// Snappy's framed stream format.
    Snappy,
    /// Gzip, one or more members.
    Gzip,
}

impl Compressor {
    pub(crate) fn code(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Snappy => 1,
            Self::Gzip => 2,
        }
    }

    fn from_code(code: u32) -> Option<Self> {
        [Self::None, Self::Snappy, Self::Gzip].into_iter().find(|compressor| compressor.code() == code)
    }
}

impl fmt::Display for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Snappy => "snappy",
            Self::Gzip => "gzip",
        })
    }
}

/// One header, read but not yet proved by its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkEntry {
    /// Where the header begins in the file.
    pub offset: u64,
    /// Bytes of the payload as stored.
    pub compressed_bytes: u32,
    /// Records that the header claims.
    pub records: u32,
    /// CRC32-IEEE of the payload as stored.
    pub checksum: u32,
    /// How the payload is stored.
    pub compressor: Compressor,
}

impl ChunkEntry {
    /// Where the payload ends in the file, which is where the next header begins.
    pub fn end(&self) -> u64 {
        self.offset + HEADER_BYTES as u64 + u64::from(self.compressed_bytes)
    }
}

/// Reads a header whose layout is known.
pub(crate) fn parse(
    place: Place<'_>,
    layout: Layout,
    header: &[u8; HEADER_BYTES],
) -> Result<ChunkEntry, Error> {
    check_magic(place, header)?;
    let fields = fields(layout, header);
    fields
        .entry(place.offset)
        .ok_or_else(|| place.broken(HeaderFault::Compressor { code: fields.compressor }))
}

/// Reads a header whose layout is not known. `checksum_of(n)` is the checksum of the `n` payload bytes after it, or
/// why there are none. Candidates are tried by ascending size, Go first, so that a stream need not read ahead.
pub(crate) fn tell_layout(
    place: Place<'_>,
    header: &[u8; HEADER_BYTES],
    mut checksum_of: impl FnMut(u32) -> Result<u32, Error>,
) -> Result<(Layout, ChunkEntry), Error> {
    let mut fault = None;
    for (layout, entry) in candidates(place, header)? {
        let computed = checksum_of(entry.compressed_bytes)?;
        if computed == entry.checksum {
            return Ok((layout, entry));
        }
        fault.get_or_insert(PayloadFault::Checksum { stored: entry.checksum, computed });
    }
    Err(place.no_layout(fault))
}

/// What a header says in each layout, by ascending size of the payload, Go first.
pub(crate) fn candidates(
    place: Place<'_>,
    header: &[u8; HEADER_BYTES],
) -> Result<Vec<(Layout, ChunkEntry)>, Error> {
    check_magic(place, header)?;
    let mut candidates: Vec<(Layout, ChunkEntry)> = [Layout::Go, Layout::Fluid]
        .into_iter()
        .filter_map(|layout| Some((layout, fields(layout, header).entry(place.offset)?)))
        .collect();
    candidates.sort_by_key(|(_, entry)| entry.compressed_bytes);
    Ok(candidates)
}

/// Writes a Go header.
pub(crate) fn go_header(
    checksum: u32,
    compressor: Compressor,
    compressed_bytes: u32,
    records: u32,
) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    let words = [MAGIC, checksum, compressor.code(), compressed_bytes, records];
    for (bytes, word) in header.chunks_exact_mut(4).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    header
}

struct Fields {
    checksum: u32,
    compressor: u32,
    compressed_bytes: u32,
    records: u32,
}

impl Fields {
    fn entry(&self, offset: u64) -> Option<ChunkEntry> {
        let compressor = Compressor::from_code(self.compressor)?;
        let Self { checksum, compressed_bytes, records, .. } = *self;
        Some(ChunkEntry { offset, compressed_bytes, records, checksum, compressor })
    }
}

fn fields(layout: Layout, header: &[u8; HEADER_BYTES]) -> Fields {
    let [a, b, c, d] = [word(header, 1), word(header, 2), word(header, 3), word(header, 4)];
    match layout {
        Layout::Go => Fields { checksum: a, compressor: b, compressed_bytes: c, records: d },
        Layout::Fluid => Fields { records: a, checksum: b, compressor: c, compressed_bytes: d },
    }
}

fn check_magic(place: Place<'_>, header: &[u8; HEADER_BYTES]) -> Result<(), Error> {
    match word(header, 0) {
        MAGIC => Ok(()),
        found => Err(place.broken(HeaderFault::Magic { found })),
    }
}

fn word(header: &[u8; HEADER_BYTES], index: usize) -> u32 {
    let at = index * 4;
    u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}
