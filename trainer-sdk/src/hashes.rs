//! Hashes of the sums of one microbatch, parameter by parameter, so that two computations of it can be compared and what differs be
//! named. XXH3 in 128 bits: it is chance that must not make two sums one, not malice. Pure, but for what is on a device.

use crate::reduce::NodeSum;
use shoal_runtime::cluster::verification::{hashes_bytes, parameters_of_hash};
use shoal_runtime::host::cuda::DeviceError;
use twox_hash::xxhash3_128::Hasher;

/// The hashes of a leaf that is settled: of its bits as they would be pushed.
///
/// # Errors
/// The device on which some of it is has failed.
pub(crate) fn of(sum: &NodeSum) -> Result<Vec<u8>, DeviceError> {
    let parameters = sum.values.len();
    let each = parameters_of_hash(parameters);
    let mut hashes = Vec::with_capacity(hashes_bytes(parameters));
    for first in (0..parameters).step_by(each) {
        let mut hasher = Hasher::new();
        for parameter in first..parameters.min(first + each) {
            write(sum, parameter, &mut hasher)?;
        }
        hashes.extend_from_slice(&hasher.finish_128().to_le_bytes());
    }
    hashes.extend_from_slice(&Hasher::oneshot(&sum.weight.to_le_bytes()).to_le_bytes());
    Ok(hashes)
}

fn write(sum: &NodeSum, parameter: usize, hasher: &mut Hasher) -> Result<(), DeviceError> {
    let there = sum.there.as_ref().map(|there| &there.tensors);
    if let Some((tensors, slice)) = there.and_then(|tensors| Some((tensors, tensors.slice(parameter)?))) {
        values(&tensors.read(parameter, 0..slice.elements())?, hasher);
    } else {
        values(&sum.values[parameter], hasher);
    }
    if let Some(rows) = sum.rows.get(parameter) {
        hasher.write(bytemuck::cast_slice(rows.keys()));
        hasher.write(bytemuck::cast_slice(rows.counts()));
        values(rows.values(), hasher);
    }
    Ok(())
}

/// Lengths too: what one parameter lacks must not be made up for by the next.
fn values(values: &[f32], hasher: &mut Hasher) {
    hasher.write(&(values.len() as u64).to_le_bytes());
    hasher.write(bytemuck::cast_slice(values));
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_runtime::cluster::Rows;
    use shoal_runtime::cluster::verification::HASH_BYTES;

    fn sum(values: Vec<Vec<f32>>) -> NodeSum {
        NodeSum { values: values.into(), weight: 3, ..NodeSum::default() }
    }

    fn differ(one: &NodeSum, other: &NodeSum) -> Vec<usize> {
        let (one, other) = (of(one).unwrap(), of(other).unwrap());
        assert_eq!(one.len(), other.len());
        let pairs = one.chunks(HASH_BYTES).zip(other.chunks(HASH_BYTES));
        pairs.enumerate().filter(|(_, (one, other))| one != other).map(|(at, _)| at).collect()
    }

    #[test]
    fn the_hash_of_the_parameter_that_differs_differs_and_no_other() {
        let ours = || vec![vec![1.0, 2.0], vec![], vec![3.0]];
        assert!(differ(&sum(ours()), &sum(ours())).is_empty());
        for (at, parameter) in [(0, 0), (1, 0), (0, 2)] {
            let mut theirs = ours();
            theirs[parameter][at] = f32::from_bits(theirs[parameter][at].to_bits() ^ 1);
            assert_eq!(differ(&sum(ours()), &sum(theirs)), [parameter]);
        }
        assert_eq!(differ(&sum(ours()), &sum(vec![vec![1.0], vec![2.0], vec![3.0]])), [0, 1]);
        assert_eq!(differ(&sum(ours()), &NodeSum { weight: 4, ..sum(ours()) }), [3]);
    }

    #[test]
    fn rows_are_told_by_keys_counts_and_values() {
        let with = |keys: [u64; 2], value: f32| {
            let mut rows = Rows::zeros(1, keys);
            rows.values_mut()[0] = value;
            NodeSum { rows: vec![Rows::default(), rows], ..sum(vec![vec![1.0], vec![]]) }
        };
        assert!(differ(&with([1, 2], 1.0), &with([1, 2], 1.0)).is_empty());
        assert_eq!(differ(&with([1, 2], 1.0), &with([1, 3], 1.0)), [1]);
        assert_eq!(differ(&with([1, 2], 1.0), &with([1, 2], 2.0)), [1]);
    }

    #[test]
    fn many_parameters_share_hashes() {
        let many =
            |changed: usize| sum((0..3000).map(|at| vec![if at == changed { 1.0 } else { 0.0 }]).collect());
        assert_eq!(of(&many(0)).unwrap().len(), HASH_BYTES * 1001);
        assert_eq!(differ(&many(5000), &many(301)), [100]);
    }
}
