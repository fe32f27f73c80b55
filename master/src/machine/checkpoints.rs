//! The checkpoint under way: when one is due, what pservers have written of it, when it is whole.

use super::Machine;
use crate::decide::Damage;
use crate::document::{Document, KeptCheckpoint, PlacedBlock};
use shoal_job::spec::CheckpointSpec;
use shoal_runtime::cluster::block_copy::WHOLE;
use shoal_runtime::cluster::checkpoint::{Cut, WrittenFile};
use shoal_runtime::cluster::{
    BlockId, CheckpointId, CheckpointManifest, DamagedCheckpoint, Incarnation, ManifestRecord, PieceRef,
    Term, Version,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// When checkpoints are made, beside the last one, which always is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointPolicy {
    /// After so many steps; 0 for never.
    pub every_steps: u64,
    /// After so much time; zero for never.
    pub every: Duration,
    /// How many are kept.
    pub keep_last: usize,
    /// Of so many at least one has all rows of tables; the others what changed since the one before.
    pub full_every: u64,
}

impl CheckpointPolicy {
    /// As a job's settings say.
    pub fn of(spec: &CheckpointSpec) -> CheckpointPolicy {
        CheckpointPolicy {
            every_steps: spec.every_steps(),
            every: Duration::from_secs(spec.every_seconds()),
            keep_last: spec.keep_last() as usize,
            full_every: spec.full_every().into(),
        }
    }
}

/// Pieces of a manifest that rests on earlier checkpoints, about: two thirds of what the largest manifest file has room for.
const RESTING_PIECES_MAX: usize = 1_000_000;

/// What is known of the checkpoint under way.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    checkpoint: u64,
    /// The files, by name, with those of their pieces that count.
    files: BTreeMap<String, WrittenFile>,
    /// Blocks whose pieces are all there.
    blocks: BTreeSet<BlockId>,
    /// Pieces of the others, each with its file: a bucket's come one after another.
    parts: BTreeMap<BlockId, Vec<(String, PieceRef)>>,
    is_abandoned: bool,
    /// Whether it was given out to be committed.
    is_given: bool,
    /// When it was begun, or the one before was kept.
    since: Duration,
    is_demanded: bool,
    /// When one was kept last; before that, when this master began to lead.
    kept_at: Duration,
}

impl UnderWay {
    /// A piece is written, in a file that is known. Once a block's are all there they count; what else comes of it does not.
    fn take(&mut self, file: &str, piece: PieceRef) {
        if self.blocks.contains(&piece.block) {
            return;
        }
        let block = piece.block;
        let parts = self.parts.entry(block).or_default();
        parts.push((file.to_owned(), piece));
        let Some(whole) = whole(parts) else { return };
        for (file, piece) in whole {
            if let Some(written) = self.files.get_mut(&file) {
                written.pieces.push(piece);
            }
        }
        self.parts.remove(&block);
        self.blocks.insert(block);
    }
}

/// Pieces that make a block whole: of one state, by one writer, one after another.
fn whole(parts: &[(String, PieceRef)]) -> Option<Vec<(String, PieceRef)>> {
    let (last_file, last) = parts.last()?;
    parts.iter().rfind(|(_, piece)| piece.slots.end == WHOLE.end)?;
    let writer = |file: &str| file.rsplit_once('-').map(|(writer, _)| writer.to_owned());
    let of_one = |(file, piece): &&(String, PieceRef)| {
        let state = (piece.name, piece.rewind, piece.is_delta);
        state == (last.name, last.rewind, last.is_delta) && writer(file) == writer(last_file)
    };
    let mut of_one: Vec<(String, PieceRef)> = parts.iter().filter(of_one).cloned().collect();
    of_one.sort_by_key(|(_, piece)| piece.slots.start);
    let end = of_one.iter().try_fold(WHOLE.start, |next, (_, piece)| {
        (piece.slots.start == next && !piece.slots.is_empty()).then_some(piece.slots.end)
    });
    (end == Some(WHOLE.end)).then_some(of_one)
}

impl Machine {
    /// A checkpoint is wanted as soon as possible.
    pub fn demand_checkpoint(&mut self) {
        (self.under_way.is_demanded, self.is_changed) = (true, true);
    }

    /// Whether one was demanded that is not named yet: the front may have been unknown.
    pub(super) fn is_checkpoint_demanded(&self) -> bool {
        self.under_way.is_demanded && self.document.named.is_none()
    }

