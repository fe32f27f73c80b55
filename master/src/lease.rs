//! Leases: which trainer works on which node of which step. Pure: time comes in as an argument.
//!
//! Open are the *front* (the lowest step that some block has not applied), those that a delay lets begin beside it, and
//! one more, so that trainers can fetch records ahead; nothing beyond an evaluation that is not judged. Leases are advice that saves work; no safety rests on them. Invariants:
//! - every present slot of an open step is free, under a lease, or lacked by no block; never free and under a lease;
//! - a lease of the front ends by its deadline unless progress renews it, its own or that of what its trainer does before it,
//!   or the word that its gradient waits for room: that is no delay of its trainer's; then what blocks lack of it is free again;
//! - what is free is leased to whoever asks, the front first.
//!
//! So while one trainer lives and asks, the front advances (P4), whatever was lost.

mod alone;
mod front;
mod held;
mod known;
mod refused;
mod speculation;

use crate::free_nodes::FreeNodes;
use crate::paces::Paces;
use crate::shunned::Shunned;
use front::GRANTS_PER_CALL_MAX;
use held::{HeldLeases, Lease, LeasePlace};
use known::KnownTrainer;
use shoal_job::counters::LeaseCounters;
use shoal_runtime::cluster::{Incarnation, JobShape, LeaseId, Node, Step, StepTree};
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

/// What some block still lacks of a node of the front step: the answer of the pservers, never of trainers.
pub trait Lacking {
    /// The slots of `node` that some block lacks, as disjoint nodes.
    fn lacking(&self, step: Step, node: Node) -> Vec<Node>;
}

/// How far a trainer is with one lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Which lease.
    pub lease: LeaseId,
    /// Microbatches computed.
    pub microbatches: u32,
    /// Whether every block answered that it holds or has applied the node.
    pub pushed: bool,
    /// Whether it is computed and pservers have yet to find room for it. So it may be for long, and nobody can help.
    pub waits: bool,
}

/// A lease just given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Its identity.
    pub lease: LeaseId,
    /// The step.
    pub step: Step,
    /// The node to compute and push.
    pub node: Node,
}

#[derive(Debug)]
struct OpenStep {
    step: Step,
    tree: StepTree,
    free: FreeNodes,
    leases: HeldLeases,
    /// How many trainers have had a lease of it.
    served: u32,
    /// Slots that were under a lease at some time.
    leased_before: Vec<bool>,
}

/// The lease machine of one job.
#[derive(Debug)]
pub struct Leases {
    shape: JobShape,
    /// The first step that may not be leased yet.
    until: u64,
    /// Open steps beyond the front.
    ahead: u64,
    ttl: Duration,
    open: Vec<OpenStep>,
    front: Step,
    front_since: Duration,
    next: u64,
    trainers: BTreeMap<Incarnation, KnownTrainer>,
    paces: Paces,
    shunned: Shunned,
    /// What is leased by itself, and where nobody helps.
    withheld: Vec<Range<u64>>,
    unhelped: Vec<Range<u64>>,
    counters: LeaseCounters,
}

impl Leases {
    /// The machine of a job at its beginning, of which the steps before `until` may be leased. `ahead`: how many are open beyond the front; `ttl`: how
    /// long a lease lives without progress; `first`: the first lease's number, which no master before has given.
    pub fn new(
        shape: JobShape,
        until: u64,
        ahead: u64,
        ttl: Duration,
        first: LeaseId,
        now: Duration,
    ) -> Leases {
        let mut leases = Leases {
            shape,
            until,
            ahead,
            ttl,
            open: Vec::new(),
            front: Step(0),
            front_since: now,
            next: first.0,
            trainers: BTreeMap::new(),
            paces: Paces::default(),
            shunned: Shunned::default(),
            withheld: Vec::new(),
            unhelped: Vec::new(),
            counters: LeaseCounters::default(),
        };
        leases.open_steps();
        leases
    }

    /// The lowest step that some block has not applied; the job's number of steps at its end.
    pub fn front(&self) -> Step {
        self.front
    }
    /// What happened so far.
    pub fn counters(&self) -> LeaseCounters {
        self.counters
    }
    /// Leases that a trainer holds and has not pushed.
    pub fn in_hand(&self, trainer: Incarnation) -> u32 {
        self.of(trainer).filter(|lease| !lease.pushed).count() as u32
    }
    fn of(&self, trainer: Incarnation) -> impl Iterator<Item = &Lease> {
        let leases = self.trainers.get(&trainer).into_iter().flat_map(|known| &known.leases);
        leases.filter_map(|(step, place)| self.at(*step)?.leases.get(*place))
    }
    fn at(&self, step: Step) -> Option<&OpenStep> {
        self.open.iter().find(|open| open.step == step)
    }

