//! A bucket as it was at one version, given out segment by segment while updates go on: a row that an update is about to
//! change is saved first, unless it was given already. So it costs the rows that change meanwhile, and no more.
//!
//! Where a durable checkpoint's piece is known, only what changed since is given, and which slots were freed.

use super::Bucket;
use super::arena::{Arena, Slot};
use super::segment::add_row;
use super::shape::BucketShape;
use super::undo::Undo;
use bytes::Bytes;
use shoal_runtime::cluster::block_copy::Segment;
use shoal_runtime::cluster::slot_set::SlotSet;
use shoal_runtime::cluster::{BlockCopy, CheckpointId};
use std::collections::BTreeMap;

/// What is needed beside the bucket to give out what it was.
#[derive(Clone, Debug)]
pub(super) struct Giving {
    /// Rows in slots below were given.
    next: Slot,
    /// Nothing is said of other slots; absent where all rows are given.
    changed: Option<SlotSet>,
    /// Of slots from `next` on that have changed since: the row, if there was one.
    saved: BTreeMap<Slot, Option<Vec<u8>>>,
    saved_bytes: usize,
    /// The newest updates before it, oldest first.
    undo: Vec<Undo>,
    candidates: Bytes,
}

impl Giving {
    /// A slot is about to change.
    pub(super) fn save(&mut self, arena: &Arena, slot: Slot) {
        let is_due = slot >= self.next && self.changed.as_ref().is_none_or(|changed| changed.contains(slot));
        if is_due && !self.saved.contains_key(&slot) {
            let encoded = |row| {
                let mut bytes = Vec::new();
                add_row(slot, &row, &mut bytes);
                bytes
            };
            let row = arena.row(slot).map(encoded);
            self.saved_bytes += row.as_ref().map_or(0, Vec::len);
            self.saved.insert(slot, row);
        }
    }

    /// Slots of which something is to be said, ascending.
    fn due<'a>(&'a self, arena: &'a Arena) -> Box<dyn Iterator<Item = Slot> + 'a> {
        if let Some(changed) = &self.changed {
            return Box::new(changed.from(self.next));
        }
        let mut saved = self.saved.keys().copied().peekable();
        let mut present = arena.rows_from(self.next).map(|(slot, _)| slot).peekable();
        Box::new(std::iter::from_fn(move || match (saved.peek(), present.peek()) {
            (Some(saved_slot), Some(present_slot)) if saved_slot == present_slot => {
                present.next();
                saved.next()
            }
            (Some(saved_slot), Some(present_slot)) if present_slot < saved_slot => present.next(),
            (Some(_), _) => saved.next(),
            (None, _) => present.next(),
        }))
    }
}

impl Bucket {
    /// From now on the present version can be given out, with so many before it, whatever updates do. It is what changed
    /// since the piece of the checkpoint `since` was begun, if that is known here and is at most half of the rows. Later pieces
    /// may rest on it as that of the checkpoint `base`, if there is one.
    pub fn begin_giving(&mut self, base: Option<CheckpointId>, since: Option<CheckpointId>, earlier: usize) {
        let changed = self.changed.begin(base, since);
        let changed = changed.filter(|slots| 2 * slots.len() <= self.arena.len());
        let undo = self.undo.range(self.undo.len().saturating_sub(earlier)..).cloned().collect();
        let candidates = self.candidates.encode().into();
        let saved = BTreeMap::new();
        let giving = Giving { next: 0, changed, saved, saved_bytes: 0, undo, candidates };
        self.giving = Some(Box::new(giving));
    }

    /// Nothing more of it is given out.
    pub fn end_giving(&mut self) {
        self.giving = None;
    }

    /// Bytes of the rows that were saved for it.
    pub fn saved_bytes(&self) -> usize {
        self.giving.as_ref().map_or(0, |giving| giving.saved_bytes)
    }

    /// `head` with its next segment, of about so many bytes; none once the last was given, or where nothing is.
    pub fn give_segment(
        &mut self,
        shape: &BucketShape,
        head: &BlockCopy,
        bytes_max: usize,
    ) -> Option<BlockCopy> {
        let giving = self.giving.as_deref_mut()?;
        let (from, mut rows, mut freed, mut end) = (giving.next, Vec::new(), Vec::new(), Slot::MAX);
        for slot in giving.due(&self.arena) {
            let before = (rows.len(), freed.len());
            match (giving.saved.get(&slot), self.arena.row(slot)) {
                (Some(Some(row)), _) => rows.extend_from_slice(row),
                (None, Some(row)) => add_row(slot, &row, &mut rows),
                (Some(None), _) | (None, None) => freed.push(slot),
            }
            if before != (0, 0) && rows.len() + 4 * freed.len() > bytes_max {
                rows.truncate(before.0);
                freed.truncate(before.1);
                end = slot;
                break;
            }
        }
        let slots = from..end;
        let earlier = giving.undo.iter().map(|undo| undo.encode(&slots, shape.dimension).into()).collect();
        let candidates = if from == 0 { giving.candidates.clone() } else { Bytes::new() };
        let freed = giving.changed.is_some().then_some(freed);
        let kept = giving.saved.split_off(&end);
        let given = std::mem::replace(&mut giving.saved, kept);
        giving.saved_bytes -= given.values().flatten().map(Vec::len).sum::<usize>();
        giving.next = end;
        if end == Slot::MAX {
            self.giving = None;
        }
        let segment = Some(Segment { slots, candidates, freed });
        Some(BlockCopy { parameters: rows.into(), earlier, segment, ..head.clone() })
    }
}
