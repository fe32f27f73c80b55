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
        let waited_for = |lease: &Lease| {
            lease.trainer != trainer && !lease.pushed && now >= lease.renewed.max(since) + patience
        };
        let mut slow: Vec<&mut Lease> = step.leases.values_mut().filter(|lease| waited_for(lease)).collect();
        slow.sort_by_key(|lease| lease.renewed);
        for lease in slow {
            // The right half first: a slow trainer works from the left.
            let halves = lease
                .node
                .children()
                .map_or([Some(lease.node), None], |(left, right)| [Some(right), Some(left)]);
            while let Some(half) = halves.get(lease.speculated as usize).copied().flatten()
                && !leaves(half)
            {
                lease.speculated += 1;
                if !step.tree.is_absent(half) && !lacking.lacking(front, half).is_empty() {
                    self.counters.speculative += 1;
                    return Some((at, half));
                }
            }
        }
        None
    }
}
