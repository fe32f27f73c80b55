//! Reading the file that a job begins at, by ranges: pinning it once, then the pieces that somebody restores. It must
//! never answer values of another file than the one pinned, as far as header and length tell.

use super::storage::{Remedy, Storage, StorageError};
use crate::cluster::warm_start::WarmStart;
use crate::cluster::{Declaration, Parameter};
use crate::wire::pieces::Damage;
use crate::wire::tensors::{Header, PREFIX_BYTES, header_end};
use bytes::Bytes;
use sha2::{Digest, Sha256};

/// Bytes of rows that are read at a time, about.
const STRETCH_BYTES: u64 = 1 << 20;

/// Why a job cannot begin at a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WarmStartError {
    /// Storage did not answer, or said no.
    #[error("--warm-start: {0}")]
    Storage(StorageError),
    /// The file is another one than was pinned, damaged, or does not fit the declaration.
    #[error("--warm-start {at}: {what}")]
    Unfit {
        /// Place and file.
        at: String,
        /// What is wrong and the way out.
        what: String,
    },
}

/// A pinned file, found to be the one.
#[derive(Debug)]
pub struct WarmFile {
    storage: Storage,
    file: String,
    header: Header,
}

/// Pins a file as it is now.
///
/// # Errors
/// It is not there, cannot be read, or is no sound safetensors file.
pub async fn pin(place: &str, file: &str) -> Result<WarmStart, WarmStartError> {
    let storage = Storage::open_existing(place).await?;
    let (bytes, head) = read_head(&storage, file).await?;
    parse(&storage, file, &head, bytes)?;
    let header_sha256 = Sha256::digest(&head).into();
    Ok(WarmStart { place: place.to_owned(), file: file.to_owned(), bytes, header_sha256 })
}

impl From<StorageError> for WarmStartError {
    fn from(error: StorageError) -> WarmStartError {
        WarmStartError::Storage(error)
    }
}

impl WarmStartError {
    /// What the caller does next.
    pub fn remedy(&self) -> Remedy {
        match self {
            WarmStartError::Storage(error) => error.remedy(),
            WarmStartError::Unfit { .. } => Remedy::GiveUp,
        }
    }
}

impl WarmFile {
    /// Opens the file that `pin` means.
    ///
    /// # Errors
    /// It is not there, cannot be read, or is another one.
    pub async fn open(pin: &WarmStart) -> Result<WarmFile, WarmStartError> {
        let storage = Storage::open_existing(&pin.place).await?;
        let (bytes, head) = read_head(&storage, &pin.file).await?;
        if bytes != pin.bytes || <[u8; 32]>::from(Sha256::digest(&head)) != pin.header_sha256 {
            let what = "it is another file than the job began with: put that one back, or start a new job";
            return Err(unfit(&storage, &pin.file, what));
        }
        let header = parse(&storage, &pin.file, &head, bytes)?;
        Ok(WarmFile { storage, file: pin.file.clone(), header })
    }

    /// Whether a job with this declaration, which trains or not, can begin here.
    ///
    /// # Errors
    /// See [`Header::check`].
    pub fn check(&self, declaration: &Declaration, trains: bool) -> Result<(), WarmStartError> {
        self.header.check(declaration, trains).map_err(|what| unfit(&self.storage, &self.file, what))
    }

    /// Reads elements `first .. first + values.len()` of a parameter. Returns whether the file has it; if not, nothing is
    /// written.
    ///
    /// # Errors
    /// Another shape or kind, bytes that cannot be read, an infinity or not-a-number.
    pub async fn read(
        &self,
        parameter: &Parameter,
        first: u64,
        values: &mut [f32],
    ) -> Result<bool, WarmStartError> {
        let unfit = |what: String| unfit(&self.storage, &self.file, what);
        let Some(at) = self.header.values_of(parameter).map_err(unfit)? else { return Ok(false) };
        let bytes = self.storage.read_range(&self.file, at.range(first, values.len() as u64)).await?;
        at.decode(&bytes, values);
        if let Some(element) = values.iter().position(|value| !value.is_finite()) {
            let (name, value, element) = (&parameter.name, values[element], first + element as u64);
            return Err(unfit(format!(
                "parameter {name:?}: element {element} is {value}: begin at a sound model"
            )));
        }
        Ok(true)
    }

