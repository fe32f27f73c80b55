//! What a trainer's time goes to: every moment belongs to one activity, so that the parts add up to the whole. Pure: it
//! is told the time, as time since its trainer began.

use std::time::Duration;

/// An activity of a trainer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// Nothing to do: it has no task, or others have yet to complete the step before.
    Wait,
    /// Nothing to compute: the records of its tasks are being read.
    Read,
    /// Parameters that are published come.
    Pull,
    /// The step function, and what is added up after it.
    Compute,
    /// A gradient goes to pservers, until they have taken it in.
    Push,
}

/// How long a trainer was at each activity.
#[derive(Clone, Debug)]
pub(crate) struct Activities {
    spent: [Duration; 5],
    present: Activity,
    /// Until when time is counted: the present activity's runs from here.
    since: Duration,
}

impl Activities {
    /// A trainer begins by waiting.
    pub(crate) fn new() -> Activities {
        Activities { spent: [Duration::ZERO; 5], present: Activity::Wait, since: Duration::ZERO }
    }

    /// Counts the present activity's time, and begins another, or the same.
    pub(crate) fn enter(&mut self, activity: Activity, now: Duration) {
        self.settle(now);
        self.present = activity;
    }

    /// All gradients are pushed. A trainer that was at pushing is at pulling from now on: it waits for what they make.
    pub(crate) fn pushed(&mut self, now: Duration) {
        if self.present == Activity::Push {
            self.enter(Activity::Pull, now);
        }
    }

    /// An answer to a pull came. Until `published` the trainer waited for others; since then the parameters were on their way.
    pub(crate) fn answered(&mut self, published: Duration, now: Duration) {
        if self.present != Activity::Pull {
            return;
        }
        let published = published.clamp(self.since, now.max(self.since));
        self.spent[Activity::Wait as usize] += published - self.since;
        self.since = published;
        self.settle(now);
    }

    /// How long it was at `activity` until now. A pull counts when it is answered: only then is it known what it was.
    pub(crate) fn spent(&self, activity: Activity, now: Duration) -> Duration {
        let is_present = activity == self.present && activity != Activity::Pull;
        let running = if is_present { now.saturating_sub(self.since) } else { Duration::ZERO };
        self.spent[activity as usize] + running
    }

    /// Returns the time for which the program has been computing; `None` while it is not.
    pub(crate) fn computing(&self, now: Duration) -> Option<Duration> {
        (self.present == Activity::Compute).then(|| now.saturating_sub(self.since))
    }

    fn settle(&mut self, now: Duration) {
        self.spent[self.present as usize] += now.saturating_sub(self.since);
        self.since = self.since.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Activity::{Compute, Pull, Push, Read, Wait};
    use proptest::prelude::*;

    const ALL: [Activity; 5] = [Wait, Read, Pull, Compute, Push];

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }
    fn spent(activities: &Activities, now: u64) -> [u64; 5] {
        ALL.map(|activity| activities.spent(activity, at(now)).as_millis() as u64)
    }

    #[test]
    fn what_is_not_over_yet_counts_as_far_as_it_has_come() {
        let mut activities = Activities::new();
        activities.enter(Read, at(3));
        activities.enter(Compute, at(10));
        assert_eq!(spent(&activities, 14), [3, 7, 0, 4, 0]);
        assert_eq!(activities.computing(at(14)), Some(at(4)));
        activities.enter(Push, at(20));
        assert_eq!(spent(&activities, 20), [3, 7, 0, 10, 0]);
        assert_eq!(activities.computing(at(20)), None);
    }

    #[test]
    fn a_pull_is_waiting_until_all_is_published_and_pulling_since() {
        let mut activities = Activities::new();
        activities.enter(Pull, at(10));
        assert_eq!(spent(&activities, 90), [10, 0, 0, 0, 0], "it is not known yet what it was");
        activities.answered(at(80), at(95));
        assert_eq!(spent(&activities, 95), [80, 0, 15, 0, 0]);
        // Another pserver's blocks were published before that, and took longer to come.
        activities.answered(at(20), at(99));
        activities.enter(Compute, at(100));
        assert_eq!(spent(&activities, 100), [80, 0, 20, 0, 0]);
    }

    #[test]
    fn what_is_pulled_before_all_is_pushed_is_pushing_until_it_is() {
        let mut activities = Activities::new();
        activities.enter(Push, at(10));
        activities.answered(at(20), at(30));
        activities.pushed(at(50));
        activities.answered(at(70), at(75));
        assert_eq!(spent(&activities, 75), [30, 0, 5, 0, 40]);
        activities.enter(Compute, at(75));
        activities.pushed(at(80));
        assert_eq!(spent(&activities, 90), [30, 0, 5, 15, 40]);
    }

    #[test]
    fn a_publication_that_a_clock_puts_after_its_answer_makes_no_time() {
        let mut activities = Activities::new();
        activities.enter(Pull, at(10));
        activities.answered(at(500), at(50));
        assert_eq!(spent(&activities, 50), [50, 0, 0, 0, 0]);
    }

    proptest! {
        #[test]
        fn the_parts_add_up_to_the_whole_and_none_ever_falls(
            moves in proptest::collection::vec((0usize..6, 0u64..50, 0u64..100), 0..60)
        ) {
            let (mut activities, mut now, mut before) = (Activities::new(), 0, [0; 5]);
            for (what, pause, back) in moves {
                now += pause;
                match ALL.get(what) {
                    Some(activity) => activities.enter(*activity, at(now)),
                    None => activities.answered(at(now.saturating_sub(back)), at(now)),
                }
                let after = spent(&activities, now);
                let is_open = activities.present == Pull;
                prop_assert!(after.iter().sum::<u64>() == now || is_open, "{:?} at {}", after, now);
                prop_assert!(after.iter().sum::<u64>() <= now);
                prop_assert!(before.iter().zip(after).all(|(before, after)| *before <= after));
                before = after;
            }
        }
    }
}
