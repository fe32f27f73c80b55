//! Numbered records: each is its own number, 8 bytes little-endian. The file that they would make, its index and its chunks, is made
//! from how many there are. It must never go over the bytes of more chunks than the one that is made.
//!
//! The file is the one that a [`Writer`](crate::Writer) with [`CHUNK_RECORDS`] records a chunk, no compression and the default
//! `chunk_bytes` writes. Whoever trains on it cannot tell which of the two he has.

use crate::header::go_header;
use crate::{ChunkEntry, Compressor, HEADER_BYTES, Index, Layout};

/// Records of each chunk but the last: a power of two, so that checksums follow from bits. A trainer makes such a chunk, 192 KiB,
/// in a tenth of a millisecond; 10^9 records have 61,036 of them.
pub const CHUNK_RECORDS: u32 = 1 << 14;

/// A record with its length before it.
const STORED_BYTES: u32 = 12;
const CHUNK_BYTES: u64 = HEADER_BYTES as u64 + CHUNK_RECORDS as u64 * STORED_BYTES as u64;

/// The index of the file of so many numbered records.
pub fn index(records: u64) -> Index {
    let checksums = Checksums::of(records);
    let chunk = |first: u64| {
        let records = (records - first).min(u64::from(CHUNK_RECORDS)) as u32;
        ChunkEntry {
            offset: first / u64::from(CHUNK_RECORDS) * CHUNK_BYTES,
            compressed_bytes: records * STORED_BYTES,
            records,
            checksum: checksums.chunk(first, records),
            compressor: Compressor::None,
        }
    };
    let chunks: Vec<ChunkEntry> = (0..records).step_by(CHUNK_RECORDS as usize).map(chunk).collect();
    let file_bytes = chunks.last().map_or(0, ChunkEntry::end);
    Index { layout: Layout::Go, chunks, file_bytes }
}

/// Header and payload of the chunk of `records` records that begins at `offset` in such a file, however long the file is. None where
/// no chunk begins, or none of so many records.
pub fn chunk(offset: u64, records: u32) -> Option<Vec<u8>> {
    if !offset.is_multiple_of(CHUNK_BYTES) || !(1..=CHUNK_RECORDS).contains(&records) {
        return None;
    }
    let payload = payload(offset / CHUNK_BYTES * u64::from(CHUNK_RECORDS), records);
    let header = go_header(crc32fast::hash(&payload), Compressor::None, payload.len() as u32, records);
    Some([&header[..], &payload].concat())
}

fn payload(first: u64, records: u32) -> Vec<u8> {
    let mut payload = vec![0; (records * STORED_BYTES) as usize];
    for (stored, number) in payload.chunks_exact_mut(STORED_BYTES as usize).zip(first..) {
        stored[..4].copy_from_slice(&(size_of::<u64>() as u32).to_le_bytes());
        stored[4..].copy_from_slice(&number.to_le_bytes());
    }
    payload
}

/// Checksums of whole chunks without their bytes. The numbers of such a chunk are its first one, a multiple of [`CHUNK_RECORDS`],
/// with the numbers below that in its lowest bits. So a chunk is the file's first chunk with a pattern xor-ed in for each bit
/// of its first number, and a CRC of as many bytes changes with each pattern by what does not depend on the others.
struct Checksums {
    /// Of the file's first chunk.
    first: u32,
    /// What each bit of a first number changes.
    by_bit: Vec<u32>,
}

impl Checksums {
    fn of(records: u64) -> Checksums {
        let of_first = |first| crc32fast::hash(&payload(first, CHUNK_RECORDS));
        let (bits, first) = (u64::BITS - records.leading_zeros(), of_first(0));
        let change = |bit| if bit < CHUNK_RECORDS.ilog2() { 0 } else { of_first(1_u64 << bit) ^ first };
        Checksums { first, by_bit: (0..bits).map(change).collect() }
    }

    fn chunk(&self, first: u64, records: u32) -> u32 {
        if records < CHUNK_RECORDS {
            return crc32fast::hash(&payload(first, records));
        }
        let changes = self.by_bit.iter().enumerate().filter(|(bit, _)| first >> bit & 1 == 1);
        changes.fold(self.first, |checksum, (_, change)| checksum ^ change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Writer, WriterOptions, decode_chunk};
    use std::path::Path;

    const WHOLE: u64 = CHUNK_RECORDS as u64;

    fn written(numbers: u64) -> Vec<u8> {
        let options = WriterOptions { chunk_records: CHUNK_RECORDS, ..WriterOptions::default() };
        let mut writer = Writer::new(Vec::new(), options);
        (0..numbers).for_each(|number| writer.write(&number.to_le_bytes()).unwrap());
        writer.finish().unwrap()
    }

    #[test]
    fn numbers_have_the_index_and_the_chunks_of_the_file_that_a_writer_makes_of_them() {
        for records in [0, 1, 2, 1000, WHOLE - 1, WHOLE, WHOLE + 1, 2 * WHOLE, 5 * WHOLE + 7, 33 * WHOLE] {
            let file = written(records);
            let of_file = Index::of_bytes(Path::new("f"), &file, &Limits::default()).unwrap();
            assert_eq!(index(records), of_file, "{records} records");
            let chunks: Vec<u8> =
                of_file.chunks.iter().flat_map(|entry| chunk(entry.offset, entry.records).unwrap()).collect();
            assert!(chunks == file, "{records} records");
        }
    }

    #[test]
    fn checksums_that_follow_from_bits_are_those_of_the_bytes_far_from_the_beginning() {
        let records = (1 << 28) + 3;
        let index = index(records);
        assert_eq!((index.records(), index.chunks.len()), (records, (1 << 14) + 1));
        for at in [0, 1, 2, 3, 1000, 8191, 12_345, (1 << 14) - 1, 1 << 14] {
            let entry = &index.chunks[at];
            let bytes = chunk(entry.offset, entry.records).unwrap();
            let limits = Limits::default();
            let decoded = decode_chunk(Path::new("f"), bytes, entry.offset, at, &limits).unwrap();
            assert_eq!(decoded.checksum(), entry.checksum, "chunk {at}");
            let last = decoded.record(decoded.len() - 1);
            assert_eq!(last, (at as u64 * WHOLE + u64::from(entry.records) - 1).to_le_bytes());
        }
    }

    #[test]
    fn no_chunk_is_made_where_none_begins_nor_one_of_other_sizes() {
        assert!(chunk(0, 1).is_some() && chunk(CHUNK_BYTES, CHUNK_RECORDS).is_some());
        for (offset, records) in [(0, 0), (0, CHUNK_RECORDS + 1), (0, u32::MAX), (1, 1), (CHUNK_BYTES - 1, 1)]
        {
            assert_eq!(chunk(offset, records), None, "{records} records at {offset}");
        }
    }
}
