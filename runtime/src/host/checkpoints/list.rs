//! Which checkpoints a place holds. It must never call one complete of which a file is absent.

use super::{first_absent, load_unrecorded};
use crate::cluster::checkpoint::{CheckpointId, ManifestRecord};
use crate::host::storage::{Remedy, Storage, StorageError};

/// One checkpoint's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which checkpoint.
    pub checkpoint: CheckpointId,
    /// Whether it is whole.
    pub completeness: Completeness,
}

/// Whether a checkpoint is whole, as far as a listing and the manifest tell; [`verify`](super::verify) reads the pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completeness {
    /// Its manifest is sound, and its files are there with their lengths.
    Complete(ManifestRecord),
    /// Never committed, half removed, half copied, or damaged: why.
    Incomplete(String),
}

/// All checkpoints of a place, oldest first. Folders of other names are not looked at.
pub async fn list(storage: &Storage) -> Result<Vec<Entry>, StorageError> {
    let folders = storage.folders().await?;
    let mut checkpoints: Vec<CheckpointId> =
        folders.iter().filter_map(|name| CheckpointId::of_folder(name)).collect();
    checkpoints.sort();
    let mut entries = Vec::with_capacity(checkpoints.len());
    for checkpoint in checkpoints {
        entries.push(Entry { checkpoint, completeness: completeness(storage, checkpoint).await? });
    }
    Ok(entries)
}

async fn completeness(storage: &Storage, checkpoint: CheckpointId) -> Result<Completeness, StorageError> {
    match load_unrecorded(storage, checkpoint).await {
        Ok((record, manifest)) => Ok(match first_absent(storage, &manifest).await? {
            None => Completeness::Complete(record),
            Some((file, None)) => Completeness::Incomplete(format!("{} is not there", file.name)),
            Some((file, Some(bytes))) => {
                Completeness::Incomplete(format!("{} has {bytes} of {} bytes", file.name, file.bytes))
            }
        }),
        Err(StorageError::Missing { .. }) => Ok(Completeness::Incomplete("it has no manifest".into())),
        Err(error) if error.remedy() == Remedy::GiveUp => Ok(Completeness::Incomplete(error.to_string())),
        Err(error) => Err(error),
    }
}
