//! How stale the gradients of asynchronous updates were, counted in buckets. For people; no decision may rest on it.

/// Buckets: 0, 1, 2-3, 4-7 and so on; the last has no end.
pub const STALENESS_BUCKETS: usize = 16;

/// Updates by staleness: by how many updates a block had moved on since the gradient's parameters were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Staleness {
    updates: [u64; STALENESS_BUCKETS],
    sum: u64,
}

impl Staleness {
    /// Counts an update that was so stale.
    pub fn note(&mut self, staleness: u64) {
        let bucket = (u64::BITS - staleness.leading_zeros()) as usize;
        self.updates[bucket.min(STALENESS_BUCKETS - 1)] += 1;
        self.sum = self.sum.saturating_add(staleness);
    }

    /// Both together.
    pub fn plus(mut self, other: &Staleness) -> Staleness {
        for (ours, theirs) in self.updates.iter_mut().zip(other.updates) {
            *ours = ours.saturating_add(theirs);
        }
        self.sum = self.sum.saturating_add(other.sum);
        self
    }

    /// Every bucket by the smallest and the largest staleness in it, with its updates.
    pub fn buckets(&self) -> [(u64, u64, u64); STALENESS_BUCKETS] {
        std::array::from_fn(|at| {
            let first = if at == 0 { 0 } else { 1 << (at - 1) };
            let last = if at == STALENESS_BUCKETS - 1 { u64::MAX } else { (1 << at) - 1 };
            (first, last, self.updates[at])
        })
    }

    /// The staleness of all updates, added up.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// How many updates were counted.
    pub fn count(&self) -> u64 {
        self.updates.iter().fold(0, |count, updates| count.saturating_add(*updates))
    }

    /// What was said on the wire: buckets that are missing are empty, those beyond the last are of the last.
    pub fn from_counts(updates: &[u64], sum: u64) -> Staleness {
        let mut staleness = Staleness { sum, ..Staleness::default() };
        for (at, count) in updates.iter().enumerate() {
            let bucket = &mut staleness.updates[at.min(STALENESS_BUCKETS - 1)];
            *bucket = bucket.saturating_add(*count);
        }
        staleness
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_are_nothing_one_and_then_twice_as_wide_each() {
        let bounds: Vec<(u64, u64)> =
            Staleness::default().buckets().iter().take(5).map(|(first, last, _)| (*first, *last)).collect();
        assert_eq!(bounds, [(0, 0), (1, 1), (2, 3), (4, 7), (8, 15)]);
        assert_eq!(Staleness::default().buckets()[STALENESS_BUCKETS - 1].1, u64::MAX);
    }

    #[test]
    fn counts_of_another_length_lose_no_update() {
        let long: Vec<u64> = (1..=20).collect();
        assert_eq!(Staleness::from_counts(&long, 7).count(), 210);
        assert_eq!(Staleness::from_counts(&[1, 2], 2).buckets()[1], (1, 1, 2));
    }

    proptest! {
        #[test]
        fn every_update_is_counted_once_between_its_buckets_bounds(stale in proptest::collection::vec(prop_oneof![0u64..40, 0u64..70_000, any::<u64>()], 0..50)) {
            let mut all = Staleness::default();
            for staleness in &stale {
                let mut one = Staleness::default();
                one.note(*staleness);
                let (first, last, _) = one.buckets().into_iter().find(|(_, _, updates)| *updates > 0).unwrap();
                prop_assert!((first..=last).contains(staleness));
                prop_assert_eq!((one.count(), one.sum()), (1, *staleness));
                all = all.plus(&one);
            }
            prop_assert_eq!(all.count(), stale.len() as u64);
            let counts = all.buckets().map(|(_, _, updates)| updates);
            prop_assert_eq!(Staleness::from_counts(&counts, all.sum()), all);
        }
    }
}
