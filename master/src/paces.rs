//! How fast each trainer computes, by what it was seen to do: it shapes runs, and no safety rests on it. Pure.
//!
//! Only a trainer's own time with work in hand counts, never the time in which a full window left it without: so
//! that a job that waits for one trainer does not take the others for slow.

use std::time::Duration;

/// Rates are microbatches in so many nanoseconds (a million seconds), so that the slowest trainer has one too.
const RATE_NANOS: u128 = 1_000_000_000_000_000;
/// A microbatch in a microsecond; the rates of all trainers together stay far below 2^64.
const RATE_MAX: u128 = 1_000_000_000_000;

/// Where a trainer is in the midst of one of so many microbatches, or more, its rate is known well enough.
const MANY: u32 = 8;

/// One trainer's rate, kept with what else is known of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// 0 while it is not known.
    rate: u64,
    /// Microbatches that it has computed since it was measured.
    done: u32,
}

/// All rates that are known, together.
#[derive(Debug, Default)]
pub(crate) struct Paces {
    count: u64,
    sum: u64,
}

impl Paces {
    /// A trainer that has had work in hand for `time`, since it was measured, has computed so many microbatches more. Returns
    /// whether it is measured anew: where a task is over, or after many; a word from the midst of one of a few microbatches would
    /// say anything, and the next one, which has the rest of that microbatch alone, that it was computed in no time.
    ///
    /// What is worse than what was known counts a half, what is better whole: it may have been busy with what nobody waits for any
    /// more, and is no slower for that.
    pub(crate) fn observe(
        &mut self,
        pace: &mut Pace,
        microbatches: u32,
        is_over: bool,
        time: Duration,
    ) -> bool {
        pace.done = pace.done.saturating_add(microbatches);
        if pace.done == 0 || !(is_over || pace.done >= MANY) {
            return false;
        }
        if let Some(seen) = rate(std::mem::take(&mut pace.done), time) {
            self.keep(pace, seen.max(pace.rate.midpoint(seen)));
        }
        true
    }

    /// The same of one that has not said so itself, and whose task is over: it may have been another's doing, so it makes nobody
    /// faster than it was known to be, or than the mean. Without any microbatches that can be told of it nothing is known.
    pub(crate) fn infer(&mut self, pace: &mut Pace, microbatches: u32, time: Duration) {
        let done = std::mem::take(&mut pace.done);
        let known = if pace.rate > 0 { Some(pace.rate) } else { self.sum.checked_div(self.count) };
        let seen = (microbatches > 0).then(|| rate(done.saturating_add(microbatches), time)).flatten();
        let (Some(seen), Some(known)) = (seen, known) else { return };
        let slower = seen.min(known);
        self.keep(pace, if pace.rate > 0 { known.midpoint(slower).max(1) } else { slower });
    }

    fn keep(&mut self, pace: &mut Pace, rate: u64) {
        self.forget(pace);
        pace.rate = rate;
        (self.count, self.sum) = (self.count + 1, self.sum + rate);
    }

    /// A trainer is gone.
    pub(crate) fn forget(&mut self, pace: &mut Pace) {
        let Pace { rate, .. } = std::mem::take(pace);
        (self.count, self.sum) = (self.count - u64::from(rate > 0), self.sum - rate);
    }

    /// What is a trainer's of `positions` that are shared out by speed among `live` trainers, rounded down. None
    /// while its pace is not known.
    pub(crate) fn share(&self, pace: Pace, positions: u64, live: u32) -> Option<u64> {
        let mean_times_live = u128::from(self.sum) * u128::from(live.max(1)) / u128::from(self.count.max(1));
        let share = u128::from(positions) * u128::from(pace.rate) / mean_times_live.max(1);
        (pace.rate > 0).then_some(share as u64)
    }

    /// In what time so many microbatches are computed at the mean pace. None while no pace is known.
    pub(crate) fn mean_time(&self, microbatches: u32) -> Option<Duration> {
        let nanos = u128::from(microbatches) * RATE_NANOS * u128::from(self.count);
        Some(Duration::from_nanos(nanos.checked_div(self.sum.into())?.try_into().unwrap_or(u64::MAX)))
    }

    /// Whether a trainer is less than half as fast as the mean.
    pub(crate) fn is_slow(&self, pace: Pace) -> bool {
        pace.rate > 0 && 2 * u128::from(pace.rate) * u128::from(self.count) < u128::from(self.sum)
    }
}

