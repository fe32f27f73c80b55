//! The master's time. It stands still when the master does: a process that was stopped, or starved, must not take the
//! others for dead because it did not listen. Pure.

use std::time::Duration;

/// A clock that never moves further than one stride between two readings.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    read_at: Duration,
    now: Duration,
    stride: Duration,
}

impl Clock {
    /// A clock that shows zero at the real time `at`.
    pub fn starting(at: Duration, stride: Duration) -> Clock {
        Clock { read_at: at, now: Duration::ZERO, stride }
    }

    /// What it shows at the real time `at`.
    pub fn now(&mut self, at: Duration) -> Duration {
        self.now += at.saturating_sub(self.read_at).min(self.stride);
        self.read_at = self.read_at.max(at);
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn time_in_which_nobody_reads_the_clock_does_not_count() {
        let millis = Duration::from_millis;
        let mut clock = Clock::starting(millis(1000), millis(100));
        assert_eq!(clock.now(millis(1040)), millis(40));
        assert_eq!(clock.now(millis(9000)), millis(140));
        assert_eq!(clock.now(millis(9010)), millis(150));
        assert_eq!(clock.now(millis(8000)), millis(150), "nor does it go back");
        assert_eq!(clock.now(millis(9010)), millis(150), "nor is the same time counted twice");
    }

    proptest! {
        #[test]
        fn it_follows_a_reader_who_looks_often_and_waits_for_one_who_does_not(
            start in 0u64..1000, stride in 1u64..100, pauses in proptest::collection::vec(0u64..200, 0..50)
        ) {
            let millis = Duration::from_millis;
            let mut clock = Clock::starting(millis(start), millis(stride));
            let (mut real, mut shown) = (start, 0);
            for pause in pauses {
                real += pause;
                shown += pause.min(stride);
                prop_assert_eq!(clock.now(millis(real)), millis(shown));
            }
        }
    }
}
