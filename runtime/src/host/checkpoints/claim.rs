//! Whose place it is: an object beside the checkpoints names the job that saves there. Checkpoints are numbered from one by every job, so
//! two that began in one empty place would write over one another.

use super::super::storage::{Storage, StorageError};

/// The object's name: no checkpoint's.
const CLAIM: &str = "job";
/// Whoever reads it takes no more than so much for a job's name.
const CLAIM_BYTES_MAX: u64 = 4096;

/// Makes a place a job's own. It may say so again.
///
/// # Errors
/// [`StorageError::Taken`]: it is another job's.
pub async fn claim(storage: &Storage, job: &str) -> Result<(), StorageError> {
    storage.put(CLAIM, format!("{job}\n").into()).await
}

/// Whose place it is, and which object says so, for people.
pub async fn claimant(storage: &Storage) -> String {
    let job = storage.read(CLAIM, CLAIM_BYTES_MAX).await;
    let job =
        job.map_or_else(|_| "another job".to_owned(), |job| String::from_utf8_lossy(&job).trim().to_owned());
    format!("{job}, as {} says", storage.at(CLAIM))
}

/// Gives a place back in which its job has saved nothing.
///
/// # Errors
/// It cannot be reached or written.
pub async fn release(storage: &Storage) -> Result<(), StorageError> {
    storage.delete(CLAIM).await
}
