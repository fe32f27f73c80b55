//! The rows of one bucket in memory: records `[key | last update | occurrences | embedding | slots]` in slabs, and an
//! index from keys to slots. It must never know of rules, versions or who asks.
//!
//! A new row takes the lowest free slot, so that the arena stays dense; a slab without rows has no memory. Which slot a row
//! has never changes a bit of any row; it names a row's place in copies and in files.

use super::index::Index;
use std::hint::black_box;

/// Where a row lies.
pub type Slot = u32;

/// Rows of one slab: small beside a bucket, large beside an allocator's own needs.
const SLAB_ROWS: usize = 256;
const BITS: usize = u64::BITS as usize;
/// Words of a record before its values: key (low, high), last, occurrences.
const HEAD_WORDS: usize = 4;
/// Keys whose rows are looked for at a time: their cache misses overlap.
const BATCH: usize = 64;

/// Words of a cache line.
const LINE_WORDS: usize = 16;

/// Rows of one width with their index.
#[derive(Clone, Debug)]
pub struct Arena {
    /// f32 values of a row: embedding and slots.
    width: usize,
    slabs: Vec<Option<Box<[u32]>>>,
    /// A bit for each slot.
    taken: Vec<u64>,
    /// No word of `taken` before it has a free slot.
    first_free_word: usize,
    rows: usize,
    index: Index,
}

/// One row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row<'a> {
    /// Its key.
    pub key: u64,
    /// The update that changed it last, modulo 2^32.
    pub last: u32,
    /// How often its key occurred, halved with age; at the top it stays.
    pub occurrences: u32,
    /// Embedding, then slots.
    pub values: &'a [f32],
}

/// One row, to be changed. Its key stays.
#[derive(Debug)]
pub struct RowMut<'a> {
    /// See [`Row`].
    pub last: &'a mut u32,
    /// See [`Row`].
    pub occurrences: &'a mut u32,
    /// See [`Row`].
    pub values: &'a mut [f32],
}

impl Arena {
    /// No rows, of `width` f32 values each.
    pub fn new(width: usize) -> Arena {
        let (slabs, taken, index) = (Vec::new(), Vec::new(), Index::new());
        Arena { width, slabs, taken, first_free_word: 0, rows: 0, index }
    }

    /// How many rows.
    pub fn len(&self) -> usize {
        self.rows
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }
    /// Every row's slot is below.
    fn slots(&self) -> Slot {
        (self.slabs.len() * SLAB_ROWS) as Slot
    }
    /// Bytes of memory: rows, free ones included, and index.
    pub fn bytes(&self) -> usize {
        let slabs = self.slabs.iter().flatten().count() * self.slab_words() * size_of::<u32>();
        slabs
            + self.slabs.capacity() * size_of::<Option<Box<[u32]>>>()
            + self.taken.capacity() * size_of::<u64>()
            + self.index.bytes()
    }

    fn stride(&self) -> usize {
        HEAD_WORDS + self.width
    }
    fn slab_words(&self) -> usize {
        SLAB_ROWS * self.stride()
    }

    /// The record of a taken slot.
    fn record(&self, slot: Slot) -> &[u32] {
        record(&self.slabs, slot, self.stride())
    }
    fn record_mut(&mut self, slot: Slot) -> &mut [u32] {
        let (slab, at, stride) = (slot as usize / SLAB_ROWS, slot as usize % SLAB_ROWS, self.stride());
        let slab = self.slabs[slab].as_deref_mut().unwrap_or_default();
        &mut slab[at * stride..][..stride]
    }
    fn key(&self, slot: Slot) -> u64 {
        key_of(self.record(slot))
    }

    /// Whether a slot has a row.
    pub fn is_taken(&self, slot: Slot) -> bool {
        let word = self.taken.get(slot as usize / BITS).copied().unwrap_or(0);
        word >> (slot as usize % BITS) & 1 == 1
    }

