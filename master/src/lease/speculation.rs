//! What an idle trainer is given of a task that is waited for.

use super::held::{HeldLeases, LeasePlace};
use super::known::KnownTrainer;
use super::{Lacking, Lease, Leases, OpenStep};
use crate::paces::Paces;
use crate::suspects::LOSSES;
use shoal_runtime::cluster::{Incarnation, Node};
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

/// Tasks, those that have waited longest, among which one is sought that is late.
const LOOKED_AT_MAX: usize = 64;

impl Leases {
    /// For an idle trainer: a half of the task that the front has waited for longest, if that is long enough.
    pub(super) fn speculate(
        &mut self,
        trainer: Incarnation,
        now: Duration,
        lacking: &dyn Lacking,
    ) -> Option<(usize, Node)> {
        let (front, since) = (self.front, self.front_since);
        let at = self.open.iter().position(|open| open.step == front)?;
        let leaves_nothing = self.shunned.is_empty_for(trainer, now);
        let unhelped = self.slots_of(front, &self.unhelped);
        let (step, shunned) = (&mut self.open[at], &self.shunned);
        let leaves = |leases: &HeldLeases, node: Node| {
            let is_unhelped = |range: &Range<u32>| range.start < node.end() && node.first() < range.end;
            let is_shunned = |slot| shunned.is(trainer, front.0, slot, now);
            unhelped.iter().any(is_unhelped)
                || leases.holders(node) >= LOSSES as u32
                || (!leaves_nothing && (node.first()..node.end()).any(is_shunned))
        };
        let (ttl, paces, trainers) = (self.ttl, &self.paces, &self.trainers);
        let waiting = step.leases.waiting().filter(|(_, lease)| is_whole(lease)).take(LOOKED_AT_MAX);
        let patience = |(place, lease): &(LeasePlace, &Lease)| {
            patience(ttl, paces, work_until(step, trainers, *place, lease))
        };
        let late = waiting.filter(|waiting| now >= waiting.1.renewed.max(since) + patience(waiting));
        let (mut given, mut found) = (Vec::new(), None);
        for (place, lease) in late.filter(|(_, lease)| lease.trainer != trainer) {
            // The right half first: a slow trainer works from the left.
            let halves = lease
                .node
                .children()
                .map_or([Some(lease.node), None], |(left, right)| [Some(right), Some(left)]);
            let mut halves = (lease.speculated + 1..).zip(halves.into_iter().skip(lease.speculated.into()));
            while let Some((number, Some(half))) = halves.next()
                && found.is_none()
                && !leaves(&step.leases, half)
            {
                given.push((place, number));
                let is_lacked = !step.tree.is_absent(half) && !lacking.lacking(front, half).is_empty();
                found = is_lacked.then_some(half);
            }
            if found.is_some() {
                break;
            }
        }
        for (place, halves) in given {
            step.leases.speculated(place, halves);
        }
        let half = found?;
        self.counters.speculative += 1;
        Some((at, half))
    }

    /// When the next task of the front is late, after `now`: an idle trainer may be given a part of it then.
    pub fn next_late(&self, now: Duration) -> Option<Duration> {
        let open = self.at(self.front)?;
        let late = |(place, lease): (LeasePlace, &Lease)| {
            let work = work_until(open, &self.trainers, place, lease);
            lease.renewed.max(self.front_since) + patience(self.ttl, &self.paces, work)
        };
        let waiting = open.leases.waiting().filter(|(_, lease)| is_whole(lease));
        waiting.take(LOOKED_AT_MAX).map(late).filter(|late| *late > now).min()
    }
}

/// Whether some of it was given to nobody else yet.
fn is_whole(lease: &Lease) -> bool {
    lease.speculated < if lease.node.level == 0 { 1 } else { 2 }
}

/// Microbatches that a trainer has to compute until a task of its own is done: those of the tasks before it too.
fn work_until(
    step: &OpenStep,
    trainers: &BTreeMap<Incarnation, KnownTrainer>,
    place: LeasePlace,
    lease: &Lease,
) -> u32 {
    let known = trainers.get(&lease.trainer).into_iter();
    let before = known.flat_map(|known| known.of_step(step.step)).filter(|other| other.id < place.id);
    let left =
        |lease: &Lease| if lease.pushed { 0 } else { lease.node.width().saturating_sub(lease.microbatches) };
    before.filter_map(|place| step.leases.get(place)).map(left).sum::<u32>() + lease.node.width()
}

/// How long such work may go without a word until others help: twice the time in which a trainer of mean pace does all of it,
/// but beyond that time no longer than a quarter of what a lease lives: who helped earlier would compute what is about to come,
/// and be late for the next step. Where no pace is known yet, that quarter; and never less than ten milliseconds of five seconds,
/// for words take time too. A trainer that is silent for longer than its lease lives loses it, whatever this says.
fn patience(ttl: Duration, paces: &Paces, microbatches: u32) -> Duration {
    let Some(mean) = paces.mean_time(microbatches) else { return ttl / 4 };
    mean.saturating_add(mean.min(ttl / 4)).max(ttl / 500)
}
