//! One chunk in memory: its payload, checked and decompressed, and where its records begin.
//! A chunk must never exist unless checksum, record lengths and record count all hold.

use std::borrow::Cow;
use std::path::Path;

use crate::compression::{Failure, decompress};
use crate::error::{Error, HeaderFault, PayloadFault, Place};
use crate::header::tell_layout;
use crate::{ChunkEntry, Compressor, HEADER_BYTES, Limits};

const LENGTH_BYTES: usize = 4;

/// The records of one chunk, in memory of its own or where they were found.
#[derive(Clone, Debug)]
pub struct Chunk<'b> {
    /// The payload, and what was before it.
    bytes: Cow<'b, [u8]>,
    /// Where each record's bytes begin; it ends 4 bytes before the next one begins.
    starts: Vec<u32>,
    checksum: u32,
}

impl Chunk<'_> {
    /// CRC32 of the payload as it was stored: what a manifest pins.
    pub fn checksum(&self) -> u32 {
        self.checksum
    }

    /// Records in the chunk.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether the chunk has no record at all.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Record `index`, from 0.
    ///
    /// # Panics
    /// If `index` is not below [`len`](Self::len), as a slice would.
    pub fn record(&self, index: usize) -> &[u8] {
        let end = self.starts.get(index + 1).map_or(self.bytes.len(), |&next| next as usize - LENGTH_BYTES);
        &self.bytes[self.starts[index] as usize..end]
    }

    /// Bytes that it takes of memory of its own: the payload, plain as it is, and 4 for each record.
    pub fn memory_bytes(&self) -> usize {
        let payload = match &self.bytes {
            Cow::Borrowed(_) => 0,
            Cow::Owned(bytes) => bytes.capacity(),
        };
        payload + self.starts.capacity() * size_of::<u32>()
    }

    /// The same in memory of its own.
    pub(crate) fn into_owned(self) -> Chunk<'static> {
        Chunk { bytes: Cow::Owned(self.bytes.into_owned()), starts: self.starts, checksum: self.checksum }
    }

    /// The records in the order in which they were written.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.record(index))
    }
}

/// The same records, and the same checksum of how they were stored.
impl PartialEq for Chunk<'_> {
    fn eq(&self, other: &Chunk<'_>) -> bool {
        self.checksum == other.checksum && self.iter().eq(other.iter())
    }
}

impl Eq for Chunk<'_> {}

/// Decodes one chunk that is already in memory: `bytes` is its header and payload and nothing else. Where they are not
/// compressed the records stay where they are, in `bytes`.
/// `file`, `offset` and `chunk` say where the bytes came from, for errors only. The layout is told by the checksum.
pub fn decode_chunk<'b>(
    file: &Path,
    bytes: impl Into<Cow<'b, [u8]>>,
    offset: u64,
    chunk: usize,
    limits: &Limits,
) -> Result<Chunk<'b>, Error> {
    let (place, bytes) = (Place { file, offset, chunk }, bytes.into());
    let Some((header, payload)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Err(place.truncated(HEADER_BYTES as u64, bytes.len() as u64));
    };
    let (_, entry) =
        tell_layout(place, header, |stored_bytes| checksum_of_prefix(place, payload, stored_bytes))?;
    if payload.len() as u64 > u64::from(entry.compressed_bytes) {
        let claimed_bytes = u64::from(entry.compressed_bytes);
        return Err(place.broken(HeaderFault::Surplus { claimed_bytes, found_bytes: payload.len() as u64 }));
    }
    check_ceiling(place, payload.len(), limits)?;
    decode(place, &entry, bytes, HEADER_BYTES, limits)
}

/// The checksum of the first `stored_bytes` of `rest`, which must hold that many.
pub(crate) fn checksum_of_prefix(place: Place<'_>, rest: &[u8], stored_bytes: u32) -> Result<u32, Error> {
    rest.get(..stored_bytes as usize)
        .map(crc32fast::hash)
        .ok_or_else(|| place.truncated(u64::from(stored_bytes), rest.len() as u64))
}

