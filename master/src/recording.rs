//! Recording: hashes of all blocks after every so many steps, gathered from pservers until they are durable. Pure. It must never hold up
//! a step.
//!
//! A **recorded step** goes one way:
//!
//! | state | until | next state |
//! | --- | --- | --- |
//! | gathered | every block's hashes have come, from any copy | whole |
//! | whole | it is given out to be written | given |
//! | given | it is durable; if the write failed, it is whole again | settled |
//! | gathered | so many later steps are whole that some of its hashes must be lost | given up, counted, settled |
//!
//! Pservers forget settled hashes, from the lowest version on: nothing is forgotten that is not durable. A durable step is remembered a
//! while longer, because followers hash later than primaries and a step needs one copy of each block only. When the job goes back, whole
//! steps of versions that are not made again are still written; all else begins anew. Invariants:
//! - two copies that report the same block, version and term report the same hashes, or the difference is found, while the step is
//!   remembered. Under another term a version may have been made again, of sums by a nondeterministic program: the later one counts;
//! - within one history, settled versions only grow.

use shoal_runtime::cluster::{BlockHashes, BlockId, Incarnation, Rewind, StepHashes, Term, Version};
use std::collections::BTreeMap;
use std::time::Duration;

/// Whole steps behind which one that is not is given up.
const BEHIND_MAX: usize = 16;
/// Steps that are remembered at most.
const STEPS_MAX: usize = 1024;
/// Hashes that are remembered at most, beside those of the newest step. Where a block has one, they take 64 bytes each: 256 MiB.
const HASHES_MAX: usize = 1 << 22;
/// Durable steps that are remembered at most, for copies whose hashes come later: at a thousand steps a second a follower may be a
/// quarter of a second behind. The newest always is.
const SETTLED_MAX: usize = 256;
/// Hashes of durable steps that are remembered at most, beside those of the newest: 64 MiB, as above.
const SETTLED_HASHES_MAX: usize = 1 << 20;
/// The patience of the job's end with a write of hashes that fails or hangs.
const WRITING_PATIENCE: Duration = Duration::from_secs(30);
/// Between two objects with steps in them, at least: a place counts its objects.
const PAUSE: Duration = Duration::from_secs(1);

/// Two copies of a block that have other bits at one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The block.
    pub block: BlockId,
    /// The version.
    pub version: Version,
    /// The first of its hashes that differs.
    pub hash: usize,
    /// Who told them.
    pub pservers: [Incarnation; 2],
}

/// How many steps were recorded, and how many were not because hashes were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Durable.
    pub recorded: u64,
    /// Given up.
    pub given_up: u64,
}

/// What is recorded of one job.
#[derive(Debug)]
pub struct Recording {
    rewind: Rewind,
    began: Duration,
    /// Steps from the lowest unsettled one on, and the last durable ones before it.
    steps: BTreeMap<Version, Gathered>,
    /// Versions below are settled.
    below: Version,
    given_at: Option<Duration>,
    heard_at: Duration,
    /// The beginning of the time in which steps were given out and none became durable; `None` while none is given out.
    unwritten_since: Option<Duration>,
    counters: Counters,
}

/// One step.
#[derive(Debug)]
struct Gathered {
    /// The history that it was made in.
    rewind: Rewind,
    /// The first report of each block's hashes, under the highest term. Empty once they are given up.
    blocks: Vec<Option<Told>>,
    missing: usize,
    /// Hashes in all blocks.
    hashes: usize,
    stage: Stage,
}

/// The hashes of one block.
#[derive(Clone, Debug)]
struct Told {
    by: Incarnation,
    term: Term,
    hashes: Vec<u64>,
}

/// A step that is written: its version, its history, and of each block the hashes.
pub type Whole = (Version, Rewind, Vec<Vec<u64>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Not all are there, or all are and wait to be written.
    Gathering,
    /// They are being written.
    Given,
    /// They are durable, or given up.
    Settled,
}

impl Gathered {
    fn is_whole(&self) -> bool {
        self.missing == 0
    }

    /// Hashes that are still to become durable.
    fn open_hashes(&self) -> usize {
        if self.stage == Stage::Settled { 0 } else { self.hashes }
    }

    fn give_up(&mut self) {
        (self.stage, self.blocks, self.hashes) = (Stage::Settled, Vec::new(), 0);
    }
}