    /// Every block has applied all steps below `front`.
    pub fn advance(&mut self, front: Step, now: Duration) {
        if front > self.front {
            self.end_steps(front, now);
            self.front = front;
            self.front_since = now;
            self.trainers.retain(|_, known| known.advance(front, &mut self.paces));
            self.open_steps();
        }
    }

    /// All steps before `until` may be leased now. Fewer than before only where the job goes back, before that is told.
    pub fn open(&mut self, until: u64) {
        self.until = until;
        self.open_steps();
    }

    /// The job has gone back to `front`: whatever was leased is void.
    pub fn rewind(&mut self, front: Step, now: Duration) {
        (self.front, self.front_since) = (front, now);
        self.open.clear();
        self.trainers.retain(|_, known| known.rewind(&mut self.paces));
        self.open_steps();
    }

    /// A block has come to lack what it held before (its primary changed): what nobody has in hand is free again.
    pub fn reclaim(&mut self, lacking: &dyn Lacking) {
        for open in &mut self.open {
            for node in lacking.lacking(open.step, open.tree.root()) {
                open.leases.release(node, &mut open.free);
            }
        }
    }

    fn open_steps(&mut self) {
        for step in (self.front.0..self.until.min(self.front.0 + self.ahead + 1)).map(Step) {
            if self.open.iter().all(|open| open.step != step) {
                self.open.push(OpenStep::new(step, self.shape.tree(step)));
            }
            // An evaluation reads what it is of. One step that nobody can do yet is enough to read records ahead; two would
            // take the room of what they wait for.
            if step > self.front && self.shape.evaluates(step) {
                break;
            }
        }
    }

    /// A trainer says how far it is. Progress renews a lease and those that its trainer does after it; words about leases that
    /// are gone, or of others, change nothing.
    pub fn progress(&mut self, trainer: Incarnation, progress: &[Progress], now: Duration) {
        let Some(known) = self.trainers.get_mut(&trainer) else { return };
        let (mut computed, mut is_over) = (0, false);
        for word @ Progress { lease, .. } in progress {
            let Some((step, place)) = known.leases.iter().find(|(_, place)| place.id == *lease) else {
                continue;
            };
            let Some(open) = self.open.iter_mut().find(|open| open.step == *step) else { continue };
            let is_lease_over = |open: &OpenStep| open.leases.get(*place).is_some_and(Lease::is_over);
            let was_over = is_lease_over(open);
            let more = open.leases.progress(*place, *word, now);
            is_over |= !was_over && is_lease_over(open);
            if more > 0 {
                let later = known.of_step(*step).filter(|other| other.id > place.id);
                later.for_each(|place| open.leases.renew(place, now));
            }
            computed += more;
        }
        known.computed(computed, is_over, self.front_since, now, &mut self.paces);
    }

    /// Ends the leases of `trainer` that it does not know of: their grant was lost on the way.
    pub fn forget_unknown(&mut self, trainer: Incarnation, known: &[Progress], lacking: &dyn Lacking) {
        let is_unknown = |lease: &Lease| !lease.pushed && known.iter().all(|word| word.lease != lease.id);
        self.end(trainer, is_unknown, lacking);
    }

    /// A trainer fell silent: what blocks lack of its leases is free again.
    pub fn lose(&mut self, trainer: Incarnation, lacking: &dyn Lacking) {
        self.counters.expired += self.end(trainer, |lease| !lease.pushed, lacking);
        self.forget_lanes(trainer);
    }

    /// A trainer leaves and hands back what it has not pushed.
    pub fn hand_back(&mut self, trainer: Incarnation, lacking: &dyn Lacking) {
        self.counters.handed_back += self.end(trainer, |lease| !lease.pushed, lacking);
        self.forget_lanes(trainer);
    }

    /// Ends the leases of the front that made no progress in time.
    pub fn expire(&mut self, now: Duration, lacking: &dyn Lacking) {
        let (front, since) = (self.front, self.front_since);
        let Some(open) = self.open.iter_mut().find(|open| open.step == front) else { return };
        let Some(until) = now.checked_sub(self.ttl).filter(|until| *until >= since) else { return };
        let places = open.leases.renewed_until(until);
        for place in &places {
            let trainer = open.leases.get(*place).map(|lease| lease.trainer);
            if let Some(known) = trainer.and_then(|trainer| self.trainers.get_mut(&trainer)) {
                known.leases.retain(|(_, held)| held != place);
            }
        }
        self.counters.expired += open.end(places, lacking);
    }

    /// Ends those leases of a trainer.
    fn end(&mut self, trainer: Incarnation, which: impl Fn(&Lease) -> bool, lacking: &dyn Lacking) -> u64 {
        let Some(known) = self.trainers.get_mut(&trainer) else { return 0 };
        let mut ended = 0;
        for open in &mut self.open {
            let theirs = known.leases.iter().filter(|(step, _)| *step == open.step).map(|(_, place)| *place);
            let places = theirs.filter(|place| open.leases.get(*place).is_some_and(&which));
            let places: Vec<LeasePlace> = places.collect();
            known.leases.retain(|(_, place)| !places.contains(place));
            ended += open.end(places, lacking);
        }
        ended
    }

