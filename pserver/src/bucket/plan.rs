//! What an update does to a bucket's rows beside their values: which are born, where, and which are evicted. Decided by the
//! primary from its state and the sum, and part of the log's entry: a copy that has but some of the rows follows it too.
//!
//! A function of rows and keys alone; where rows lie decides nothing about them.

use super::Bucket;
use super::arena::{Arena, Slot};
use super::shape::BucketShape;
use crate::kernel::rules::Pass;
use shoal_runtime::cluster::Rows;
use shoal_runtime::cluster::table::{Ceiling, Full};

/// Where the row of a key is that occurs in an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowPlace {
    /// It is there already.
    At(Slot),
    /// It is born.
    Born(Slot),
    /// It is not admitted.
    Unborn,
}

/// What an update does to rows beside their values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// For each key of the sum.
    pub places: Vec<RowPlace>,
    /// Rows that go, by ascending key. None of them is in the sum.
    pub evicted: Vec<(u64, Slot)>,
    /// Keys that were refused because the bucket is full.
    pub refused: u32,
}

/// Rows that one update evicts at most, by age and by score together: an entry names them all, in 3 MiB, beside sums of 12 MiB and
/// the places of their keys, of which there are 3 MiB where rows are shortest. So an entry fits a message of 20 MiB.
const EVICTED_MAX: usize = 1 << 18;
const BORN: u32 = 1 << 31;
const UNBORN: u32 = u32::MAX;

impl Bucket {
    /// What an update with this sum does.
    pub fn plan(&self, shape: &BucketShape, rows: &Rows, pass: &Pass) -> Plan {
        let mut plan = Plan { places: Vec::with_capacity(rows.len()), ..Plan::default() };
        self.arena.find_all(rows.keys(), shape.width, |slot| {
            plan.places.push(slot.map_or(RowPlace::Unborn, RowPlace::At));
        });
        if let Some(age_max) = shape.sweeps(pass.update) {
            plan.evicted = aged(&self.arena, rows, pass, age_max);
        }
        let counted = rows.keys().iter().zip(rows.counts()).zip(&plan.places).enumerate();
        let wanted = counted.filter(|(_, ((key, count), place))| {
            **place == RowPlace::Unborn && shape.admits(self.candidates.count(**key), **count)
        });
        let wanted: Vec<usize> = wanted.map(|(at, _)| at).collect();
        let born = plan.make_room(&self.arena, shape, rows, pass, wanted.len());
        for (at, slot) in wanted[..born].iter().zip(self.arena.free_slots()) {
            plan.places[*at] = RowPlace::Born(slot);
        }
        plan
    }
}

impl Bucket {
    /// Rows that the update of that number evicts at most, if its sum has so many.
    pub fn evicts_at_most(&self, shape: &BucketShape, update: u64, rows: usize) -> usize {
        let rows_max = match shape.ceiling() {
            Some(Ceiling { rows: rows_max, full: Full::Evict { .. } }) => rows_max as usize,
            _ => usize::MAX,
        };
        let is_full = self.arena.len() + rows > rows_max;
        let by_score = if is_full { rows.max(rows_max / 16) } else { 0 };
        let by_age = if shape.sweeps(update).is_some() { self.arena.len() } else { 0 };
        by_score.saturating_add(by_age).min(EVICTED_MAX).min(self.arena.len())
    }
}

impl Plan {
    /// How many of the keys that want rows get them; rows that go for them are evicted.
    fn make_room(
        &mut self,
        arena: &Arena,
        shape: &BucketShape,
        rows: &Rows,
        pass: &Pass,
        wanted: usize,
    ) -> usize {
        let Some(Ceiling { rows: rows_max, full }) = shape.ceiling() else { return wanted };
        let room = |plan: &Plan| (rows_max as usize).saturating_sub(arena.len() - plan.evicted.len());
        if let Full::Evict { .. } = full
            && wanted > room(self)
        {
            let left = EVICTED_MAX.saturating_sub(self.evicted.len());
            let many = (wanted - room(self)).max(rows_max as usize / 16).min(left);
            self.evict_lowest(arena, shape, rows, pass, many);
        }
        let born = wanted.min(room(self));
        self.refused = (wanted - born) as u32;
        born
    }