    /// Whether a checkpoint is due by time, steps or demand.
    pub(super) fn is_checkpoint_due(&self, front: Option<Version>, now: Duration) -> bool {
        let (policy, under_way) = (self.policy, &self.under_way);
        let newest = self.document.newest().map_or(0, |kept| kept.version.0);
        let job = &self.document.job;
        let updates_per_step = if job.is_sync() { 1 } else { u64::from(job.microbatches_per_step) };
        let every = policy.every_steps.saturating_mul(updates_per_step);
        let is_far = every > 0 && front.is_some_and(|front| front.0 >= newest.saturating_add(every));
        let is_late = self.is_late_for_a_checkpoint(now);
        let has_moved = front.is_some_and(|front| front.0 > newest);
        // While one is under way the newest is not what it will be.
        self.document.named.is_none() && (under_way.is_demanded || (has_moved && (is_far || is_late)))
    }

    pub(super) fn is_late_for_a_checkpoint(&self, now: Duration) -> bool {
        let every = self.policy.every;
        !every.is_zero() && now >= self.under_way.since + every && self.document.named.is_none()
    }

    pub(super) fn is_abandoned(&self) -> bool {
        let named = self.document.named.map_or(0, |named| named.checkpoint.0);
        let is_given_up = self.under_way.is_abandoned && self.under_way.checkpoint == named;
        is_given_up || self.is_baseless()
    }

    /// Whether the checkpoint under way may rest on one whose manifest only the master before had.
    fn is_baseless(&self) -> bool {
        let since = self.document.named.and_then(|named| named.since);
        let is_durable = self.wishes.committed.is_some();
        since.is_some() && !is_durable && since != self.newest_known().map(|(kept, _)| kept.record.checkpoint)
    }

    /// The newest kept checkpoint, if this master has its manifest.
    fn newest_known(&self) -> Option<(&KeptCheckpoint, &CheckpointManifest)> {
        let (record, manifest) = self.newest_manifest.as_ref()?;
        let newest = self.document.newest()?;
        (newest.record == *record).then_some((newest, manifest))
    }

    /// The checkpoint on which the next may rest: the newest, unless a full one is due, or there is no room for more pieces.
    pub(super) fn base(&self) -> Option<CheckpointId> {
        let (newest, manifest) = self.newest_known()?;
        let next = self.document.checkpoints_named + 1;
        let is_full_due = next - newest.first_needed().0 >= self.policy.full_every;
        let has_room = manifest.pieces.len() + self.document.blocks.len() <= RESTING_PIECES_MAX;
        (!is_full_due && has_room).then_some(newest.record.checkpoint)
    }

    /// Notes whose files nobody needs any more once the next document holds.
    pub(super) fn note_removable(&mut self, next: &Document) {
        // A person may want to look at what is damaged: its files stay.
        let is_damaged = |id: CheckpointId| next.damaged.iter().any(|found| found.record.checkpoint == id);
        let stays =
            |kept: &KeptCheckpoint| next.checkpoints.contains(kept) || is_damaged(kept.record.checkpoint);
        let is_needed = |id: &CheckpointId| {
            let mut kept = next.checkpoints.iter().chain(&self.document.checkpoints);
            is_damaged(*id) || kept.any(|kept| stays(kept) && kept.needs(*id))
        };
        let gone = self.document.checkpoints.iter().filter(|kept| !stays(kept));
        let gone = gone.flat_map(|kept| (kept.first_needed().0..=kept.record.checkpoint.0).map(CheckpointId));
        // One that was abandoned, or came too late, leaves nothing behind either.
        let is_over = self.document.named.filter(|named| next.named != Some(*named));
        let gone: BTreeSet<CheckpointId> =
            gone.chain(is_over.map(|named| named.checkpoint)).filter(|id| !is_needed(id)).collect();
        self.removable.extend(gone);
    }

