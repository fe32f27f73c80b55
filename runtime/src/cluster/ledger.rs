//! The ledger of an asynchronous block: which positions it has applied, so that none is ever applied twice.
//!
//! A position is absolute: a microbatch's place among all of the job's. Kept as ranges, so that a ledger costs what its
//! gaps cost: dispatch keeps what is leased within a window of the lowest gap, and a window of W holds W / 2 ranges.

use std::collections::BTreeMap;
use std::ops::Range;

/// The widest dispatch window, in positions, and the most ranges that are taken from a stranger: twice what the widest
/// window can hold, for what was in hand when a block went back may lie beyond its window.
pub const WINDOW_MAX: u64 = 1 << 20;

/// The positions that a block has applied: all below a low mark, and ranges beyond it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// First position and end of each range. Disjoint and not touching; one that begins at 0 ends at the low mark.
    applied: BTreeMap<u64, u64>,
}

/// Why parts make no ledger.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerFault {
    /// A range that holds nothing, or runs backwards.
    #[error("range {0:?} is empty")]
    Empty(Range<u64>),
    /// A range that begins before the one in front of it.
    #[error("range {0:?} comes after one that begins later: give ranges in order")]
    Unordered(Range<u64>),
    /// A range that holds positions of the low mark or of the range in front of it.
    #[error("range {0:?} overlaps what is applied up to {1}")]
    Overlapping(Range<u64>, u64),
    /// A range that should have been one with the low mark or the range in front of it.
    #[error("range {0:?} touches what is applied up to {1}: make them one")]
    Touching(Range<u64>, u64),
    /// More ranges than any dispatch window leaves.
    #[error("more than {WINDOW_MAX} ranges")]
    TooMany,
}

impl Ledger {
    /// The ledger with everything below `low` applied, and these ranges beyond it.
    ///
    /// # Errors
    /// Ranges that are empty, out of order, overlapping or touching, or too many.
    pub fn from_parts(low: u64, ranges: impl IntoIterator<Item = Range<u64>>) -> Result<Ledger, LedgerFault> {
        let mut applied = BTreeMap::from_iter((low > 0).then_some((0, low)));
        let mut before = 0..low;
        for range in ranges {
            if range.is_empty() {
                return Err(LedgerFault::Empty(range));
            }
            if range.start < before.start {
                return Err(LedgerFault::Unordered(range));
            }
            if range.start < before.end {
                return Err(LedgerFault::Overlapping(range, before.end));
            }
            if range.start == before.end {
                return Err(LedgerFault::Touching(range, before.end));
            }
            if applied.len() as u64 > WINDOW_MAX {
                return Err(LedgerFault::TooMany);
            }
            applied.insert(range.start, range.end);
            before = range;
        }
        Ok(Ledger { applied })
    }

    /// Whether a position has been applied.
    pub fn contains(&self, position: u64) -> bool {
        self.holding(position).is_some()
    }

    /// Notes a position as applied; the job's end, and so every position, is below `u64::MAX`. False if it was
    /// applied before.
    pub fn insert(&mut self, position: u64) -> bool {
        if self.contains(position) {
            return false;
        }
        let end = self.applied.remove(&(position + 1)).unwrap_or(position + 1);
        match self.applied.range_mut(..position).next_back() {
            Some((_, before)) if *before == position => *before = end,
            _ => {
                self.applied.insert(position, end);
            }
        }
        true
    }

    /// The lowest position that has not been applied: everything below it has.
    pub fn low(&self) -> u64 {
        self.applied.get(&0).copied().unwrap_or(0)
    }

