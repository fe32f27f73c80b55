//! The scan of a RecordIO file against `mmap` and one CRC32 over the same bytes: no reader that checks can do less.
//! Both map the file anew in every round and use one thread; neither may meet a disk, so the file is read once before.

use crate::map::map;
use anyhow::ensure;
use shoal_benches::measure::in_turn;
use shoal_benches::report::Row;
use shoal_recordio::{Reader, Writer, WriterOptions};
use std::hint::black_box;
use std::path::Path;

const RECORDS: usize = 64 << 10;
const RECORD_BYTES: usize = 1 << 10;

pub(crate) fn row(rounds: u32) -> anyhow::Result<Row> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("scan.recordio");
    write_file(&path)?;
    let bytes = std::fs::read(&path)?.len();
    let mut ours = || scan(&path);
    let mut limit = || {
        black_box(crc32fast::hash(&map(&path)?));
        Ok(())
    };
    let measured = in_turn(rounds, [&mut ours, &mut limit])?;
    Ok(Row::against_limit("recordio scan, 1 KiB records", "GB/s", bytes as f64 / 1e9, &measured))
}

fn write_file(path: &Path) -> anyhow::Result<()> {
    let mut writer = Writer::new(std::fs::File::create(path)?, WriterOptions::default());
    let mut record = [0; RECORD_BYTES];
    for index in 0..RECORDS {
        for (at, byte) in record.iter_mut().enumerate() {
            *byte = (index * 31 + at * 7) as u8;
        }
        writer.write(&record)?;
    }
    writer.finish()?.sync_all()?;
    Ok(())
}

/// Opens the file, reads every chunk and looks at every record.
fn scan(path: &Path) -> anyhow::Result<()> {
    let reader = Reader::open(path)?;
    let mut records = 0;
    for chunk in 0..reader.index().chunks.len() {
        let chunk = reader.chunk(chunk)?;
        for record in chunk.iter() {
            black_box(record);
        }
        records += chunk.len();
    }
    ensure!(records == RECORDS, "{records} records were read, {RECORDS} written");
    Ok(())
}
