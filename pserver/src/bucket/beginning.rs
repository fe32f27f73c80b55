//! A bucket before its first update that begins at given rows, as a job's warm start has them.

use super::Bucket;
use super::arena::Slot;
use super::shape::BucketShape;

/// Rows that a bucket begins at.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GivenRows {
    /// Strictly ascending, all of the bucket.
    keys: Vec<u64>,
    /// Their embeddings, row by row.
    values: Vec<f32>,
}

impl GivenRows {
    /// One more row. Keys come in ascending order.
    pub fn push(&mut self, key: u64, embedding: &[f32]) {
        debug_assert!(self.keys.last().is_none_or(|last| *last < key));
        self.keys.push(key);
        self.values.extend_from_slice(embedding);
    }
}

impl Bucket {
    /// A bucket that begins at these rows. Each counts as having occurred once, before the first update; its slots of rule
    /// state are zero.
    pub fn beginning(shape: &BucketShape, rows: &GivenRows) -> Bucket {
        let mut bucket = Bucket::new(shape);
        let embeddings = rows.values.chunks(shape.dimension.max(1));
        for ((slot, key), embedding) in (0 as Slot..).zip(&rows.keys).zip(embeddings) {
            if let Some(row) = bucket.arena.insert(slot, *key) {
                *row.occurrences = 1;
                row.values[..shape.dimension].copy_from_slice(embedding);
            }
        }
        bucket
    }
}
