//! Whose place it is: an object beside the checkpoints names the job that saves there. Checkpoints are numbered from one by every job, so
//! two that began in one empty place would write over one another, whatever they are called.

use super::super::storage::{Storage, StorageError};

/// The object's name: no checkpoint's.
const CLAIM: &str = "job";
/// The most bytes that are read of a claim: a job's name and identity.
const CLAIM_BYTES_MAX: u64 = 4096;

/// Makes a place the own of a job: by its identity, which no other job has, with its name before it for people. `None` is the identity of a
/// job that began under a build that knew names alone. It may say so again.
///
/// # Errors
/// [`StorageError::Taken`]: it is another job's.
pub async fn claim(storage: &Storage, job: &str, identity: Option<&str>) -> Result<(), StorageError> {
    let content = match identity {
        Some(identity) => format!("{job}\n{identity}\n"),
        None => format!("{job}\n"),
    };
    storage.put(CLAIM, content.into()).await
}

/// Whose place it is, and which object says so, for people.
pub async fn claimant(storage: &Storage) -> String {
    let claim = storage.read(CLAIM, CLAIM_BYTES_MAX).await;
    let claim = claim.map(|claim| String::from_utf8_lossy(&claim).into_owned()).unwrap_or_default();
    let whose = match claim.split_once('\n').map(|(job, identity)| (job, identity.trim())) {
        None => "another job".to_owned(),
        Some((job, "")) => job.to_owned(),
        Some((job, identity)) => format!("{job} (identity {identity})"),
    };
    format!("{whose}, as {} says", storage.at(CLAIM))
}

/// Gives a place back in which its job has saved nothing.
///
/// # Errors
/// It cannot be reached or written.
pub async fn release(storage: &Storage) -> Result<(), StorageError> {
    storage.delete(CLAIM).await
}
