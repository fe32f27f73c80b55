//! Rows of tables, counted for people: how many there are, what became of others.

use super::Shard;
use shoal_runtime::cluster::Refusal;

/// Rows of the buckets that are led here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldRows {
    /// How many.
    pub rows: u64,
    /// Bytes of their memory, index and free slots included.
    pub bytes: u64,
}

impl Shard {
    /// The rows that are led here now. Adds what became of others since this was asked last to the counters, and says aloud
    /// that keys are refused: the first time, and whenever twice as many were.
    pub fn table_counts(&self) -> Result<HeldRows, Refusal> {
        let hosting = self.hosting();
        let mut held = HeldRows::default();
        for hosted in hosting.iter().flat_map(|hosting| hosting.blocks.values()) {
            let mut block = hosted.lock()?;
            let ((rows, bytes), counts) = (block.rows(), block.take_row_counts());
            drop(block);
            held = HeldRows { rows: held.rows + rows, bytes: held.bytes + bytes };
            self.count(|counters| {
                counters.rows_evicted += counts.evicted;
                let before = counters.keys_refused;
                counters.keys_refused += counts.refused;
                if before.checked_ilog2() != counters.keys_refused.checked_ilog2() {
                    tracing::warn!(
                        block = %hosted.shape, refused = counters.keys_refused,
                        "a bucket is full, and its table refuses new keys: raise the ceiling of rows, or let it evict"
                    );
                }
            });
        }
        Ok(held)
    }
}
