//! Restoring primaries that begin a new history, one block after another, letting others run in between: from their
//! initial values, from the file that the job begins at, or from a checkpoint. Storage that does not answer is asked
//! again. A checkpoint that is damaged is told to the master and never read again: it names another one. A file that
//! cannot be begun from fails the job: it must never begin from something else.

mod warm_tables;

use crate::block::piece::Restoring;
use crate::bucket::beginning::GivenRows;
use crate::hosting::Hosted;
use crate::shard::{Shard, Unrestored};
use shoal_runtime::cluster::{
    BlockCopy, BlockId, CheckpointManifest, DamagedCheckpoint, Layout, ManifestRecord, Refusal, RefusalKind,
    Term, WarmStart,
};
use shoal_runtime::host::backoff::Backoff;
use shoal_runtime::host::checkpoints::{Fault, load, read_piece};
use shoal_runtime::host::random::Random;
use shoal_runtime::host::storage::{Remedy, Storage, StorageError};
use shoal_runtime::host::warm_start::{WarmFile, WarmStartError};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use warm_tables::WarmTables;

/// Restores whatever an assignment wants restored, for ever. Returns only what no repetition can mend.
pub async fn restore(shard: &Arc<Shard>, storage: &Storage, random: &mut Random) -> Refusal {
    let mut assigned = shard.assigned();
    let (warm_tables, given_up) = (WarmTables::default(), BTreeSet::new());
    let mut restorer = Restorer { shard, storage, manifest: None, warm: None, warm_tables, given_up };
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
    shard: &'a Arc<Shard>,
    storage: &'a Storage,
    /// The checkpoint that was read last, and how its model is cut.
    manifest: Option<(ManifestRecord, CheckpointManifest, Layout)>,
    /// The file that the job begins at, found fit for the declaration.
    warm: Option<WarmFile>,
    /// What of its tables is read, and not begun at yet.
    warm_tables: WarmTables,
    /// Blocks that cannot begin these terms: what they were to begin from is damaged.
    given_up: BTreeSet<(BlockId, Term)>,
}

