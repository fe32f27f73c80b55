//! A run that its trainer cannot do: its lease ends, and others go first for a while. What a trainer leaves out.

use super::{Lacking, Runs};
use shoal_runtime::cluster::{Incarnation, LeaseId};
use std::ops::Range;
use std::time::Duration;

impl Runs {
    /// A trainer cannot do a position that it was leased: the lease ends, if it has not ended by itself, and for a while
    /// others go first. False if there is nothing to do there.
    pub fn refuse(
        &mut self,
        trainer: Incarnation,
        lease: LeaseId,
        position: u64,
        now: Duration,
        lacking: &dyn Lacking,
    ) -> bool {
        let is_open = position < self.until && lacking.lacking(position..position + 1).is_some();
        if is_open {
            self.shunned.shun(trainer, position, 0, now, self.ttl);
            self.lanes.leave(trainer);
            if self.leases.get(&lease).is_some_and(|held| held.trainer == trainer && !held.pushed) {
                self.end(lease, lacking);
            }
        }
        is_open
    }

    /// A free stretch, or what of it and after it is not withheld, and not left to others, if there are any.
    pub(super) fn clear(
        &mut self,
        trainer: Incarnation,
        live: u32,
        mut free: Range<u64>,
        window: &Range<u64>,
        now: Duration,
        lacking: &dyn Lacking,
    ) -> Option<Range<u64>> {
        let leaves_nothing = live <= 1 || self.shunned.is_empty_for(trainer, now);
        let shunned = |free: &Range<u64>| match leaves_nothing {
            true => None,
            false => self.shunned.first(trainer, free.clone(), now),
        };
        while let Some(left) = shunned(&free).into_iter().chain(self.first_withheld(&free)).min() {
            if left > free.start {
                return Some(free.start..left);
            }
            free = self.free(left + 1..window.end, lacking)?;
        }
        Some(free)
    }
}
