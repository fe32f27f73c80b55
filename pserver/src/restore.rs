//! Restoring primaries that begin a new history. Blocks at their initial values begin all at once, those of a checkpoint several at
//! a time, those of the file that the job begins at one after another. Processors make the values, and this task yields between
//! blocks. Storage that does not answer is asked
//! again. A checkpoint that is damaged is told to the master and never read again: it names another one. A file that
//! cannot be begun from fails the job: it must never begin from something else.

mod warm_tables;

use crate::block::piece::Restoring;
use crate::block::state::State;
use crate::hosting::Hosted;
use crate::shard::{Shard, Unrestored};
use futures_util::stream::{self, StreamExt};
use shoal_runtime::cluster::checkpoint::{FileRecord, PieceRef};
use shoal_runtime::cluster::waits::WaitKind;
use shoal_runtime::cluster::{
    BlockCopy, BlockId, CheckpointManifest, DamagedCheckpoint, Layout, ManifestRecord, Refusal, RefusalKind,
    Term, WarmStart,
};
use shoal_runtime::host::backoff::Backoff;
use shoal_runtime::host::checkpoints::{Fault, load, read_piece};
use shoal_runtime::host::random::Random;
use shoal_runtime::host::storage::{Remedy, Storage, StorageError};
use shoal_runtime::host::waits::OpenWait;
use shoal_runtime::host::warm_start::{WarmFile, WarmStartError};
use std::collections::BTreeSet;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use warm_tables::WarmTables;

/// Blocks of a checkpoint that are read at a time: where each answer of a store takes some tens of milliseconds, one after another
/// would take minutes.
const AT_A_TIME: usize = 16;
/// Bytes of pieces that are read at a time, in KiB; a bucket of more is read by itself.
const KIB_AT_A_TIME: u32 = 64 << 10;