    /// The row of a slot, if there is one.
    pub fn row(&self, slot: Slot) -> Option<Row<'_>> {
        self.is_taken(slot).then(|| {
            let record = self.record(slot);
            let values = bytemuck::cast_slice(&record[HEAD_WORDS..]);
            Row { key: key_of(record), last: record[2], occurrences: record[3], values }
        })
    }

    /// The values of a slot that [`find_all`](Self::find_all) has found.
    pub(super) fn found(&self, slot: Slot) -> &[f32] {
        bytemuck::cast_slice(&self.record(slot)[HEAD_WORDS..])
    }

    /// The same, to be changed.
    pub fn row_mut(&mut self, slot: Slot) -> Option<RowMut<'_>> {
        self.is_taken(slot).then(|| {
            let (head, values) = self.record_mut(slot).split_at_mut(HEAD_WORDS);
            let [_, _, last, occurrences] = head else { unreachable!("a head has four words") };
            RowMut { last, occurrences, values: bytemuck::cast_slice_mut(values) }
        })
    }

    /// All rows from slot `from` on, in slot order.
    pub fn rows_from(&self, from: Slot) -> impl Iterator<Item = (Slot, Row<'_>)> {
        let slots = (from as usize / BITS..self.taken.len()).flat_map(move |word| {
            let bits = self.taken[word]
                & if word == from as usize / BITS { !0 << (from as usize % BITS) } else { !0 };
            ones(bits).map(move |bit| (word * BITS + bit) as Slot)
        });
        slots.filter_map(|slot| Some((slot, self.row(slot)?)))
    }

    /// All records as they lie, in slot order: key (low, high), last update, occurrences, values.
    pub fn records(&self) -> impl Iterator<Item = &[u32]> {
        self.rows_from(0).map(|(slot, _)| self.record(slot))
    }

    /// The slot of a key's row, if there is one.
    pub fn find(&self, key: u64) -> Option<Slot> {
        self.index.find(key, |slot| self.key(slot) == key)
    }

    /// Finds the slots of many keys' rows and gives each to `found`, in the order of the keys; `None` for a key that has no row.
    /// `values` is how many f32 of each row the caller is about to read: they are fetched into the caches ahead.
    ///
    /// A batch's index entries are all looked up before the first of its rows is touched, and those all, in every cache line
    /// that is about to be used, before the first is used: so misses of one batch are under way together.
    pub fn find_all(&self, keys: &[u64], values: usize, mut found: impl FnMut(Option<Slot>)) {
        let words = self.stride().min(HEAD_WORDS + values);
        for batch in keys.chunks(BATCH) {
            let likely: [_; BATCH] = self.index.likely(batch);
            let (mut is_it, mut touched) = ([false; BATCH], 0);
            for (at, key) in batch.iter().enumerate() {
                is_it[at] = likely[at].is_some_and(|slot| {
                    let record = &self.record(slot)[..words];
                    touched |=
                        record.iter().step_by(LINE_WORDS).fold(record[words - 1], |all, word| all | word);
                    key_of(record) == *key
                });
            }
            black_box(touched);
            for (at, key) in batch.iter().enumerate() {
                found(match likely[at] {
                    Some(slot) if is_it[at] => Some(slot),
                    // Another key of the same tag came first.
                    Some(_) => self.find(*key),
                    None => None,
                });
            }
        }
    }

    /// Free slots, lowest first, without end.
    pub fn free_slots(&self) -> impl Iterator<Item = Slot> {
        let within = (self.first_free_word..self.taken.len())
            .flat_map(|word| ones(!self.taken[word]).map(move |bit| (word * BITS + bit) as Slot));
        within.chain(self.slots()..)
    }

    /// Gives a key that has no row one in a free slot; its values are zero. Refuses a taken slot.
    pub fn insert(&mut self, slot: Slot, key: u64) -> Option<RowMut<'_>> {
        if self.is_taken(slot) {
            return None;
        }
        let (slab, words) = (slot as usize / SLAB_ROWS, self.slab_words());
        if slab >= self.slabs.len() {
            self.slabs.resize(slab + 1, None);
            self.taken.resize(self.slabs.len() * SLAB_ROWS / BITS, 0);
        }
        self.slabs[slab].get_or_insert_with(|| vec![0; words].into_boxed_slice());
        self.taken[slot as usize / BITS] |= 1 << (slot as usize % BITS);
        while self.taken.get(self.first_free_word).is_some_and(|word| *word == !0) {
            self.first_free_word += 1;
        }
        self.rows += 1;
        let fresh = self.record_mut(slot);
        fresh.fill(0);
        (fresh[0], fresh[1]) = (key as u32, (key >> 32) as u32);
        let Arena { index, slabs, .. } = self;
        let stride = HEAD_WORDS + self.width;
        index.insert(key, slot, |slot| key_of(record(slabs, slot, stride)));
        self.row_mut(slot)
    }

    /// Frees a slot; a slab without rows gives its memory back.
    pub fn remove(&mut self, slot: Slot) {
        if !self.is_taken(slot) {
            return;
        }
        let key = self.key(slot);
        self.index.remove(key, slot);
        let word = slot as usize / BITS;
        self.taken[word] &= !(1 << (slot as usize % BITS));
        self.first_free_word = self.first_free_word.min(word);
        self.rows -= 1;
        const WORDS: usize = SLAB_ROWS / BITS;
        if self.taken.as_chunks::<WORDS>().0[word / WORDS] == [0; WORDS] {
            self.slabs[word / WORDS] = None;
        }
        while self.slabs.pop_if(|slab| slab.is_none()).is_some() {
            self.taken.truncate(self.slabs.len() * WORDS);
        }
        self.first_free_word = self.first_free_word.min(self.taken.len());
    }
}

