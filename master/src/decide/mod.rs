//! What the document should be next, given what is seen: placement, failover, restores, copies, moves. Pure.
//!
//! Level-triggered: it starts from the document as it is, never from what was asked before, so that a master that has
//! just been elected decides as the one before it would have. Rules:
//! - only in-sync copies are promoted, the furthest reachable one, and nobody waits for the rest;
//! - an admission counts only if its fill, its term and its primary are still those of the document;
//! - a block without a reachable in-sync copy is restored: in synchronous jobs all blocks with it, each left with one
//!   copy, under a new term and rewind number;
//! - a checkpoint that is damaged is dropped, and who was to begin there begins at the newest that is left;
//! - what lies beyond an evaluation is open once that is judged: see `evaluate`;
//! - records that nobody can use are left out, or end the job: see `exclude`;
//! - a copy that cannot be continued gets a new fill, and is filling again.

mod checkpoints;
mod copies;
mod evaluate;
mod exclude;
mod failover;
mod moves;

pub(crate) use checkpoints::{ahead, unneeded};
pub use evaluate::Sums;

use crate::document::{Checks, Document, End, KeptCheckpoint, Mark, PlacedCopy, PserverAt, Told, Wanted};
use crate::trouble::Complaint;
use shoal_runtime::cluster::{
    BlockId, CheckpointId, DamagedCheckpoint, Declaration, Environment, Fill, Incarnation, StateName, Term,
    Version,
};
use std::collections::{BTreeMap, BTreeSet};

/// What is seen of the pservers at one moment.
#[derive(Debug)]
pub struct Seen<'a> {
    /// The pservers that are live.
    pub hosts: &'a BTreeMap<Incarnation, PserverAt>,
    /// Whether one of them may be gone, or may be about to say that it goes: it was not heard of since this master began, or has no call open.
    pub has_suspects: bool,
    /// What followers have said of their copies.
    pub copies: &'a BTreeMap<(BlockId, Incarnation), CopyWord>,
    /// What primaries have asked for.
    pub admissions: &'a [Admission],
    /// Bytes of each block's parameters.
    pub sizes: &'a [u64],
    /// The lowest version published over all blocks, if all were heard of.
    pub front: Option<Version>,
    /// What primaries have said of checkpoints that they were to begin from.
    pub damages: &'a [Damage],
    /// What primaries have said of metrics.
    pub sums: &'a Sums,
    /// What trainers have said that they cannot do.
    pub complaints: &'a [Complaint],
    /// How many trainers there are that may still be asked.
    pub able_trainers: usize,
    /// Whether the checkpoint under way cannot be completed any more.
    pub is_abandoned: bool,
    /// Whether blocks without a copy should be restored now, however few pservers there are.
    pub is_patience_over: bool,
}

/// A follower's word about its copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyWord {
    /// Which copy.
    pub fill: Fill,
    /// What it holds, if anything.
    pub name: Option<StateName>,
    /// Whether it needs a new fill.
    pub is_broken: bool,
}

/// A primary asks for a filling copy to become in-sync, or for its heir to take over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The block.
    pub block: BlockId,
    /// Where the copy is.
    pub pserver: Incarnation,
    /// Which copy it is.
    pub fill: Fill,
    /// Under which term it is asked.
    pub term: Term,
    /// Who asks.
    pub primary: Incarnation,
    /// Whether the copy is to take over.
    pub is_heir: bool,
}

/// A checkpoint that is not what was written, and the primaries that were to begin there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Which, and what is wrong.
    pub checkpoint: DamagedCheckpoint,
    /// The blocks, and the terms that they cannot begin.
    pub blocks: Vec<(BlockId, Term)>,
}

