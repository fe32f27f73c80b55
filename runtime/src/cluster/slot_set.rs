//! A set of slots of a bucket: a bit for each slot up to the highest that is in it.

use super::table::ROWS_MAX;

const BITS: usize = u64::BITS as usize;

/// Some slots of one bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotSet {
    words: Vec<u64>,
    len: usize,
}

impl SlotSet {
    /// How many slots are in it.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Whether a slot is in it.
    pub fn contains(&self, slot: u32) -> bool {
        self.words.get(slot as usize / BITS).is_some_and(|word| word >> (slot as usize % BITS) & 1 == 1)
    }

    /// Adds a slot. False, and nothing is added, if no bucket has such a slot.
    pub fn insert(&mut self, slot: u32) -> bool {
        if slot >= ROWS_MAX {
            return false;
        }
        let (word, bit) = (slot as usize / BITS, 1 << (slot as usize % BITS));
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.len += usize::from(self.words[word] & bit == 0);
        self.words[word] |= bit;
        true
    }

    /// Adds all slots of another set.
    pub fn extend(&mut self, other: &SlotSet) {
        if other.words.len() > self.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        self.words.iter_mut().zip(&other.words).for_each(|(word, more)| *word |= more);
        self.len = self.words.iter().map(|word| word.count_ones() as usize).sum();
    }

    /// Its slots from `first` on, ascending.
    pub fn from(&self, first: u32) -> impl Iterator<Item = u32> {
        let first = first as usize;
        (first / BITS..self.words.len()).flat_map(move |at| {
            let mut word = self.words[at] & if at == first / BITS { !0 << (first % BITS) } else { !0 };
            std::iter::from_fn(move || {
                let bit = word.trailing_zeros() as usize;
                word &= word.wrapping_sub(1);
                (bit < BITS).then_some((at * BITS + bit) as u32)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_set_of_slots_is_a_set(
            slots in proptest::collection::btree_set(0u32..300, 0..40),
            more in proptest::collection::btree_set(0u32..300, 0..40),
            first in 0u32..310,
        ) {
            let of = |slots: &BTreeSet<u32>| {
                let mut set = SlotSet::default();
                slots.iter().for_each(|slot| assert!(set.insert(*slot) && set.insert(*slot)));
                set
            };
            let mut set = of(&slots);
            set.extend(&of(&more));
            let union: BTreeSet<u32> = slots.union(&more).copied().collect();
            prop_assert_eq!(set.len(), union.len());
            prop_assert_eq!(set.is_empty(), union.is_empty());
            prop_assert!((0..310).all(|slot| set.contains(slot) == union.contains(&slot)));
            let found: Vec<u32> = set.from(first).collect();
            prop_assert_eq!(found, union.range(first..).copied().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_slot_that_no_bucket_has_takes_no_memory() {
        let mut set = SlotSet::default();
        assert!(!set.insert(ROWS_MAX) && !set.insert(u32::MAX) && set.is_empty());
        assert!(!set.contains(u32::MAX) && set.words.is_empty());
    }
}
