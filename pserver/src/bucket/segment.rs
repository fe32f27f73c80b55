//! A segment of a bucket: the rows of some slots, whole, at one version, and what they were in earlier ones. What fills
//! a copy while updates go on, and what a checkpoint's piece is made of.
//!
//! Segments come in slot order. One that ends beyond the last row is the last: with it the copy is whole.

use super::admission::Candidates;
use super::arena::{Row, Slot};
use super::shape::BucketShape;
use super::undo::Undo;
use super::{Bucket, WHOLE};
use bytes::Bytes;
use shoal_runtime::cluster::BlockCopy;
use shoal_runtime::cluster::block_copy::{ROW_HEAD_BYTES, Segment, SegmentRow, decode_rows, encode_row};
use shoal_runtime::cluster::table::ROWS_MAX;
use std::collections::VecDeque;
use std::ops::Range;

/// Writes a row at the end of `bytes`.
pub(super) fn add_row(slot: Slot, row: &Row<'_>, bytes: &mut Vec<u8>) {
    let Row { key, last, occurrences, values } = *row;
    encode_row(SegmentRow { slot, key, last, occurrences, values: bytemuck::cast_slice(values) }, bytes);
}

/// Bytes of a row of a table.
pub fn row_bytes(shape: &BucketShape) -> usize {
    ROW_HEAD_BYTES + 4 * shape.width
}

impl Bucket {
    /// `head` with the segment that begins at a slot, of about so many bytes, and so many earlier versions.
    pub fn segment(
        &self,
        shape: &BucketShape,
        head: BlockCopy,
        from: Slot,
        bytes_max: usize,
        earlier: usize,
    ) -> BlockCopy {
        let row_bytes = row_bytes(shape);
        let mut rows = Vec::new();
        let mut end = WHOLE;
        for (slot, row) in self.arena.rows_from(from) {
            if !rows.is_empty() && rows.len() + row_bytes > bytes_max {
                end = slot;
                break;
            }
            add_row(slot, &row, &mut rows);
        }
        let slots = from..end;
        let kept = self.undo.len().saturating_sub(earlier);
        let earlier = self.undo.range(kept..).map(|undo| undo.encode(&slots, shape.dimension).into());
        let candidates = if from == 0 { self.candidates.encode().into() } else { Bytes::new() };
        let segment = Some(Segment { slots: slots.clone(), candidates, freed: None });
        BlockCopy { parameters: rows.into(), earlier: earlier.collect(), segment, ..head }
    }

    /// A bucket that has the rows of its first segment, which is this copy's.
    ///
    /// # Errors
    /// What is wrong with the segment.
    pub fn begin(shape: &BucketShape, copy: &BlockCopy) -> Result<Bucket, String> {
        let segment = segment_of(copy)?;
        let candidates =
            Candidates::decode(&segment.candidates).ok_or("not what keys that occurred are written as")?;
        let undo = vec![Undo::default(); copy.earlier.len()].into();
        let mut bucket = Bucket { candidates, undo, filled: 0, ..Bucket::new(shape) };
        bucket.fill(shape, copy)?;
        Ok(bucket)
    }

    /// Takes in the segment that comes next, of the version that this bucket is at. Changes nothing where it errs.
    ///
    /// # Errors
    /// What is wrong with the segment.
    pub fn fill(&mut self, shape: &BucketShape, copy: &BlockCopy) -> Result<(), String> {
        let segment = segment_of(copy)?;
        if segment.slots.start != self.filled || segment.slots.is_empty() {
            return Err(format!("slots {:?}, those from {} on are next", segment.slots, self.filled));
        }
        let (came, row_bytes) = (copy.parameters.len(), row_bytes(shape));
        let rows = decode_rows(&copy.parameters, shape.width)
            .ok_or_else(|| format!("{came} bytes of rows that have {row_bytes} each"))?;
        let rows: Vec<SegmentRow<'_>> = rows.collect();
        self.check_rows(shape, &segment.slots, &rows)?;
        let undo = |bytes: &Bytes| Undo::decode(bytes, &segment.slots, shape.dimension);
        let earlier: Option<VecDeque<Undo>> = copy.earlier.iter().map(undo).collect();
        let earlier = earlier.ok_or("not what earlier versions are written as")?;
        // Whoever keeps fewer earlier versions was told that nobody asks for the others.
        for (ours, theirs) in self.undo.iter_mut().rev().zip(earlier.iter().rev()) {
            *ours = ours.join(theirs, shape.dimension);
        }
        self.insert_rows(&rows);
        self.filled = segment.slots.end;
        Ok(())
    }

    /// Takes in rows of slots of which newer pieces of a checkpoint say nothing. Changes nothing where it errs.
    ///
    /// # Errors
    /// What is wrong with the rows.
    pub fn fill_beneath(
        &mut self,
        shape: &BucketShape,
        slots: &Range<Slot>,
        rows: &[SegmentRow<'_>],
    ) -> Result<(), String> {
        self.check_rows(shape, slots, rows)?;
        self.insert_rows(rows);
        Ok(())
    }

    fn insert_rows(&mut self, rows: &[SegmentRow<'_>]) {
        for SegmentRow { slot, key, last, occurrences, values } in rows {
            if let Some(row) = self.arena.insert(*slot, *key) {
                (*row.last, *row.occurrences) = (*last, *occurrences);
                let values = values.iter().map(|word| f32::from_le_bytes(*word));
                row.values.iter_mut().zip(values).for_each(|(value, of)| *value = of);
            }
        }
    }

    /// Rows must be of these slots, which are free, and of keys that belong here and are not here yet.
    fn check_rows(
        &self,
        shape: &BucketShape,
        slots: &Range<Slot>,
        rows: &[SegmentRow<'_>],
    ) -> Result<(), String> {
        let mut next = slots.start;
        for SegmentRow { slot, key, .. } in rows {
            if *slot < next || *slot >= slots.end.min(ROWS_MAX) || self.arena.is_taken(*slot) {
                return Err(format!("a row in slot {slot} of {slots:?}"));
            }
            if !shape.has(*key) || self.arena.find(*key).is_some() {
                return Err(format!("key {key}, which is of another bucket or comes twice"));
            }
            next = slot + 1;
        }
        Ok(())
    }
}

/// The segment of a copy that says of its slots all that there is.
fn segment_of(copy: &BlockCopy) -> Result<&Segment, String> {
    match &copy.segment {
        None => Err(format!("a copy of a dense block with {} bytes came", copy.parameters.len())),
        Some(Segment { freed: Some(_), .. }) => Err("it has only what changed since a checkpoint".to_owned()),
        Some(segment) => Ok(segment),
    }
}
