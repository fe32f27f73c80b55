//! Reading the file that a job begins at, by ranges: pinning it once, then the pieces that somebody restores. It must
//! never answer values of another file than the one pinned, as far as header and length tell.

use super::storage::{NextMove, Storage, StorageError};
use crate::cluster::warm_start::WarmStart;
use crate::cluster::{Declaration, Parameter};
use crate::wire::pieces::Damage;
use crate::wire::tensors::{Header, PREFIX_BYTES, header_end};
use bytes::Bytes;
use sha2::{Digest, Sha256};

/// Why a job cannot begin at a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WarmStartError {
    /// Storage did not answer, or said no.
    #[error("--warm-start: {0}")]
    Storage(#[from] StorageError),
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

impl WarmStartError {
    /// What the caller does next.
    pub fn next_move(&self) -> NextMove {
        match self {
            WarmStartError::Storage(error) => error.next_move(),
            WarmStartError::Unfit { .. } => NextMove::GiveUp,
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

    /// Whether a job with this declaration can begin here.
    ///
    /// # Errors
    /// See [`Header::check`].
    pub fn check(&self, declaration: &Declaration) -> Result<(), WarmStartError> {
        self.header.check(declaration).map_err(|what| unfit(&self.storage, &self.file, what))
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
    use crate::cluster::Rule;
    use crate::cluster::initial::Initial;
    use crate::cluster::schedule::Schedule;
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
                error.to_string().contains("another file") && error.next_move() == NextMove::GiveUp,
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
        assert_eq!(pin(&elsewhere, "m").await.unwrap_err().next_move(), NextMove::GiveUp);
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
}