impl Restorer<'_> {
    /// Restores all blocks that can be. The inner error is of storage that may answer later.
    async fn restore_all(&mut self) -> Result<Result<(), StorageError>, Refusal> {
        let unrestored = self.shard.unrestored()?;
        // Opened once for all that begins now; later it may be another file.
        (self.warm, self.warm_tables) = (None, WarmTables::default());
        let wanted: BTreeSet<_> =
            unrestored.iter().map(|(hosted, term, _)| (hosted.shape.id, *term)).collect();
        self.given_up.retain(|given_up| wanted.contains(given_up));
        for (hosted, term, origin) in &unrestored {
            if self.given_up.contains(&(hosted.shape.id, *term)) {
                continue;
            }
            let done = match origin {
                None => match self.begin(hosted, *term, &unrestored).await {
                    Ok(begun) => Ok(begun?),
                    Err(WarmStartError::Storage(error)) if error.remedy() != Remedy::GiveUp => Err(error),
                    Err(error) => {
                        self.given_up.insert((hosted.shape.id, *term));
                        self.shard.fail(format!("{} cannot begin: {error}", hosted.shape));
                        Ok(())
                    }
                },
                Some(record) => match self.restore_one(hosted, *term, *record).await {
                    Ok(restored) => Ok(restored?),
                    Err(error) if error.remedy() != Remedy::GiveUp => Err(error),
                    // Nothing is wrong with it: the job keeps it, and another build goes on.
                    Err(StorageError::OtherFormat { at, what }) => {
                        return Err(Refusal::new(RefusalKind::OtherVersion, at, what));
                    }
                    Err(error) => {
                        self.give_up(&unrestored, hosted, *record, error);
                        Ok(())
                    }
                },
            };
            if let Err(error) = done {
                return Ok(Err(error));
            }
            tokio::task::yield_now().await;
        }
        Ok(Ok(()))
    }

    /// A checkpoint is damaged: the master is told, and no block that cannot begin there tries again.
    fn give_up(
        &mut self,
        unrestored: &[Unrestored],
        hosted: &Hosted,
        record: ManifestRecord,
        error: StorageError,
    ) {
        tracing::error!(checkpoint = %record.checkpoint, block = %hosted.shape.id, %error, "a checkpoint is damaged");
        // In a synchronous job, or without a manifest, none of the others can begin there either.
        let is_alone = !self.shard.job().is_sync() && self.has_manifest(record);
        let those = unrestored.iter().filter(|(other, _, origin)| {
            *origin == Some(record) && (!is_alone || other.shape.id == hosted.shape.id)
        });
        self.given_up.extend(those.map(|(hosted, term, _)| (hosted.shape.id, *term)));
        let (file, what) = match Fault::of(error) {
            Ok(Fault { file, offset, what }) => (file, format!("at offset {offset}: {what}")),
            Err(error) => (record.checkpoint.folder(), error.to_string()),
        };
        self.shard.note_damage(DamagedCheckpoint { record, file, what });
    }

    fn has_manifest(&self, record: ManifestRecord) -> bool {
        self.manifest.as_ref().is_some_and(|(known, ..)| *known == record)
    }

    /// A block before its first update: at its initial values, or at those of the file that the job begins at.
    async fn begin(
        &mut self,
        hosted: &Arc<Hosted>,
        term: Term,
        unrestored: &[Unrestored],
    ) -> Result<Result<(), Refusal>, WarmStartError> {
        let shape = &hosted.shape;
        if let (Some(bucket), Some(pinned)) = (&shape.bucket, &self.shard.job().warm_start) {
            self.warm_file(pinned).await?;
            let begin_here = unrestored.iter().filter(|(_, _, origin)| origin.is_none());
            let buckets = begin_here.filter_map(|(hosted, ..)| hosted.shape.bucket.as_ref());
            let rows = match &self.warm {
                Some(file) => self.warm_tables.take(file, bucket, buckets).await?,
                None => GivenRows::default(),
            };
            let begun = self.shard.restore(vec![(Arc::clone(hosted), rows)], move |block, rows| {
                block.restore_rows(term, &rows);
                Ok(())
            });
            return Ok(begun.await);
        }
        let mut parameters = shape.initial(self.shard.job().seed);
        if let Some(pinned) = &self.shard.job().warm_start {
            let file = self.warm_file(pinned).await?;
            for (parameter, first, range) in shape.pieces() {
                let is_there = file.read(parameter, first, &mut parameters[range]).await?;
                // Said by whoever has its first piece.
                if !is_there && first == 0 && parameter.rule.begins_anywhere() {
                    let (name, file) = (&parameter.name, &pinned.file);
                    tracing::warn!(
                        parameter = name,
                        file,
                        "not in the file of --warm-start: begins at its initial values"
                    );
                }
            }
        }
        let begun = self.shard.restore(vec![(Arc::clone(hosted), parameters)], move |block, parameters| {
            block.restore_beginning(term, parameters);
            Ok(())
        });
        Ok(begun.await)
    }

    async fn warm_file(&mut self, pinned: &WarmStart) -> Result<&WarmFile, WarmStartError> {
        let file = match self.warm.take() {
            Some(file) => file,
            None => {
                let file = WarmFile::open(pinned).await?;
                let trains = self.shard.job().epochs > 0;
                self.shard.declaration().map_or(Ok(()), |declaration| file.check(&declaration, trains))?;
                file
            }
        };
        Ok(self.warm.insert(file))
    }

    /// Restores one block from a checkpoint. The outer error is the storage's.
    async fn restore_one(
        &mut self,
        hosted: &Arc<Hosted>,
        term: Term,
        record: ManifestRecord,
    ) -> Result<Result<(), Refusal>, StorageError> {
        if !self.has_manifest(record) {
            let manifest = load(self.storage, &record).await?;
            let layout = Layout::new(&manifest.declaration);
            self.manifest = Some((record, manifest, layout));
        }
        let Some((_, manifest, layout)) = &self.manifest else { return Ok(Ok(())) };
        let mut copies = Vec::new();
        for piece in manifest.pieces_of(hosted.shape.id) {
            match BlockCopy::try_from(read_piece(self.storage, manifest, layout, piece).await?) {
                Ok(copy) => copies.push(copy),
                Err(refusal) => return Ok(Err(refusal)),
            }
        }
        let shape = Arc::clone(&hosted.shape);
        let restored = self.shard.restore(vec![(Arc::clone(hosted), copies)], move |block, copies| {
            let mut restoring = Restoring::default();
            copies.iter().try_for_each(|copy| restoring.take(&shape, copy))?;
            restoring.finish().into_iter().for_each(|state| block.restore_from(term, state));
            Ok(())
        });
        Ok(restored.await)
    }
}

#[cfg(test)]
mod tests;
