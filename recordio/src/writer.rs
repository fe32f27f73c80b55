//! Writes records into chunks of the Go layout.
//! It must never write a chunk that this crate's readers would refuse under the same limits.

use std::io::Write;

use crate::compression::compress;
use crate::header::go_header;
use crate::{Compressor, Error, Limits};

const LENGTH_BYTES: u64 = 4;

/// How a [`Writer`] cuts and stores chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterOptions {
    /// How payloads are stored.
    pub compressor: Compressor,
    /// Payload bytes, before compression, that close a chunk: a record that would pass them begins the next chunk.
    /// A chunk holds at least one record, however large.
    pub chunk_bytes: u64,
    /// Records that close a chunk, if they are there before its bytes are.
    pub chunk_records: u32,
    /// The limits of those who will read the file.
    pub limits: Limits,
}

impl Default for WriterOptions {
    /// No compression and chunks of 1 MiB, of however many records.
    fn default() -> Self {
        Self {
            compressor: Compressor::None,
            chunk_bytes: 1 << 20,
            chunk_records: u32::MAX,
            limits: Limits::default(),
        }
    }
}

/// Writes records to `W`, one system call a chunk. The last chunk is written by [`finish`](Self::finish) alone:
/// a writer that is merely dropped loses it. After an error the output is incomplete and to be thrown away.
#[derive(Debug)]
#[must_use = "records are lost unless `finish` is called"]
pub struct Writer<W: Write> {
    output: W,
    options: WriterOptions,
    payload: Vec<u8>,
    records: u32,
}

impl<W: Write> Writer<W> {
    /// A writer of no records yet; nothing is written before the first chunk is full.
    pub fn new(output: W, options: WriterOptions) -> Self {
        Self { output, options, payload: Vec::new(), records: 0 }
    }

    /// Adds one record, which may be empty.
    pub fn write(&mut self, record: &[u8]) -> Result<(), Error> {
        let (bytes, limits) = (record.len() as u64, &self.options.limits);
        let ceiling = self.payload_ceiling();
        let limit = limits.max_record_bytes.min(ceiling.saturating_sub(LENGTH_BYTES));
        if bytes > limit {
            return Err(Error::RecordTooLarge { bytes, limit });
        }
        let grown = self.payload.len() as u64 + LENGTH_BYTES + bytes;
        let is_full =
            grown > self.options.chunk_bytes.min(ceiling) || self.records >= self.options.chunk_records;
        if self.records > 0 && is_full {
            self.write_chunk()?;
        }
        // Fits: the limit above is below 4 GiB.
        self.payload.extend_from_slice(&(record.len() as u32).to_le_bytes());
        self.payload.extend_from_slice(record);
        self.records += 1;
        Ok(())
    }

    /// Writes the last chunk, flushes, and hands back the output. No records make an empty file.
    pub fn finish(mut self) -> Result<W, Error> {
        if self.records > 0 {
            self.write_chunk()?;
        }
        self.output.flush()?;
        Ok(self.output)
    }

    /// Bytes that do not compress grow a little (snappy: below 1/6,000, gzip: below 1/2,000, and a few bytes), and the
    /// readers' limit holds for the stored form too.
    fn payload_ceiling(&self) -> u64 {
        let ceiling = self.options.limits.chunk_ceiling();
        match self.options.compressor {
            Compressor::None => ceiling,
            Compressor::Snappy | Compressor::Gzip => ceiling.saturating_sub(ceiling / 1_024 + 64),
        }
    }

    fn write_chunk(&mut self) -> Result<(), Error> {
        let compressor = self.options.compressor;
        let mut stored = Vec::new();
        compress(compressor, &self.payload, &mut stored)?;
        // Fits: the payload ceiling leaves room for the compressors' worst growth below 4 GiB.
        let header = go_header(crc32fast::hash(&stored), compressor, stored.len() as u32, self.records);
        self.output.write_all(&header)?;
        self.output.write_all(&stored)?;
        self.payload.clear();
        self.records = 0;
        Ok(())
    }
}
