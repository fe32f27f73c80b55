//! What a master does where checkpoints lie: manifests written, files removed. Each waits for storage by itself, and no decision may
//! ever wait for either: a place that hangs is often a sign that copies have to be promoted.

use super::{Keeper, look};
use crate::decide::unneeded;
use crate::document::Document;
use crate::service::MasterService;
use shoal_runtime::cluster::CheckpointId;
use shoal_runtime::host::backoff::Backoff;
use shoal_runtime::host::checkpoints;
use shoal_runtime::host::random::Random;
use shoal_runtime::host::storage::{Remedy, StorageError};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

/// Pauses between attempts to write a manifest: training may wait for it, and the storage's own client has tried for minutes.
const COMMIT_PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(10)];
/// Pauses between attempts to remove files: nobody waits for these.
const REMOVAL_PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

impl Keeper<'_> {
    /// Writes the manifest of each checkpoint whose pieces are all there. How it ended, the machine hears.
    pub(super) async fn commit(&self, service: &MasterService, random: &mut Random) -> Infallible {
        let [first, cap] = COMMIT_PAUSES;
        let mut backoff = Backoff::new(first, cap);
        loop {
            let changed = service.changed().notified();
            let Some(manifest) = service.with(|machine, _| machine.checkpoint_to_commit()).flatten() else {
                let _ = tokio::time::timeout(look(service), changed).await;
                continue;
            };
            let checkpoint = manifest.checkpoint;
            let committed = checkpoints::commit(self.storage, &manifest);
            match self.answered("writing a manifest", committed).await {
                Ok(record) => {
                    backoff.succeed();
                    service.with(|machine, now| machine.committed(record, &manifest, now));
                }
                // Another master got so far and no further, say: it is never tried again under this number.
                Err(error) if error.remedy() == Remedy::GiveUp => {
                    tracing::error!(%checkpoint, %error, "a checkpoint is given up; another is made");
                    service.with(|machine, _| machine.cannot_be_committed(checkpoint));
                }
                Err(error) => {
                    tracing::error!(%checkpoint, %error, "a manifest cannot be written; trying again");
                    tokio::time::sleep(backoff.pause(random)).await;
                    service.with(|machine, _| machine.not_committed(checkpoint));
                }
            }
            service.changed().notify_waiters();
        }
    }

    /// Removes the files of checkpoints that the document needs no more, each again until it succeeds: first what masters before
    /// have left, which only a listing tells.
    pub(super) async fn remove(
        &self,
        service: &MasterService,
        elected: &Document,
        random: &mut Random,
    ) -> Infallible {
        let [first, cap] = REMOVAL_PAUSES;
        let mut backoff = Backoff::new(first, cap);
        // A job that has named none has left none.
        let mut is_swept = elected.checkpoints_named == 0;
        let mut waiting: BTreeSet<CheckpointId> = BTreeSet::new();
        loop {
            let changed = service.changed().notified();
            waiting.extend(service.with(|machine, _| machine.removable_checkpoints()).unwrap_or_default());
            if is_swept && waiting.is_empty() {
                let _ = tokio::time::timeout(look(service), changed).await;
                continue;
            }
            let mut failed = None;
            for checkpoint in waiting.clone() {
                let removed = checkpoints::remove(self.storage, checkpoint);
                match self.answered("removing a checkpoint", removed).await {
                    Ok(()) => drop(waiting.remove(&checkpoint)),
                    Err(error) => failed = Some(error),
                }
            }
            if !is_swept {
                match self.answered("listing checkpoints", self.left_behind(elected)).await {
                    Ok(left) => {
                        is_swept = true;
                        waiting.extend(left);
                    }
                    Err(error) => failed = Some(error),
                }
            }
            let Some(error) = failed else {
                backoff.succeed();
                continue;
            };
            tracing::warn!(%error, ?waiting, "files of old checkpoints cannot be removed yet; trying again");
            tokio::time::sleep(backoff.pause(random)).await;
        }
    }

    /// Checkpoints of this job that documents before needed no more, or that were given up, and whose files are still there.
    async fn left_behind(&self, elected: &Document) -> Result<Vec<CheckpointId>, StorageError> {
        let folders = self.storage.folders().await?;
        let found: Vec<CheckpointId> =
            folders.iter().filter_map(|name| CheckpointId::of_folder(name)).collect();
        let mut left = Vec::new();
        for checkpoint in unneeded(elected, &found) {
            match checkpoints::load_unrecorded(self.storage, checkpoint).await {
                Ok((_, manifest))
                    if manifest.settings.job != elected.job.job || manifest.identity != elected.identity =>
                {
                    tracing::warn!(%checkpoint, job = %manifest.settings.job, "another job's checkpoint lies among this one's: it stays");
                }
                Ok(_) | Err(StorageError::Missing { .. }) => left.push(checkpoint),
                Err(error) if error.remedy() == Remedy::GiveUp => {
                    tracing::warn!(%checkpoint, %error, "a checkpoint that nobody needs cannot be read: it stays");
                }
                Err(error) => return Err(error),
            }
        }
        if !left.is_empty() {
            tracing::info!(checkpoints = ?left, "removing what masters before have left of old checkpoints");
        }
        Ok(left)
    }
}
