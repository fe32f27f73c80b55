//! A lease that its trainer cannot do: it ends, and others go first for a while.

use super::{Lacking, Leases};
use shoal_runtime::cluster::{Incarnation, LeaseId};
use std::time::Duration;

impl Leases {
    /// A trainer cannot do a slot of what it was leased: the lease ends, and for a while others go first. False if it
    /// has no such lease.
    pub fn refuse(
        &mut self,
        trainer: Incarnation,
        lease: LeaseId,
        slot: u32,
        now: Duration,
        lacking: &dyn Lacking,
    ) -> bool {
        let held =
            self.open.iter().find(|open| open.leases.get(&lease).is_some_and(|it| it.trainer == trainer));
        let Some(step) = held.map(|open| open.step) else { return false };
        self.shunned.shun(trainer, step.0, slot, now, self.ttl);
        self.lanes.remove(&trainer);
        self.end(|id, _| id == lease, lacking);
        true
    }
}
