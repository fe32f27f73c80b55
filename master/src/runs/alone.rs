//! Suspect positions ([`crate::suspects`]): withheld from runs, and leased one at a time to who has nothing else in hand.

use super::{Grant, Lacking, Runs};
use shoal_runtime::cluster::{Incarnation, LeaseId};
use std::ops::Range;
use std::time::Duration;

impl Runs {
    /// These positions, in order, are leased by themselves from now on.
    pub fn withhold(&mut self, positions: Vec<Range<u64>>) {
        self.withheld = positions;
    }

    /// The first withheld position of a stretch.
    pub(super) fn first_withheld(&self, within: &Range<u64>) -> Option<u64> {
        let range = self.withheld.iter().find(|range| range.end > within.start)?;
        Some(range.start.max(within.start)).filter(|position| *position < within.end)
    }

    /// Leases a withheld position of the window that is free and that the trainer `may` have, if it has nothing else in hand.
    pub fn lease_alone(
        &mut self,
        trainer: Incarnation,
        live: u32,
        now: Duration,
        may: &dyn Fn(u64) -> bool,
        lacking: &dyn Lacking,
    ) -> Option<Grant> {
        if self.withheld.is_empty() || self.in_hand(trainer) > 0 {
            return None;
        }
        let front = lacking.front()?;
        self.drop_below(front);
        let window = self.window(front);
        let within = |range: &Range<u64>| range.start.max(window.start)..range.end.min(window.end);
        let leaves_nothing = live <= 1 || self.shunned.is_empty_for(trainer, now);
        let mut positions = self.withheld.iter().flat_map(within);
        let position = positions.find(|position| {
            let is_left = !leaves_nothing && self.shunned.is(trainer, *position, 0, now);
            let is_free = || self.covering(*position).is_none();
            !is_left && may(*position) && is_free() && lacking.lacking(*position..*position + 1).is_some()
        })?;
        Some(self.grant(trainer, position..position + 1, now))
    }

    /// A trainer gets on with a lease, though it has computed no further microbatch of it.
    pub fn attend(&mut self, trainer: Incarnation, lease: LeaseId, now: Duration) {
        if self.leases.get(&lease).is_some_and(|held| held.trainer == trainer && !held.pushed) {
            self.renew(trainer, lease, now);
        }
    }
}
