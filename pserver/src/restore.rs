//! Restoring primaries that begin a new history, one block after another, letting others run in between: from their
//! initial values, or from a checkpoint. Storage that does not answer is asked again; what is damaged is told to the
//! master and never read again: it names another checkpoint.

use crate::hosting::Hosted;
use crate::shard::Shard;
use shoal_runtime::cluster::{BlockId, CheckpointManifest, DamagedCheckpoint, ManifestRecord, Refusal, Term};
use shoal_runtime::host::backoff::Backoff;
use shoal_runtime::host::checkpoints::{Fault, load, read_piece};
use shoal_runtime::host::random::Random;
use shoal_runtime::host::storage::{NextMove, Storage, StorageError};
use std::collections::BTreeSet;
use std::time::Duration;

/// Restores whatever an assignment wants restored, for ever. Returns only what no repetition can mend.
pub async fn restore(shard: &Shard, storage: &Storage, random: &mut Random) -> Refusal {
    let mut assigned = shard.assigned();
    let mut restorer = Restorer { shard, storage, manifest: None, given_up: BTreeSet::new() };
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
    loop {
        assigned.mark_heard();
        match restorer.restore_all().await {
            Err(refusal) => return refusal,
            Ok(Err(error)) => {
                tracing::error!(%error, "a block cannot be restored; trying again");
                shard.note_trouble(error.to_string());
                tokio::time::sleep(backoff.pause(random)).await;
            }
            Ok(Ok(())) => {
                if backoff.attempts() > 0 {
                    shard.note_trouble(String::new());
                    backoff.succeed();
                }
                assigned.changed().await;
            }
        }
    }
}

struct Restorer<'a> {
    shard: &'a Shard,
    storage: &'a Storage,
    manifest: Option<(ManifestRecord, CheckpointManifest)>,
    /// Blocks that cannot begin these terms: what they were to begin from is damaged.
    given_up: BTreeSet<(BlockId, Term)>,
}

impl Restorer<'_> {
    /// Restores all blocks that can be. The inner error is of storage that may answer later.
    async fn restore_all(&mut self) -> Result<Result<(), StorageError>, Refusal> {
        let unrestored = self.shard.unrestored()?;
        let wanted: BTreeSet<_> =
            unrestored.iter().map(|(hosted, term, _)| (hosted.shape.id, *term)).collect();
        self.given_up.retain(|given_up| wanted.contains(given_up));
        for (hosted, term, origin) in &unrestored {
            if self.given_up.contains(&(hosted.shape.id, *term)) {
                continue;
            }
            let error = match self.restore_one(hosted, *term, *origin).await {
                Ok(restored) => {
                    restored?;
                    tokio::task::yield_now().await;
                    continue;
                }
                Err(error) => error,
            };
            let Some(record) = origin.filter(|_| error.next_move() == NextMove::GiveUp) else {
                return Ok(Err(error));
            };
            tracing::error!(checkpoint = %record.checkpoint, block = %hosted.shape.id, %error, "a checkpoint is damaged");
            self.given_up.insert((hosted.shape.id, *term));
            if self.shard.job().is_sync() || !self.has_manifest(record) {
                // None of the others can begin there either.
                let others = unrestored.iter().filter(|(.., origin)| *origin == Some(record));
                self.given_up.extend(others.map(|(hosted, term, _)| (hosted.shape.id, *term)));
            }
            let (file, what) = match Fault::of(error) {
                Ok(Fault { file, offset, what }) => (file, format!("at offset {offset}: {what}")),
                Err(error) => (record.checkpoint.folder(), error.to_string()),
            };
            self.shard.note_damage(DamagedCheckpoint { record, file, what });
        }
        Ok(Ok(()))
    }

    fn has_manifest(&self, record: ManifestRecord) -> bool {
        self.manifest.as_ref().is_some_and(|(known, _)| *known == record)
    }

    /// Restores one block. The outer error is the storage's.
    async fn restore_one(
        &mut self,
        hosted: &Hosted,
        term: Term,
        origin: Option<ManifestRecord>,
    ) -> Result<Result<(), Refusal>, StorageError> {
        let Some(record) = origin else {
            return Ok(self.shard.restore(hosted, |block| {
                block.restore_initial(term);
                Ok(())
            }));
        };
        if !self.has_manifest(record) {
            self.manifest = Some((record, load(self.storage, &record).await?));
        }
        let Some((_, manifest)) = &self.manifest else { return Ok(Ok(())) };
        let piece = read_piece(self.storage, manifest, hosted.shape.id).await?;
        Ok(self.shard.restore(hosted, |block| block.restore_from(term, &piece.try_into()?)))
    }
}

#[cfg(test)]
mod tests;
