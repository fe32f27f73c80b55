//! What trainers have counted in one master's term, summed over all of them. A sum never falls: who is gone, or
//! forgotten, stays counted. For people; no decision may rest on it. Pure.

use shoal_job::counters::{Counters, TrainerCounters};
use shoal_runtime::cluster::Incarnation;
use std::collections::BTreeMap;

/// The sums.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    total: TrainerCounters,
    /// What of each trainer is in the sums.
    counted: BTreeMap<Incarnation, TrainerCounters>,
}

impl Tally {
    /// A trainer joins in a life that no master knew before: all that it will count is of this term. Of an older life
    /// the first word tells where to begin.
    pub(crate) fn begin(&mut self, trainer: Incarnation) {
        self.counted.entry(trainer).or_default();
    }

    /// A trainer says what it has counted since its life began.
    pub(crate) fn hear(&mut self, trainer: Incarnation, counters: TrainerCounters) {
        let before = self.counted.entry(trainer).or_insert(counters);
        let since = counters.zip(*before, |_, now, before| now.saturating_sub(before));
        self.total = self.total.merged(since);
        *before = counters.zip(*before, |_, now, before| now.max(before));
    }

    /// A trainer is remembered no more; what it counted stays counted.
    pub(crate) fn forget(&mut self, trainer: Incarnation) {
        self.counted.remove(&trainer);
    }

    /// The sums.
    pub(crate) fn total(&self) -> TrainerCounters {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn records(records: u64) -> TrainerCounters {
        TrainerCounters { records, wait_micros: 2 * records, ..TrainerCounters::default() }
    }
    const A: Incarnation = Incarnation(1);
    const B: Incarnation = Incarnation(2);

    #[test]
    fn who_is_forgotten_stays_counted() {
        let mut tally = Tally::default();
        tally.begin(A);
        tally.begin(B);
        tally.hear(A, records(5));
        tally.hear(B, records(3));
        tally.hear(A, records(9));
        tally.forget(A);
        tally.hear(B, records(4));
        assert_eq!(tally.total(), records(13));
        assert_eq!(tally.counted.len(), 1);
    }

    #[test]
    fn what_a_trainer_counted_under_an_earlier_master_is_not_of_this_term() {
        let mut tally = Tally::default();
        tally.hear(A, records(100));
        tally.hear(A, records(107));
        assert_eq!(tally.total(), records(7));
    }

    proptest! {
        #[test]
        fn a_sum_never_falls_and_is_that_of_the_furthest_words(words in proptest::collection::vec((0u64..4, 0u64..99), 0..40)) {
            let (mut tally, mut furthest, mut before) = (Tally::default(), BTreeMap::new(), 0);
            (0..4).for_each(|trainer| tally.begin(Incarnation(trainer)));
            for (trainer, count) in words {
                tally.hear(Incarnation(trainer), records(count));
                let known: &mut u64 = furthest.entry(trainer).or_default();
                *known = count.max(*known);
                prop_assert!(tally.total().records >= before);
                before = tally.total().records;
            }
            prop_assert_eq!(tally.total(), records(furthest.values().sum()));
        }
    }
}
