//! What transitions of blocks add to what is counted for people.

use super::Shard;
use crate::block::RowCounts;
use crate::block::effects::{Counts, Effects};
use shoal_runtime::cluster::BlockId;
use std::sync::PoisonError;

/// Rows of the buckets that are led here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldRows {
    /// How many.
    pub rows: u64,
    /// Bytes of their memory, index and free slots included.
    pub bytes: u64,
}

impl Shard {
    /// The rows that are led here now.
    pub fn held_rows(&self) -> HeldRows {
        *self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds up what transitions have counted.
    pub(super) fn tally(&self, changed: &[(BlockId, Effects)]) {
        for (id, Effects { counts, .. }) in
            changed.iter().filter(|(_, effects)| effects.counts != Counts::default())
        {
            let Counts { rows, row_bytes, copied, updates } = *counts;
            if (rows, row_bytes) != (0, 0) {
                let mut held = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
                held.rows = held.rows.wrapping_add_signed(rows);
                held.bytes = held.bytes.wrapping_add_signed(row_bytes);
            }
            self.count_updates(*id, copied, updates);
        }
    }

    /// Says aloud that keys are refused: the first time, and whenever twice as many were.
    fn count_updates(&self, block: BlockId, copied: u64, updates: RowCounts) {
        self.count(|counters| {
            counters.bytes_copied_on_write += copied;
            counters.rows_evicted += updates.evicted;
            let before = counters.keys_refused;
            counters.keys_refused += updates.refused;
            if before.checked_ilog2() != counters.keys_refused.checked_ilog2() {
                tracing::warn!(
                    %block, refused = counters.keys_refused,
                    "a bucket is full, and its table refuses new keys: raise the ceiling of rows, or let it evict"
                );
            }
        });
    }
}