impl Recording {
    /// Nothing is recorded yet of this history.
    pub fn of(rewind: Rewind, now: Duration) -> Recording {
        Recording {
            rewind,
            began: now,
            steps: BTreeMap::new(),
            below: Version(0),
            given_at: None,
            heard_at: now,
            unwritten_since: None,
            counters: Counters::default(),
        }
    }

    /// The job has gone back: what is told from now on is of this history. What lies before the version that it has gone back to is
    /// not made again.
    pub fn begin(&mut self, rewind: Rewind, restored: Version) {
        let is_lost = |version: Version, step: &Gathered| version < restored && !step.is_whole();
        self.counters.given_up +=
            self.steps.iter().filter(|(version, step)| is_lost(**version, step)).count() as u64;
        self.steps
            .retain(|version, step| *version < restored && step.is_whole() && step.stage != Stage::Settled);
        (self.rewind, self.below) = (rewind, Version(0));
    }

    /// Takes over the settled versions of a predecessor: reports of lower versions are neither waited for nor counted.
    pub fn settled_before(&mut self, (rewind, below): (Rewind, Version)) {
        if rewind == self.rewind && below > self.below {
            self.below = below;
            self.steps.retain(|version, step| *version >= below || step.is_whole());
        }
    }

    /// Takes a pserver's hashes, as many of each block as it has; `blocks` is the number of blocks. Hashes of another history are
    /// ignored; those of durable steps are compared while the step is remembered.
    pub fn hear(
        &mut self,
        pserver: Incarnation,
        told: Vec<BlockHashes>,
        blocks: usize,
        now: Duration,
    ) -> Option<Difference> {
        let mut difference = None;
        for BlockHashes { block, version, rewind, term, hashes } in told {
            let at = block.0 as usize;
            if rewind != self.rewind || at >= blocks {
                continue;
            }
            if version >= self.below {
                self.heard_at = now;
                let (stage, missing, hashes) = (Stage::Gathering, blocks, 0);
                let nothing = || Gathered { rewind, blocks: vec![None; blocks], missing, hashes, stage };
                self.steps.entry(version).or_insert_with(nothing);
            }
            let step = self.steps.get_mut(&version).filter(|step| step.rewind == rewind);
            let Some(step) = step else { continue };
            let Some(of) = step.blocks.get_mut(at) else { continue };
            let told = Told { by: pserver, term, hashes };
            match of {
                Some(known) if known.term > term => {}
                Some(known) if known.term == term => {
                    if known.hashes != told.hashes {
                        let pairs = known.hashes.iter().zip(&told.hashes);
                        let hash = pairs.into_iter().position(|(one, other)| one != other).unwrap_or(0);
                        let pservers = [known.by, pserver];
                        difference.get_or_insert(Difference { block, version, hash, pservers });
                    }
                }
                of => {
                    step.missing -= usize::from(of.is_none());
                    step.hashes += told.hashes.len();
                    step.hashes -= of.replace(told).map_or(0, |before| before.hashes.len());
                }
            }
        }
        self.give_up();
        difference
    }

    /// Gives up the steps that will not be whole any more.
    fn give_up(&mut self) {
        let whole = self.steps.iter().rev().filter(|(_, step)| step.is_whole());
        let newest = whole.map(|(version, _)| *version).nth(BEHIND_MAX - 1);
        let surplus = self.surplus();
        let is_late = |at: usize, version: Version, step: &Gathered| {
            at < surplus || (!step.is_whole() && newest.is_some_and(|newest| version < newest))
        };
        for (at, (version, step)) in self.steps.range_mut(self.below..).enumerate() {
            if step.stage == Stage::Gathering && is_late(at, *version, step) {
                tracing::warn!(%version, "hashes of this version were lost: it is not recorded");
                self.counters.given_up += 1;
                step.give_up();
            }
        }
        self.pass_settled();
    }

    /// How many of the oldest steps are too much to remember: nobody can write, as it seems.
    fn surplus(&self) -> usize {
        let steps = || self.steps.range(self.below..).map(|(_, step)| step);
        let (count, mut hashes) = (steps().count(), steps().map(Gathered::open_hashes).sum::<usize>());
        let is_too_much = |step: &&Gathered| {
            let is_too_much = hashes > HASHES_MAX;
            hashes -= if is_too_much { step.open_hashes() } else { 0 };
            is_too_much
        };
        let by_hashes = steps().take_while(is_too_much).count();
        by_hashes.min(count.saturating_sub(1)).max(count.saturating_sub(STEPS_MAX))
    }

