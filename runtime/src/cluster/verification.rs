//! Verification of microbatches that are computed twice: which, and how their sums are told. What roles must agree on.

use super::permutation::key;
use super::{LeaseId, Rewind, Step};

/// Bytes of one hash.
pub const HASH_BYTES: usize = 16;
/// The most hashes of one sum, beside its weight's: where more parameters are declared, several share one.
pub const HASHES_MAX: usize = 1024;
/// A share is counted in parts of a million.
pub const WHOLE_SHARE: u32 = 1_000_000;

/// The hashes of one computation of a microbatch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Under which lease it was computed: a word that is repeated is of the same computation.
    pub lease: LeaseId,
    /// The step.
    pub step: Step,
    /// The microbatch's slot in it.
    pub slot: u32,
    /// The history that it was computed in.
    pub rewind: Rewind,
    /// The number of the exclusions that it was computed with.
    pub exclusions: u64,
    /// One after the other: of the declared parameters, in their order, then of the weight.
    pub hashes: Vec<u8>,
}

/// Whether the microbatch in a slot of a step is verified, where a share of `millionths` is: a function of its arguments, as random as
/// a hash.
pub fn is_chosen(seed: u64, step: Step, slot: u32, millionths: u32) -> bool {
    // Of 2^32 values as many as the share says.
    let drawn = key(&[seed, 0x7E21F, step.0, slot.into()]) >> 32;
    drawn * u64::from(WHOLE_SHARE) < u64::from(millionths) << 32
}

/// How many parameters, one after the other, share a hash.
pub fn parameters_of_hash(parameters: usize) -> usize {
    parameters.div_ceil(HASHES_MAX).max(1)
}

/// Bytes of the hashes of one sum.
pub fn hashes_bytes(parameters: usize) -> usize {
    HASH_BYTES * (parameters.div_ceil(parameters_of_hash(parameters)) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_all_microbatches_is_chosen_by_seed_step_and_slot() {
        let chosen = |seed, millionths| -> Vec<(u64, u32)> {
            let all = (0..100).flat_map(|step| (0..100).map(move |slot| (step, slot)));
            all.filter(|(step, slot)| is_chosen(seed, Step(*step), *slot, millionths)).collect()
        };
        assert_eq!((chosen(1, 0).len(), chosen(1, WHOLE_SHARE).len()), (0, 10_000));
        let (some, others) = (chosen(1, 200_000), chosen(2, 200_000));
        assert!((1850..2150).contains(&some.len()), "{}", some.len());
        assert_ne!(some, others);
        assert_eq!(some, chosen(1, 200_000));
        let more = chosen(1, 300_000);
        assert!(some.iter().all(|place| more.contains(place)), "a larger share has what a smaller one has");
    }

    #[test]
    fn many_parameters_share_hashes_and_no_sum_has_more_than_are_allowed() {
        let table = [(0, 1, 1), (1, 1, 2), (1024, 1, 1025), (1025, 2, 514), (100_000, 98, 1022)];
        for (parameters, each, hashes) in table {
            assert_eq!(parameters_of_hash(parameters), each, "{parameters}");
            assert_eq!(hashes_bytes(parameters), HASH_BYTES * hashes, "{parameters}");
        }
    }
}
