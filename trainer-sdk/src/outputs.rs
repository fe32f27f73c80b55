//! What a program predicts, written part by part: one RecordIO file for each microbatch, named by its place in the order of
//! records, before the microbatch counts as done.
//!
//! A part has the same name and the same content whoever computes it and however often, so that each is there once in the
//! end; other content under its name is a fault, never overwritten.

use crate::error::TrainError;
use bytes::Bytes;
use shoal_recordio::{Writer, WriterOptions};
use shoal_runtime::cluster::{JobSettings, Microbatch};
use shoal_runtime::host::storage::{Storage, StorageError};
use std::time::Duration;
use tokio::time::Instant;

/// Between two attempts to write a part.
const PAUSE: Duration = Duration::from_millis(500);

/// Where outputs go.
#[derive(Debug)]
pub(crate) struct Outputs {
    storage: Storage,
    patience: Duration,
}

impl Outputs {
    /// Those of a job that predicts. A storage that fails is tried again for `patience`.
    pub(crate) async fn open(job: &JobSettings, patience: Duration) -> Result<Option<Outputs>, TrainError> {
        let place = job.evaluated.as_ref().and_then(|evaluated| evaluated.outputs.as_deref());
        let Some(place) = place else { return Ok(None) };
        let storage = Storage::open(place).await;
        let storage = storage.map_err(|error| TrainError::Settings(format!("--predict: {error}")))?;
        Ok(Some(Outputs { storage, patience }))
    }

    /// Writes a part; durable when it returns. `may_differ`: whether records were excluded since it may have been written.
    pub(crate) async fn write(&self, part: u64, content: Bytes, may_differ: bool) -> Result<(), TrainError> {
        let name = name(part);
        let since = Instant::now();
        loop {
            let put = self.storage.put(&name, content.clone()).await;
            let failed = match put {
                Ok(()) => return Ok(()),
                Err(StorageError::Taken { .. }) if may_differ => self.storage.delete(&name).await.err(),
                Err(taken @ StorageError::Taken { .. }) => {
                    let way_out = "it is of another job or model (give an empty place), or `predict` is no function \
                                   of its arguments alone";
                    return Err(TrainError::Settings(format!("--predict: {taken}; {way_out}")));
                }
                Err(error) => Some(error),
            };
            if let Some(error) = failed {
                if since.elapsed() >= self.patience {
                    return Err(TrainError::Settings(format!("--predict: {error}")));
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// The name of a part: those of a job are in the order of its records.
fn name(part: u64) -> String {
    format!("part-{part:010}.recordio")
}

/// One output for each record of a microbatch, in its order: an empty one for a record that was left out.
pub(crate) fn encode(
    microbatch: &Microbatch,
    predicted: &[u64],
    outputs: &[Vec<u8>],
) -> Result<Bytes, shoal_recordio::Error> {
    let mut left = predicted.iter().zip(outputs).peekable();
    let mut writer = Writer::new(Vec::new(), WriterOptions::default());
    for slice in &microbatch.slices {
        let first = slice.chunk_first_record + u64::from(slice.first_position);
        for record in first..first + u64::from(slice.records) {
            let output = left.next_if(|(predicted, _)| **predicted == record);
            writer.write(output.map_or(&[][..], |(_, output)| output))?;
        }
    }
    writer.finish().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_recordio::{Limits, decode_chunk};
    use shoal_runtime::cluster::Slice;
    use std::path::Path;

    fn slice(first_record: u64, first_position: u32, records: u32) -> Slice {
        Slice {
            chunk: 0,
            file: String::from("f"),
            chunk_offset: 0,
            chunk_bytes: 0,
            chunk_records: 9,
            chunk_checksum: 0,
            chunk_first_record: first_record,
            first_position,
            records,
        }
    }

    #[test]
    fn a_part_has_one_output_for_each_record_and_an_empty_one_for_what_was_left_out() {
        let microbatch = Microbatch { index: 3, slices: vec![slice(10, 7, 2), slice(19, 0, 3)] };
        let outputs = [b"a".to_vec(), b"b".to_vec(), b"".to_vec(), b"d".to_vec()];
        let part = encode(&microbatch, &[17, 18, 20, 21], &outputs).unwrap();
        let chunk = decode_chunk(Path::new("part"), &part[..], 0, 0, &Limits::default()).unwrap();
        let records: Vec<&[u8]> = (0..chunk.len()).map(|at| chunk.record(at)).collect();
        assert_eq!(records, [&b"a"[..], b"b", b"", b"", b"d"]);
    }

    #[test]
    fn parts_are_in_the_order_of_their_names() {
        let names: Vec<String> = [0, 9, 10, 100, 1_000_000_000].map(name).to_vec();
        assert!(names.is_sorted());
    }

    #[tokio::test]
    async fn a_part_is_written_once_however_often_it_comes_and_another_in_its_place_is_a_fault() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::open(folder.path().to_str().unwrap()).await.unwrap();
        let outputs = Outputs { storage: storage.clone(), patience: Duration::ZERO };
        for _ in 0..2 {
            outputs.write(4, Bytes::from_static(b"same"), false).await.unwrap();
        }
        let other = outputs.write(4, Bytes::from_static(b"other"), false).await.unwrap_err();
        assert!(other.to_string().contains("empty place"), "{other}");
        assert_eq!(&storage.read(&name(4), 100).await.unwrap()[..], b"same");
        outputs.write(4, Bytes::from_static(b"other"), true).await.unwrap();
        assert_eq!(&storage.read(&name(4), 100).await.unwrap()[..], b"other");
    }
}
