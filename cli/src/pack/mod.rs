//! What `shoal recordio pack` makes records of: lines, CSV rows, IDX images, Parquet rows, TFRecords.
//! A source must never hold more than one record in memory (Parquet: a batch of rows), nor one larger than the readers'
//! limit.

mod content;
pub(super) mod csv;
#[cfg(feature = "parquet")]
#[cfg(test)]
mod fuzzed_tests;
mod gunzip;
pub(super) mod idx;
pub(super) mod lines;
#[cfg(feature = "parquet")]
pub(super) mod parquet;
pub(super) mod text;
pub(super) mod tfrecord;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

use anyhow::Context;
use content::Wanted;
use gunzip::Gunzip;
use shoal_recordio::Limits;

/// Where a source's records go.
pub(super) type Emit<'a> = &'a mut dyn FnMut(&[u8]) -> anyhow::Result<()>;

/// Opens a file that should hold what is `wanted`, decompressing it if it begins as gzip does: its first bytes, and all of it.
fn open(file: &Path, wanted: Wanted) -> anyhow::Result<(Vec<u8>, Box<dyn BufRead>)> {
    let unread = || format!("{}: cannot be read", file.display());
    let source = BufReader::with_capacity(BUFFER_BYTES, File::open(file).with_context(unread)?);
    let (sample, source) = sampled(source).with_context(unread)?;
    if !content::is_gzip(&sample) {
        content::check(&sample, file, wanted).with_context(|| file.display().to_string())?;
        return Ok((sample, Box::new(source)));
    }
    let plain = BufReader::with_capacity(BUFFER_BYTES, Gunzip::new(source));
    let (sample, plain) = sampled(plain).with_context(unread)?;
    content::check(&sample, file, wanted).with_context(|| file.display().to_string())?;
    Ok((sample, Box::new(plain)))
}

const BUFFER_BYTES: usize = 1 << 16;

/// The first bytes of a source, and the whole source.
fn sampled<R: BufRead>(mut source: R) -> io::Result<(Vec<u8>, impl BufRead + use<R>)> {
    let mut sample = Vec::new();
    source.by_ref().take(content::SAMPLE_BYTES as u64).read_to_end(&mut sample)?;
    Ok((sample.clone(), Cursor::new(sample).chain(source)))
}

/// The ceiling of one record, which the writer would refuse too, but only once it is in memory.
fn record_ceiling() -> u64 {
    Limits::default().max_record_bytes
}
