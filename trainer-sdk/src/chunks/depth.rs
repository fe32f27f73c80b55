//! How many chunks are read at a time: few while records come in time, more while the trainer waits for them. Pure: it is
//! told what happens, with the time since its reader began.
//!
//! What holds whatever it is told:
//! 1. The depth is from 1 to [`DEPTH_MAX`].
//! 2. Only a chunk that the trainer waited for raises it, by one, and only where since the last rest nothing but the depth
//!    kept another from being read: more at a time is of no use to whoever is in time, nor where memory or tasks are the
//!    limit.
//! 3. Only a rest at least as long as the reading before it lowers it, by one, and short memory, by half. Reading with one
//!    fewer takes at most twice as long, so whoever was in time before such a rest is in time after it.

use std::time::Duration;

/// The most chunks that are read at a time: over a store that takes 30 ms for one of 1 MiB, half a gigabyte a second.
pub(super) const DEPTH_MAX: usize = 16;
/// The depth that a reader begins with: the next chunk comes while one is decoded.
const FIRST: usize = 2;
/// A trainer that waits less than this for records is held up by its own processors, and more reads at a time would take them
/// from the step.
const WAITED_MIN: Duration = Duration::from_millis(1);

/// The present depth, and how the reading before the present rest went.
#[derive(Clone, Debug)]
pub(super) struct Depth {
    present: usize,
    stretch: Option<Stretch>,
}

/// Reading without a rest.
#[derive(Clone, Debug, Default)]
struct Stretch {
    began: Duration,
    ended: Option<Duration>,
    /// Whether as many chunks were being read at a time as the depth allows.
    was_full: bool,
    /// Whether more would have been read at a time but for the depth.
    was_held_back: bool,
    /// Whether the trainer waited for one of them.
    was_waited_for: bool,
}

impl Depth {
    pub(super) fn new() -> Depth {
        Depth { present: FIRST, stretch: None }
    }

    #[cfg(test)]
    pub(super) fn at(present: usize) -> Depth {
        Depth { present, ..Depth::new() }
    }

    /// Chunks that may be read at a time.
    pub(super) fn present(&self) -> usize {
        self.present
    }

    /// So many reads are under way from now on. `is_held_back`: there would be more but for the depth.
    pub(super) fn under_way(&mut self, reads: usize, is_held_back: bool, now: Duration) {
        let present = self.present;
        if reads > 0 && self.stretch.as_ref().is_none_or(|stretch| stretch.ended.is_some()) {
            self.stretch = Some(Stretch { began: now, ..Stretch::default() });
        }
        if let Some(stretch) = self.stretch.as_mut().filter(|stretch| stretch.ended.is_none()) {
            stretch.was_full |= reads >= present;
            stretch.was_held_back |= is_held_back;
            stretch.ended = (reads == 0).then_some(now);
        }
    }

    /// A chunk came; since it was asked for the trainer has `waited` for records.
    pub(super) fn came(&mut self, waited: Duration) {
        if waited < WAITED_MIN {
            return;
        }
        if let Some(stretch) = &mut self.stretch {
            stretch.was_waited_for = true;
            if stretch.was_held_back {
                self.present = (self.present + 1).min(DEPTH_MAX);
            }
        }
    }

    /// A task came whose records are to be read: what was read before lay unused until now.
    pub(super) fn asked(&mut self, now: Duration) {
        let Some(Stretch { began, ended: Some(ended), was_full, was_waited_for, .. }) = self.stretch else {
            return;
        };
        self.stretch = None;
        let rest = now.saturating_sub(ended);
        if was_full && !was_waited_for && rest >= ended.saturating_sub(began) {
            self.present = (self.present - 1).max(1);
        }
    }

