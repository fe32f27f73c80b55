//! Reading records: large ones tell what their bytes cost, small ones what each record does.

use super::{HotPath, Walk};
use anyhow::ensure;
use shoal_recordio::{Limits, Reader, Writer, WriterOptions, decode_chunk};
use std::fs::File;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Records of one file, and bytes of each: one chunk and a little.
const LARGE: (u32, usize) = (1 << 11, 1 << 10);
const SMALL: (u32, usize) = (1 << 16, 16);

pub(super) fn paths() -> Vec<HotPath> {
    let bytes = LARGE.0 * LARGE.1 as u32;
    vec![
        HotPath::new("recordio/scan/large", (bytes, "byte"), 4, || scan(LARGE)),
        HotPath::new("recordio/scan/small", (SMALL.0, "record"), 4, || scan(SMALL)),
        HotPath::new("recordio/decode/large", (bytes, "byte"), 4, || decode(LARGE)),
        HotPath::new("recordio/decode/small", (SMALL.0, "record"), 4, || decode(SMALL)),
    ]
}

/// Opens the file, reads every chunk and looks at every record.
fn scan((records, record_bytes): (u32, usize)) -> anyhow::Result<Walk> {
    let (folder, path) = file(records, record_bytes)?;
    Ok(Box::new(move || {
        let _kept = &folder;
        let reader = Reader::open(&path)?;
        let mut seen = 0;
        for chunk in 0..reader.index().chunks.len() {
            let chunk = reader.view(chunk)?;
            for record in chunk.iter() {
                black_box(record);
            }
            seen += chunk.len();
        }
        ensure!(seen == records as usize, "{seen} records were read, {records} written");
        Ok(())
    }))
}

/// Decodes every chunk where it lies in memory and looks at every record.
fn decode((records, record_bytes): (u32, usize)) -> anyhow::Result<Walk> {
    let (_folder, path) = file(records, record_bytes)?;
    let (chunks, bytes) = (Reader::open(&path)?.index().chunks.clone(), std::fs::read(&path)?);
    Ok(Box::new(move || {
        let mut seen = 0;
        for (number, entry) in chunks.iter().enumerate() {
            let bytes = &bytes[entry.offset as usize..entry.end() as usize];
            let chunk = decode_chunk(&path, bytes, entry.offset, number, &Limits::default())?;
            for record in chunk.iter() {
                black_box(record);
            }
            seen += chunk.len();
        }
        ensure!(seen == records as usize, "{seen} records were decoded, {records} written");
        Ok(())
    }))
}

fn file(records: u32, record_bytes: usize) -> anyhow::Result<(TempDir, PathBuf)> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("records");
    write(&path, records, record_bytes)?;
    Ok((folder, path))
}

fn write(path: &Path, records: u32, record_bytes: usize) -> anyhow::Result<()> {
    let mut writer = Writer::new(File::create(path)?, WriterOptions::default());
    for record in 0..records {
        writer.write(&vec![record as u8; record_bytes])?;
    }
    writer.finish()?;
    Ok(())
}
