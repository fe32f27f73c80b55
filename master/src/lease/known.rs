//! What is known of one trainer: where it works, and how fast. Pure.

use super::Leases;
use super::held::LeasePlace;
use crate::paces::{Pace, Paces};
use shoal_runtime::cluster::{Incarnation, Node, Step};
use std::time::Duration;

/// Nothing smaller than so much of a fair share is leased while there is more: each piece is a gradient more on the wire, and
/// waiting for one of this size costs a step an eighth at most.
const LEAST_OF_SHARE: u32 = 8;

/// What is known of one trainer.
#[derive(Debug, Default)]
pub(super) struct KnownTrainer {
    /// The nodes it had last, kept so that it stays in the chunks it has read. None once it is gone.
    pub(super) lanes: Vec<Node>,
    /// The open steps of which it has had a lease.
    pub(super) served: Vec<Step>,
    /// Its leases.
    pub(super) leases: Vec<(Step, LeasePlace)>,
    /// Since when what it computes next is under way, if not since a later step's beginning.
    since: Duration,
    pub(super) pace: Pace,
}

impl KnownTrainer {
    /// Its leases of one step. It does the one first that was given first.
    pub(super) fn of_step(&self, step: Step) -> impl Iterator<Item = LeasePlace> {
        self.leases.iter().filter(move |(of, _)| *of == step).map(|(_, place)| *place)
    }

    /// It is given a lease; of what it can begin with, this is the first.
    pub(super) fn begins(&mut self, now: Duration) {
        self.since = now;
    }

    /// It says that it has computed so many microbatches more, of steps that could be begun at `begun`; `is_over` with the last
    /// of a task.
    pub(super) fn computed(
        &mut self,
        microbatches: u32,
        is_over: bool,
        begun: Duration,
        now: Duration,
        paces: &mut Paces,
    ) {
        if paces.observe(&mut self.pace, microbatches, is_over, now.saturating_sub(self.since.max(begun))) {
            self.since = now;
        }
    }

    /// The same of microbatches that are done, whatever it says.
    fn must_have_computed(&mut self, microbatches: u32, begun: Duration, now: Duration, paces: &mut Paces) {
        paces.infer(&mut self.pace, microbatches, now.saturating_sub(self.since.max(begun)));
        if microbatches > 0 {
            self.since = now;
        }
    }

    /// Steps below `front` are done. Whether it is worth knowing still.
    pub(super) fn advance(&mut self, front: Step, paces: &mut Paces) -> bool {
        self.served.retain(|step| *step >= front);
        self.leases.retain(|(step, _)| *step >= front);
        self.is_worth_it(paces)
    }

    /// Whatever was leased is void. Whether it is worth knowing still.
    pub(super) fn rewind(&mut self, paces: &mut Paces) -> bool {
        self.served.clear();
        self.leases.clear();
        self.is_worth_it(paces)
    }

    fn is_worth_it(&mut self, paces: &mut Paces) -> bool {
        let is_worth_it = !self.lanes.is_empty() || !self.served.is_empty();
        if !is_worth_it {
            paces.forget(&mut self.pace);
        }
        is_worth_it
    }
}

impl Leases {
    /// How many slots of the open step `at` a trainer may take at once: who is slow has a share by its pace. Who is less than half
    /// as fast as the mean takes nothing of a step that the others have begun, unless they leave it for long: they would wait.
    pub(super) fn share(&self, at: usize, trainer: Incarnation, live: u32, now: Duration) -> Option<u32> {
        let open = &self.open[at];
        let known = self.trainers.get(&trainer);
        let pace = known.map(|known| known.pace).unwrap_or_default();
        let (fair, is_slow) = (open.tree.present() / live, self.paces.is_slow(pace));
        // In which the others do theirs.
        let turn = self.paces.mean_time(fair).unwrap_or(self.ttl).clamp(self.ttl / 500, self.ttl / 8);
        let is_begun = open.step == self.front && now >= self.front_since + turn / 4;
        let comes_late = is_slow && is_begun;
        let is_served = known.is_some_and(|known| known.served.contains(&open.step));
        // A third above its pace is let be: paces are not measured that well, and lanes are worth keeping.
        let by_pace = self.paces.share(pace, open.tree.present().into(), live);
        let share = by_pace.map_or(fair, |share| fair.min((share + share / 3) as u32));
        if !is_served && !comes_late {
            return Some(share);
        }
        // A trainer that has not asked yet finds its lanes kept for a turn; then they are anyone's.
        let turns = if is_slow { 2 } else { u32::from(open.served < live) };
        if open.step != self.front || now < self.front_since + turns * turn {
            return None;
        }
        let had = known.into_iter().flat_map(|known| known.of_step(open.step));
        let had: u32 = had.filter_map(|place| open.leases.get(place)).map(|lease| lease.node.width()).sum();
        let rest = share.saturating_sub(had).max(open.free.slots() / live);
        Some(rest.max(fair / LEAST_OF_SHARE))
    }

    /// Whether it has nothing in hand that it can do: the last open step is there to read records ahead.
    pub(super) fn is_idle(&self, trainer: Incarnation) -> bool {
        let known = self.trainers.get(&trainer);
        let mut held = known.into_iter().flat_map(|known| &known.leases);
        held.all(|(step, place)| {
            let is_ahead = step.0 >= self.front.0 + self.ahead;
            is_ahead
                || self.at(*step).and_then(|open| open.leases.get(*place)).is_none_or(|lease| lease.pushed)
        })
    }

    /// Steps below `front` are done, and so is what of them was in hand: by whoever had it, unless others had it too. Of those
    /// who had it first it is only known that they were slow, of those who helped nothing.
    pub(super) fn end_steps(&mut self, front: Step, now: Duration) {
        let done = self.open.extract_if(.., |open| open.step < front);
        for (lease, is_shared) in
            done.flat_map(|open| open.leases.into_all()).filter(|(lease, _)| !lease.pushed)
        {
            let rest = lease.node.width().saturating_sub(lease.microbatches);
            let computed = if is_shared { u32::from(lease.speculated > 0) } else { rest };
            if let Some(known) = self.trainers.get_mut(&lease.trainer) {
                known.must_have_computed(computed, self.front_since, now, &mut self.paces);
            }
        }
    }
}
