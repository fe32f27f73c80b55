//! Placement: which pserver holds which block. Pure.

/// Places blocks of `sizes` bytes on `pservers` pservers (at least one): contiguous stretches of about equal bytes.
///
/// Block `b` goes where the middle of its bytes falls, so a pserver holds its fair share give or take one block.
/// Contiguous stretches keep the routing table as small as its boundaries.
pub fn place(sizes: &[u64], pservers: u32) -> Vec<u32> {
    assert!(pservers > 0, "placement on no pserver");
    let total: u128 = sizes.iter().map(|size| u128::from(*size)).sum();
    let mut before: u128 = 0;
    let mut placed = Vec::with_capacity(sizes.len());
    for size in sizes {
        let middle = 2 * before + u128::from(*size);
        let share = if total == 0 { 0 } else { middle * u128::from(pservers) / (2 * total) };
        placed.push((share as u32).min(pservers - 1));
        before += u128::from(*size);
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_pserver_gets_everything_and_three_a_third_each() {
        assert_eq!(place(&[5, 1, 9], 1), [0, 0, 0]);
        assert_eq!(place(&[10; 6], 3), [0, 0, 1, 1, 2, 2]);
    }

    proptest! {
        #[test]
        fn shares_are_contiguous_and_within_a_block_of_fair(
            sizes in proptest::collection::vec(1u64..1000, 1..200), pservers in 1u32..20
        ) {
            let placed = place(&sizes, pservers);
            prop_assert!(placed.windows(2).all(|pair| pair[0] <= pair[1]));
            let fair = sizes.iter().sum::<u64>() as f64 / f64::from(pservers);
            let largest = *sizes.iter().max().unwrap() as f64;
            for pserver in 0..pservers {
                let held: u64 = sizes.iter().zip(&placed).filter(|(_, p)| **p == pserver).map(|(s, _)| s).sum();
                prop_assert!((held as f64 - fair).abs() <= largest, "{} of {}", held, fair);
            }
        }
    }
}
