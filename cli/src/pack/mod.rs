//! What `shoal recordio pack` makes records of: lines, CSV rows, IDX images, Parquet rows, TFRecords.
//! A source must never hold more than one record in memory (Parquet: a batch of rows), nor one larger than the readers'
//! limit.

mod content;
pub(crate) mod csv;
#[cfg(feature = "parquet")]
#[cfg(test)]
mod fuzzed_tests;
mod gunzip;
pub(crate) mod idx;
pub(crate) mod lines;
#[cfg(feature = "parquet")]
pub(crate) mod parquet;
pub(crate) mod text;
pub(crate) mod tfrecord;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

use anyhow::Context;
use content::Wanted;
use gunzip::Gunzip;
use shoal_recordio::Limits;

/// Where a source's records go.
pub(crate) type Emit<'a> = &'a mut dyn FnMut(&[u8]) -> anyhow::Result<()>;

/// Opens a file that should hold what is `wanted`, decompressing it if it begins as gzip does: its first bytes, and all of it.
fn open(file: &Path, wanted: Wanted) -> anyhow::Result<(Vec<u8>, Box<dyn BufRead>)> {
    let unread = || format!("{}: cannot be read", file.display());
    let source = BufReader::with_capacity(BUFFER_BYTES, File::open(file).with_context(unread)?);
    let (sample, source) = sampled(source).with_context(unread)?;
    if !content::is_gzip(&sample) {
        content::check(&sample, file.display(), wanted).with_context(|| file.display().to_string())?;
        return Ok((sample, Box::new(source)));
    }
    let plain = BufReader::with_capacity(BUFFER_BYTES, Gunzip::new(source));
    let (sample, plain) = sampled(plain).with_context(unread)?;
    let inside = format!("<(gzip -dc {})", file.display());
    content::check(&sample, inside, wanted).with_context(|| file.display().to_string())?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn opened(stored: &[u8]) -> Result<String, String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(stored).unwrap();
        let name = file.path().display().to_string();
        let read = open(file.path(), Wanted::Lines).and_then(|(sample, mut source)| {
            let mut text = String::new();
            source.read_to_string(&mut text)?;
            assert_eq!(sample, text.as_bytes()[..text.len().min(content::SAMPLE_BYTES)]);
            Ok(text)
        });
        read.map_err(|error| format!("{error:#}").replace(&name, "a"))
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn gzip_is_recognised_by_its_content_and_everything_else_is_read_as_it_is() {
        for text in ["", "plain", &"long ".repeat(999)] {
            assert_eq!(opened(text.as_bytes()).unwrap(), text);
            assert_eq!(opened(&gzip(text.as_bytes())).unwrap(), text);
        }
    }

    #[test]
    fn what_is_no_text_is_refused_inside_gzip_too() {
        let error = opened(&gzip(b"BZh91AY&SY")).unwrap_err();
        assert!(error.starts_with("a: is compressed or packed with bzip2"), "{error}");
        assert!(error.contains("bzip2 -dc <(gzip -dc a) | shoal recordio pack lines"), "{error}");
        assert!(opened(&gzip(&gzip(b"plain"))).unwrap_err().contains("gzip -dc <(gzip -dc a)"));
        let error = opened(&gzip(&b"plain ".repeat(999))[..30]).unwrap_err();
        assert!(error.contains("cut short"), "{error}");
    }
}
