//! Leases of an asynchronous job: which trainer works on which run of microbatches. Pure: time comes in as an
//! argument. It keeps leases and no truth: what is free is asked, never remembered.
//!
//! The *front* is the lowest position that some block lacks, by the pservers' word; the *dispatch window* is the
//! stretch of W positions from there on. Leases are advice that saves work; no safety rests on them. Invariants:
//! - free is what lies in the window, is lacked by some block and is under no lease: so nothing is ever stranded, and
//!   what a block comes to lack again (it was restored) is free again;
//! - no two leases share a position, and nothing outside the window is leased: staleness is bounded by dispatch;
//! - a lease ends by its deadline unless its trainer makes progress. Nothing is leased twice to hurry it on: a copy
//!   that came first would make a slow trainer's work worthless, again and again.
//!
//! So while one trainer lives and asks, the front advances (P4), and every trainer that makes progress has its share.

mod alone;
mod free;
mod refused;

use crate::dispatch::Holder;
use crate::lanes::Lanes;
use crate::lease::Progress;
use crate::paces::{Pace, Paces};
use crate::shunned::Shunned;
use shoal_job::counters::LeaseCounters;
use shoal_runtime::cluster::ledger::WINDOW_MAX;
use shoal_runtime::cluster::{Course, Incarnation, LeaseId, Ledger};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

/// What blocks lack: the answer of the pservers, never of trainers.
pub trait Lacking {
    /// The lowest position that some block lacks, the job's end if none lacks any. None while some block has not been
    /// heard under its present term.
    fn front(&self) -> Option<u64>;
    /// The first stretch of `range`, which is not empty, that some block lacks. A block not heard under its present
    /// term lacks all that its last durable piece lacks.
    fn lacking(&self, range: Range<u64>) -> Option<Range<u64>>;
}

/// A lease just given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Its identity.
    pub lease: LeaseId,
    /// The first position of the run.
    pub first: u64,
    /// How many consecutive positions it has.
    pub count: u32,
}

#[derive(Debug)]
struct Lease {
    run: Range<u64>,
    trainer: Incarnation,
    microbatches: u32,
    pushed: bool,
    renewed: Duration,
}

/// What is known of a trainer that has had a lease.
#[derive(Debug, Default)]
struct Worker {
    /// Its leases that it has not pushed, in the order given: it works on them in this order.
    in_hand: Vec<LeaseId>,
    /// Since when what it computes next is under way.
    since: Duration,
    pace: Pace,
}

/// The lease machine of one asynchronous job.
#[derive(Debug)]
pub struct Runs {
    course: Course,
    /// The first position that may not be leased yet.
    until: u64,
    window: u64,
    ttl: Duration,
    next: LeaseId,
    leases: BTreeMap<LeaseId, Lease>,
    by_first: BTreeMap<u64, LeaseId>,
    by_renewal: BTreeSet<(Duration, LeaseId)>,
    workers: BTreeMap<Incarnation, Worker>,
    lanes: Lanes,
    paces: Paces,
    shunned: Shunned,
    /// What is leased by itself.
    withheld: Vec<Range<u64>>,
    /// Positions that were under a lease at some time.
    leased_before: Ledger,
    /// Nothing in the window below this is free but in `left`, so that idle trainers cost no search.
    searched: u64,
    /// Runs below `searched`, by their beginning, whose leases ended before all of them was applied.
    left: BTreeMap<u64, u64>,
    counters: LeaseCounters,
}

/// The longest run: what is lost with a trainer, and what one answer carries, stays small however wide the window.
const RUN_MAX: u64 = 16;
/// One run to work on, one to fetch records for.
const IN_HAND_MAX: u32 = 2;
/// First runs take a quarter of the window, second ones another: the rest is what others do while one is waited for.
const RUNS_PER_WINDOW: u64 = 4;
/// All lanes together take half the window, so that a new one finds room beyond the last.
const LANES_PER_WINDOW: u64 = 2;

impl Runs {
    /// The machine of a job whose positions do what `course` says. `window`: how many positions from the
    /// front on are leased; `ttl`: how long a lease lives without progress; `first`: the first lease's identity, so
    /// that none is given twice by a job's masters.
    pub fn new(course: Course, window: u64, ttl: Duration, first: LeaseId) -> Runs {
        assert!((1..=WINDOW_MAX).contains(&window), "a window of {window}, not of 1 to {WINDOW_MAX}");
        Runs {
            until: course.units(),
            course,
            window,
            ttl,
            next: first,
            leases: BTreeMap::new(),
            by_first: BTreeMap::new(),
            by_renewal: BTreeSet::new(),
            workers: BTreeMap::new(),
            lanes: Lanes::default(),
            paces: Paces::default(),
            shunned: Shunned::default(),
            withheld: Vec::new(),
            leased_before: Ledger::default(),
            searched: 0,
            left: BTreeMap::new(),
            counters: LeaseCounters::default(),
        }
    }

