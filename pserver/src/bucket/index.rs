//! From keys to the slots of their rows. It must never know what a row is: who asks says which key a slot has.
//!
//! A hash table doubles, and is half empty then: with one table a row would cost twice as much at one size as at another. So
//! the keys are spread over parts of unequal shares, each 2^(1/16) times the one before, which double one after the other: a
//! row costs 6.2 to 7 bytes at any size, and no update moves more than a tenth of the index. Slots have three bytes until a
//! bucket has more than 2^24, which costs a byte and a half more a row.

use super::arena::Slot;
use hashbrown::HashTable;
use shoal_runtime::cluster::table::{place_hash, place_share};

const PARTS: usize = 16;
/// Which part each of 256 shares belongs to.
const PART_OF: [u8; 256] = parts();

/// Slots by the keys of their rows.
#[derive(Clone, Debug)]
pub(super) enum Index {
    /// All slots are below [`NARROW_MAX`].
    Narrow(Parts<3>),
    Wide(Parts<4>),
}

const NARROW_MAX: Slot = 1 << 24;

/// The parts, with slots of so many bytes.
#[derive(Clone, Debug)]
pub(super) struct Parts<const BYTES: usize>([HashTable<[u8; BYTES]>; PARTS]);

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
        Index::Narrow(Parts::new())
    }

    /// The slot of a key; `is_it` says whether a slot is the key's.
    pub(super) fn find(&self, key: u64, is_it: impl Fn(Slot) -> bool) -> Option<Slot> {
        match self {
            Index::Narrow(parts) => parts.find(key, is_it),
            Index::Wide(parts) => parts.find(key, is_it),
        }
    }

    /// Of each key a slot that is most likely its own: if it is not, [`find`](Self::find) may know another. None if the key
    /// has none.
    pub(super) fn likely<const MANY: usize>(&self, keys: &[u64]) -> [Option<Slot>; MANY] {
        match self {
            Index::Narrow(parts) => parts.likely(keys),
            Index::Wide(parts) => parts.likely(keys),
        }
    }

    /// Notes a key that is not there; `key_of` says which key another slot has.
    pub(super) fn insert(&mut self, key: u64, slot: Slot, key_of: impl Fn(Slot) -> u64) {
        if let Index::Narrow(parts) = self
            && slot >= NARROW_MAX
        {
            *self = Index::Wide(parts.widened(&key_of));
        }
        match self {
            Index::Narrow(parts) => parts.insert(key, slot, key_of),
            Index::Wide(parts) => parts.insert(key, slot, key_of),
        }
    }

    /// Forgets a key's slot.
    pub(super) fn remove(&mut self, key: u64, slot: Slot) {
        match self {
            Index::Narrow(parts) => parts.remove(key, slot),
            Index::Wide(parts) => parts.remove(key, slot),
        }
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Index::Narrow(parts) => parts.0.iter().map(HashTable::allocation_size).sum(),
            Index::Wide(parts) => parts.0.iter().map(HashTable::allocation_size).sum(),
        }
    }
}

/// A slot from its lowest bytes.
fn slot_of<const BYTES: usize>(bytes: &[u8; BYTES]) -> Slot {
    bytes.iter().rev().fold(0, |slot, byte| slot << 8 | Slot::from(*byte))
}

impl<const BYTES: usize> Parts<BYTES> {
    fn new() -> Parts<BYTES> {
        Parts(std::array::from_fn(|_| HashTable::new()))
    }

    fn find(&self, key: u64, is_it: impl Fn(Slot) -> bool) -> Option<Slot> {
        self.0[part_of(key)].find(place_hash(key), |slot| is_it(slot_of(slot))).map(slot_of)
    }

    fn likely<const MANY: usize>(&self, keys: &[u64]) -> [Option<Slot>; MANY] {
        // What can be computed is, before the first miss: more misses are under way together then.
        let (mut parts, mut hashes) = ([0; MANY], [0; MANY]);
        for ((part, hash), key) in parts.iter_mut().zip(&mut hashes).zip(keys) {
            (*part, *hash) = (part_of(*key), place_hash(*key));
        }
        let mut likely = [None; MANY];
        for (likely, (part, hash)) in likely.iter_mut().zip(parts.iter().zip(hashes)).take(keys.len()) {
            *likely = self.0[*part].find(hash, |_| true).map(slot_of);
        }
        likely
    }

    fn insert(&mut self, key: u64, slot: Slot, key_of: impl Fn(Slot) -> u64) {
        let bytes = std::array::from_fn(|at| (slot >> (8 * at)) as u8);
        let part = &mut self.0[part_of(key)];
        part.insert_unique(place_hash(key), bytes, |slot| place_hash(key_of(slot_of(slot))));
    }

    fn remove(&mut self, key: u64, slot: Slot) {
        let entry = self.0[part_of(key)].find_entry(place_hash(key), |other| slot_of(other) == slot);
        if let Ok(entry) = entry {
            entry.remove();
        }
    }

    /// The same with slots of another size. Each part lets go of its memory before the next is begun.
    fn widened<const MORE: usize>(&mut self, key_of: impl Fn(Slot) -> u64) -> Parts<MORE> {
        let mut wide = Parts::new();
        for part in &mut self.0 {
            for slot in std::mem::take(part) {
                let slot = slot_of(&slot);
                wide.insert(key_of(slot), slot, &key_of);
            }
        }
        wide
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
        assert!(least > 6.1 && most < 7.1, "{least} to {most} bytes of a row");
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
        assert_eq!((find(&index, 1), index.likely(&[u64::MAX, 7])), (None, [None, Some(1)]));
    }

    #[test]
    fn slots_of_more_than_three_bytes_are_kept_whole_and_those_before_are_still_found() {
        // Every slot is its own key, times 3.
        let key_of = |slot: Slot| u64::from(slot) * 3;
        let mut index = Index::new();
        let slots = [0, 1, 255, 256, 0x12_3456, NARROW_MAX - 1];
        slots.into_iter().for_each(|slot| index.insert(key_of(slot), slot, key_of));
        assert!(matches!(index, Index::Narrow(_)));
        let wide = [NARROW_MAX, NARROW_MAX + 1, 0x3456_789a];
        wide.into_iter().for_each(|slot| index.insert(key_of(slot), slot, key_of));
        assert!(matches!(index, Index::Wide(_)));
        for slot in slots.into_iter().chain(wide) {
            assert_eq!(index.find(key_of(slot), |found| found == slot), Some(slot));
        }
        index.remove(key_of(256), 256);
        assert_eq!(index.find(key_of(256), |found| found == 256), None);
    }
}