    fn forget_lanes(&mut self, trainer: Incarnation) {
        if let Some(known) = self.trainers.get_mut(&trainer) {
            known.lanes.clear();
            self.paces.forget(&mut known.pace);
        }
    }

    /// When [`expire`](Self::expire) has something to do next.
    pub fn next_deadline(&self) -> Option<Duration> {
        let front = self.open.iter().find(|open| open.step == self.front)?;
        front.leases.oldest().map(|renewed| renewed.max(self.front_since) + self.ttl)
    }

    /// Leases up to `want` tasks to `trainer`, one of `live` live trainers.
    pub fn lease(
        &mut self,
        trainer: Incarnation,
        live: u32,
        want: u32,
        now: Duration,
        lacking: &dyn Lacking,
    ) -> Vec<Grant> {
        let mut grants = Vec::new();
        for _ in 0..want.min(GRANTS_PER_CALL_MAX) {
            let found = (0..self.open.len()).find_map(|at| self.take(at, trainer, live.max(1), now));
            let found = match found {
                None if grants.is_empty() && self.is_idle(trainer) => self.speculate(trainer, now, lacking),
                found => found,
            };
            let Some((at, node)) = found else { break };
            grants.push(self.grant(at, trainer, node, now));
        }
        grants
    }

    /// Takes a free node of the open step `at`: a fair share first, smaller pieces of what is left after that.
    fn take(&mut self, at: usize, trainer: Incarnation, live: u32, now: Duration) -> Option<(usize, Node)> {
        let share = self.share(at, trainer, live, now)?;
        let withheld = self.withheld(self.open[at].step);
        let (open, known) = (&mut self.open[at], self.trainers.get(&trainer));
        let leaves_nothing = live == 1 || self.shunned.is_empty_for(trainer, now);
        let node = if leaves_nothing && withheld.is_empty() {
            let lanes = known.map_or(&[][..], |known| &known.lanes);
            let kept = lanes.iter().find_map(|lane| open.free.take_within(*lane, share));
            kept.or_else(|| open.free.take_largest(share))?
        } else {
            let (step, shunned) = (open.step.0, &self.shunned);
            let is_left = |slot| !leaves_nothing && shunned.is(trainer, step, slot, now);
            let is_withheld = |slot| withheld.iter().any(|range| range.contains(&slot));
            open.free.take_clear(share, |slot| !is_left(slot) && !is_withheld(slot))?
        };
        if !open.leased_before[node.first() as usize..(node.end().min(open.tree.present())) as usize]
            .contains(&true)
        {
            return Some((at, node));
        }
        self.counters.leased_again += 1;
        Some((at, node))
    }

    fn grant(&mut self, at: usize, trainer: Incarnation, node: Node, now: Duration) -> Grant {
        let id = LeaseId(self.next);
        self.next += 1;
        self.counters.leased += 1;
        let is_idle = self.is_idle(trainer);
        let open = &mut self.open[at];
        let known = self.trainers.entry(trainer).or_default();
        if is_idle {
            known.begins(now);
        }
        if !known.served.contains(&open.step) {
            known.served.push(open.step);
            known.lanes.clear();
            open.served += 1;
        }
        known.lanes.push(node);
        let end = node.end().min(open.tree.present());
        open.leased_before[node.first() as usize..end as usize].fill(true);
        let lease = Lease {
            id,
            node,
            trainer,
            microbatches: 0,
            pushed: false,
            waits: false,
            renewed: now,
            speculated: 0,
        };
        known.leases.push((open.step, open.leases.insert(lease)));
        Grant { lease: id, step: open.step, node }
    }
}

impl OpenStep {
    fn new(step: Step, tree: StepTree) -> OpenStep {
        OpenStep {
            step,
            tree,
            free: FreeNodes::new(tree.present(), tree.missing([])),
            leases: HeldLeases::new(tree.present()),
            served: 0,
            leased_before: vec![false; tree.present() as usize],
        }
    }

    /// Ends leases; what blocks lack of them, and no other lease holds, is free again. Returns how many lacked something.
    fn end(&mut self, places: Vec<LeasePlace>, lacking: &dyn Lacking) -> u64 {
        let mut ended = 0;
        for place in places {
            let Some(lease) = self.leases.remove(place) else { continue };
            let lacked = lacking.lacking(self.step, lease.node);
            ended += u64::from(!lacked.is_empty());
            for node in lacked {
                self.leases.release(node, &mut self.free);
            }
        }
        ended
    }
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
