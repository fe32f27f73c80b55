//! What `shoal recordio pack` makes records of: lines, CSV rows, IDX images, Parquet rows, TFRecords.
//! A source must never hold more than one record in memory (Parquet: a batch of rows), nor one larger than the readers'
//! limit.

pub(super) mod csv;
#[cfg(feature = "parquet")]
#[cfg(test)]
mod fuzzed_tests;
pub(super) mod idx;
pub(super) mod lines;
#[cfg(feature = "parquet")]
pub(super) mod parquet;
pub(super) mod tfrecord;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use anyhow::Context;
use shoal_recordio::Limits;

/// Where a source's records go.
pub(super) type Emit<'a> = &'a mut dyn FnMut(&[u8]) -> anyhow::Result<()>;

/// Opens a file, decompressing it if it begins as gzip does.
fn open(file: &Path) -> anyhow::Result<Box<dyn BufRead>> {
    let source = File::open(file).with_context(|| format!("{}: cannot be read", file.display()))?;
    plain(source).with_context(|| format!("{}: cannot be read", file.display()))
}

fn plain(source: impl Read + 'static) -> io::Result<Box<dyn BufRead>> {
    let mut source = BufReader::with_capacity(1 << 16, source);
    // A file's first read gives three bytes unless it has fewer.
    if source.fill_buf()?.starts_with(&[0x1f, 0x8b, 8]) {
        return Ok(Box::new(BufReader::with_capacity(1 << 16, flate2::bufread::MultiGzDecoder::new(source))));
    }
    Ok(Box::new(source))
}

/// The ceiling of one record, which the writer would refuse too, but only once it is in memory.
fn record_ceiling() -> u64 {
    Limits::default().max_record_bytes
}

/// Appends one line with its ending to `line`, and no more than `ceiling` bytes. False where the source has ended.
fn read_line(source: &mut dyn BufRead, line: &mut Vec<u8>, ceiling: u64) -> io::Result<bool> {
    let read = source.take(ceiling).read_until(b'\n', line)?;
    Ok(read > 0)
}

/// A line without its `\n` or `\r\n`.
fn without_ending(line: &[u8]) -> &[u8] {
    let Some(line) = line.strip_suffix(b"\n") else { return line };
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_recognised_by_its_content_and_everything_else_is_read_as_it_is() {
        let mut gzip = flate2::read::GzEncoder::new(b"plain".as_slice(), flate2::Compression::fast());
        let mut stored = Vec::new();
        gzip.read_to_end(&mut stored).unwrap();
        for source in [stored, b"plain".to_vec()] {
            let mut read = String::new();
            plain(io::Cursor::new(source)).unwrap().read_to_string(&mut read).unwrap();
            assert_eq!(read, "plain");
        }
        assert!(plain(io::empty()).unwrap().fill_buf().unwrap().is_empty());
    }

    #[test]
    fn only_a_line_end_is_taken_off() {
        assert_eq!(without_ending(b"a\r\n"), b"a");
        assert_eq!(without_ending(b"a\n"), b"a");
        assert_eq!(without_ending(b"a\r"), b"a\r");
        assert_eq!(without_ending(b"\n"), b"");
    }
}
