//! How fast each trainer computes, by what it was seen to do: it shapes runs, and no safety rests on it. Pure.
//!
//! Only a trainer's own time with work in hand counts, never the time in which a full window left it without: so
//! that a job that waits for one trainer does not take the others for slow.

use shoal_runtime::cluster::Incarnation;
use std::collections::BTreeMap;
use std::time::Duration;

/// Rates are microbatches in so many nanoseconds (a million seconds), so that the slowest trainer has one too.
const RATE_NANOS: u128 = 1_000_000_000_000_000;
/// A microbatch in a microsecond; the rates of all trainers together stay far below 2^64.
const RATE_MAX: u128 = 1_000_000_000_000;

/// The trainers whose pace is known.
#[derive(Debug, Default)]
pub(crate) struct Paces {
    rates: BTreeMap<Incarnation, u64>,
    sum: u64,
}

impl Paces {
    /// A trainer that had work in hand for `time` computed so many microbatches. The newest word counts a half.
    pub(crate) fn observe(&mut self, trainer: Incarnation, microbatches: u32, time: Duration) {
        let Some(seen) = (u128::from(microbatches) * RATE_NANOS).checked_div(time.as_nanos()) else { return };
        let seen = seen.clamp(1, RATE_MAX) as u64;
        let before = self.rates.get(&trainer).copied();
        let rate = before.map_or(seen, |before| before.midpoint(seen));
        self.rates.insert(trainer, rate);
        self.sum = self.sum - before.unwrap_or(0) + rate;
    }

    /// A trainer is gone.
    pub(crate) fn forget(&mut self, trainer: Incarnation) {
        self.sum -= self.rates.remove(&trainer).unwrap_or(0);
    }

    /// What is a trainer's of `positions` that are shared out by speed among `live` trainers, rounded down. None
    /// while its pace is not known.
    pub(crate) fn share(&self, trainer: Incarnation, positions: u64, live: u32) -> Option<u64> {
        let rate = u128::from(*self.rates.get(&trainer)?);
        let mean_times_live = u128::from(self.sum) * u128::from(live.max(1)) / self.rates.len() as u128;
        Some((u128::from(positions) * rate / mean_times_live.max(1)) as u64)
    }

    /// In what time so many microbatches are computed at the mean pace. None while no pace is known.
    pub(crate) fn mean_time(&self, microbatches: u32) -> Option<Duration> {
        let nanos = u128::from(microbatches) * RATE_NANOS * self.rates.len() as u128;
        Some(Duration::from_nanos(nanos.checked_div(self.sum.into())?.try_into().unwrap_or(u64::MAX)))
    }

    /// Whether a trainer is less than half as fast as the mean.
    pub(crate) fn is_slow(&self, trainer: Incarnation) -> bool {
        let rate = self.rates.get(&trainer);
        rate.is_some_and(|rate| 2 * u128::from(*rate) * (self.rates.len() as u128) < u128::from(self.sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Incarnation = Incarnation(1);
    const B: Incarnation = Incarnation(2);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn positions_are_shared_out_by_speed() {
        let mut paces = Paces::default();
        paces.observe(A, 30, seconds(10));
        paces.observe(B, 1, seconds(1));
        assert_eq!((paces.share(A, 40, 2), paces.share(B, 40, 2)), (Some(30), Some(10)));
        assert_eq!(paces.share(B, 40, 4), Some(5), "the two whose pace is not known are taken for the mean");
        assert_eq!(paces.share(Incarnation(3), 40, 2), None);
    }

    #[test]
    fn the_newest_word_counts_a_half_and_a_word_without_time_nothing() {
        let mut paces = Paces::default();
        paces.observe(A, 1, seconds(1));
        paces.observe(B, 1, seconds(1));
        paces.observe(A, 5, seconds(1));
        paces.observe(B, 7, seconds(0));
        assert_eq!((paces.share(A, 40, 2), paces.share(B, 40, 2)), (Some(30), Some(10)));
    }

    #[test]
    fn who_is_less_than_half_as_fast_as_the_mean_is_slow_and_nobody_is_alone() {
        let mut paces = Paces::default();
        paces.observe(A, 1, seconds(100));
        assert!(!paces.is_slow(A) && !paces.is_slow(B));
        paces.observe(B, 3, seconds(100));
        assert!(!paces.is_slow(A), "half the mean");
        paces.observe(B, 4, seconds(100));
        assert!(paces.is_slow(A) && !paces.is_slow(B));
        paces.forget(B);
        assert!(!paces.is_slow(A));
        assert_eq!(paces.share(A, 40, 1), Some(40));
        assert_eq!(paces.mean_time(3), Some(seconds(300)));
    }

    #[test]
    fn the_slowest_and_the_fastest_there_are_stay_within_bounds() {
        let mut paces = Paces::default();
        paces.observe(A, 1, Duration::MAX);
        paces.observe(B, u32::MAX, Duration::from_nanos(1));
        assert_eq!((paces.share(A, u64::MAX, 1), paces.is_slow(A)), (Some(36_893_488), true));
        paces.forget(A);
        paces.forget(B);
        assert_eq!(paces.sum, 0);
    }
}
