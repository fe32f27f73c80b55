//! What updates did to the rows of a bucket, counted for people. No decision may rest on it.

use crate::bucket::plan::Plan;

/// Counts of some updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowCounts {
    /// Rows that were let go of, by age or by score.
    pub evicted: u64,
    /// Keys that were left unborn because the bucket was full, each time.
    pub refused: u64,
}

impl RowCounts {
    /// Counts one update.
    pub(super) fn count(&mut self, plan: &Plan) {
        self.evicted += plan.evicted.len() as u64;
        self.refused += u64::from(plan.refused);
    }
}