    /// What has been applied beyond the low mark: disjoint ranges in order, none touching another or the mark.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.applied.range(1..).map(|(first, end)| *first..*end)
    }

    /// Whether every position below `end` has been applied.
    pub fn is_full(&self, end: u64) -> bool {
        self.low() >= end
    }

    /// Whether any position of `range` has been applied.
    pub fn holds_any(&self, range: Range<u64>) -> bool {
        !range.is_empty() && self.missing(range.clone()).next() != Some(range)
    }

    /// One past the highest position that has been applied.
    pub fn end(&self) -> u64 {
        self.applied.last_key_value().map_or(0, |(_, end)| *end)
    }

    /// What of `range` has not been applied: disjoint ranges in order, each as long as it can be.
    pub fn missing(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let mut at = range.start;
        std::iter::from_fn(move || {
            at = self.holding(at).map_or(at, |held| held.end);
            let gap =
                at..self.applied.range(at..).next().map_or(range.end, |(first, _)| range.end.min(*first));
            at = gap.end;
            (!gap.is_empty()).then_some(gap)
        })
    }

    /// What both have applied.
    pub fn intersection(&self, other: &Ledger) -> Ledger {
        let mut applied = BTreeMap::new();
        let (mut ours, mut theirs) = (self.applied.iter().peekable(), other.applied.iter().peekable());
        while let (Some((our_first, our_end)), Some((their_first, their_end))) = (ours.peek(), theirs.peek())
        {
            let (first, end) = (**our_first.max(their_first), **our_end.min(their_end));
            if first < end {
                applied.insert(first, end);
            }
            if our_end < their_end {
                ours.next()
            } else {
                theirs.next()
            };
        }
        Ledger { applied }
    }

    /// The range that holds a position.
    fn holding(&self, position: u64) -> Option<Range<u64>> {
        let (first, end) = self.applied.range(..=position).next_back()?;
        (position < *end).then_some(*first..*end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Beyond every position that these tests apply.
    const END: u64 = 80;

    fn ledger(positions: &BTreeSet<u64>) -> Ledger {
        let mut ledger = Ledger::default();
        positions.iter().rev().for_each(|position| assert!(ledger.insert(*position)));
        ledger
    }
    fn positions() -> impl Strategy<Value = BTreeSet<u64>> {
        (0u64..9, proptest::collection::btree_set(0u64..60, 0..50)).prop_map(|(low, mut beyond)| {
            beyond.extend(0..low);
            beyond
        })
    }
    /// The maximal stretches of `range` whose positions are in `of`, or are not.
    fn stretches(of: &BTreeSet<u64>, range: Range<u64>, are_in: bool) -> Vec<Range<u64>> {
        let mut found: Vec<Range<u64>> = Vec::new();
        for position in range.filter(|position| of.contains(position) == are_in) {
            match found.last_mut() {
                Some(last) if last.end == position => last.end += 1,
                _ => found.push(position..position + 1),
            }
        }
        found
    }

    #[test]
    fn the_low_mark_takes_in_what_it_reaches() {
        let mut ledger = Ledger::default();
        assert!(ledger.insert(2) && ledger.insert(1));
        assert_eq!((ledger.low(), ledger.ranges().next()), (0, Some(1..3)));
        assert!(ledger.insert(0) && !ledger.insert(2));
        assert_eq!((ledger.low(), ledger.ranges().next()), (3, None));
    }

    #[test]
    fn parts_that_make_no_ledger_are_refused_by_name() {
        let parts = |low, ranges: &[(u64, u64)]| {
            Ledger::from_parts(low, ranges.iter().map(|(first, end)| *first..*end)).unwrap_err()
        };
        assert_eq!(parts(0, &[(9, 8)]), LedgerFault::Empty(Range { start: 9, end: 8 }));
        assert_eq!(parts(0, &[(5, 5)]), LedgerFault::Empty(5..5));
        assert_eq!(parts(0, &[(5, 6), (2, 3)]), LedgerFault::Unordered(2..3));
        assert_eq!(parts(5, &[(4, 6)]), LedgerFault::Overlapping(4..6, 5));
        assert_eq!(parts(0, &[(5, 8), (5, 6)]), LedgerFault::Overlapping(5..6, 8));
        assert_eq!(parts(5, &[(5, 6)]), LedgerFault::Touching(5..6, 5));
        assert_eq!(parts(0, &[(0, 6)]), LedgerFault::Touching(0..6, 0));
        assert_eq!(parts(0, &[(5, 8), (8, 9)]), LedgerFault::Touching(8..9, 8));
        let fault = parts(0, &[(5, 8), (6, 9)]);
        assert_eq!(fault.to_string(), "range 6..9 overlaps what is applied up to 8");
    }

    #[test]
    fn more_ranges_than_any_window_leaves_are_refused() {
        let ranges = |count| (0..count).map(|at| 2 * at + 5..2 * at + 6);
        assert_eq!(Ledger::from_parts(4, ranges(WINDOW_MAX)).unwrap().ranges().count() as u64, WINDOW_MAX);
        assert_eq!(Ledger::from_parts(4, ranges(WINDOW_MAX + 1)), Err(LedgerFault::TooMany));
    }

    #[test]
    fn the_last_positions_there_are_do_no_harm() {
        let mut ledger = Ledger::from_parts(0, [5..6, u64::MAX - 3..u64::MAX - 1]).unwrap();
        assert!(ledger.insert(u64::MAX - 1) && !ledger.contains(u64::MAX));
        assert_eq!(ledger.missing(5..u64::MAX).last(), Some(6..u64::MAX - 3));
    }

    proptest! {
        #[test]
        fn a_ledger_is_the_set_of_what_was_inserted_and_tells_what_was_there(
            calls in proptest::collection::vec(0u64..60, 0..90)
        ) {
            let (mut ledger, mut model) = (Ledger::default(), BTreeSet::new());
            for position in calls {
                prop_assert_eq!(ledger.insert(position), model.insert(position));
                let low = (0..END).find(|position| !model.contains(position)).unwrap();
                prop_assert_eq!(ledger.low(), low);
                prop_assert_eq!(ledger.ranges().collect::<Vec<_>>(), stretches(&model, low..END, true));
                prop_assert!((0..END).all(|position| ledger.contains(position) == model.contains(&position)));
                prop_assert!((0..END).all(|end| ledger.is_full(end) == (end <= low)));
            }
        }

        #[test]
        fn what_is_missing_is_what_was_not_inserted(model in positions(), from in 0..END, length in 0..END) {
            let range = from..END.min(from + length);
            let missing: Vec<Range<u64>> = ledger(&model).missing(range.clone()).collect();
            prop_assert_eq!(missing, stretches(&model, range.clone(), false));
            prop_assert_eq!(ledger(&model).holds_any(range.clone()), range.clone().any(|at| model.contains(&at)));
            prop_assert_eq!(ledger(&model).end(), model.last().map_or(0, |last| last + 1));
        }

        #[test]
        fn the_intersection_is_what_both_have(ours in positions(), theirs in positions()) {
            let both = ours.intersection(&theirs).copied().collect();
            prop_assert_eq!(ledger(&ours).intersection(&ledger(&theirs)), ledger(&both));
        }

        #[test]
        fn parts_make_the_ledger_they_were_taken_from(model in positions()) {
            let ledger = ledger(&model);
            prop_assert_eq!(Ledger::from_parts(ledger.low(), ledger.ranges()), Ok(ledger));
        }

        #[test]
        fn a_ledger_takes_half_as_many_ranges_as_the_window_it_was_dispatched_in(
            window in 1u64..20, offsets in proptest::collection::vec(0u64..20, 0..200)
        ) {
            let mut ledger = Ledger::default();
            for offset in offsets {
                ledger.insert(ledger.low() + offset % window);
                prop_assert!(ledger.ranges().count() as u64 <= window / 2);
            }
        }
    }
}