    /// Whether every block has applied the whole job.
    pub fn is_done(&self, lacking: &dyn Lacking) -> bool {
        lacking.front().is_some_and(|front| front >= self.course.units())
    }
    /// What happened so far. Nothing is ever speculative.
    pub fn counters(&self) -> LeaseCounters {
        self.counters
    }
    /// Leases that a trainer holds and has not pushed.
    pub fn in_hand(&self, trainer: Incarnation) -> u32 {
        self.workers.get(&trainer).map_or(0, |worker| worker.in_hand.len() as u32)
    }

    /// A trainer says how far it is. Progress renews a lease and those that wait behind it; words about leases that
    /// are gone change nothing.
    pub fn progress(&mut self, trainer: Incarnation, progress: &[Progress], now: Duration) {
        let (mut computed, mut is_over) = (0, false);
        for word in progress {
            let lease = self.leases.get_mut(&word.lease);
            let Some(lease) = lease.filter(|lease| lease.trainer == trainer && !lease.pushed) else {
                continue;
            };
            let microbatches = word.microbatches.clamp(lease.microbatches, lease.count());
            computed += microbatches - lease.microbatches;
            is_over |= word.pushed || (microbatches > lease.microbatches && microbatches == lease.count());
            let is_progress = microbatches > lease.microbatches || word.pushed;
            (lease.microbatches, lease.pushed) = (microbatches, word.pushed);
            if is_progress {
                self.renew(trainer, word.lease, now);
            }
        }
        let Some(worker) = self.workers.get_mut(&trainer) else { return };
        let leases = &self.leases;
        worker.in_hand.retain(|id| leases.get(id).is_some_and(|lease| !lease.pushed));
        if self.paces.observe(&mut worker.pace, computed, is_over, now.saturating_sub(worker.since)) {
            worker.since = now;
        }
    }

    fn renew(&mut self, trainer: Incarnation, from: LeaseId, now: Duration) {
        let Some(worker) = self.workers.get(&trainer) else { return };
        for id in worker.in_hand.iter().filter(|id| **id >= from) {
            if let Some(lease) = self.leases.get_mut(id) {
                self.by_renewal.remove(&(lease.renewed, *id));
                self.by_renewal.insert((now, *id));
                lease.renewed = now;
            }
        }
    }

    /// Ends the leases of `trainer` that it does not know of: their grant was lost on the way.
    pub fn forget_unknown(&mut self, trainer: Incarnation, known: &[Progress], lacking: &dyn Lacking) {
        self.end_in_hand(trainer, |id| known.iter().all(|word| word.lease != id), lacking);
    }

    /// A trainer fell silent: what blocks lack of its leases is free again.
    pub fn lose(&mut self, trainer: Incarnation, lacking: &dyn Lacking) {
        self.counters.expired += self.end_in_hand(trainer, |_| true, lacking);
        self.forget(trainer);
    }

    /// A trainer leaves and hands back what it has not pushed.
    pub fn hand_back(&mut self, trainer: Incarnation, lacking: &dyn Lacking) {
        self.counters.handed_back += self.end_in_hand(trainer, |_| true, lacking);
        self.forget(trainer);
    }

    /// Ends the leases that made no progress in time.
    pub fn expire(&mut self, now: Duration, lacking: &dyn Lacking) {
        let renewals = self.by_renewal.iter().take_while(|(renewed, _)| now >= *renewed + self.ttl);
        let due: Vec<LeaseId> = renewals.map(|(_, id)| *id).collect();
        for id in due {
            self.counters.expired += u64::from(self.end(id, lacking));
        }
    }

    /// The positions that may be leased now; `None` while the front is not known.
    pub fn open_positions(&self, lacking: &dyn Lacking) -> Option<Range<u64>> {
        lacking.front().map(|front| self.window(front))
    }

    /// The lease of a position; `None`: it is free.
    pub fn holder(&self, position: u64) -> Option<Holder> {
        self.covering(position).map(|lease| Holder {
            trainer: lease.trainer,
            computed: lease.microbatches,
            width: lease.count(),
            is_pushed: lease.pushed,
            waits: false,
            renewed: lease.renewed,
        })
    }

    /// All positions before `until` may be leased now.
    pub fn open(&mut self, until: u64) {
        self.until = until;
    }

    /// A block's term has changed: it may come to lack again what it had applied. Left out, that would be noticed only
    /// when the front comes to it.
    pub fn relack(&mut self) {
        self.searched = 0;
        self.left.clear();
    }

