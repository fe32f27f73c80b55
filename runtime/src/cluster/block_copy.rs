//! A copy of one block: what a follower starts from, what a checkpoint keeps, what is read for export.
//! There is no second way of writing a block down. A dense block's is whole; a bucket's comes in segments, each the rows of
//! some slots at one version.

use super::slot_set::SlotSet;
use super::{BlockId, Ledger, Rewind, StateName, Version};
use bytes::Bytes;
use std::ops::Range;

/// The state of one block after some update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockCopy {
    /// Which block.
    pub block: BlockId,
    /// The history it belongs to: the routing version of the block's last restore.
    pub rewind: Rewind,
    /// Which state of the block.
    pub name: StateName,
    /// The highest version known to be published when the copy was made.
    pub published: Version,
    /// The parameters, little-endian f32; of a bucket the segment's rows, slots beside them.
    pub parameters: Bytes,
    /// The parameters of earlier versions that somebody may still ask for, oldest first; the last is one version
    /// earlier.
    pub earlier: Vec<Bytes>,
    /// The rule's state, slot by slot, each as long as the parameters; of a bucket none.
    pub slots: Vec<Bytes>,
    /// The positions applied; empty in synchronous jobs, where the version says it all.
    pub ledger: Ledger,
    /// Of a bucket: which of its rows these are.
    pub segment: Option<Segment>,
}

impl BlockCopy {
    /// Bytes of its buffers.
    pub fn bytes(&self) -> usize {
        let buffers = self.slots.iter().chain(&self.earlier).chain([&self.parameters]);
        let beside =
            |segment: &Segment| segment.candidates.len() + 4 * segment.freed.as_ref().map_or(0, Vec::len);
        buffers.map(Bytes::len).sum::<usize>() + self.segment.as_ref().map_or(0, beside)
    }
}

/// One row in a copy of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentRow<'a> {
    /// Where the row lies in the bucket.
    pub slot: u32,
    /// Its key.
    pub key: u64,
    /// The update that changed it last, modulo 2^32.
    pub last: u32,
    /// How often its key occurred, halved with age.
    pub occurrences: u32,
    /// Embedding, then the rule's slots: little-endian f32.
    pub values: &'a [[u8; 4]],
}

/// Bytes of a row beside its values.
pub const ROW_HEAD_BYTES: usize = 4 + 8 + 4 + 4;

/// Writes a row as it is in copies, at the end of `bytes`.
pub fn encode_row(row: SegmentRow<'_>, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&row.slot.to_le_bytes());
    bytes.extend_from_slice(&row.key.to_le_bytes());
    bytes.extend_from_slice(&row.last.to_le_bytes());
    bytes.extend_from_slice(&row.occurrences.to_le_bytes());
    bytes.extend_from_slice(row.values.as_flattened());
}

/// The rows in a copy of a bucket, of `width` values each; none where the bytes are not whole rows.
pub fn decode_rows(bytes: &[u8], width: usize) -> Option<impl Iterator<Item = SegmentRow<'_>>> {
    let row_bytes = ROW_HEAD_BYTES + 4 * width;
    let row = |bytes| {
        let (head, values): (&[u8], &[u8]) = <[u8]>::split_at(bytes, ROW_HEAD_BYTES);
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let key = u64::from(word(4)) | u64::from(word(8)) << 32;
        let values = values.as_chunks().0;
        SegmentRow { slot: word(0), key, last: word(12), occurrences: word(16), values }
    };
    bytes.len().is_multiple_of(row_bytes).then(|| bytes.chunks_exact(row_bytes).map(row))
}

/// Of all slots of a bucket, and of a dense block.
pub const WHOLE: Range<u32> = 0..u32::MAX;

/// Which rows of a bucket a copy has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Those in these slots. The end is `u32::MAX` in the last segment.
    pub slots: Range<u32>,
    /// In the first segment: the keys that have occurred and have no row yet.
    pub candidates: Bytes,
    /// In a checkpoint's piece that has only what changed since an earlier checkpoint: the slots, of these, that had a row
    /// and have none any more. Absent where all rows of these slots are here.
    pub freed: Option<Vec<u32>>,
}

