//! Microbatches that a trainer could not do: for a while they are leased to others first. Pure: a preference, so that one
//! machine's fault costs little, and never a reason for work to stand still.

use shoal_runtime::cluster::Incarnation;
use std::collections::BTreeMap;
use std::time::Duration;

/// What is shunned, and until when. A place is (step, slot), or (position, 0) in asynchronous jobs.
#[derive(Debug, Default)]
pub(crate) struct Shunned {
    until: BTreeMap<(Incarnation, u64, u32), Duration>,
}

impl Shunned {
    /// A trainer could not do it.
    pub(crate) fn shun(&mut self, trainer: Incarnation, unit: u64, slot: u32, until: Duration) {
        self.until.insert((trainer, unit, slot), until);
    }

    /// Whether a trainer should leave it to others.
    pub(crate) fn is(&self, trainer: Incarnation, unit: u64, slot: u32, now: Duration) -> bool {
        self.until.get(&(trainer, unit, slot)).is_some_and(|until| now < *until)
    }

    /// The first of `units` that a trainer should leave to others, slots aside.
    pub(crate) fn first(
        &self,
        trainer: Incarnation,
        units: std::ops::Range<u64>,
        now: Duration,
    ) -> Option<u64> {
        if units.is_empty() {
            return None;
        }
        let range = self.until.range((trainer, units.start, 0)..(trainer, units.end, 0));
        let mut present = range.filter(|(_, until)| now < **until);
        present.next().map(|((_, unit, _), _)| *unit)
    }

    /// Whether a trainer leaves nothing to others now. What is over is forgotten.
    pub(crate) fn is_empty_for(&mut self, trainer: Incarnation, now: Duration) -> bool {
        self.until.retain(|_, until| now < *until);
        self.until.range((trainer, 0, 0)..=(trainer, u64::MAX, u32::MAX)).next().is_none()
    }
}