    /// A pserver has written files of a checkpoint, and some blocks there have `passed` it, or one that it does not name. A block that
    /// has another primary now has passed every version before, and its piece may be written long since: only one that lacks it can
    /// supply none any more.
    pub(super) fn hear_of_checkpoint(
        &mut self,
        checkpoint: u64,
        written: Vec<WrittenFile>,
        passed: &[BlockId],
        has_passed_one: bool,
    ) {
        let Some(named) = self.document.named.filter(|named| named.checkpoint.0 == checkpoint) else {
            return;
        };
        self.begin_under_way(checkpoint);
        let (is_sync, rewind) = (self.document.job.is_sync(), self.document.rewind());
        let blocks = &self.document.blocks;
        let under_way = &mut self.under_way;
        for WrittenFile { file, pieces } in written {
            let counts = |piece: &PieceRef| {
                let block = blocks.get(piece.block.0 as usize);
                let is_cut = !is_sync || (piece.rewind == rewind && piece.name.version == named.version);
                block.is_some_and(|block| block.rewind == piece.rewind) && is_cut
            };
            if under_way.files.contains_key(&file.name) {
                continue;
            }
            let name = file.name.clone();
            under_way.files.insert(name.clone(), WrittenFile { file, pieces: Vec::new() });
            for piece in pieces.into_iter().filter(counts) {
                under_way.take(&name, piece);
            }
        }
        let is_lacking = has_passed_one || passed.iter().any(|block| !under_way.blocks.contains(block));
        if is_lacking && !under_way.is_abandoned {
            (under_way.is_abandoned, self.is_changed) = (true, true);
        }
    }

    /// A pserver cannot restore what it leads: what that was to begin from is damaged. It says so until it is given
    /// another checkpoint, so that nothing has to be remembered. Of one that nobody needs any more nothing is heard.
    pub(super) fn hear_of_damage(&mut self, pserver: Incarnation, damaged: Vec<DamagedCheckpoint>) {
        let Some(job) = &self.job else { return };
        for checkpoint in damaged {
            let placed = self.document.blocks.iter().zip((0..).map(BlockId));
            // What was heard of has begun, wherever the others stand.
            let waits = placed.filter(|(block, id)| {
                (block.primary, block.origin) == (pserver, Some(checkpoint.record))
                    && block.term.0 == block.rewind.0
                    && !job.reports.has_heard_of(*id)
            });
            let blocks: Vec<(BlockId, Term)> = waits.map(|(block, id)| (id, block.term)).collect();
            let is_kept = self.document.checkpoints.iter().any(|kept| kept.record == checkpoint.record);
            if is_kept || !blocks.is_empty() {
                self.damages.push(Damage { checkpoint, blocks });
                self.is_changed = true;
            }
        }
    }

    /// Says of every checkpoint that the next document drops as damaged what is wrong with it.
    pub(super) fn tell_of_damage(&self, next: &Document) {
        for DamagedCheckpoint { record, file, what } in next.damaged.iter().skip(self.document.damaged.len())
        {
            let back_to = match next.newest() {
                Some(kept) => format!("checkpoint {}", kept.record.checkpoint),
                None => String::from("the initial values"),
            };
            tracing::error!(
                checkpoint = %record.checkpoint, file, what,
                "a checkpoint is damaged: it is dropped, its files are left where they are; going back to {back_to}"
            );
        }
    }

    fn begin_under_way(&mut self, checkpoint: u64) {
        if self.under_way.checkpoint != checkpoint {
            // What was demanded is, until one is durable: this one may yet be abandoned.
            let UnderWay { since, is_demanded, kept_at, .. } = self.under_way;
            self.under_way = UnderWay { checkpoint, since, is_demanded, kept_at, ..UnderWay::default() };
        }
    }

    /// Another document holds. A manifest that became durable while that was being written is not in it: it counts with the next one,
    /// or not at all, if the job has gone back or the checkpoint was given up.
    pub(super) fn settle_committed(&mut self, is_rewound: bool) {
        let Some(kept) = self.wishes.committed.take() else { return };
        let checkpoint = kept.record.checkpoint;
        let is_named = self.document.named.is_some_and(|named| named.checkpoint == checkpoint);
        if is_named && !is_rewound {
            self.wishes.committed = Some(kept);
        } else if !self.document.checkpoints.contains(&kept) {
            self.cannot_be_committed(checkpoint);
        }
    }

    /// Blocks whose pieces of the checkpoint under way are not written.
    pub(crate) fn blocks_without_piece(&self) -> impl Iterator<Item = (BlockId, &PlacedBlock)> {
        let is_heard_of =
            self.document.named.is_some_and(|named| named.checkpoint.0 == self.under_way.checkpoint);
        let all = (0..).map(BlockId).zip(&self.document.blocks);
        all.filter(move |(id, _)| !is_heard_of || !self.under_way.blocks.contains(id))
    }

