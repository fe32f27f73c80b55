//! Suspect slots ([`crate::suspects`]): withheld from shares and from help, and leased one at a time to who has nothing else to
//! compute. Only those of the front: what nobody can begin yet would keep its trainer from what everybody waits for.

use super::held::Lease;
use super::{Grant, Leases};
use shoal_runtime::cluster::{Incarnation, LeaseId, Node, Step};
use std::ops::Range;
use std::time::Duration;

impl Leases {
    /// These places, in order, are leased by themselves from now on, and nobody helps with those that are `unhelped`. A place is
    /// step × slots of a step + slot.
    pub fn withhold(&mut self, places: Vec<Range<u64>>, unhelped: Vec<Range<u64>>) {
        (self.withheld, self.unhelped) = (places, unhelped);
    }

    /// The slots of a step that are withheld.
    pub(super) fn withheld(&self, step: Step) -> Vec<Range<u32>> {
        self.slots_of(step, &self.withheld)
    }

    /// The slots of a step that are among these places.
    pub(super) fn slots_of(&self, step: Step, places: &[Range<u64>]) -> Vec<Range<u32>> {
        if places.is_empty() {
            return Vec::new();
        }
        let slots = u64::from(self.shape.training().slots());
        let first = step.0 * slots;
        let within = |range: &Range<u64>| range.start.max(first)..range.end.min(first + slots);
        let ranges = places.iter().map(within).filter(|range| !range.is_empty());
        ranges.map(|range| (range.start - first) as u32..(range.end - first) as u32).collect()
    }

    /// Leases a withheld slot of the front that is free and that the trainer `may` have, if it has nothing else to compute.
    pub fn lease_alone(
        &mut self,
        trainer: Incarnation,
        live: u32,
        now: Duration,
        may: &dyn Fn(u64) -> bool,
    ) -> Option<Grant> {
        let withheld = self.withheld(self.front);
        if withheld.is_empty() || !self.is_at_rest(trainer) {
            return None;
        }
        let at = self.open.iter().position(|open| open.step == self.front)?;
        let first = self.front.0 * u64::from(self.shape.training().slots());
        let leaves_nothing = live <= 1 || self.shunned.is_empty_for(trainer, now);
        let (step, shunned, free) = (self.front.0, &self.shunned, &mut self.open[at].free);
        let node = withheld.into_iter().flatten().find_map(|slot| {
            let is_left = !leaves_nothing && shunned.is(trainer, step, slot, now);
            let is_wanted = !is_left && may(first + u64::from(slot));
            if is_wanted { free.take_within(Node::leaf(slot), 1) } else { None }
        })?;
        Some(self.grant(at, trainer, node, now))
    }

    /// Whether nothing is left for it to compute: the last open step is there to read records ahead.
    fn is_at_rest(&self, trainer: Incarnation) -> bool {
        let mut held = self.trainers.get(&trainer).into_iter().flat_map(|known| &known.leases);
        held.all(|(step, place)| {
            let is_ahead = step.0 >= self.front.0 + self.ahead;
            is_ahead || self.at(*step).and_then(|open| open.leases.get(*place)).is_none_or(Lease::is_over)
        })
    }

    /// A trainer gets on with a lease, though it has computed no further microbatch of it.
    pub fn attend(&mut self, trainer: Incarnation, lease: LeaseId, now: Duration) {
        let known = self.trainers.get(&trainer).into_iter().flat_map(|known| &known.leases);
        let Some((step, place)) = known.copied().find(|(_, place)| place.id == lease) else { return };
        if let Some(open) = self.open.iter_mut().find(|open| open.step == step) {
            open.leases.renew(place, now);
        }
    }
}
