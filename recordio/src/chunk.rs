//! One chunk in memory: its payload, checked and decompressed, and where its records begin.
//! A chunk must never exist unless checksum, record lengths and record count all hold.

use std::borrow::Cow;
use std::path::Path;

use crate::compression::{Failure, decompress};
use crate::error::{Error, HeaderFault, PayloadFault, Place};
use crate::header::tell_layout;
use crate::{ChunkEntry, Compressor, HEADER_BYTES, Limits};

const LENGTH_BYTES: usize = 4;

/// The records of one chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    payload: Vec<u8>,
    /// Where each record's bytes begin in `payload`; it ends 4 bytes before the next one begins.
    starts: Vec<u32>,
    checksum: u32,
}

impl Chunk {
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
        let end = self.starts.get(index + 1).map_or(self.payload.len(), |&next| next as usize - LENGTH_BYTES);
        &self.payload[self.starts[index] as usize..end]
    }

    /// The records in the order in which they were written.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.record(index))
    }
}

/// Decodes one chunk that is already in memory: `bytes` is its header and payload and nothing else.
/// `file`, `offset` and `chunk` say where the bytes came from, for errors only. The layout is told by the checksum.
pub fn decode_chunk(
    file: &Path,
    bytes: &[u8],
    offset: u64,
    chunk: usize,
    limits: &Limits,
) -> Result<Chunk, Error> {
    let place = Place { file, offset, chunk };
    let Some((header, payload)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Err(place.truncated(HEADER_BYTES as u64, bytes.len() as u64));
    };
    let (_, entry) =
        tell_layout(place, header, |stored_bytes| checksum_of_prefix(place, payload, stored_bytes))?;
    if payload.len() as u64 > u64::from(entry.compressed_bytes) {
        let claimed_bytes = u64::from(entry.compressed_bytes);
        return Err(place.broken(HeaderFault::Surplus { claimed_bytes, found_bytes: payload.len() as u64 }));
    }
    decode_payload(place, &entry, Cow::Borrowed(payload), limits)
}

/// The checksum of the first `stored_bytes` of `rest`, which must hold that many.
pub(crate) fn checksum_of_prefix(place: Place<'_>, rest: &[u8], stored_bytes: u32) -> Result<u32, Error> {
    rest.get(..stored_bytes as usize)
        .map(crc32fast::hash)
        .ok_or_else(|| place.truncated(u64::from(stored_bytes), rest.len() as u64))
}

/// Decodes the payload that belongs to `entry`.
pub(crate) fn decode_payload(
    place: Place<'_>,
    entry: &ChunkEntry,
    stored: Cow<'_, [u8]>,
    limits: &Limits,
) -> Result<Chunk, Error> {
    if stored.len() as u64 > limits.chunk_ceiling() {
        return Err(place.too_large("the stored payload in bytes", limits.chunk_ceiling()));
    }
    let stored = match entry.compressor {
        // Copied before it is checked: what a mapped file holds may change between the two, a copy may not.
        Compressor::None => Cow::Owned(stored.into_owned()),
        Compressor::Snappy | Compressor::Gzip => stored,
    };
    let computed = crc32fast::hash(&stored);
    if computed != entry.checksum {
        return Err(place.corrupt(PayloadFault::Checksum { stored: entry.checksum, computed }));
    }
    let payload = match entry.compressor {
        Compressor::None => stored.into_owned(),
        compressor => plain_payload(place, compressor, &stored, limits)?,
    };
    let starts = record_starts(place, &payload, entry.records, limits)?;
    Ok(Chunk { payload, starts, checksum: computed })
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

/// Walks the lengths through the whole payload. Memory grows with the records found, not with those claimed.
fn record_starts(place: Place<'_>, payload: &[u8], claimed: u32, limits: &Limits) -> Result<Vec<u32>, Error> {
    let mut starts = Vec::new();
    let mut rest = payload;
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
        // Fits: a payload is never larger than `Limits::chunk_ceiling`.
        starts.push((payload.len() - after.len()) as u32);
        rest = next;
    }
    if starts.len() as u64 == u64::from(claimed) {
        Ok(starts)
    } else {
        Err(place.corrupt(PayloadFault::RecordCount { claimed, found: starts.len() }))
    }
}
