//! The 1,797 handwritten digits (8×8, 17 grey levels) as records of 65 bytes, and as recordio files on disk.
//! It must never shuffle or draw at random: the same rows in the same order on every machine, so that the held-out
//! digits never leak into training and a run can be repeated.
//!
//! Included by path from the example and from the demo of the `shoal` command, so it names no module of either:
//! `#[path = "…/examples/digits/data.rs"] #[allow(dead_code)] mod data;`. It needs the crates anyhow,
//! shoal-recordio, smartcore and thiserror, and for its tests tempfile.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::Context;
use shoal_recordio::{Writer, WriterOptions};

/// Pixels of one digit, row by row.
pub(crate) const DIGIT_PIXELS: usize = 64;
/// The darkest pixel; 0 is blank paper.
pub(crate) const DARKEST: u8 = 16;
/// Bytes of one record: a label, then the pixels.
pub(crate) const RECORD_BYTES: usize = 1 + DIGIT_PIXELS;
/// Digits to train on.
pub(crate) const TRAIN_ROWS: usize = 1_498;
/// Digits held out: every sixth row of the data set.
pub(crate) const TEST_ROWS: usize = 299;
/// Files over which the digits to train on are spread, in order, as evenly as they go.
pub(crate) const TRAIN_FILES: usize = 4;

/// Every sixth row is held out, and it is the last of its six.
const HELD_OUT_EVERY: usize = 6;
/// Far below a sensible chunk: a small data set shall still be many chunks, so that there are leases to lose.
const CHUNK_BYTES: u64 = 1 << 10;

/// Why bytes are not a digit, or the built-in data set is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DataError {
    /// A record of another length.
    #[error(
        "a digit is a record of {RECORD_BYTES} bytes (label, then {DIGIT_PIXELS} pixels), not of {bytes}"
    )]
    Length {
        /// Bytes found.
        bytes: usize,
    },
    /// A label that is no digit.
    #[error("a digit's label is 0 to 9, not {label}")]
    Label {
        /// The label found.
        label: u8,
    },
    /// A pixel darker than black.
    #[error("pixel {index} of a digit is {value}; the darkest is {DARKEST}")]
    Pixel {
        /// Which of the 64 pixels.
        index: usize,
        /// The value found.
        value: u8,
    },
    /// The data set inside smartcore has other rows than these constants say.
    #[error("smartcore's digits should be {expected} rows of {DIGIT_PIXELS} whole numbers; {found}")]
    Source {
        /// Rows expected.
        expected: usize,
        /// What was found instead.
        found: String,
    },
}

/// Digits in a fixed order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Digits {
    /// One label a row, 0 to 9.
    pub(crate) labels: Vec<u8>,
    /// 64 pixels a row, 0 to 16, row after row.
    pub(crate) pixels: Vec<u8>,
}

impl Digits {
    /// Rows.
    pub(crate) fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Every row as `(label, pixels)`, in order.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (u8, &[u8; DIGIT_PIXELS])> {
        self.labels.iter().copied().zip(self.pixels.as_chunks().0)
    }

    /// The pixels as the network takes them: 0 (blank) to 1 (black).
    pub(crate) fn unit_pixels(&self) -> Vec<f32> {
        self.pixels.iter().copied().map(unit).collect()
    }

    fn push(&mut self, label: u8, pixels: &[u8; DIGIT_PIXELS]) {
        self.labels.push(label);
        self.pixels.extend_from_slice(pixels);
    }
}

/// One pixel as the network takes it: 0 (blank) to 1 (black), exactly.
pub(crate) fn unit(pixel: u8) -> f32 {
    f32::from(pixel) / f32::from(DARKEST)
}

/// One digit as a record.
pub(crate) fn encode(label: u8, pixels: &[u8; DIGIT_PIXELS]) -> [u8; RECORD_BYTES] {
    let mut record = [0; RECORD_BYTES];
    record[0] = label;
    record[1..].copy_from_slice(pixels);
    record
}

/// The label (0 to 9) and the 64 pixels (0 to 16) of a record.
pub(crate) fn decode(record: &[u8]) -> Result<(u8, &[u8]), DataError> {
    let [label, pixels @ ..] = record else { return Err(DataError::Length { bytes: 0 }) };
    if pixels.len() != DIGIT_PIXELS {
        return Err(DataError::Length { bytes: record.len() });
    }
    if *label > 9 {
        return Err(DataError::Label { label: *label });
    }
    match pixels.iter().position(|pixel| *pixel > DARKEST) {
        Some(index) => Err(DataError::Pixel { index, value: pixels[index] }),
        None => Ok((*label, pixels)),
    }
}

/// All digits, in the order of the data set.
pub(crate) fn load() -> Result<Digits, DataError> {
    let source = smartcore::dataset::digits::load_dataset();
    let expected = TRAIN_ROWS + TEST_ROWS;
    let wrong = |found: String| DataError::Source { expected, found };
    if source.target.len() != expected || source.data.len() != expected * DIGIT_PIXELS {
        return Err(wrong(format!(
            "there are {} labels and {} pixels",
            source.target.len(),
            source.data.len()
        )));
    }
    let labels = whole_numbers(&source.target, 9).map_err(wrong)?;
    let pixels = whole_numbers(&source.data, DARKEST).map_err(wrong)?;
    Ok(Digits { labels, pixels })
}