    /// Advances over settled steps: pservers are told to forget them, and the last of them stay remembered.
    fn pass_settled(&mut self) {
        let settled =
            self.steps.range(self.below..).take_while(|(_, step)| step.stage == Stage::Settled).last();
        self.below = settled.map_or(self.below, |(version, _)| Version(version.0 + 1));
        let (mut steps, mut hashes) = (0, 0);
        let is_too_much = |(_, step): &(&Version, &Gathered)| {
            (steps, hashes) = (steps + 1, hashes + step.hashes);
            steps > 1 && (steps > SETTLED_MAX || hashes > SETTLED_HASHES_MAX)
        };
        let forgotten = self.steps.range(..self.below).rev().find(is_too_much).map(|(version, _)| *version);
        if let Some(last) = forgotten {
            self.steps = self.steps.split_off(&Version(last.0 + 1));
        }
    }

    /// Steps that are whole, to be written into one object; given out once. None before it is time, unless `last` is among them, the
    /// version with which the job ends.
    pub fn to_write(&mut self, last: Version, now: Duration) -> Option<Vec<Whole>> {
        let is_due = |step: &Gathered| step.is_whole() && step.stage == Stage::Gathering;
        let is_last = self.steps.get(&last).is_some_and(is_due);
        let is_time = self.given_at.is_none_or(|given_at| now >= given_at + PAUSE);
        let is_writing = self.steps.values().any(|step| step.stage == Stage::Given);
        if is_writing || !(is_time || is_last) {
            return None;
        }
        let due = self.steps.iter_mut().filter(|(_, step)| is_due(step));
        let those: Vec<Whole> = due
            .map(|(version, step)| {
                step.stage = Stage::Given;
                let hashes = step.blocks.iter().flatten().map(|told| told.hashes.clone());
                (*version, step.rewind, hashes.collect())
            })
            .collect();
        if those.is_empty() {
            return None;
        }
        self.given_at = Some(now);
        // From now on, and not from its failure: a write may neither succeed nor fail.
        self.unwritten_since.get_or_insert(now);
        Some(those)
    }

    /// What was given out is durable.
    pub fn written(&mut self) {
        for step in self.steps.values_mut().filter(|step| step.stage == Stage::Given) {
            self.counters.recorded += 1;
            step.stage = Stage::Settled;
        }
        self.unwritten_since = None;
        self.pass_settled();
    }

    /// What was given out could not be written: it is given out again.
    pub fn not_written(&mut self) {
        let given = self.steps.values_mut().filter(|step| step.stage == Stage::Given);
        given.for_each(|step| step.stage = Stage::Gathering);
    }

    /// The job ends: what is not durable will not be.
    pub fn end(&mut self) {
        let open = self.steps.values().filter(|step| step.stage != Stage::Settled);
        self.counters.given_up += open.count() as u64;
        self.steps = BTreeMap::new();
    }

    /// The history, and the version below which all is settled in it.
    pub fn settled(&self) -> (Rewind, Version) {
        (self.rewind, self.below)
    }

    /// Whether the job's end should wait: something is to be written, and it is not long that it cannot be; or was told within
    /// `patience` and may yet be whole; or not all pservers were heard of since this master began, `is_heard`, which may still be.
    pub fn is_worth_waiting(&self, now: Duration, patience: Duration, is_heard: bool) -> bool {
        let mut open = self.steps.values().filter(|step| step.stage != Stage::Settled);
        let can_write = self.unwritten_since.is_none_or(|since| now < since + WRITING_PATIENCE);
        let is_to_be_written = can_write && open.clone().any(Gathered::is_whole);
        let may_come = open.next().is_some() && now < self.heard_at + patience;
        is_to_be_written || may_come || (!is_heard && now < self.began + patience)
    }

    /// How many steps were recorded, and how many were not.
    pub fn counters(&self) -> Counters {
        self.counters
    }
}

/// Steps as they are written; `step` says which step has made a version.
pub fn recorded(those: Vec<Whole>, step: impl Fn(Version) -> u64) -> Vec<StepHashes> {
    let each = |(version, rewind, blocks)| StepHashes { version, step: step(version), rewind, blocks };
    those.into_iter().map(each).collect()
}

#[cfg(test)]
#[path = "recording_tests.rs"]
mod tests;
