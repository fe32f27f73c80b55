//! A copy of one block: what a follower starts from, what a checkpoint keeps, what is read for export.
//! There is no second way of writing a block down. A dense block's is whole; a bucket's comes in segments, each the rows of
//! some slots at one version.

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
        let candidates = self.segment.as_ref().map_or(0, |segment| segment.candidates.len());
        buffers.map(Bytes::len).sum::<usize>() + candidates
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
}
