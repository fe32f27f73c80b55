//! The hashes that a run has recorded beside those of its replay, step by step. Pure.

use shoal_runtime::cluster::recording::{HashDifference, difference};
use shoal_runtime::cluster::{Declaration, StepHashes};
use std::collections::BTreeMap;

/// A replay that is compared.
#[derive(Debug)]
pub(super) struct Comparison {
    declaration: Declaration,
    /// Steps of the run that are compared, by step: those that are not yet.
    open: BTreeMap<u64, StepHashes>,
    /// Steps that had the same hashes.
    same: Vec<u64>,
    /// Steps that the replay has, whose hashes the run has not or has others.
    differing: BTreeMap<u64, HashDifference>,
    last: u64,
    is_played: bool,
}

impl Comparison {
    /// Of these steps, in a replay that plays up to `last`.
    pub(super) fn new(
        declaration: Declaration,
        recorded: BTreeMap<u64, StepHashes>,
        last: u64,
    ) -> Comparison {
        let open = recorded;
        Comparison { declaration, open, same: Vec::new(), differing: BTreeMap::new(), last, is_played: false }
    }

    /// The replay has recorded these steps since the last time.
    pub(super) fn see(&mut self, replayed: &BTreeMap<u64, StepHashes>) {
        let steps: Vec<u64> = self.open.keys().filter(|step| replayed.contains_key(step)).copied().collect();
        for step in steps {
            let (Some(theirs), Some(ours)) = (self.open.remove(&step), replayed.get(&step)) else { continue };
            match difference(&self.declaration, &theirs, ours) {
                None => self.same.push(step),
                Some(difference) => drop(self.differing.insert(step, difference)),
            }
        }
        self.is_played |= replayed.contains_key(&self.last);
    }

    /// Whether nothing that is still to come would be told: the last step was played, or the first that differs is found.
    pub(super) fn is_over(&self) -> bool {
        self.is_played
            || self.first_difference().is_some_and(|(first, _)| self.open.range(..first).next().is_none())
    }

    /// How many steps had the same hashes, before the first that has not.
    pub(super) fn same(&self) -> usize {
        let first = self.first_difference().map_or(u64::MAX, |(first, _)| first);
        self.same.iter().filter(|step| **step < first).count()
    }

    /// Steps of the run that the replay has not made, or whose hashes were lost.
    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    /// The first step that differs, and where.
    pub(super) fn first_difference(&self) -> Option<(u64, &HashDifference)> {
        self.differing.first_key_value().map(|(step, difference)| (*step, difference))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_runtime::cluster::initial::Initial;
    use shoal_runtime::cluster::{Parameter, Rewind, Rule, Schedule, Version};

    fn declaration() -> Declaration {
        let parameter =
            |name: &str| Parameter::new(name, &[2], Rule::Sgd, Schedule::constant(0.1), Initial::Zeros);
        Declaration { parameters: vec![parameter("w"), parameter("b")], block_elements: 100 }
    }

    fn recorded(steps: &[(u64, u64)]) -> BTreeMap<u64, StepHashes> {
        let hashes = |(step, hash): &(u64, u64)| {
            let (version, rewind, blocks) = (Version(*step), Rewind(1), vec![vec![7, *hash]]);
            (*step, StepHashes { version, step: *step, rewind, blocks })
        };
        steps.iter().map(hashes).collect()
    }

    #[test]
    fn steps_of_the_range_are_compared_until_the_last_was_played() {
        let mut comparison = Comparison::new(declaration(), recorded(&[(20, 2), (30, 3)]), 35);
        comparison.see(&recorded(&[(10, 9), (20, 2)]));
        assert_eq!((comparison.same(), comparison.open(), comparison.is_over()), (1, 1, false));
        comparison.see(&recorded(&[(30, 3), (35, 3)]));
        assert_eq!((comparison.same(), comparison.open(), comparison.is_over()), (2, 0, true));
        assert_eq!(comparison.first_difference(), None);
    }

    #[test]
    fn the_first_step_that_differs_is_told_once_all_before_it_are_known() {
        let mut comparison =
            Comparison::new(declaration(), recorded(&[(10, 1), (20, 2), (30, 3), (40, 4)]), 40);
        comparison.see(&recorded(&[(10, 1), (30, 9), (40, 4)]));
        assert_eq!((comparison.first_difference().map(|(step, _)| step), comparison.same()), (Some(30), 1));
        comparison.see(&recorded(&[(20, 8)]));
        assert!(comparison.is_over());
        let (step, difference) = comparison.first_difference().unwrap();
        assert_eq!((step, difference.parameters.as_slice()), (20, ["b".to_owned()].as_slice()));
    }
}
