//! A swap whose outcome is known in the end. It must never take another's document for its own.

use super::{Revision, Store, StoreError};
use crate::host::backoff::Backoff;
use crate::host::random::Random;
use bytes::Bytes;
use std::time::Duration;
use tokio::time::Instant;

/// Swaps, and after a lost answer loads, compares and repeats, for at most about `patience`.
///
/// `document` must be one that nobody else would ever write: let it name its writer, not only a term that two
/// contenders may both have counted up to. An answer may be lost and its swap come into force later; so only the same
/// document is repeated, and a conflict with it is no conflict.
///
/// # Errors
/// `Conflict` means that another's document is there. After `Unavailable` the outcome is still unknown.
pub async fn settle(
    store: &dyn Store,
    expected: Option<Revision>,
    document: Bytes,
    patience: Duration,
    random: &mut Random,
) -> Result<Revision, StoreError> {
    let give_up = Instant::now() + patience;
    let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
    let mut is_in_doubt = false;
    loop {
        let outcome = match store.swap(expected, document.clone()).await {
            Err(StoreError::Conflict(why)) if is_in_doubt => match store.load().await {
                Ok(Some((revision, found))) if found == document && Some(revision) != expected => {
                    Ok(revision)
                }
                Ok(_) => Err(StoreError::Conflict(why)),
                Err(error) => Err(error),
            },
            outcome => outcome,
        };
        match outcome {
            Err(StoreError::Unavailable(why)) if Instant::now() < give_up => {
                tracing::warn!(why, "the outcome of a swap is unknown: asking again");
                is_in_doubt = true;
            }
            outcome => return outcome,
        }
        tokio::time::sleep(backoff.pause(random)).await;
    }
}
