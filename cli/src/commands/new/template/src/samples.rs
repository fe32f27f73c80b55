//! Records: how one is written and read, and made-up ones to begin with. It must never draw at random: the same files
//! come out on every machine.

use anyhow::Context;
use shoal_trainer_sdk::recordio::{Writer, WriterOptions};
use std::fs::File;
use std::ops::Range;
use std::path::Path;

/// Numbers that a point has.
pub const FEATURES: usize = 4;
/// A label's byte, then the features in little-endian order.
pub const RECORD_BYTES: usize = 1 + 4 * FEATURES;

const TRAIN_FILES: u64 = 4;
const FILE_RECORDS: u64 = 1000;
/// Far below a sensible chunk (1 MiB): so little data shall still be many chunks, for many trainers.
const CHUNK_BYTES: u64 = 4 << 10;

/// One training sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// 0 or 1.
    pub label: u8,
    /// -1 to 1 each.
    pub features: [f32; FEATURES],
}

impl Sample {
    /// The made-up sample of this number: its label follows from its features, but for some noise.
    pub fn made(number: u64) -> Sample {
        let features: [f32; FEATURES] =
            std::array::from_fn(|at| unit(number * 8 + at as u64) * 2.0 - 1.0);
        let noise = (unit(number * 8 + 7) - 0.5) * 0.4;
        let score = 1.5 * features[0] - 2.0 * features[1] + 0.5 * features[2] + 0.3 + noise;
        Sample {
            label: u8::from(score > 0.0),
            features,
        }
    }

    /// Its record.
    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut record = [self.label; RECORD_BYTES];
        for (bytes, feature) in record[1..].as_chunks_mut().0.iter_mut().zip(self.features) {
            *bytes = feature.to_le_bytes();
        }
        record
    }

    /// The sample in a record. Shoal adds file, chunk and record to what is said here.
    pub fn decode(record: &[u8]) -> anyhow::Result<Sample> {
        anyhow::ensure!(
            record.len() == RECORD_BYTES,
            "{} bytes, not {RECORD_BYTES}",
            record.len()
        );
        anyhow::ensure!(record[0] <= 1, "label {}, not 0 or 1", record[0]);
        let mut features = [0.0; FEATURES];
        for (feature, bytes) in features.iter_mut().zip(record[1..].as_chunks().0) {
            *feature = f32::from_le_bytes(*bytes);
        }
        Ok(Sample {
            label: record[0],
            features,
        })
    }
}

/// Writes the made-up samples: files to train on, and one held out. Returns how many records there are.
pub fn pack(folder: &Path) -> anyhow::Result<u64> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for file in 0..TRAIN_FILES {
        let numbers = file * FILE_RECORDS..(file + 1) * FILE_RECORDS;
        write(&folder.join(format!("train-{file}.recordio")), numbers)?;
    }
    let held_out = TRAIN_FILES * FILE_RECORDS..(TRAIN_FILES + 1) * FILE_RECORDS;
    write(&folder.join("test-0.recordio"), held_out)?;
    Ok((TRAIN_FILES + 1) * FILE_RECORDS)
}

fn write(path: &Path, numbers: Range<u64>) -> anyhow::Result<()> {
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    let mut writer = Writer::new(
        file,
        WriterOptions {
            chunk_bytes: CHUNK_BYTES,
            ..WriterOptions::default()
        },
    );
    for number in numbers {
        writer.write(&Sample::made(number).encode())?;
    }
    writer
        .finish()
        .with_context(|| format!("cannot finish {}", path.display()))?;
    Ok(())
}

/// A number from 0 to 1 that follows from `seed` alone (SplitMix64).
fn unit(seed: u64) -> f32 {
    let mut bits = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((bits ^ (bits >> 31)) >> 40) as f32 / (1 << 24) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_comes_back_as_it_was() {
        let sample = Sample::made(7);
        assert_eq!(Sample::decode(&sample.encode()).unwrap(), sample);
    }

    #[test]
    fn a_record_of_another_length_or_label_is_refused() {
        let mut record = Sample::made(7).encode();
        assert!(Sample::decode(&record[1..]).is_err());
        record[0] = 2;
        assert!(Sample::decode(&record).is_err());
    }
}
