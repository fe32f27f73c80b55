//! The scan of a RecordIO file against `mmap` and one CRC32 over the same bytes, and the reading of its chunks one by one, as
//! trainers do, against reading as many bytes into one buffer and a CRC32: no reader that checks can do less.
//! All open the file anew in every round and use one thread; none may meet a disk, so the file is read once before.

use crate::measure::{Work, in_turn, seconds};
use crate::peers::Peers;
use crate::report::Row;
use crate::roofline::map::map;
use anyhow::ensure;
use shoal_recordio::{ChunkEntry, Index, Limits, Reader, Writer, WriterOptions, decode_chunk};
use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::Path;

const RECORDS: usize = 64 << 10;
const RECORD_BYTES: usize = 1 << 10;

pub(crate) fn rows(rounds: u32, mut peers: Vec<Peers>) -> anyhow::Result<Vec<Row>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("scan.recordio");
    write_file(&path)?;
    let bytes = std::fs::read(&path)?;
    let chunks = Index::of_bytes(&path, &bytes, &Limits::default())?.chunks;
    let gigabytes = bytes.len() as f64 / 1e9;
    let mut ours = || scan(&path);
    let mut limit = || {
        black_box(crc32fast::hash(&map(&path)?));
        Ok(())
    };
    let scans = in_turn(rounds, [&mut ours, &mut limit])?;
    let beside = beside(rounds, &mut ours, &mut peers, gigabytes)?;
    let mut ours = || read_chunks(&path, &chunks);
    let mut buffer = Vec::new();
    let mut limit = || {
        for entry in &chunks {
            buffer.resize((entry.end() - entry.offset) as usize, 0);
            File::open(&path)?.read_exact_at(&mut buffer, entry.offset)?;
            black_box(crc32fast::hash(&buffer));
        }
        Ok(())
    };
    let reads = in_turn(rounds, [&mut ours, &mut limit])?;
    let scan = Row::against_limit("recordio scan / mmap + crc32fast", "GB/s", gigabytes, &scans);
    let chunks = Row::against_limit("recordio chunks / pread + crc32fast", "GB/s", gigabytes, &reads);
    Ok([vec![scan, chunks], beside].concat())
}

/// A row beside each peer, which scans a file of the same records.
fn beside(rounds: u32, ours: Work<'_>, peers: &mut [Peers], gigabytes: f64) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for peers in peers {
        for (name, version) in peers.names().into_iter().zip(peers.versions()) {
            let mut pairs = Vec::new();
            for _ in 0..=rounds {
                pairs.push([seconds(ours)?, peers.took(&name, "scan", 1)?.seconds]);
            }
            let name = format!("recordio scan / {version}");
            rows.push(Row::against_limit(&name, "GB/s", gigabytes, &pairs[1..]));
        }
    }
    Ok(rows)
}

/// Every chunk into memory of its own, as a trainer reads it.
fn read_chunks(path: &Path, chunks: &[ChunkEntry]) -> anyhow::Result<()> {
    let mut records = 0;
    for (number, entry) in chunks.iter().enumerate() {
        let mut bytes = vec![0; (entry.end() - entry.offset) as usize];
        File::open(path)?.read_exact_at(&mut bytes, entry.offset)?;
        let chunk = decode_chunk(path, bytes, entry.offset, number, &Limits::default())?;
        for record in chunk.iter() {
            black_box(record);
        }
        records += chunk.len();
    }
    ensure!(records == RECORDS, "{records} records were read, {RECORDS} written");
    Ok(())
}

fn write_file(path: &Path) -> anyhow::Result<()> {
    let mut writer = Writer::new(File::create(path)?, WriterOptions::default());
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
        let chunk = reader.view(chunk)?;
        for record in chunk.iter() {
            black_box(record);
        }
        records += chunk.len();
    }
    ensure!(records == RECORDS, "{records} records were read, {RECORDS} written");
    Ok(())
}
