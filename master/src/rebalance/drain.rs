//! Draining: which hosts go when fewer are wanted. It must never depend on who asked or when. Pure.

use std::cmp::Reverse;

/// The hosts to drain so that `wanted` are left, in that order: those that hold the fewest bytes, of several the one
/// that registered last. `loads` are bytes of copies, in the order of registration.
pub fn drain(loads: &[u64], wanted: u32) -> Vec<u32> {
    let mut hosts: Vec<u32> = (0..).take(loads.len()).collect();
    hosts.sort_unstable_by_key(|host| (loads[*host as usize], Reverse(*host)));
    hosts.truncate(loads.len().saturating_sub(wanted as usize));
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_emptiest_host_goes_first_and_of_equals_the_latest() {
        assert_eq!(drain(&[5, 3, 9, 3, 5], 1), [3, 1, 4, 0]);
        assert_eq!(drain(&[5, 3, 9, 3, 5], 5), [0u32; 0]);
        assert_eq!(drain(&[5, 3], 7), [0u32; 0]);
        assert_eq!(drain(&[5, 3], 0), [1, 0]);
    }

    proptest! {
        #[test]
        fn who_stays_holds_no_less_and_of_equals_registered_before(
            loads in proptest::collection::vec(0u64..6, 0..12), wanted in 0u32..14
        ) {
            let leaving = drain(&loads, wanted);
            let rank = |host: &u32| (loads[*host as usize], Reverse(*host));
            let staying: Vec<u32> = (0..loads.len() as u32).filter(|host| !leaving.contains(host)).collect();
            prop_assert_eq!(staying.len(), loads.len().min(wanted as usize));
            prop_assert_eq!(staying.len() + leaving.len(), loads.len());
            for host in &leaving {
                prop_assert!(staying.iter().all(|stays| rank(host) < rank(stays)));
            }
        }
    }
}
