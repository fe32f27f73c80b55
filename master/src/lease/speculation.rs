//! What an idle trainer is given of a task that is waited for.

use super::{Lacking, Lease, Leases};
use shoal_runtime::cluster::{Incarnation, Node};
use std::time::Duration;

impl Leases {
    /// For an idle trainer: a half of the task that the front has waited for longest, if that is long enough.
    pub(super) fn speculate(
        &mut self,
        trainer: Incarnation,
        now: Duration,
        lacking: &dyn Lacking,
    ) -> Option<(usize, Node)> {
        let (front, since, patience) = (self.front, self.front_since, self.ttl / 4);
        let at = self.open.iter().position(|open| open.step == front)?;
        let leaves_nothing = self.shunned.is_empty_for(trainer, now);
        let (step, shunned) = (&mut self.open[at], &self.shunned);
        let leaves = |node: Node| {
            !leaves_nothing && (node.first()..node.end()).any(|slot| shunned.is(trainer, front.0, slot, now))
        };
        let is_late = |lease: &Lease| now >= lease.renewed.max(since) + patience;
        let late = step.leases.waiting().take_while(|(_, lease)| is_late(lease));
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
                && !leaves(half)
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
}
