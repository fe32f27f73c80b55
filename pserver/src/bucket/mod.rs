//! One bucket of an embedding table: its rows, and those of earlier versions that somebody may still ask for. A pure
//! function of the bucket before and one update.
//!
//! Rows are born, counted, aged and evicted by updates alone, never by a read. What decides about a row is what all copies
//! of the bucket agree on: keys, counts, ages, versions, never its place. A copy that is being filled has the rows of its first slots,
//! and follows updates as far as those go. It must never know of roles, messages or other buckets.

pub mod admission;
pub mod arena;
pub mod beginning;
mod changed;
mod giving;
mod index;
pub mod plan;
pub mod segment;
pub mod shape;
pub mod undo;

use crate::kernel::rules::{Pass, RowPass};
use admission::Candidates;
use arena::{Arena, RowMut, Slot};
use changed::Changed;
use giving::Giving;
use plan::{Plan, RowPlace, age};
use shape::BucketShape;
use shoal_runtime::cluster::Rows;
use std::collections::VecDeque;
use undo::Undo;

/// The rows of one bucket at its newest version.
#[derive(Clone, Debug)]
pub struct Bucket {
    arena: Arena,
    candidates: Candidates,
    /// The newest updates that can be undone, oldest first.
    undo: VecDeque<Undo>,
    /// Rows in slots below are here; all are in a whole copy.
    filled: Slot,
    /// Since pieces of checkpoints.
    changed: Changed,
    /// A version that is being given out while updates go on.
    giving: Option<Box<Giving>>,
}

/// Of a whole copy.
const WHOLE: Slot = Slot::MAX;

impl Bucket {
    /// A bucket before the first update: no rows.
    pub fn new(shape: &BucketShape) -> Bucket {
        Bucket {
            arena: Arena::new(shape.width),
            candidates: Candidates::default(),
            undo: VecDeque::new(),
            filled: WHOLE,
            changed: Changed::default(),
            giving: None,
        }
    }

    /// The rows of the newest version.
    pub fn rows(&self) -> &Arena {
        &self.arena
    }
    /// How many earlier versions can be read.
    pub fn earlier(&self) -> usize {
        self.undo.len()
    }
    /// Whether all rows are here.
    pub fn is_whole(&self) -> bool {
        self.filled == WHOLE
    }
    /// The first slot whose row is not here.
    pub fn filled(&self) -> Slot {
        self.filled
    }

    /// Checks a sum and a plan that were decoded from a peer's message against this copy.
    ///
    /// # Errors
    /// What does not fit this bucket.
    pub fn check(&self, shape: &BucketShape, rows: &Rows, plan: &Plan) -> Result<(), String> {
        let is_here = |slot: Slot| slot < self.filled;
        let holds = |slot: Slot, key: u64| self.arena.row(slot).is_some_and(|row| row.key == key);
        let mut free = self.arena.free_slots();
        for (key, place) in rows.keys().iter().zip(&plan.places) {
            let fits = shape.has(*key)
                && match *place {
                    RowPlace::At(slot) => !is_here(slot) || holds(slot, *key),
                    RowPlace::Born(slot) if !is_here(slot) => true,
                    RowPlace::Born(slot) => free.next() == Some(slot) && self.arena.find(*key).is_none(),
                    RowPlace::Unborn => self.arena.find(*key).is_none(),
                };
            if !fits {
                return Err(format!("key {key} is {place:?} in it, which it cannot be here"));
            }
        }
        let stranger = plan.evicted.iter().find(|(key, slot)| {
            is_here(*slot) && !holds(*slot, *key) || rows.keys().binary_search(key).is_ok()
        });
        match stranger {
            Some((key, slot)) => {
                Err(format!("key {key} in slot {slot} is evicted by it, which has no such row"))
            }
            None if plan.places.len() != rows.len() => Err("its plan is of another sum".to_owned()),
            None => Ok(()),
        }
    }

