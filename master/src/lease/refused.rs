//! A lease that its trainer cannot do: it ends, and others go first for a while.

use super::{Lacking, Leases};
use shoal_runtime::cluster::{Incarnation, LeaseId, Step};
use std::time::Duration;

impl Leases {
    /// A trainer cannot do a slot of a step that it was leased: the lease ends, if it has not ended by itself, and for a
    /// while others go first. False if there is nothing to do there.
    pub fn refuse(
        &mut self,
        trainer: Incarnation,
        lease: LeaseId,
        (step, slot): (Step, u32),
        now: Duration,
        lacking: &dyn Lacking,
    ) -> bool {
        let is_open = self.open.iter().any(|open| open.step == step && slot < open.tree.present());
        if is_open {
            self.shunned.shun(trainer, step.0, slot, now, self.ttl);
            self.forget_lanes(trainer);
            self.end(trainer, |held| held.id == lease, lacking);
        }
        is_open
    }
}
