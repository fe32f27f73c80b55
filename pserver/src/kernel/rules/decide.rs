//! The scalar block's rule: what all blocks know of a step becomes what is decided of it.

use shoal_runtime::cluster::{Decision, Decisions, Tally};

/// `values` holds a [`Tally`] and becomes the [`Decision`] that follows the one in `parameters`, `remainders` what rounding leaves out
/// of its counts.
#[inline(always)]
pub(super) fn decide(decisions: Decisions, parameters: &[f32], values: &mut [f32], remainders: &mut [f32]) {
    let before = Decision::from_elements(parameters, remainders).unwrap_or_else(|| decisions.initial());
    if let Some(tally) = Tally::from_values(values) {
        let next = decisions.next(before, tally);
        values.copy_from_slice(&next.to_values());
        remainders.copy_from_slice(&next.to_remainders());
    }
}
