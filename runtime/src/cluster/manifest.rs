//! The manifest: the ordered list of files and chunks that pins a data set.
//!
//! Columns rather than structs, 28 bytes a chunk, so that 10^8 chunks fit in memory. It must never be changed
//! after it is made: the plan, the leases and the job's identity are functions of it.

use sha2::{Digest, Sha256};
use shoal_job::numbered::is_numbered;
use std::ops::Range;

/// One file of the data set, or records without one, and the chunks it contributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestFile {
    /// Path as trainers open it; of records without a file what says how many they are.
    pub path: String,
    /// Index of its first chunk in the data set.
    pub first_chunk: u32,
    /// Length of the file in bytes; of records without one that of the file that they would make.
    pub bytes: u64,
}

/// One chunk, as [`Manifest::chunk`] gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManifestChunk<'a> {
    /// Path of the file that holds it.
    pub file: &'a str,
    /// Offset of its header in the file, in bytes.
    pub offset: u64,
    /// Header and payload, in bytes.
    pub bytes: u64,
    /// Number of records.
    pub records: u32,
    /// CRC32 of the payload as stored.
    pub checksum: u32,
    /// Index in the data set of its first record.
    pub first_record: u64,
}

/// The data set: files in order, chunks in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    files: Vec<ManifestFile>,
    offset: Vec<u64>,
    bytes: Vec<u32>,
    records: Vec<u32>,
    checksum: Vec<u32>,
    first_record: Vec<u64>,
    record_count: u64,
}

impl Manifest {
    /// Adds a file; the chunks that follow are its own.
    pub fn push_file(&mut self, path: String, bytes: u64) {
        self.files.push(ManifestFile { path, first_chunk: self.chunk_count(), bytes });
    }

    /// Adds a chunk to the last file: header offset, header and payload bytes, records, checksum.
    pub fn push_chunk(&mut self, offset: u64, bytes: u32, records: u32, checksum: u32) {
        assert!(!self.files.is_empty(), "a chunk before its file");
        self.offset.push(offset);
        self.bytes.push(bytes);
        self.records.push(records);
        self.checksum.push(checksum);
        self.first_record.push(self.record_count);
        self.record_count += u64::from(records);
    }

    /// Number of chunks.
    pub fn chunk_count(&self) -> u32 {
        self.offset.len() as u32
    }
    /// Number of chunks before the one that holds `record`; all of them for one beyond the last.
    pub fn chunks_before(&self, record: u64) -> u32 {
        self.first_record.partition_point(|first| *first < record) as u32
    }
    /// Number of records.
    pub fn record_count(&self) -> u64 {
        self.record_count
    }
    /// The files in order.
    pub fn files(&self) -> &[ManifestFile] {
        &self.files
    }
    /// Bytes of all chunks, headers included: what one reading of the data set costs.
    pub fn data_bytes(&self) -> u64 {
        self.bytes.iter().map(|bytes| u64::from(*bytes)).sum()
    }

    /// Files that begin with a record of `records`, and their bytes. Files without a record belong to the one after them; records
    /// without a file have none.
    pub fn files_of(&self, records: &Range<u64>) -> (u64, u64) {
        let first = |file: &ManifestFile| {
            self.first_record.get(file.first_chunk as usize).copied().unwrap_or(self.record_count)
        };
        let before = |record: u64| self.files.partition_point(|file| first(file) < record);
        let files = &self.files[before(records.start)..before(records.end)];
        let read = files.iter().filter(|file| !is_numbered(&file.path));
        read.fold((0, 0), |(files, bytes), file| (files + 1, bytes + file.bytes))
    }