    /// Reads the rows of a table, in the order of their keys: `take` is given each key with its embedding. Returns whether the
    /// file has the table; if not, nothing is given.
    ///
    /// # Errors
    /// As [`read`](Self::read); keys that do not ascend.
    pub async fn read_rows(
        &self,
        table: &Parameter,
        mut take: impl FnMut(u64, &[f32]),
    ) -> Result<bool, WarmStartError> {
        let unfit = |what: String| unfit(&self.storage, &self.file, what);
        let Some(at) = self.header.rows_of(table).map_err(unfit)? else { return Ok(false) };
        let (name, dimension) = (&table.name, table.elements());
        let rows_at_once = (STRETCH_BYTES / (4 * dimension).max(1)).max(1);
        let mut before = None;
        for first in (0..at.rows).step_by(rows_at_once as usize) {
            let rows = rows_at_once.min(at.rows - first);
            let values = at.values.range(first * dimension, rows * dimension);
            let (keys, bytes) = tokio::try_join!(
                self.storage.read_range(&self.file, at.keys(first, rows)),
                self.storage.read_range(&self.file, values),
            )?;
            let mut values = vec![0.0; (rows * dimension) as usize];
            at.values.decode(&bytes, &mut values);
            let keys = keys.as_chunks().0.iter().map(|key| u64::from_le_bytes(*key));
            for (number, (key, row)) in (first..).zip(keys.zip(values.chunks(dimension as usize))) {
                if before.is_some_and(|before| before >= key) {
                    return Err(unfit(format!(
                        "table {name:?}: key {key} of row {number} does not follow the one before: sort rows by their keys"
                    )));
                }
                if let Some(value) = row.iter().find(|value| !value.is_finite()) {
                    return Err(unfit(format!(
                        "table {name:?}: the row of key {key} has {value}: begin at a sound model"
                    )));
                }
                before = Some(key);
                take(key, row);
            }
        }
        Ok(true)
    }
}

/// The file's length, and its bytes up to where the header ends.
async fn read_head(storage: &Storage, file: &str) -> Result<(u64, Bytes), WarmStartError> {
    let bytes = storage.bytes_of(file).await?;
    let prefix = storage.read_range(file, 0..PREFIX_BYTES.min(bytes)).await?;
    let end = header_end(&prefix, bytes).map_err(|damage| damaged(storage, file, &damage))?;
    Ok((bytes, storage.read_range(file, 0..end).await?))
}

fn parse(storage: &Storage, file: &str, head: &[u8], bytes: u64) -> Result<Header, WarmStartError> {
    Header::parse(head, bytes).map_err(|damage| damaged(storage, file, &damage))
}

fn damaged(storage: &Storage, file: &str, damage: &Damage) -> WarmStartError {
    unfit(storage, file, format!("{damage}; name a sound safetensors file"))
}