/// What people and programs have asked for since the document was written, or before.
#[derive(Clone, Debug)]
pub struct Wishes {
    /// The first trainer's declaration.
    pub declaration: Option<Declaration>,
    /// The first trainer's environment.
    pub environment: Option<Environment>,
    /// How many members are asked for.
    pub wanted: Wanted,
    /// How closely trainers are to be looked at.
    pub checks: Checks,
    /// Live settings that were told.
    pub told: Option<Told>,
    /// Pservers that are to be left.
    pub leaving: BTreeSet<Incarnation>,
    /// Pservers that are to leave once another has come.
    pub replacing: BTreeSet<Incarnation>,
    /// A checkpoint that has become durable.
    pub committed: Option<KeptCheckpoint>,
    /// Checkpoints to keep.
    pub keep_last: usize,
    /// Whether a checkpoint is due.
    pub is_checkpoint_due: bool,
    /// The newest kept one, if the next may have only what changed since.
    pub base: Option<CheckpointId>,
    /// How the job has ended.
    pub end: Option<End>,
    /// Trainers that ended because they could not go on, since others last made a step.
    pub failures: u32,
}

/// The next document; none if nothing should change.
pub fn next(document: &Document, wishes: &Wishes, seen: &Seen<'_>) -> Option<Document> {
    if document.end.is_some() {
        return None;
    }
    let mut next = document.clone();
    next.declaration = next.declaration.or_else(|| wishes.declaration.clone());
    next.environment = next.environment.or_else(|| wishes.environment.clone());
    (next.wanted, next.checks, next.end) = (wishes.wanted, wishes.checks, wishes.end.clone());
    next.told.clone_from(&wishes.told);
    if next.end.is_none() && next.declaration.is_some() {
        decide_blocks(&mut next, wishes, seen);
    }
    if next == *document {
        return None;
    }
    next.routing_version += 1;
    debug_assert!(next.is_sound(), "{next:?}");
    Some(next)
}

fn decide_blocks(next: &mut Document, wishes: &Wishes, seen: &Seen<'_>) {
    let version = next.routing_version + 1;
    if next.blocks.is_empty() {
        failover::place(next, seen, version);
    } else {
        next.leaving.extend(&wishes.leaving);
        next.replacing.extend(wishes.replacing.difference(&next.leaving));
        let unreadable = checkpoints::drop_damaged(next, seen);
        failover::forget_the_lost(next, unreadable, seen, version);
        exclude::judge(next, wishes, seen, version);
        copies::admit(next, seen, version);
        copies::refill_broken(next, seen, version);
        let is_known_who_stays = moves::choose_leavers(next, seen);
        moves::finish(next, seen);
        if is_known_who_stays {
            moves::choose(next, seen);
        }
        moves::begin(next, seen, version);
        copies::drop_surplus(next, seen);
        copies::add_missing(next, seen, version);
        checkpoints::keep(next, wishes);
        evaluate::judge(next, seen);
        checkpoints::abandon(next, seen);
        checkpoints::name(next, wishes, seen, version);
    }
    next.note_pservers(seen);
}

impl Document {
    /// Keeps the addresses of exactly those pservers that hold copies.
    fn note_pservers(&mut self, seen: &Seen<'_>) {
        let holders = self.blocks.iter().flat_map(|block| &block.copies).map(|copy| copy.pserver);
        let at =
            |who: Incarnation| Some((who, seen.hosts.get(&who).or_else(|| self.pservers.get(&who))?.clone()));
        self.pservers = holders.filter_map(at).collect();
    }

    /// Every block has one copy on a pserver at most, its primary is in-sync and the first.
    fn is_sound(&self) -> bool {
        self.blocks.iter().all(|block| {
            let first = block.copies.first();
            let is_alone = |copy: &PlacedCopy| {
                block.copies.iter().filter(|other| other.pserver == copy.pserver).count() == 1
            };
            first.is_some_and(|copy| copy.pserver == block.primary && copy.mark == Mark::InSync)
                && block.copies.iter().all(is_alone)
                && block.heir.is_none_or(|heir| block.in_sync().any(|copy| copy.pserver == heir))
                && block.term.0 >= block.rewind.0
        })
    }
}

#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod evaluate_tests;
#[cfg(test)]
mod tests;