/// None for no time at all.
fn rate(microbatches: u32, time: Duration) -> Option<u64> {
    let seen = (u128::from(microbatches) * RATE_NANOS).checked_div(time.as_nanos())?;
    Some(seen.clamp(1, RATE_MAX) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn positions_are_shared_out_by_speed() {
        let (mut paces, mut a, mut b) = (Paces::default(), Pace::default(), Pace::default());
        paces.observe(&mut a, 30, true, seconds(10));
        paces.observe(&mut b, 1, true, seconds(1));
        assert_eq!((paces.share(a, 40, 2), paces.share(b, 40, 2)), (Some(30), Some(10)));
        assert_eq!(paces.share(b, 40, 4), Some(5), "the two whose pace is not known are taken for the mean");
        assert_eq!(paces.share(Pace::default(), 40, 2), None);
    }

    #[test]
    fn a_worse_word_counts_a_half_a_better_one_whole_and_one_of_nothing_or_no_time_nothing() {
        let (mut paces, mut a, mut b) = (Paces::default(), Pace::default(), Pace::default());
        paces.observe(&mut a, 1, true, seconds(1));
        paces.observe(&mut b, 1, true, seconds(1));
        paces.observe(&mut a, 6, true, seconds(1));
        assert_eq!(paces.share(a, 35, 2), Some(30));
        paces.observe(&mut a, 3, true, seconds(2));
        paces.observe(&mut a, 0, true, seconds(1));
        paces.observe(&mut b, 7, true, seconds(0));
        assert_eq!((paces.share(a, 38, 2), paces.share(b, 38, 2)), (Some(30), Some(8)));
    }

    /// Microbatches of a second, of which four are a task, and a word each 1.3 s.
    #[test]
    fn a_word_from_the_midst_of_a_task_waits_until_it_is_over_or_there_are_many() {
        let (mut paces, mut a) = (Paces::default(), Pace::default());
        let millis = Duration::from_millis;
        assert!(
            !paces.observe(&mut a, 1, false, millis(1300)) && !paces.observe(&mut a, 1, false, millis(2600))
        );
        assert!(!paces.observe(&mut a, 1, false, millis(3999)));
        assert_eq!(paces.mean_time(1), None);
        assert!(paces.observe(&mut a, 1, true, millis(4000)));
        assert_eq!(paces.mean_time(1), Some(seconds(1)));
        assert!(
            !paces.observe(&mut a, 7, false, millis(7900)) && paces.observe(&mut a, 1, false, millis(8000))
        );
        assert_eq!(paces.mean_time(1), Some(seconds(1)));
        // The step was over before it was: what it had done by then says nothing alone.
        assert!(!paces.observe(&mut a, 3, false, millis(3900)));
        paces.infer(&mut a, 0, millis(3900));
        assert!(!paces.observe(&mut a, 0, true, seconds(9)), "nothing is left of it");
        assert_eq!(paces.mean_time(1), Some(seconds(1)));
    }

    #[test]
    fn what_a_trainer_has_not_said_itself_makes_it_slower_and_never_faster() {
        let (mut paces, mut a, mut b) = (Paces::default(), Pace::default(), Pace::default());
        paces.infer(&mut a, 1, seconds(1));
        assert_eq!(paces.mean_time(1), None, "there is nothing to measure it by");
        paces.observe(&mut a, 4, true, seconds(1));
        paces.infer(&mut b, 1000, seconds(1));
        assert_eq!((paces.share(a, 40, 2), paces.share(b, 40, 2)), (Some(20), Some(20)));
        paces.infer(&mut b, 2, seconds(1));
        paces.infer(&mut a, 1000, seconds(1));
        assert_eq!((paces.share(a, 35, 2), paces.share(b, 35, 2)), (Some(20), Some(15)));
    }

    #[test]
    fn who_is_less_than_half_as_fast_as_the_mean_is_slow_and_nobody_is_alone() {
        let (mut paces, mut a, mut b) = (Paces::default(), Pace::default(), Pace::default());
        paces.observe(&mut a, 1, true, seconds(100));
        assert!(!paces.is_slow(a) && !paces.is_slow(b));
        paces.observe(&mut b, 3, true, seconds(100));
        assert!(!paces.is_slow(a), "half the mean");
        paces.observe(&mut b, 4, true, seconds(100));
        assert!(paces.is_slow(a) && !paces.is_slow(b));
        paces.forget(&mut b);
        assert!(!paces.is_slow(a));
        assert_eq!(paces.share(a, 40, 1), Some(40));
        assert_eq!(paces.mean_time(3), Some(seconds(300)));
    }

    #[test]
    fn the_slowest_and_the_fastest_there_are_stay_within_bounds() {
        let (mut paces, mut a, mut b) = (Paces::default(), Pace::default(), Pace::default());
        paces.observe(&mut a, 1, true, Duration::MAX);
        paces.observe(&mut b, u32::MAX, true, Duration::from_nanos(1));
        assert_eq!((paces.share(a, u64::MAX, 1), paces.is_slow(a)), (Some(36_893_488), true));
        paces.forget(&mut a);
        paces.forget(&mut b);
        assert_eq!((paces.sum, paces.count), (0, 0));
    }
}
