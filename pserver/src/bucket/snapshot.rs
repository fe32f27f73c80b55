//! A bucket as it was at one version, given out segment by segment while updates go on: a row that an update is about to
//! change is saved first, unless it was given already. So it costs the rows that change meanwhile, and no more.

use super::Bucket;
use super::arena::{Arena, Slot};
use super::segment::{Segment, add_row};
use super::shape::BucketShape;
use super::undo::Undo;
use bytes::Bytes;
use std::collections::BTreeMap;

/// What is needed beside the bucket to give out what it was.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    /// Rows in slots below were given.
    next: Slot,
    /// Of slots from there on that have changed since: the row, if there was one.
    saved: BTreeMap<Slot, Option<Vec<u8>>>,
    saved_bytes: usize,
    /// The newest updates before it, oldest first.
    undo: Vec<Undo>,
    candidates: Bytes,
}

impl Snapshot {
    /// A slot is about to change.
    pub(super) fn save(&mut self, arena: &Arena, slot: Slot) {
        if slot >= self.next && !self.saved.contains_key(&slot) {
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
}

impl Bucket {
    /// From now on the present version can be given out, with so many before it, whatever updates do.
    pub fn begin_snapshot(&mut self, earlier: usize) {
        let undo = self.undo.range(self.undo.len().saturating_sub(earlier)..).cloned().collect();
        let candidates = self.candidates.encode().into();
        let snapshot = Snapshot { next: 0, saved: BTreeMap::new(), saved_bytes: 0, undo, candidates };
        self.snapshot = Some(Box::new(snapshot));
    }

    /// Nothing more of it is given out.
    pub fn end_snapshot(&mut self) {
        self.snapshot = None;
    }

    /// Bytes of the rows that were saved for it.
    pub fn saved_bytes(&self) -> usize {
        self.snapshot.as_ref().map_or(0, |snapshot| snapshot.saved_bytes)
    }

    /// Its next segment, of about so many bytes; none once the last was given, or without a snapshot.
    pub fn give_segment(&mut self, shape: &BucketShape, bytes_max: usize) -> Option<Segment> {
        let snapshot = self.snapshot.as_deref_mut()?;
        let (from, mut rows, mut end) = (snapshot.next, Vec::new(), Slot::MAX);
        let mut saved = snapshot.saved.iter().peekable();
        let mut present = self.arena.rows_from(from).peekable();
        loop {
            let is_saved = match (saved.peek(), present.peek()) {
                (Some((saved, _)), Some((present, _))) => **saved <= *present,
                (saved, None) => saved.is_some(),
                (None, Some(_)) => false,
            };
            let before = rows.len();
            let slot = match is_saved {
                true => {
                    let Some((slot, row)) = saved.next() else { break };
                    // What is there now came later.
                    present.next_if(|(present, _)| present == slot);
                    rows.extend(row.iter().flatten());
                    *slot
                }
                false => {
                    let Some((slot, row)) = present.next() else { break };
                    add_row(slot, &row, &mut rows);
                    slot
                }
            };
            if before > 0 && rows.len() > bytes_max {
                rows.truncate(before);
                end = slot;
                break;
            }
        }
        let slots = from..end;
        let earlier = snapshot.undo.iter().map(|undo| undo.encode(&slots, shape.dimension).into()).collect();
        let candidates = if from == 0 { snapshot.candidates.clone() } else { Bytes::new() };
        let kept = snapshot.saved.split_off(&end);
        let given = std::mem::replace(&mut snapshot.saved, kept);
        snapshot.saved_bytes -= given.values().flatten().map(Vec::len).sum::<usize>();
        snapshot.next = end;
        if end == Slot::MAX {
            self.snapshot = None;
        }
        Some(Segment { slots, rows: rows.into(), earlier, candidates })
    }
}
