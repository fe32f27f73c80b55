//! The scalar block's rule: what all blocks know of a step becomes what is decided of it.

use shoal_runtime::cluster::{Decision, Decisions, Tally};

/// `values` holds a [`Tally`] and becomes the [`Decision`] that follows the one in `parameters`.
#[inline(always)]
pub(super) fn decide(decisions: Decisions, parameters: &[f32], values: &mut [f32]) {
    let before = Decision::from_values(parameters).unwrap_or_else(|| decisions.initial());
    if let Some(tally) = Tally::from_values(values) {
        values.copy_from_slice(&decisions.next(before, tally).to_values());
    }
}
