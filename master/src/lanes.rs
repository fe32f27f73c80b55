//! Lanes of an asynchronous job: where each trainer goes on, so that it stays in the chunks it has read. A lane is a
//! preference and never keeps a position from being leased. Pure.

use shoal_runtime::cluster::Incarnation;
use std::collections::BTreeMap;
use std::ops::Range;

/// The lanes of all trainers: from where each goes on to as far as others leave to it. One each at most.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    of: BTreeMap<Incarnation, Range<u64>>,
    /// Of two trainers that go on at one position, the later.
    by_start: BTreeMap<u64, Incarnation>,
}

impl Lanes {
    /// From now on this is a trainer's lane.
    pub(crate) fn go_on(&mut self, trainer: Incarnation, lane: Range<u64>) {
        self.leave(trainer);
        self.by_start.insert(lane.start, trainer);
        self.of.insert(trainer, lane);
    }

    /// A trainer has no lane any longer.
    pub(crate) fn leave(&mut self, trainer: Incarnation) {
        if let Some(lane) = self.of.remove(&trainer)
            && self.by_start.get(&lane.start) == Some(&trainer)
        {
            self.by_start.remove(&lane.start);
        }
    }

    /// A trainer's lane.
    pub(crate) fn of(&self, trainer: Incarnation) -> Option<Range<u64>> {
        self.of.get(&trainer).cloned()
    }

    /// Whether somebody else goes on at `position`.
    pub(crate) fn is_anothers(&self, trainer: Incarnation, position: u64) -> bool {
        self.by_start.get(&position).is_some_and(|other| *other != trainer)
    }

    /// The end of the last lane that begins before `position`.
    pub(crate) fn end_of_last_before(&self, position: u64) -> Option<u64> {
        let (_, trainer) = self.by_start.range(..position).next_back()?;
        self.of.get(trainer).map(|lane| lane.end)
    }

    /// How many lanes are kept.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.of.len().max(self.by_start.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Incarnation = Incarnation(1);
    const B: Incarnation = Incarnation(2);

    #[test]
    fn a_trainer_has_one_lane_and_takes_it_along() {
        let mut lanes = Lanes::default();
        lanes.go_on(A, 5..9);
        lanes.go_on(A, 7..11);
        assert_eq!((lanes.of(A), lanes.count()), (Some(7..11), 1));
        assert!(lanes.is_anothers(B, 7) && !lanes.is_anothers(A, 7) && !lanes.is_anothers(B, 5));
        assert_eq!((lanes.end_of_last_before(8), lanes.end_of_last_before(7)), (Some(11), None));
        lanes.go_on(B, 1..20);
        assert_eq!((lanes.end_of_last_before(8), lanes.end_of_last_before(7)), (Some(11), Some(20)));
    }

    #[test]
    fn of_two_trainers_that_go_on_at_one_position_the_earlier_leaves_the_laters_lane_alone() {
        let mut lanes = Lanes::default();
        lanes.go_on(A, 5..9);
        lanes.go_on(B, 5..8);
        lanes.leave(A);
        assert!(lanes.is_anothers(A, 5) && lanes.of(A).is_none());
        lanes.leave(B);
        assert_eq!(lanes.count(), 0);
    }
}