    /// Evicts so many rows with the lowest scores that do not occur; of equal scores the oldest, of equal ages that with
    /// the lowest key.
    fn evict_lowest(&mut self, arena: &Arena, shape: &BucketShape, rows: &Rows, pass: &Pass, many: usize) {
        let gone = std::mem::take(&mut self.evicted);
        let stays = |key: u64| rows.keys().binary_search(&key).is_ok();
        let goes = |key: u64| gone.binary_search_by_key(&key, |(key, _)| *key).is_ok();
        let mut scored: Vec<(u32, u32, u64, Slot)> = Vec::with_capacity(arena.len());
        for (slot, row) in arena.rows_from(0).filter(|(_, row)| !stays(row.key) && !goes(row.key)) {
            let age = age(pass, row.last);
            scored.push((shape.score(row.occurrences, age), u32::MAX - age, row.key, slot));
        }
        if many < scored.len() {
            scored.select_nth_unstable(many);
            scored.truncate(many);
        }
        self.evicted = gone;
        self.evicted.extend(scored.into_iter().map(|(_, _, key, slot)| (key, slot)));
        self.evicted.sort_unstable();
    }

    /// Bytes that [`encode`](Self::encode) writes.
    pub fn bytes(&self) -> usize {
        4 * self.places.len() + 4 + 12 * self.evicted.len()
    }

    /// Bytes: `place (u32)* | refused (u32) | (key, slot)*`.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        let word = |place: &RowPlace| match place {
            RowPlace::At(slot) => *slot,
            RowPlace::Born(slot) => slot | BORN,
            RowPlace::Unborn => UNBORN,
        };
        self.places.iter().for_each(|place| bytes.extend_from_slice(&word(place).to_le_bytes()));
        bytes.extend_from_slice(&self.refused.to_le_bytes());
        for (key, slot) in &self.evicted {
            bytes.extend_from_slice(&key.to_le_bytes());
            bytes.extend_from_slice(&slot.to_le_bytes());
        }
    }

    /// What [`encode`](Self::encode) wrote of so many keys; none of other bytes.
    pub fn decode(bytes: &[u8], keys: usize) -> Option<Plan> {
        let (places, rest) = bytes.split_at_checked(keys.checked_mul(4)?)?;
        let place = |word: &[u8; 4]| match u32::from_le_bytes(*word) {
            UNBORN => RowPlace::Unborn,
            word if word & BORN != 0 => RowPlace::Born(word & !BORN),
            slot => RowPlace::At(slot),
        };
        let places = places.as_chunks().0.iter().map(place).collect();
        let (refused, rest) = rest.split_first_chunk()?;
        let refused = u32::from_le_bytes(*refused);
        let (evicted, []) = rest.as_chunks::<12>() else { return None };
        let evicted = evicted.iter().map(|entry| {
            let [a, b, c, d, e, f, g, h, slot @ ..] = *entry;
            (u64::from_le_bytes([a, b, c, d, e, f, g, h]), u32::from_le_bytes(slot))
        });
        let evicted: Vec<(u64, Slot)> = evicted.collect();
        let ascends = evicted.is_sorted_by(|left, right| left.0 < right.0);
        ascends.then_some(Plan { places, evicted, refused })
    }
}

/// Updates since a row's last.
pub(super) fn age(pass: &Pass, last: u32) -> u32 {
    (pass.update as u32).wrapping_sub(last)
}

/// Rows above that age whose keys do not occur; of too many the oldest, of equal ages those with the lowest keys.
fn aged(arena: &Arena, rows: &Rows, pass: &Pass, age_max: u32) -> Vec<(u64, Slot)> {
    let is_aged = |row: &super::arena::Row<'_>| {
        age(pass, row.last) > age_max && rows.keys().binary_search(&row.key).is_err()
    };
    let aged = arena.rows_from(0).filter(|(_, row)| is_aged(row));
    let mut aged: Vec<(u32, u64, Slot)> =
        aged.map(|(slot, row)| (u32::MAX - age(pass, row.last), row.key, slot)).collect();
    if aged.len() > EVICTED_MAX {
        aged.select_nth_unstable(EVICTED_MAX);
        aged.truncate(EVICTED_MAX);
    }
    let mut aged: Vec<(u64, Slot)> = aged.into_iter().map(|(_, key, slot)| (key, slot)).collect();
    aged.sort_unstable();
    aged
}