/// Restores whatever an assignment wants restored, for ever. Returns only what no repetition can mend.
pub async fn restore(shard: &Arc<Shard>, storage: &Storage, random: &mut Random) -> Refusal {
    let mut assigned = shard.assigned();
    let (warm_tables, given_up) = (WarmTables::default(), BTreeSet::new());
    let mut restorer = Restorer { shard, storage, manifest: None, warm: None, warm_tables, given_up };
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
    let mut failing: Option<OpenWait> = None;
    loop {
        assigned.mark_heard();
        match restorer.restore_all().await {
            Err(refusal) => return refusal,
            Ok(Err(error)) => {
                tracing::error!(%error, "a block cannot be restored; trying again");
                let begin = || shard.waits().begin(WaitKind::Storage, format!("read {}", storage.place()));
                failing.get_or_insert_with(begin).failed(error);
                tokio::time::sleep(backoff.pause(random)).await;
            }
            Ok(Ok(())) => {
                failing = None;
                backoff.succeed();
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
        if let Err(error) = self.begin_all(&unrestored).await? {
            return Ok(Err(error));
        }
        let mut records: Vec<ManifestRecord> = Vec::new();
        for record in unrestored.iter().filter_map(|(.., origin)| *origin) {
            if !records.contains(&record) {
                records.push(record);
            }
        }
        for record in records {
            if let Err(error) = self.restore_from(record, &unrestored).await? {
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }

    /// Of those that are to be restored from `origin`, the ones that have not been given up.
    fn left<'a>(
        &self,
        unrestored: &'a [Unrestored],
        origin: Option<ManifestRecord>,
    ) -> impl Iterator<Item = (&'a Arc<Hosted>, Term)> {
        let given_up = self.given_up.clone();
        let those = unrestored.iter().filter(move |(.., other)| *other == origin);
        let those = those.map(|(hosted, term, _)| (hosted, *term));
        those.filter(move |(hosted, term)| !given_up.contains(&(hosted.shape.id, *term)))
    }

    /// Begins all blocks that are before their first update.
    async fn begin_all(&mut self, unrestored: &[Unrestored]) -> Result<Result<(), StorageError>, Refusal> {
        let those = self.left(unrestored, None).map(|(hosted, term)| (Arc::clone(hosted), term));
        let those: Vec<(Arc<Hosted>, Term)> = those.collect();
        let Some(pinned) = self.shard.job().warm_start.clone() else {
            self.shard.restore_initial(those).await?;
            return Ok(Ok(()));
        };
        for (hosted, term) in those {
            match self.begin_at(&pinned, &hosted, term, unrestored).await {
                Ok(begun) => begun?,
                Err(WarmStartError::Storage(error)) if error.remedy() != Remedy::GiveUp => {
                    return Ok(Err(error));
                }
                Err(error) => {
                    self.given_up.insert((hosted.shape.id, term));
                    self.shard.fail(format!("{} cannot begin: {error}", hosted.shape));
                }
            }
        }
        Ok(Ok(()))
    }

    /// Restores all blocks that begin at a checkpoint: while some are read, others are taken in.
    async fn restore_from(
        &mut self,
        record: ManifestRecord,
        unrestored: &[Unrestored],
    ) -> Result<Result<(), StorageError>, Refusal> {
        let those: Vec<(&Arc<Hosted>, Term)> = self.left(unrestored, Some(record)).collect();
        let Some((first, _)) = those.first() else { return Ok(Ok(())) };
        if !self.has_manifest(record) {
            match load(self.storage, &record).await {
                Ok(manifest) => {
                    let layout = Layout::new(&manifest.declaration);
                    self.manifest = Some((record, manifest, layout));
                }
                Err(error) => return self.fails(unrestored, first, record, error),
            }
        }
        let failed = self.read(those).await?;
        // What may pass is tried again; what cannot is said first.
        let mut passing = Ok(());
        for (hosted, error) in failed {
            if let Err(error) = self.fails(unrestored, hosted, record, error)? {
                passing = Err(error);
            }
        }
        Ok(passing)
    }

    /// Restores blocks from the checkpoint whose manifest is known. Returns those that cannot be, and why. Where one may be read later
    /// no others are begun; where one is damaged in a synchronous job none is waited for, as none can begin there.
    async fn read<'a>(
        &self,
        those: Vec<(&'a Arc<Hosted>, Term)>,
    ) -> Result<Vec<(&'a Arc<Hosted>, StorageError)>, Refusal> {
        let (room, is_passing) = (Semaphore::new(KIB_AT_A_TIME as usize), AtomicBool::new(false));
        let restore = async |(hosted, term)| (hosted, self.restore_one(hosted, term, &room).await);
        let those = stream::iter(those).take_while(|_| ready(!is_passing.load(Ordering::Relaxed)));
        let mut restored = those.map(restore).buffer_unordered(AT_A_TIME);
        let mut failed = Vec::new();
        while let Some((hosted, restored)) = restored.next().await {
            match restored {
                Ok(restored) => restored?,
                Err(error) => {
                    let is_damaged = error.remedy() == Remedy::GiveUp;
                    is_passing.fetch_or(!is_damaged, Ordering::Relaxed);
                    failed.push((hosted, error));
                    if is_damaged && self.shard.job().is_sync() {
                        break;
                    }
                }
            }
            tokio::task::yield_now().await;
        }
        Ok(failed)
    }

    /// A block cannot be read from its checkpoint. The inner error is of storage that may answer later.
    fn fails(
        &mut self,
        unrestored: &[Unrestored],
        hosted: &Hosted,
        record: ManifestRecord,
        error: StorageError,
    ) -> Result<Result<(), StorageError>, Refusal> {
        match error {
            error if error.remedy() != Remedy::GiveUp => Ok(Err(error)),
            // Nothing is wrong with it: the job keeps it, and another build goes on.
            StorageError::OtherFormat { at, what } => Err(Refusal::new(RefusalKind::OtherVersion, at, what)),
            error => {
                self.give_up(unrestored, hosted, record, error);
                Ok(Ok(()))
            }
        }
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

    /// Begins a block before its first update at the values of the file that the job begins at, where that has them.
    async fn begin_at(
        &mut self,
        pinned: &WarmStart,
        hosted: &Arc<Hosted>,
        term: Term,
        unrestored: &[Unrestored],
    ) -> Result<Result<(), Refusal>, WarmStartError> {
        let shape = &hosted.shape;
        self.warm_file(pinned).await?;
        let Some(file) = &self.warm else { return Ok(Ok(())) };
        if let Some(bucket) = &shape.bucket {
            let begin_here = unrestored.iter().filter(|(_, _, origin)| origin.is_none());
            let buckets = begin_here.filter_map(|(hosted, ..)| hosted.shape.bucket.as_ref());
            let rows = self.warm_tables.take(file, bucket, buckets).await?;
            let begun = self.shard.restore(vec![(Arc::clone(hosted), term, rows)], |_, shape, term, rows| {
                Ok(Some(State::beginning_at(shape, &rows, term)))
            });
            return Ok(begun.await);
        }
        let mut parameters = self.shard.initial(shape).await;
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
        let begun =
            self.shard.restore(vec![(Arc::clone(hosted), term, parameters)], |_, shape, term, parameters| {
                Ok(Some(State::beginning(shape, parameters, term)))
            });
        Ok(begun.await)
    }

    /// Opens the file that the job begins at, if it is not open.
    async fn warm_file(&mut self, pinned: &WarmStart) -> Result<(), WarmStartError> {
        if self.warm.is_none() {
            let file = WarmFile::open(pinned).await?;
            let trains = self.shard.job().epochs > 0;
            self.shard.declaration().map_or(Ok(()), |declaration| file.check(&declaration, trains))?;
            self.warm = Some(file);
        }
        Ok(())
    }

    /// Restores one block from the checkpoint whose manifest is known, once `room` admits its pieces. The outer error is the storage's,
    /// or of a piece with a right checksum that is no piece of this block: a second read finds the same.
    async fn restore_one(
        &self,
        hosted: &Arc<Hosted>,
        term: Term,
        room: &Semaphore,
    ) -> Result<Result<(), Refusal>, StorageError> {
        let Some((_, manifest, layout)) = &self.manifest else { return Ok(Ok(())) };
        let pieces = manifest.pieces_of(hosted.shape.id);
        let bytes: u64 = pieces.iter().map(|piece| piece.bytes).sum();
        let kib = u32::try_from(bytes.div_ceil(1 << 10)).unwrap_or(u32::MAX).min(KIB_AT_A_TIME);
        // Never closed.
        let _room = room.acquire_many(kib).await;
        let mut restoring = Restoring::default();
        for piece in pieces {
            let (copy, shape) =
                (read_piece(self.storage, manifest, layout, piece).await?, Arc::clone(&hosted.shape));
            let take = move || {
                restoring.take(&shape, &BlockCopy::try_from(copy)?)?;
                Ok(restoring)
            };
            match self.shard.over(piece.bytes as usize, take).await {
                Ok(taken) => restoring = taken,
                Err(refusal) => return Err(self.no_piece(manifest, piece, &refusal)),
            }
        }
        let those = vec![(Arc::clone(hosted), term, restoring.finish())];
        Ok(self.shard.restore(those, |_, _, _, state| Ok(state)).await)
    }

    /// A piece whose checksum is right cannot be taken in.
    fn no_piece(&self, manifest: &CheckpointManifest, piece: &PieceRef, refusal: &Refusal) -> StorageError {
        let file = manifest.files.get(piece.file as usize);
        let object = file.map_or_else(|| manifest.checkpoint.folder(), FileRecord::object);
        let (at, what) = (self.storage.at(&object), refusal.to_string());
        StorageError::Damaged { at, offset: piece.offset, what }
    }
}

#[cfg(test)]
mod tests;