fn unfit(storage: &Storage, file: &str, what: impl Into<String>) -> WarmStartError {
    WarmStartError::Unfit { at: storage.at(file), what: what.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::initial::Initial;
    use crate::cluster::schedule::Schedule;
    use crate::cluster::{Rule, Table};
    use safetensors::tensor::{Dtype, TensorView, serialize};

    fn w() -> Parameter {
        Parameter::new("w", &[6], Rule::Sgd, Schedule::constant(0.1), Initial::Zeros)
    }

    /// A folder with a file `m` of `w`, and how messages name the folder.
    fn folder_with(values: &[f32]) -> (tempfile::TempDir, String) {
        let folder = tempfile::tempdir().unwrap();
        write(&folder, values);
        let place = folder.path().display().to_string();
        (folder, place)
    }
    fn write(folder: &tempfile::TempDir, values: &[f32]) {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let view = TensorView::new(Dtype::F32, vec![values.len()], &bytes).unwrap();
        std::fs::write(folder.path().join("m"), serialize([("w", view)], None).unwrap()).unwrap();
    }

    #[tokio::test]
    async fn pieces_of_a_pinned_file_are_read_by_their_ranges() {
        let (_folder, place) = folder_with(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        let file = WarmFile::open(&pin(&place, "m").await.unwrap()).await.unwrap();
        let mut values = [9.0; 3];
        assert_eq!(file.read(&w(), 2, &mut values).await, Ok(true));
        assert_eq!(values, [2.0, 3.0, 4.0]);
        let absent = Parameter { name: "v".into(), ..w() };
        assert_eq!((file.read(&absent, 2, &mut values).await, values), (Ok(false), [2.0, 3.0, 4.0]));
    }

    #[tokio::test]
    async fn a_file_of_another_header_or_length_is_not_taken_for_the_pinned_one() {
        let (folder, place) = folder_with(&[1.0; 6]);
        let pinned = pin(&place, "m").await.unwrap();
        let renamed = std::fs::read(folder.path().join("m")).unwrap();
        let at = renamed.iter().position(|byte| *byte == b'w').unwrap();
        for other in [[&renamed[..at], b"v", &renamed[at + 1..]].concat(), [&renamed[..], &[0]].concat()] {
            std::fs::write(folder.path().join("m"), other).unwrap();
            let error = WarmFile::open(&pinned).await.unwrap_err();
            assert!(
                error.to_string().contains("another file") && error.remedy() == Remedy::GiveUp,
                "{error}"
            );
        }
    }

    #[tokio::test]
    async fn a_file_that_is_not_there_or_no_model_is_named_and_nothing_is_made() {
        let (folder, place) = folder_with(&[1.0; 6]);
        let missing = pin(&place, "n").await.unwrap_err();
        assert!(missing.to_string().contains(&format!("{place}/n")), "{missing}");
        let elsewhere = format!("{place}/nowhere");
        assert_eq!(pin(&elsewhere, "m").await.unwrap_err().remedy(), Remedy::GiveUp);
        assert!(!folder.path().join("nowhere").exists());
        std::fs::write(folder.path().join("m"), "short").unwrap();
        let broken = pin(&place, "m").await.unwrap_err().to_string();
        assert!(broken.contains("/m: at offset") && broken.contains("sound safetensors file"), "{broken}");
    }

    #[tokio::test]
    async fn values_that_are_no_numbers_are_refused_by_parameter_and_element() {
        let (_folder, place) = folder_with(&[0.0, 1.0, 2.0, f32::NAN, 4.0, 5.0]);
        let file = WarmFile::open(&pin(&place, "m").await.unwrap()).await.unwrap();
        assert_eq!(file.read(&w(), 0, &mut [0.0; 3]).await, Ok(true));
        let error = file.read(&w(), 2, &mut [0.0; 3]).await.unwrap_err().to_string();
        assert!(error.contains("parameter \"w\": element 3 is NaN"), "{error}");
    }

    fn write_rows(folder: &tempfile::TempDir, keys: &[u64], values: &[f32]) {
        let keys_bytes: Vec<u8> = keys.iter().flat_map(|key| key.to_le_bytes()).collect();
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let views = [
            ("t.keys", TensorView::new(Dtype::U64, vec![keys.len()], &keys_bytes).unwrap()),
            ("t", TensorView::new(Dtype::F32, vec![keys.len(), values.len() / keys.len()], &bytes).unwrap()),
        ];
        std::fs::write(folder.path().join("m"), serialize(views, None).unwrap()).unwrap();
    }

    /// The rows of a table of so many numbers a row.
    async fn rows(place: &str, dimension: u64) -> Result<Vec<(u64, Vec<f32>)>, WarmStartError> {
        let t = Parameter { name: "t".into(), shape: vec![dimension], ..w() };
        let file = WarmFile::open(&pin(place, "m").await.unwrap()).await.unwrap();
        let mut rows = Vec::new();
        let take = |key: u64, row: &[f32]| rows.push((key, row.to_vec()));
        let is_there = file.read_rows(&t.as_table(Table::default()), take).await?;
        assert!(is_there || rows.is_empty());
        Ok(rows)
    }

    #[tokio::test]
    async fn rows_come_in_the_order_of_their_keys_however_many_stretches_they_are_read_in() {
        let (folder, place) = folder_with(&[0.0; 6]);
        assert_eq!(rows(&place, 2).await, Ok(vec![]), "the file has no such table");
        let keys = [0, 3, 7, u64::MAX];
        // Rows of 600,000 bytes: one at a time.
        let values: Vec<f32> = (0..600_000).map(|value| value as f32).collect();
        write_rows(&folder, &keys, &values);
        let found = rows(&place, 150_000).await.unwrap();
        assert_eq!(found.iter().map(|(key, _)| *key).collect::<Vec<_>>(), keys);
        assert!(found.iter().flat_map(|(_, row)| row).eq(&values));
    }

    #[tokio::test]
    async fn rows_out_of_order_and_values_that_are_no_numbers_are_refused_by_key() {
        let (folder, place) = folder_with(&[0.0; 6]);
        for (keys, last, what) in [
            ([1, 5, 4], 1.0, "key 4 of row 2 does not follow"),
            ([1, 5, 5], 1.0, "key 5 of row 2 does not follow"),
            ([1, 5, 6], f32::INFINITY, "the row of key 6 has inf"),
        ] {
            write_rows(&folder, &keys, &[1.0, 2.0, 3.0, 4.0, 5.0, last]);
            let error = rows(&place, 2).await.unwrap_err();
            assert!(error.to_string().contains(what) && error.remedy() == Remedy::GiveUp, "{error}");
        }
    }
}