/// Which slots of a bucket are settled, while the pieces of a checkpoint are read newest first: what a newer piece says of a
/// slot holds, and older ones are not listened to.
#[derive(Clone, Debug, Default)]
pub struct Settled(SlotSet);

impl Settled {
    /// The rows of a copy, of `width` values each, in slots that no newer copy has settled. Copies come newest first.
    ///
    /// # Errors
    /// What is wrong with the copy.
    pub fn take<'a>(&mut self, copy: &'a BlockCopy, width: usize) -> Result<Vec<SegmentRow<'a>>, String> {
        let Some(segment) = &copy.segment else { return Err("it is no copy of a bucket".to_owned()) };
        let came = copy.parameters.len();
        let rows = decode_rows(&copy.parameters, width)
            .ok_or_else(|| format!("{came} bytes are no whole rows of {width} values"))?;
        let rows: Vec<SegmentRow<'_>> = rows.filter(|row| !self.0.contains(row.slot)).collect();
        if let Some(freed) = &segment.freed {
            for slot in rows.iter().map(|row| row.slot).chain(freed.iter().copied()) {
                if !segment.slots.contains(&slot) || !self.0.insert(slot) {
                    return Err(format!("slot {slot} in a segment of {:?}", segment.slots));
                }
            }
        }
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Term;
    use crate::cluster::table::ROWS_MAX;

    /// A copy of rows, each in a slot and with one value; of changes if slots are freed.
    fn copy(rows: &[(u32, f32)], freed: Option<&[u32]>) -> BlockCopy {
        let mut parameters = Vec::new();
        for (slot, value) in rows {
            let values = [value.to_le_bytes()];
            let row =
                SegmentRow { slot: *slot, key: u64::from(*slot), last: 1, occurrences: 1, values: &values };
            encode_row(row, &mut parameters);
        }
        let segment = Segment { slots: WHOLE, candidates: Bytes::new(), freed: freed.map(Vec::from) };
        BlockCopy {
            block: BlockId(0),
            rewind: Rewind(1),
            name: StateName { term: Term(1), version: Version(1) },
            published: Version(1),
            parameters: parameters.into(),
            earlier: Vec::new(),
            slots: Vec::new(),
            ledger: Ledger::default(),
            segment: Some(segment),
        }
    }

    fn taken(settled: &mut Settled, copy: &BlockCopy) -> Result<Vec<(u32, f32)>, String> {
        let rows = settled.take(copy, 1)?;
        Ok(rows.iter().map(|row| (row.slot, f32::from_le_bytes(row.values[0]))).collect())
    }

    #[test]
    fn of_every_slot_the_newest_word_holds() {
        let settled = &mut Settled::default();
        assert_eq!(taken(settled, &copy(&[(2, 2.0), (70, 7.0)], Some(&[5]))).unwrap(), [(2, 2.0), (70, 7.0)]);
        assert_eq!(taken(settled, &copy(&[(1, 1.5), (2, 2.5)], Some(&[70]))).unwrap(), [(1, 1.5)]);
        let base: Vec<(u32, f32)> = [1, 2, 3, 5, 70, 200].map(|slot| (slot, 9.0)).into();
        assert_eq!(taken(settled, &copy(&base, None)).unwrap(), [(3, 9.0), (200, 9.0)]);
    }

    #[test]
    fn what_is_no_copy_of_a_bucket_or_of_other_slots_is_refused_and_costs_no_memory() {
        let settled = &mut Settled::default();
        let dense = BlockCopy { segment: None, ..copy(&[], None) };
        assert!(taken(settled, &dense).unwrap_err().contains("no copy of a bucket"));
        let torn = BlockCopy { parameters: Bytes::from_static(b"torn"), ..copy(&[], None) };
        assert!(taken(settled, &torn).unwrap_err().contains("no whole rows"));
        for absurd in [copy(&[], Some(&[ROWS_MAX])), copy(&[(u32::MAX, 1.0)], Some(&[]))] {
            assert!(taken(settled, &absurd).unwrap_err().contains("in a segment of 0..4294967295"));
        }
        assert!(settled.0.is_empty());
    }
}
