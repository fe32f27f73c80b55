//! Checkpoints: named ahead, kept once they are durable, abandoned when they cannot become so, dropped when damaged.

use super::{Damage, Seen, Wishes};
use crate::document::{Document, NamedCheckpoint};
use shoal_runtime::cluster::{BlockId, CheckpointId, JobSettings, Term, Version};
use std::collections::BTreeSet;

/// Versions ahead of the front at which a checkpoint is named: pservers hear of it before they pass it, and a block may
/// be as far ahead of the front as the delay and one version. Blocks of asynchronous jobs are written as they are, so that
/// the last checkpoint is named when all is applied.
pub(crate) fn ahead(job: &JobSettings) -> u64 {
    if job.is_sync() { 2 + job.mode.delay() } else { 0 }
}

/// Keeps a checkpoint that has become durable, if it is of the present history, and forgets the oldest.
pub(super) fn keep(next: &mut Document, wishes: &Wishes) {
    let Some(committed) = wishes.committed else { return };
    let is_named = next.named.is_some_and(|named| named.checkpoint == committed.record.checkpoint);
    let is_present = !next.job.is_sync() || committed.rewind == next.rewind();
    if is_named && is_present {
        next.named = None;
        next.checkpoints.push(committed);
        // What the present history began from is kept: a loss before the next checkpoint goes back to it or later.
        let (surplus, best) =
            (next.checkpoints.len().saturating_sub(wishes.keep_last.max(1)), next.best_version());
        let mut at = 0..;
        next.checkpoints.retain(|kept| at.next() >= Some(surplus) || Some(kept.version) == best);
    }
}

/// Of the checkpoints found in the job's place, those whose files nobody needs, nor ever will: named by this document's history, not under
/// way, and not, as far as the document knows, what a kept or a damaged one rests on. Numbers are given once and what was let go of is
/// never kept again, so it stays so in every later document: a master that was overtaken may still remove them.
pub(crate) fn unneeded(document: &Document, found: &[CheckpointId]) -> Vec<CheckpointId> {
    let has_deltas = document
        .declaration
        .as_ref()
        .is_none_or(|declaration| declaration.parameters.iter().any(|parameter| parameter.table.is_some()));
    // On which a damaged one rests, its manifest alone says.
    let is_beneath_damage = |id: CheckpointId| {
        let mut damaged = document.damaged.iter().map(|damaged| damaged.record.checkpoint);
        damaged.any(|damaged| id == damaged || (has_deltas && id < damaged))
    };
    let is_unneeded = |id: &&CheckpointId| {
        let is_named = document.named.is_some_and(|named| named.checkpoint == **id);
        let is_kept = document.checkpoints.iter().any(|kept| kept.needs(**id));
        id.0 <= document.checkpoints_named && !is_named && !is_kept && !is_beneath_damage(**id)
    };
    found.iter().filter(is_unneeded).copied().collect()
}

/// Drops checkpoints that turned out to be damaged. Returns the blocks that were to begin from one, and have not.
pub(super) fn drop_damaged(next: &mut Document, seen: &Seen<'_>) -> BTreeSet<BlockId> {
    let mut unreadable = BTreeSet::new();
    for Damage { checkpoint, blocks } in seen.damages {
        let kept = next.checkpoints.len();
        next.checkpoints.retain(|kept| kept.record != checkpoint.record);
        if next.checkpoints.len() < kept {
            next.damaged.push(checkpoint.clone());
        }
        let is_present = |(id, term): &&(BlockId, Term)| {
            let block = next.blocks.get(id.0 as usize);
            block.is_some_and(|block| block.term == *term && block.origin == Some(checkpoint.record))
        };
        unreadable.extend(blocks.iter().filter(is_present).map(|(id, _)| *id));
    }
    unreadable
}

/// Gives up the checkpoint under way: some block is past it, the job has gone back since it was named, or what it may rest
/// on was dropped.
pub(super) fn abandon(next: &mut Document, seen: &Seen<'_>) {
    let since = next.named.and_then(|named| named.since);
    let is_kept = |since| next.checkpoints.iter().any(|kept| kept.record.checkpoint == since);
    if seen.is_abandoned || since.is_some_and(|since| !is_kept(since)) {
        next.named = None;
    }
}

/// Names the next checkpoint when one is due; the last one always is, and one at an evaluation that may be the best.
pub(super) fn name(next: &mut Document, wishes: &Wishes, seen: &Seen<'_>, routing_version: u64) {
    let (Some(front), None) = (seen.front, next.named) else { return };
    // Nothing passes where blocks wait for an evaluation to be judged.
    let (barrier, ahead) = (next.open_until(), ahead(&next.job));
    let rewind = next.rewind();
    let is_kept = next.checkpoints.iter().any(|kept| kept.version.0 == barrier && kept.rewind <= rewind);
    let is_wanted = Version(barrier) == next.last_version() || next.keeps_best();
    let is_barrier_due = is_wanted && front.0 + ahead >= barrier && !is_kept;
    if is_barrier_due || wishes.is_checkpoint_due {
        next.checkpoints_named += 1;
        let version = Version((front.0 + ahead).min(barrier));
        let since =
            wishes.base.filter(|base| next.newest().map(|kept| kept.record.checkpoint) == Some(*base));
        let checkpoint = CheckpointId(next.checkpoints_named);
        next.named = Some(NamedCheckpoint { checkpoint, version, since, named_at: routing_version });
    }
}
