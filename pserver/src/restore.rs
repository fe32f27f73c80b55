//! Restoring primaries that begin a new history, one block after another, letting others run in between: from their
//! initial values, or from a checkpoint. What cannot be read is tried again, and told to the master.

use crate::hosting::Hosted;
use crate::shard::Shard;
use shoal_runtime::cluster::{CheckpointManifest, ManifestRecord, Refusal, Term};
use shoal_runtime::host::backoff::Backoff;
use shoal_runtime::host::checkpoints::{load, read_piece};
use shoal_runtime::host::random::Random;
use shoal_runtime::host::storage::{Storage, StorageError};
use std::time::Duration;

/// Restores whatever an assignment wants restored, for ever. Returns only what no repetition can mend.
pub async fn restore(shard: &Shard, storage: &Storage, random: &mut Random) -> Refusal {
    let mut assigned = shard.assigned();
    let mut manifest: Option<(ManifestRecord, CheckpointManifest)> = None;
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
    loop {
        assigned.mark_unchanged();
        let unrestored = match shard.unrestored() {
            Ok(unrestored) => unrestored,
            Err(refusal) => return refusal,
        };
        let mut is_failed = false;
        for (hosted, term, origin) in unrestored {
            match restore_one(shard, storage, &hosted, term, origin, &mut manifest).await {
                Ok(Ok(())) => backoff.succeed(),
                Ok(Err(refusal)) => return refusal,
                Err(error) => {
                    tracing::error!(%error, "a block cannot be restored; trying again");
                    shard.note_trouble(error.to_string());
                    is_failed = true;
                    break;
                }
            }
            tokio::task::yield_now().await;
        }
        if is_failed {
            tokio::time::sleep(backoff.pause(random)).await;
        } else {
            // The sender lives as long as the shard.
            let _ = assigned.changed().await;
        }
    }
}

/// Restores one block. The outer error is the storage's.
async fn restore_one(
    shard: &Shard,
    storage: &Storage,
    hosted: &Hosted,
    term: Term,
    origin: Option<ManifestRecord>,
    known: &mut Option<(ManifestRecord, CheckpointManifest)>,
) -> Result<Result<(), Refusal>, StorageError> {
    let Some(record) = origin else {
        return Ok(shard.restore(hosted, |block| {
            block.restore_initial(term);
            Ok(())
        }));
    };
    if known.as_ref().is_none_or(|(known, _)| *known != record) {
        *known = Some((record, load(storage, &record).await?));
    }
    let Some((_, manifest)) = known else { return Ok(Ok(())) };
    let piece = read_piece(storage, manifest, hosted.shape.id).await?;
    Ok(shard.restore(hosted, |block| block.restore_from(term, &piece.try_into()?)))
}