    /// The job has gone back: pieces of the history before count no more.
    pub(super) fn forget_pieces(&mut self) {
        let UnderWay { checkpoint, since, is_demanded, kept_at, .. } = self.under_way;
        self.under_way = UnderWay { checkpoint, since, is_demanded, kept_at, ..UnderWay::default() };
    }

    /// The manifest of the checkpoint under way, once every block's piece is written; given out once.
    pub fn checkpoint_to_commit(&mut self) -> Option<CheckpointManifest> {
        let named = self.document.named.filter(|named| named.checkpoint.0 == self.under_way.checkpoint)?;
        let is_whole = self.under_way.blocks.len() == self.document.blocks.len();
        let is_over = self.under_way.is_given || self.under_way.is_abandoned;
        if !is_whole || self.document.blocks.is_empty() || is_over {
            return None;
        }
        self.under_way.is_given = true;
        let cut = Cut { rewind: self.document.rewind(), version: named.version };
        let mut written: Vec<WrittenFile> = self.under_way.files.values().cloned().collect();
        if let (Some(_), Some((_, before))) = (named.since, self.newest_known()) {
            written.extend(before.beneath(&written));
        }
        let manifest = CheckpointManifest::assemble(
            self.document.job.clone(),
            self.document.declaration.clone()?,
            named.checkpoint,
            self.document.job.is_sync().then_some(cut),
            written,
        );
        match manifest {
            Ok(manifest) => Some(CheckpointManifest { identity: self.document.identity.clone(), ..manifest }),
            Err(fault) => {
                tracing::error!(%fault, checkpoint = %named.checkpoint, "pieces make no checkpoint: another is named");
                (self.under_way.is_abandoned, self.is_changed) = (true, true);
                None
            }
        }
    }

    /// The manifest could not be written: it is given out again.
    pub fn not_committed(&mut self, checkpoint: CheckpointId) {
        if self.under_way.checkpoint == checkpoint.0 {
            self.under_way.is_given = false;
        }
        self.note_removable_late(checkpoint);
    }

    /// The manifest can never be written, as where one lies in its place that became durable and did not count: another
    /// checkpoint has to be named.
    pub fn cannot_be_committed(&mut self, checkpoint: CheckpointId) {
        if self.under_way.checkpoint == checkpoint.0 {
            (self.under_way.is_abandoned, self.is_changed) = (true, true);
        }
        self.note_removable_late(checkpoint);
    }

    /// The manifest of a checkpoint that was given up while it was written may lie there now, or come yet: its files go again.
    fn note_removable_late(&mut self, checkpoint: CheckpointId) {
        let is_named = self.document.named.is_some_and(|named| named.checkpoint == checkpoint);
        let is_needed = self.document.checkpoints.iter().any(|kept| kept.needs(checkpoint));
        if !is_named && !is_needed {
            self.removable.push(checkpoint);
        }
    }

    /// The manifest is durable. Whether it counts is decided with the next document; one that was given out before the job went back does
    /// not.
    pub fn committed(&mut self, record: ManifestRecord, manifest: &CheckpointManifest, now: Duration) {
        // The job has gone back since it was given out: a number is written once, so this one is of no use any more.
        let is_awaited = self.under_way.is_given && self.under_way.checkpoint == manifest.checkpoint.0;
        if !is_awaited || self.document.named.is_none_or(|named| named.checkpoint != manifest.checkpoint) {
            return self.cannot_be_committed(manifest.checkpoint);
        }
        let rewind = manifest.pieces.iter().map(|piece| piece.rewind).max();
        let Some(rewind) = rewind else { return };
        let oldest = Some(manifest.oldest()).filter(|oldest| *oldest < manifest.checkpoint);
        let version = manifest.version();
        self.wishes.committed = Some(KeptCheckpoint { record, version, rewind, oldest });
        let has_tables = manifest.declaration.parameters.iter().any(|parameter| parameter.table.is_some());
        self.newest_manifest = has_tables.then(|| (record, manifest.clone()));
        (self.under_way.since, self.under_way.is_demanded, self.is_changed) = (now, false, true);
        self.under_way.kept_at = now;
    }

    /// How long ago a checkpoint was kept last; while this master has kept none, how long it leads.
    pub fn checkpoint_age(&self, now: Duration) -> Duration {
        now.saturating_sub(self.under_way.kept_at)
    }

    /// Checkpoints that the document needs no more, since this was asked last.
    pub fn removable_checkpoints(&mut self) -> Vec<CheckpointId> {
        std::mem::take(&mut self.removable)
    }
}