/// The digits to train on (1,498) and those held out (299), both in the order of the data set.
pub(crate) fn split() -> Result<(Digits, Digits), DataError> {
    let (mut train, mut test) = (Digits::default(), Digits::default());
    for (row, (label, pixels)) in load()?.rows().enumerate() {
        let side = if row % HELD_OUT_EVERY == HELD_OUT_EVERY - 1 { &mut test } else { &mut train };
        side.push(label, pixels);
    }
    Ok((train, test))
}

/// Where [`pack`] put the digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Packed {
    /// `train-0.recordio` and so on, in order: together 1,498 records.
    pub(crate) train: Vec<PathBuf>,
    /// `test-0.recordio`: 299 records.
    pub(crate) test: PathBuf,
}

/// Writes four files of digits to train on and one of digits held out into a folder, which is made if it is missing.
/// Files of these names are overwritten.
pub(crate) fn pack(dir: &Path) -> anyhow::Result<Packed> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make the folder {}", dir.display()))?;
    let (train, test) = split()?;
    let records: Vec<_> = train.rows().collect();
    let mut paths = Vec::with_capacity(TRAIN_FILES);
    for file in 0..TRAIN_FILES {
        let share = share_of(records.len(), file);
        let path = dir.join(format!("train-{file}.recordio"));
        write_file(&path, records[share].iter().copied())?;
        paths.push(path);
    }
    let held_out = dir.join("test-0.recordio");
    write_file(&held_out, test.rows())?;
    Ok(Packed { train: paths, test: held_out })
}

/// Consecutive rows of one file; no two files differ by more than one row.
fn share_of(rows: usize, file: usize) -> std::ops::Range<usize> {
    rows * file / TRAIN_FILES..rows * (file + 1) / TRAIN_FILES
}

fn write_file<'a>(
    path: &Path,
    rows: impl Iterator<Item = (u8, &'a [u8; DIGIT_PIXELS])>,
) -> anyhow::Result<()> {
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    let options = WriterOptions { chunk_bytes: CHUNK_BYTES, ..WriterOptions::default() };
    let mut writer = Writer::new(file, options);
    for (label, pixels) in rows {
        writer
            .write(&encode(label, pixels))
            .with_context(|| format!("cannot write a record to {}", path.display()))?;
    }
    writer.finish().with_context(|| format!("cannot finish {}", path.display()))?;
    Ok(())
}

fn whole_numbers(values: &[f32], largest: u8) -> Result<Vec<u8>, String> {
    values.iter().map(|value| whole_number(*value, largest)).collect()
}

fn whole_number(value: f32, largest: u8) -> Result<u8, String> {
    if value >= 0.0 && value <= f32::from(largest) && value.fract() == 0.0 {
        // Exact: a whole number that fits a byte.
        Ok(value as u8)
    } else {
        Err(format!("one value is {value}, not one of 0 to {largest}"))
    }
}

#[cfg(test)]
mod tests {
    use shoal_recordio::Reader;

    use super::*;

    #[test]
    fn a_record_comes_back_as_it_was() {
        let mut pixels = [0; DIGIT_PIXELS];
        pixels[7] = DARKEST;
        let record = encode(9, &pixels);
        assert_eq!(decode(&record), Ok((9, &pixels[..])));
    }

    #[test]
    fn a_bad_record_is_named_not_trusted() {
        let good = encode(3, &[1; DIGIT_PIXELS]);
        assert_eq!(decode(&[]), Err(DataError::Length { bytes: 0 }));
        assert_eq!(decode(&good[..64]), Err(DataError::Length { bytes: 64 }));
        assert_eq!(decode(&[good.as_slice(), &[0]].concat()), Err(DataError::Length { bytes: 66 }));
        let mut bad = good;
        bad[0] = 10;
        assert_eq!(decode(&bad), Err(DataError::Label { label: 10 }));
        let mut bad = good;
        bad[64] = 17;
        assert_eq!(decode(&bad), Err(DataError::Pixel { index: 63, value: 17 }));
    }

    #[test]
    fn every_sixth_digit_is_held_out_and_all_classes_are_on_both_sides() {
        let (train, test) = split().unwrap();
        assert_eq!((train.len(), test.len()), (TRAIN_ROWS, TEST_ROWS));
        let all = load().unwrap();
        assert_eq!(test.rows().next(), all.rows().nth(5));
        assert_eq!(train.rows().nth(5), all.rows().nth(6));
        for digit in 0..=9 {
            assert!(train.labels.contains(&digit) && test.labels.contains(&digit));
        }
    }

    #[test]
    fn packed_files_hold_the_split_in_order_and_in_many_chunks() {
        let folder = tempfile::tempdir().unwrap();
        let packed = pack(&folder.path().join("made/on/demand")).unwrap();
        let (train, test) = split().unwrap();
        let mut read = Digits::default();
        for path in &packed.train {
            assert!(append_file(path, &mut read) >= 5, "{} has few chunks", path.display());
        }
        assert_eq!(read, train);
        let mut read = Digits::default();
        append_file(&packed.test, &mut read);
        assert_eq!(read, test);
    }

    /// Appends every record of a file and returns how many chunks it had.
    fn append_file(path: &Path, digits: &mut Digits) -> usize {
        let reader = Reader::open(path).unwrap();
        let chunks = reader.index().chunks.len();
        for index in 0..chunks {
            let chunk = reader.chunk(index).unwrap();
            for record in 0..chunk.len() {
                let (label, pixels) = decode(chunk.record(record)).unwrap();
                digits.push(label, pixels.try_into().unwrap());
            }
        }
        chunks
    }
}
