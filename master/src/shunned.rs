//! Microbatches that a trainer could not do: for a while they are leased to others first, each time for twice as long, so
//! that those who have tried leave it to those who have not, however often they ask. Pure: a preference, so that one
//! machine's fault costs little, and never a reason for work to stand still.

use shoal_runtime::cluster::Incarnation;
use std::collections::BTreeMap;
use std::time::Duration;

/// What is shunned. A place is (step, slot), or (position, 0) in asynchronous jobs.
#[derive(Debug, Default)]
pub(crate) struct Shunned {
    places: BTreeMap<(Incarnation, u64, u32), Shun>,
}

#[derive(Clone, Copy, Debug)]
struct Shun {
    since: Duration,
    long: Duration,
}

/// The longest that a place is shunned, in lease TTLs.
const TTLS_MAX: u32 = 8;

impl Shun {
    fn is_on(&self, now: Duration) -> bool {
        now < self.since + self.long
    }
    /// It counts for the next one, should that come soon.
    fn is_remembered(&self, now: Duration) -> bool {
        now < self.since + 2 * self.long
    }
}

impl Shunned {
    /// A trainer could not do it.
    pub(crate) fn shun(&mut self, trainer: Incarnation, unit: u64, slot: u32, now: Duration, ttl: Duration) {
        let before = self.places.get(&(trainer, unit, slot)).filter(|shun| shun.is_remembered(now));
        let long = before.map_or(ttl / 2, |before| (2 * before.long).min(TTLS_MAX * ttl));
        self.places.insert((trainer, unit, slot), Shun { since: now, long });
    }

    /// Whether a trainer should leave it to others.
    pub(crate) fn is(&self, trainer: Incarnation, unit: u64, slot: u32, now: Duration) -> bool {
        self.places.get(&(trainer, unit, slot)).is_some_and(|shun| shun.is_on(now))
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
        let range = self.places.range((trainer, units.start, 0)..(trainer, units.end, 0));
        let mut present = range.filter(|(_, shun)| shun.is_on(now));
        present.next().map(|((_, unit, _), _)| *unit)
    }

    /// Whether a trainer leaves nothing to others now. What is long over is forgotten.
    pub(crate) fn is_empty_for(&mut self, trainer: Incarnation, now: Duration) -> bool {
        self.places.retain(|_, shun| shun.is_remembered(now));
        let mut own = self.places.range((trainer, 0, 0)..=(trainer, u64::MAX, u32::MAX));
        !own.any(|(_, shun)| shun.is_on(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_fails_again_leaves_it_to_others_for_twice_as_long_and_after_a_while_it_counts_no_more() {
        let (who, ttl, at) = (Incarnation(1), Duration::from_secs(4), Duration::from_secs);
        let mut shunned = Shunned::default();
        let mut now = at(0);
        for long in [2, 4, 8, 16, 32, 32] {
            shunned.shun(who, 7, 3, now, ttl);
            let almost = now + at(long) - Duration::from_millis(1);
            assert!(shunned.is(who, 7, 3, almost) && !shunned.is_empty_for(who, almost), "{long}");
            assert_eq!(shunned.first(who, 5..9, almost), Some(7));
            now += at(long);
            assert!(!shunned.is(who, 7, 3, now) && shunned.is_empty_for(who, now), "{long}");
            assert_eq!(shunned.first(who, 5..9, now), None);
        }
        assert!(shunned.is_empty_for(Incarnation(2), at(0)), "of another");
        shunned.shun(who, 7, 3, now + at(32), ttl);
        assert!(!shunned.is(who, 7, 3, now + at(34)), "as if for the first time");
    }
}
