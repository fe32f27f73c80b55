//! A run that its trainer cannot do: its lease ends, and others go first for a while.

use super::{Lacking, Runs};
use shoal_runtime::cluster::{Incarnation, LeaseId};
use std::ops::Range;
use std::time::Duration;

impl Runs {
    /// A trainer cannot do a position of what it was leased: the lease ends, and for a while others go first. False if
    /// it has no such lease.
    pub fn refuse(
        &mut self,
        trainer: Incarnation,
        lease: LeaseId,
        position: u64,
        now: Duration,
        lacking: &dyn Lacking,
    ) -> bool {
        let is_held = self.leases.get(&lease).is_some_and(|held| held.trainer == trainer && !held.pushed);
        if is_held {
            self.shunned.shun(trainer, position, 0, now, self.ttl);
            self.lanes.leave(trainer);
            self.end(lease, lacking);
        }
        is_held
    }

    /// A free stretch, or what of it and after it a trainer does not leave to others, if there are any.
    pub(super) fn clear(
        &mut self,
        trainer: Incarnation,
        live: u32,
        mut free: Range<u64>,
        window: &Range<u64>,
        now: Duration,
        lacking: &dyn Lacking,
    ) -> Option<Range<u64>> {
        if live <= 1 || self.shunned.is_empty_for(trainer, now) {
            return Some(free);
        }
        while let Some(shunned) = self.shunned.first(trainer, free.clone(), now) {
            if shunned > free.start {
                return Some(free.start..shunned);
            }
            free = self.free(shunned + 1..window.end, lacking)?;
        }
        Some(free)
    }
}