/// Checks and decodes the payload that belongs to `entry`.
pub(crate) fn decode_payload<'b>(
    place: Place<'_>,
    entry: &ChunkEntry,
    stored: Cow<'b, [u8]>,
    limits: &Limits,
) -> Result<Chunk<'b>, Error> {
    check_ceiling(place, stored.len(), limits)?;
    let computed = crc32fast::hash(&stored);
    if computed != entry.checksum {
        return Err(place.corrupt(PayloadFault::Checksum { stored: entry.checksum, computed }));
    }
    decode(place, entry, stored, 0, limits)
}

fn check_ceiling(place: Place<'_>, stored_bytes: usize, limits: &Limits) -> Result<(), Error> {
    if stored_bytes as u64 <= limits.chunk_ceiling() {
        return Ok(());
    }
    Err(place.too_large("the stored payload in bytes", limits.chunk_ceiling()))
}

/// Decodes the payload of `entry`, whose checksum holds: what is in `bytes` from `first` on.
fn decode<'b>(
    place: Place<'_>,
    entry: &ChunkEntry,
    bytes: Cow<'b, [u8]>,
    first: usize,
    limits: &Limits,
) -> Result<Chunk<'b>, Error> {
    let (bytes, first) = match entry.compressor {
        Compressor::None => (bytes, first),
        compressor => (Cow::Owned(plain_payload(place, compressor, &bytes[first..], limits)?), 0),
    };
    let starts = record_starts(place, &bytes, first, entry.records, limits)?;
    Ok(Chunk { bytes, starts, checksum: entry.checksum })
}

fn plain_payload(
    place: Place<'_>,
    compressor: Compressor,
    stored: &[u8],
    limits: &Limits,
) -> Result<Vec<u8>, Error> {
    decompress(compressor, stored, limits.chunk_ceiling()).map_err(|failure| match failure {
        Failure::TooLarge => place.too_large("the decompressed payload in bytes", limits.chunk_ceiling()),
        Failure::Undecodable(reason) => {
            place.corrupt(PayloadFault::Undecodable { compressor, reason: reason.to_string() })
        }
    })
}

/// Walks the lengths through the whole payload, which begins at `first`. Memory is that of as many records as are claimed and
/// find room in the payload.
fn record_starts(
    place: Place<'_>,
    bytes: &[u8],
    first: usize,
    claimed: u32,
    limits: &Limits,
) -> Result<Vec<u32>, Error> {
    let mut rest = &bytes[first..];
    let mut starts = Vec::with_capacity((claimed as usize).min(rest.len() / LENGTH_BYTES));
    while !rest.is_empty() {
        let past_end = |claimed_bytes: u64, left: &[u8]| {
            let left_bytes = left.len() as u64;
            place.corrupt(PayloadFault::RecordPastEnd { record: starts.len(), claimed_bytes, left_bytes })
        };
        let Some((length, after)) = rest.split_first_chunk::<LENGTH_BYTES>() else {
            return Err(past_end(LENGTH_BYTES as u64, rest));
        };
        let length = u32::from_le_bytes(*length);
        let Some(next) = after.get(length as usize..) else {
            return Err(past_end(u64::from(length), after));
        };
        if u64::from(length) > limits.max_record_bytes {
            return Err(place.too_large("a record in bytes", limits.max_record_bytes));
        }
        let start = u32::try_from(bytes.len() - after.len());
        starts.push(start.map_err(|_| place.too_large("the payload in bytes", limits.chunk_ceiling()))?);
        rest = next;
    }
    if starts.len() as u64 == u64::from(claimed) {
        Ok(starts)
    } else {
        Err(place.corrupt(PayloadFault::RecordCount { claimed, found: starts.len() }))
    }
}
