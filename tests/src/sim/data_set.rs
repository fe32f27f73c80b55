//! A small RecordIO data set in memory, or one without files, its manifest, and trainers' way of reading it.

use shoal_job::numbered::is_numbered;
use shoal_recordio::{Index, Limits, Writer, WriterOptions, numbered};
use shoal_runtime::cluster::permutation::key;
use shoal_runtime::cluster::{Manifest, Slice};
use shoal_trainer_sdk::chunks::{ChunkSource, ReadError, Stored};
use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

/// How a data set is made.
#[derive(Clone, Copy, Debug)]
pub struct DataSetShape {
    /// Makes the records' bytes.
    pub seed: u64,
    /// Records in all files.
    pub records: u64,
    /// Files, each with about as many records.
    pub files: u64,
    /// Payload bytes of a chunk.
    pub chunk_bytes: u64,
    /// Whether records are their own numbers, in place of all that: no file, and one chunk.
    pub is_numbered: bool,
}

/// Records, and the files that hold them.
#[derive(Debug)]
pub struct DataSet {
    records: Vec<Vec<u8>>,
    files: BTreeMap<String, Vec<u8>>,
    manifest: Manifest,
}

/// What reading a chunk takes.
const READING: Duration = Duration::from_millis(1);

impl DataSet {
    /// Writes the files, and beyond them one of so many records that are evaluated.
    pub fn new(shape: DataSetShape, evaluated: u64) -> DataSet {
        if shape.is_numbered {
            return DataSet::numbered([shape.records, evaluated]);
        }
        let all = shape.records + evaluated;
        let records: Vec<Vec<u8>> = (0..all).map(|index| record(shape.seed, index)).collect();
        let mut made = DataSet { records, files: BTreeMap::new(), manifest: Manifest::default() };
        let per_file = shape.records.div_ceil(shape.files.max(1)) as usize;
        for number in 0..shape.files as usize {
            let last = shape.records as usize;
            let range = (number * per_file).min(last)..((number + 1) * per_file).min(last);
            let bytes = written(&made.records[range], shape.chunk_bytes);
            made.add(format!("part-{number}.recordio"), bytes);
        }
        if evaluated > 0 {
            let bytes = written(&made.records[shape.records as usize..], shape.chunk_bytes / 2);
            made.add(String::from("evaluated.recordio"), bytes);
        }
        made
    }

    /// Records without files: those that are trained on, and those that are evaluated.
    fn numbered(parts: [u64; 2]) -> DataSet {
        let mut made = DataSet { records: Vec::new(), files: BTreeMap::new(), manifest: Manifest::default() };
        for records in parts.into_iter().filter(|records| *records > 0) {
            made.records.extend((0..records).map(|number| number.to_le_bytes().to_vec()));
            made.pin(format!("records:{records}"), &numbered::index(records));
        }
        made
    }

    /// The bytes of a record by its index in the data set.
    pub fn record(&self, index: u64) -> &[u8] {
        &self.records[index as usize]
    }
    /// What a master pins.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn add(&mut self, name: String, bytes: Vec<u8>) {
        let index = Index::of_bytes(Path::new(&name), &bytes, &Limits::default());
        let index = index.expect("the writer writes what the reader reads");
        self.pin(name.clone(), &index);
        self.files.insert(name, bytes);
    }

    fn pin(&mut self, name: String, index: &Index) {
        self.manifest.push_file(name, index.file_bytes);
        for chunk in &index.chunks {
            let length = (chunk.end() - chunk.offset) as u32;
            self.manifest.push_chunk(chunk.offset, length, chunk.records, chunk.checksum);
        }
    }
}

fn written(records: &[Vec<u8>], chunk_bytes: u64) -> Vec<u8> {
    let options = WriterOptions { chunk_bytes, ..WriterOptions::default() };
    let mut writer = Writer::new(Vec::new(), options);
    for record in records {
        writer.write(record).expect("a small record in memory");
    }
    writer.finish().expect("memory takes every byte")
}

/// 8 random bytes, and up to 12 more, so that chunks differ in their number of records.
fn record(seed: u64, index: u64) -> Vec<u8> {
    let bits = key(&[seed, index]);
    let mut bytes = bits.to_le_bytes().to_vec();
    bytes.resize(8 + (bits % 13) as usize, 0);
    bytes
}

impl ChunkSource for DataSet {
    fn read<'a>(
        &'a self,
        slice: &'a Slice,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, ReadError>> + Send + 'a>> {
        Box::pin(async move {
            tokio::time::sleep(READING).await;
            if is_numbered(&slice.file) {
                return Stored::default().read(slice).await;
            }
            let (from, bytes) = (slice.chunk_offset as usize, slice.chunk_bytes as usize);
            let stored = self.files.get(&slice.file).and_then(|file| file.get(from..from + bytes));
            stored.map(<[u8]>::to_vec).ok_or_else(|| ReadError::Io {
                file: slice.file.clone(),
                offset: slice.chunk_offset,
                said: std::io::ErrorKind::NotFound.into(),
            })
        })
    }
}