    /// The chunk at `index < chunk_count`.
    pub fn chunk(&self, index: u32) -> ManifestChunk<'_> {
        let at = index as usize;
        let file = self.files.partition_point(|file| file.first_chunk <= index) - 1;
        ManifestChunk {
            file: &self.files[file].path,
            offset: self.offset[at],
            bytes: u64::from(self.bytes[at]),
            records: self.records[at],
            checksum: self.checksum[at],
            first_record: self.first_record[at],
        }
    }

    /// Where records lie, in words: file, chunk of that file and, if it is one, the record in it; without a file their numbers.
    pub fn describe(&self, records: &Range<u64>) -> String {
        let after = self.first_record.partition_point(|first| *first <= records.start);
        let Some(index) = after.checked_sub(1) else { return format!("records {records:?}") };
        let chunk = self.chunk(index as u32);
        let file = self.files.partition_point(|file| file.first_chunk as usize <= index) - 1;
        let first_chunk = self.files[file].first_chunk;
        if is_numbered(chunk.file) {
            let first = records.start - self.chunk(first_chunk).first_record;
            return match records.end - records.start {
                1 => format!("{}, record {first}", chunk.file),
                count => {
                    format!("{}, records {first} to {} ({count} records)", chunk.file, first + count - 1)
                }
            };
        }
        let in_file = index - first_chunk as usize;
        let place = format!("{}, chunk {in_file} at offset {}", chunk.file, chunk.offset);
        match records.end - records.start {
            1 => format!("{place}, record {} of {}", records.start - chunk.first_record, chunk.records),
            count => format!("{place} ({count} records)"),
        }
    }

    /// SHA-256 over the content of the data set: order, sizes, counts and checksums of all chunks. Paths are not
    /// part of it, so that a data set may be mounted elsewhere.
    pub fn fingerprint(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(b"shoal manifest 1");
        for file in &self.files {
            hash.update(file.first_chunk.to_le_bytes());
            hash.update(file.bytes.to_le_bytes());
        }
        for at in 0..self.offset.len() {
            hash.update(self.offset[at].to_le_bytes());
            hash.update(self.bytes[at].to_le_bytes());
            hash.update(self.records[at].to_le_bytes());
            hash.update(self.checksum[at].to_le_bytes());
        }
        hash.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_files(path: &str, checksum: u32) -> Manifest {
        let mut manifest = Manifest::default();
        manifest.push_file(path.to_owned(), 90);
        manifest.push_chunk(0, 40, 5, 1);
        manifest.push_chunk(40, 50, 7, 2);
        manifest.push_file("empty".to_owned(), 0);
        manifest.push_file("b".to_owned(), 30);
        manifest.push_chunk(0, 30, 1, checksum);
        manifest
    }

    #[test]
    fn a_chunk_knows_its_file_and_its_first_record() {
        let manifest = two_files("a", 3);
        assert_eq!((manifest.chunk_count(), manifest.record_count(), manifest.data_bytes()), (3, 13, 120));
        assert_eq!((manifest.chunk(1).file, manifest.chunk(1).first_record), ("a", 5));
        assert_eq!((manifest.chunk(2).file, manifest.chunk(2).first_record), ("b", 12));
    }

    #[test]
    fn records_are_described_by_file_chunk_of_it_and_record_of_that() {
        let manifest = two_files("a", 3);
        assert_eq!(manifest.describe(&(6..7)), "a, chunk 1 at offset 40, record 1 of 7");
        assert_eq!(manifest.describe(&(12..13)), "b, chunk 0 at offset 0, record 0 of 1");
        assert_eq!(manifest.describe(&(0..5)), "a, chunk 0 at offset 0 (5 records)");
    }

    #[test]
    fn records_without_a_file_are_described_by_their_numbers_and_counted_as_no_file() {
        let mut manifest = two_files("a", 3);
        manifest.push_file("records:9".to_owned(), 128);
        manifest.push_chunk(0, 80, 5, 1);
        manifest.push_chunk(80, 68, 4, 2);
        assert_eq!(manifest.describe(&(13..14)), "records:9, record 0");
        assert_eq!(manifest.describe(&(21..22)), "records:9, record 8");
        assert_eq!(manifest.describe(&(18..22)), "records:9, records 5 to 8 (4 records)");
        assert_eq!((manifest.files_of(&(13..22)), manifest.files_of(&(0..22))), ((0, 0), (3, 120)));
    }

    #[test]
    fn files_are_counted_by_the_records_that_they_begin_with() {
        let manifest = two_files("a", 3);
        assert_eq!(manifest.files_of(&(0..12)), (1, 90));
        assert_eq!(manifest.files_of(&(12..13)), (2, 30));
        assert_eq!(manifest.files_of(&(0..13)), (3, 120));
        assert_eq!(manifest.files_of(&(0..0)), (0, 0));
    }

    #[test]
    fn the_fingerprint_follows_content_and_not_paths() {
        assert_eq!(two_files("a", 3).fingerprint(), two_files("elsewhere", 3).fingerprint());
        assert_ne!(two_files("a", 3).fingerprint(), two_files("a", 4).fingerprint());
    }
}