    /// Makes the next version: the rule runs for every row whose key occurs and that is, or is born. The plan must be
    /// this bucket's, or have passed [`check`](Self::check).
    pub fn apply(&mut self, shape: &BucketShape, mut rows: Rows, plan: &Plan, pass: Pass) {
        let kept = plan.places.iter().filter(|place| matches!(place, RowPlace::At(_))).count();
        let mut undo = Undo::with_room(rows.len() + plan.evicted.len(), kept * shape.dimension);
        let mut evicted = plan.evicted.iter().copied().peekable();
        let row_pass = RowPass::new(shape.rule(), pass);
        let (keys, counts, sums) = rows.parts_mut();
        let sums = sums.chunks_mut(shape.dimension);
        for (((key, count), place), sum) in keys.iter().zip(counts).zip(&plan.places).zip(sums) {
            let (key, count) = (*key, *count);
            while let Some((gone, slot)) = evicted.next_if(|(gone, _)| *gone < key) {
                self.evict(shape, gone, slot, &mut undo);
            }
            match *place {
                RowPlace::Unborn if shape.counts_candidates() => self.candidates.add(key, count),
                RowPlace::Unborn => {}
                RowPlace::Born(slot) => {
                    self.candidates.admitted(key);
                    if slot < self.filled {
                        undo.push(key, slot, None);
                        if let Some(row) = self.bear(shape, key, slot) {
                            update(shape, &row_pass, &pass, row, count, sum);
                        }
                    }
                }
                RowPlace::At(slot) if slot < self.filled => {
                    self.touch(slot);
                    if let Some(row) = self.arena.row_mut(slot) {
                        undo.push(key, slot, Some(&row.values[..shape.dimension]));
                        update(shape, &row_pass, &pass, row, count, sum);
                    }
                }
                RowPlace::At(_) => {}
            }
        }
        for (gone, slot) in evicted {
            self.evict(shape, gone, slot, &mut undo);
        }
        self.undo.push_back(undo);
    }

    /// Makes the next version, which is as this one.
    pub fn rest(&mut self) {
        self.undo.push_back(Undo::default());
    }

    /// Lets go of earlier versions but the newest so many.
    pub fn release(&mut self, earlier: usize) {
        self.undo.drain(..self.undo.len().saturating_sub(earlier));
    }

    /// A slot is about to change. Inlined: it is called for every row of an update, which costs 3 % more where it is not.
    #[inline]
    fn touch(&mut self, slot: Slot) {
        self.changed.note(slot);
        if let Some(giving) = &mut self.giving {
            giving.save(&self.arena, slot);
        }
    }

    fn bear(&mut self, shape: &BucketShape, key: u64, slot: Slot) -> Option<RowMut<'_>> {
        self.touch(slot);
        let row = self.arena.insert(slot, key)?;
        shape.initial(key, &mut row.values[..shape.dimension]);
        Some(row)
    }

    fn evict(&mut self, shape: &BucketShape, key: u64, slot: Slot, undo: &mut Undo) {
        if slot < self.filled {
            self.touch(slot);
            undo.push(key, slot, self.arena.row(slot).map(|row| &row.values[..shape.dimension]));
            self.arena.remove(slot);
        }
    }

    /// Embeddings of keys, which ascend, as of `back` versions before the newest, written at the end of `bytes`: a bit for
    /// each key, lowest first, of whether it has a row; then the rows of those that have, little-endian f32.
    pub fn read(&self, shape: &BucketShape, back: usize, keys: &[u64], bytes: &mut Vec<u8>) {
        let bits = bytes.len();
        bytes.reserve_exact(keys.len().div_ceil(8) + 4 * shape.dimension * keys.len());
        bytes.resize(bits + keys.len().div_ceil(8), 0);
        let undone = self.undo.len().saturating_sub(back);
        let mut at = 0;
        self.arena.find_all(keys, shape.dimension, |slot| {
            let earlier = self.undo.range(undone..).find_map(|undo| undo.find(keys[at], shape.dimension));
            let newest = || Some(&self.arena.found(slot?)[..shape.dimension]);
            if let Some(row) = earlier.unwrap_or_else(newest) {
                bytes[bits + at / 8] |= 1 << (at % 8);
                bytes.extend_from_slice(bytemuck::cast_slice(row));
            }
            at += 1;
        });
    }
}

/// One row's update: its score, its last update, the rule.
fn update(
    shape: &BucketShape,
    row_pass: &RowPass,
    pass: &Pass,
    row: RowMut<'_>,
    count: u32,
    sum: &mut [f32],
) {
    let is_new = *row.occurrences == 0;
    let age = age(pass, *row.last);
    let missed = if is_new { 0 } else { u64::from(age.saturating_sub(1)) };
    *row.occurrences = shape.score(*row.occurrences, age).saturating_add(count);
    *row.last = pass.update as u32;
    let (embedding, slots) = row.values.split_at_mut(shape.dimension);
    row_pass.run(missed, embedding, slots, sum);
}

#[cfg(test)]
mod tests;