    /// A chunk that was read ahead had to make room before it was used: the depth is halved.
    pub(super) fn crowded(&mut self) {
        self.present = (self.present / 2).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MILLIS: fn(u64) -> Duration = Duration::from_millis;

    /// A trainer that takes `step` for each task and has the next one's records read meanwhile: `chunks`, each `latency` away.
    struct Steady {
        depth: Depth,
        now: Duration,
        latency: u64,
        step: u64,
        chunks: usize,
    }

    impl Steady {
        fn new(latency: u64, step: u64, chunks: usize) -> Steady {
            Steady { depth: Depth::new(), now: Duration::ZERO, latency, step, chunks }
        }

        /// How long the trainer waits for the records of a task that it is given now.
        fn wait(&mut self) -> Duration {
            let computed = self.now + MILLIS(self.step);
            self.depth.asked(self.now);
            let mut left = self.chunks;
            while left > 0 {
                let reads = left.min(self.depth.present());
                left -= reads;
                self.depth.under_way(reads, left > 0, self.now);
                let asked = self.now.max(computed);
                self.now += MILLIS(self.latency);
                for _ in 0..reads {
                    self.depth.came(self.now.saturating_sub(asked));
                }
            }
            self.depth.under_way(0, false, self.now);
            let wait = self.now.saturating_sub(computed);
            self.now = self.now.max(computed);
            wait
        }
    }

    #[test]
    fn far_chunks_are_soon_read_all_at_a_time_and_then_cost_one_latency() {
        let mut steady = Steady::new(30, 1, 12);
        let waits: Vec<u128> = (0..4).map(|_| steady.wait().as_millis()).collect();
        assert_eq!(waits, [89, 29, 29, 29], "2, 4 and 8 at a time, then all");
    }

    #[test]
    fn a_trainer_in_time_keeps_as_many_as_it_needs_and_no_more() {
        let mut steady = Steady::new(10, 50, 12);
        let waits: Vec<u128> = (0..100).map(|_| steady.wait().as_millis()).collect();
        assert!(waits[2..].iter().all(|wait| *wait == 0), "{waits:?}");
        assert_eq!(steady.depth.present(), 4, "three rounds of 10 ms: longer than half the step");
    }

    #[test]
    fn what_is_near_is_read_one_at_a_time() {
        let mut steady = Steady::new(0, 10, 12);
        (0..9).for_each(|_| assert_eq!(steady.wait(), Duration::ZERO));
        assert_eq!(steady.depth.present(), 1);
    }

    #[test]
    fn short_memory_halves_it_down_to_one() {
        let mut depth = Depth::at(7);
        assert_eq!([(); 4].map(|()| (depth.crowded(), depth.present()).1), [3, 1, 1, 1]);
    }

    #[test]
    fn a_rest_after_few_reads_or_after_waiting_lowers_nothing() {
        for (reads, waited) in [(3, 0), (4, 5)] {
            let mut depth = Depth::at(4);
            depth.under_way(reads, false, MILLIS(0));
            depth.came(MILLIS(waited));
            depth.under_way(0, false, MILLIS(5));
            depth.asked(MILLIS(500));
            assert_eq!(depth.present(), 4, "{reads} reads, {waited} ms");
        }
    }

    proptest! {
        #[test]
        fn whatever_happens_the_depth_keeps_to_its_bounds_and_its_reasons(
            events in proptest::collection::vec((0u8..4, 0usize..20, 0u64..50, any::<bool>()), 0..200)
        ) {
            let (mut depth, mut now, mut was_held_back) = (Depth::new(), Duration::ZERO, false);
            for (what, reads, millis, is_held_back) in events {
                now += MILLIS(millis);
                let before = depth.present();
                match what {
                    0 => depth.under_way(reads, is_held_back, now),
                    1 => depth.came(MILLIS(millis)),
                    2 => depth.asked(now),
                    _ => depth.crowded(),
                }
                was_held_back |= what == 0 && is_held_back;
                let after = depth.present();
                prop_assert!((1..=DEPTH_MAX).contains(&after));
                match what {
                    0 => prop_assert_eq!(after, before),
                    1 => prop_assert!(after == before || after == before + 1 && was_held_back && millis > 0),
                    2 => prop_assert!(after == before || after + 1 == before),
                    _ => prop_assert_eq!(after, (before / 2).max(1)),
                }
            }
        }

        #[test]
        fn a_steady_trainer_ends_up_in_time_or_reads_all_it_can_and_stays_so(
            latency in 0u64..60, step in 0u64..200, chunks in 1usize..40
        ) {
            let mut steady = Steady::new(latency, step, chunks);
            for _ in 0..60 {
                steady.wait();
            }
            let rounds = chunks.div_ceil(DEPTH_MAX) as u64;
            let limit = MILLIS((rounds * latency).saturating_sub(step));
            for _ in 0..60 {
                let wait = steady.wait();
                prop_assert!(wait <= limit.max(WAITED_MIN), "{:?} of {:?} at {:?}", wait, limit, steady.depth);
            }
        }
    }
}
