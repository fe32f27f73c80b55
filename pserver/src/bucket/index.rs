//! From keys to the slots of their rows. It must never know what a row is: who asks says which key a slot has.
//!
//! A hash table doubles, and is half empty then: with one table a row would cost between 5.7 and 11.4 bytes, as its number of
//! rows happens to be. So the keys are spread over parts of unequal shares, each 2^(1/16) times the one before, which double
//! one after the other: a row costs 7.8 to 8.7 bytes at any size, and no update moves more than a tenth of the index.

use super::arena::Slot;
use hashbrown::HashTable;
use shoal_runtime::cluster::table::{place_hash, place_share};

const PARTS: usize = 16;
/// Which part each of 256 shares belongs to.
const PART_OF: [u8; 256] = parts();

/// Slots by the keys of their rows.
#[derive(Clone, Debug)]
pub(super) struct Index {
    parts: [HashTable<Slot>; PARTS],
}

/// Shares of each part, as near to 2^(part / 16) as 256 of them come.
const SHARES: [u8; PARTS] = [11, 12, 12, 13, 13, 14, 15, 15, 16, 17, 17, 18, 19, 20, 21, 23];

const fn parts() -> [u8; 256] {
    let (mut part_of, mut share, mut part) = ([0; 256], 0, 0);
    while part < PARTS {
        let end = share + SHARES[part] as usize;
        while share < end {
            part_of[share] = part as u8;
            share += 1;
        }
        part += 1;
    }
    assert!(share == 256, "every share belongs to a part");
    part_of
}

fn part_of(key: u64) -> usize {
    PART_OF[usize::from(place_share(key))].into()
}

impl Index {
    /// Of no keys.
    pub(super) fn new() -> Index {
        Index { parts: std::array::from_fn(|_| HashTable::new()) }
    }

    /// The slot of a key; `is_it` says whether a slot is the key's.
    pub(super) fn find(&self, key: u64, is_it: impl Fn(Slot) -> bool) -> Option<Slot> {
        self.parts[part_of(key)].find(place_hash(key), |slot| is_it(*slot)).copied()
    }

    /// A slot that is most likely the key's: if it is not, [`find`](Self::find) may know another. None if the key has none.
    pub(super) fn likely(&self, key: u64) -> Option<Slot> {
        self.parts[part_of(key)].find(place_hash(key), |_| true).copied()
    }

    /// Notes a key that is not there; `key_of` says which key another slot has.
    pub(super) fn insert(&mut self, key: u64, slot: Slot, key_of: impl Fn(Slot) -> u64) {
        let part = &mut self.parts[part_of(key)];
        part.insert_unique(place_hash(key), slot, |slot| place_hash(key_of(*slot)));
    }

    /// Forgets a key's slot.
    pub(super) fn remove(&mut self, key: u64, slot: Slot) {
        let entry = self.parts[part_of(key)].find_entry(place_hash(key), |other| *other == slot);
        if let Ok(entry) = entry {
            entry.remove();
        }
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        self.parts.iter().map(HashTable::allocation_size).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_costs_about_the_same_at_any_size() {
        let mut index = Index::new();
        let (mut least, mut most) = (f64::MAX, 0.0f64);
        // Two octaves.
        for slot in 0..160_000u32 {
            index.insert(u64::from(slot), slot, u64::from);
            if slot >= 40_000 && slot % 500 == 0 {
                let bytes = index.bytes() as f64 / f64::from(slot + 1);
                (least, most) = (least.min(bytes), most.max(bytes));
            }
        }
        assert!(least > 7.7 && most < 8.9, "{least} to {most} bytes of a row");
    }

    #[test]
    fn a_key_is_found_until_it_is_removed() {
        let mut index = Index::new();
        (0..5000).for_each(|slot| index.insert(u64::from(slot) * 7, slot, |slot| u64::from(slot) * 7));
        let find = |index: &Index, key: u64| index.find(key, |slot| u64::from(slot) * 7 == key);
        for slot in (0..5000).step_by(3) {
            index.remove(u64::from(slot) * 7, slot);
        }
        for slot in 0..5000u32 {
            let expected = (slot % 3 != 0).then_some(slot);
            assert_eq!(find(&index, u64::from(slot) * 7), expected);
        }
        assert_eq!((find(&index, 1), index.likely(u64::MAX)), (None, None));
    }
}