    /// When [`expire`](Self::expire) has something to do next.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.by_renewal.first().map(|(renewed, _)| *renewed + self.ttl)
    }

    /// Leases up to `want` runs to `trainer`, one of `live` live trainers.
    pub fn lease(
        &mut self,
        trainer: Incarnation,
        live: u32,
        want: u32,
        now: Duration,
        lacking: &dyn Lacking,
    ) -> Vec<Grant> {
        let Some(front) = lacking.front() else { return Vec::new() };
        self.drop_below(front);
        if self.covering(front).is_none() {
            // The front is free. If it was searched, some block has gone back.
            self.searched = self.searched.min(front);
        }
        let window = self.window(front);
        let parts = RUNS_PER_WINDOW * u64::from(live.max(1));
        // Who is slow, or has peers enough to fill the window, gets no run to keep waiting.
        let pace = self.workers.get(&trainer).map(|worker| worker.pace).unwrap_or_default();
        let is_scarce = self.window < parts || self.paces.is_slow(pace);
        let in_hand_max = if is_scarce { 1 } else { IN_HAND_MAX };
        // The first run of a trainer shows its pace. Then runs and lanes are as long as it is fast.
        let run_max =
            self.paces.share(pace, self.window / RUNS_PER_WINDOW, live).unwrap_or(1).clamp(1, RUN_MAX);
        let lane = self.window / LANES_PER_WINDOW;
        let lane = self.paces.share(pace, lane, live).unwrap_or(lane / u64::from(live.max(1))).max(1);
        let mut grants = Vec::new();
        while grants.len() < want as usize && self.in_hand(trainer) < in_hand_max {
            let Some(free) = self.choose(trainer, &window, lacking) else { break };
            let Some(free) = self.clear(trainer, live, free, &window, now, lacking) else { break };
            let run = free.start..free.end.min(free.start + run_max);
            // Others would leave the lane of a slow trainer to it, and the front would wait for it there.
            if self.paces.is_slow(pace) {
                self.lanes.leave(trainer);
            } else {
                self.lanes.go_on(trainer, run.end..run.end + lane);
            }
            grants.push(self.grant(trainer, run, now));
        }
        grants
    }

    /// The positions that may be leased while this is the lowest that some block lacks.
    fn window(&self, front: u64) -> Range<u64> {
        // An evaluation begins when all training before it is applied, and training goes on when it is.
        let end = self.until.min(self.course.barrier(front)).min(front.saturating_add(self.window));
        front..end.max(front)
    }

    fn grant(&mut self, trainer: Incarnation, run: Range<u64>, now: Duration) -> Grant {
        let id = self.next;
        self.next = LeaseId(id.0 + 1);
        self.counters.leased += 1;
        let again = run.clone().filter(|position| !self.leased_before.insert(*position)).count();
        self.counters.leased_again += u64::from(again > 0);
        let worker = self.workers.entry(trainer).or_default();
        if worker.in_hand.is_empty() {
            worker.since = now;
        }
        worker.in_hand.push(id);
        let grant = Grant { lease: id, first: run.start, count: (run.end - run.start) as u32 };
        self.by_first.insert(run.start, id);
        self.by_renewal.insert((now, id));
        self.leases.insert(id, Lease { run, trainer, microbatches: 0, pushed: false, renewed: now });
        grant
    }

    fn forget(&mut self, trainer: Incarnation) {
        self.lanes.leave(trainer);
        if let Some(mut worker) = self.workers.remove(&trainer) {
            self.paces.forget(&mut worker.pace);
        }
    }

    /// Lets go of the leases below the front: no block lacks anything of them.
    fn drop_below(&mut self, front: u64) {
        while let Some(id) = self.by_first.first_key_value().map(|(_, id)| *id)
            && self.leases.get(&id).is_some_and(|lease| lease.run.end <= front)
        {
            self.remove(id);
        }
    }

    /// Ends what a trainer has in hand, as far as `which` names it. Returns how many leases lacked something.
    fn end_in_hand(
        &mut self,
        trainer: Incarnation,
        which: impl Fn(LeaseId) -> bool,
        lacking: &dyn Lacking,
    ) -> u64 {
        let in_hand = self.workers.get(&trainer).map_or(&[][..], |worker| worker.in_hand.as_slice());
        let ids: Vec<LeaseId> = in_hand.iter().copied().filter(|id| which(*id)).collect();
        ids.into_iter().map(|id| u64::from(self.end(id, lacking))).sum()
    }

    /// Ends a lease; what blocks lack of it is free by that alone. Returns whether they lack anything of it.
    fn end(&mut self, id: LeaseId, lacking: &dyn Lacking) -> bool {
        let Some(lease) = self.remove(id) else { return false };
        let is_lacked = lacking.lacking(lease.run.clone()).is_some();
        if is_lacked && lease.run.start < self.searched {
            let end = self.left.entry(lease.run.start).or_default();
            *end = lease.run.end.max(*end);
        }
        is_lacked
    }

    fn remove(&mut self, id: LeaseId) -> Option<Lease> {
        let lease = self.leases.remove(&id)?;
        self.by_first.remove(&lease.run.start);
        self.by_renewal.remove(&(lease.renewed, id));
        if let Some(worker) = self.workers.get_mut(&lease.trainer) {
            worker.in_hand.retain(|held| *held != id);
        }
        Some(lease)
    }
}

impl Lease {
    fn count(&self) -> u32 {
        (self.run.end - self.run.start) as u32
    }
}

#[cfg(test)]
#[path = "runs_tests.rs"]
mod tests;