/// The record of a slot in a slab that is there.
fn record(slabs: &[Option<Box<[u32]>>], slot: Slot, stride: usize) -> &[u32] {
    let (slab, at) = (slot as usize / SLAB_ROWS, slot as usize % SLAB_ROWS);
    &slabs[slab].as_deref().unwrap_or_default()[at * stride..][..stride]
}

fn key_of(record: &[u32]) -> u64 {
    u64::from(record[0]) | u64::from(record[1]) << 32
}

/// The places of a word's ones, lowest first.
fn ones(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros() as usize;
        word &= word.wrapping_sub(1);
        (bit < BITS).then_some(bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use shoal_runtime::cluster::table::{place_hash, place_share};
    use std::collections::BTreeMap;

    const WIDTH: usize = 3;

    fn check(arena: &Arena, model: &BTreeMap<u64, Slot>) {
        assert_eq!(arena.len(), model.len());
        for (key, slot) in model {
            assert_eq!(arena.find(*key), Some(*slot));
            let row = arena.row(*slot).unwrap();
            assert_eq!((row.key, row.values), (*key, &[*key as f32; WIDTH][..]));
        }
        let mut slots: Vec<Slot> = model.values().copied().collect();
        slots.sort_unstable();
        let from = slots.get(slots.len() / 2).copied().unwrap_or(0);
        let found: Vec<Slot> = arena.rows_from(from).map(|(slot, _)| slot).collect();
        assert_eq!(found, slots[slots.len() / 2..]);
        let lowest = (0..).find(|slot| !slots.contains(slot));
        assert_eq!(arena.free_slots().next(), lowest);
        let beyond = slots.last().map_or(0, |last| last + 1);
        assert_eq!(arena.slots(), beyond.next_multiple_of(SLAB_ROWS as u32));
        let slabs: std::collections::BTreeSet<Slot> =
            slots.iter().map(|slot| slot / SLAB_ROWS as u32).collect();
        assert_eq!(arena.slabs.iter().flatten().count(), slabs.len(), "memory is given back");
        let keys: Vec<u64> = (0..800).collect();
        let mut found = Vec::new();
        arena.find_all(&keys, WIDTH, |slot| found.push(slot));
        assert!(keys.iter().zip(found).all(|(key, slot)| slot == model.get(key).copied()));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn an_arena_is_a_map_whose_slots_are_the_lowest(
            waves in proptest::collection::vec((0u64..700, 0usize..700, any::<bool>()), 1..8)
        ) {
            let (mut arena, mut model) = (Arena::new(WIDTH), BTreeMap::new());
            for (first, many, is_insert) in waves {
                for key in (first..700).take(many) {
                    if !is_insert {
                        if let Some(slot) = model.remove(&key) {
                            arena.remove(slot);
                        }
                    } else if let std::collections::btree_map::Entry::Vacant(vacant) = model.entry(key) {
                        let slot = arena.free_slots().next().unwrap();
                        arena.insert(slot, key).unwrap().values.fill(key as f32);
                        prop_assert!(arena.insert(slot, 999).is_none(), "it is taken");
                        vacant.insert(slot);
                    }
                }
                check(&arena, &model);
            }
        }
    }

    #[test]
    fn keys_of_one_tag_are_told_apart() {
        // Keys whose hashes agree in all that the index compares at first.
        let alike =
            |key: &u64| place_hash(*key) >> 57 == 3 && place_hash(*key) & 7 == 0 && place_share(*key) >= 233;
        let keys: Vec<u64> = (0..2_000_000).filter(alike).collect();
        let mut arena = Arena::new(1);
        for key in &keys {
            let slot = arena.free_slots().next().unwrap();
            arena.insert(slot, *key);
        }
        assert!(keys.len() > 150 && keys.iter().zip(0..).all(|(key, slot)| arena.find(*key) == Some(slot)));
        let mut found = Vec::new();
        arena.find_all(&keys, 1, |slot| found.push(slot));
        assert!(found.into_iter().zip(0..).all(|(found, slot)| found == Some(slot)));
    }
}
