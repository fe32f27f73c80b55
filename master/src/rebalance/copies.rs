//! Copies: which host shall hold a new follower copy of a block. It must never name a host that has one already. Pure.

use super::weigh;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// The follower copies to add, as (block, host), the most urgent first, until every block has `copies` of them (its
/// primary among these) or every host has one.
///
/// `holders` says for each block of `sizes` bytes which hosts (live ones, indexes below `hosts`) hold a copy of it now,
/// filling ones too. A block that no host holds is left out: there is nothing to copy from until it is restored.
///
/// Each goes to the host that lacks the block and has the fewest bytes of copies, primaries and followers together and
/// counting what was placed before; the first of several. Blocks with the fewest copies come first, of these the
/// heaviest; of equals one of each first holder in turn: no host can take its own blocks, so the one whose blocks all
/// came last would end with less than the others (19 against 24 blocks on 3 hosts).
/// O(m log m) in hosts + blocks + copies, for copies few enough to be searched one by one.
///
/// # Panics
/// `holders` of another length than `sizes`, or with a host beyond `hosts`.
pub fn place_copies(sizes: &[u64], holders: &[Vec<u32>], hosts: u32, copies: usize) -> Vec<(usize, u32)> {
    assert_eq!(sizes.len(), holders.len(), "a size and holders for every block");
    let sizes = weigh(sizes);
    let mut by_load = by_load(&sizes, holders, hosts);
    let mut holders = holders.to_vec();
    let turns = turns(&holders, hosts);
    let mut wanting: BTreeSet<(usize, Reverse<u64>, usize, usize)> = (0..sizes.len())
        .filter(|block| !holders[*block].is_empty())
        .map(|block| (holders[block].len(), Reverse(sizes[block]), turns[block], block))
        .collect();
    let mut placed = Vec::new();
    while let Some((held, Reverse(size), turn, block)) = wanting.pop_first()
        && held < copies
    {
        let holders = &mut holders[block];
        let Some((load, host)) = by_load.iter().find(|(_, host)| !holders.contains(host)).copied() else {
            continue;
        };
        by_load.remove(&(load, host));
        by_load.insert((load + size, host));
        holders.push(host);
        placed.push((block, host));
        wanting.insert((held + 1, Reverse(size), turn, block));
    }
    placed
}

/// Every host with the bytes of its copies, the fewest first.
fn by_load(sizes: &[u64], holders: &[Vec<u32>], hosts: u32) -> BTreeSet<(u64, u32)> {
    let mut loads = vec![0; hosts as usize];
    for (size, holders) in sizes.iter().zip(holders) {
        for host in holders {
            loads[*host as usize] += size;
        }
    }
    loads.into_iter().zip(0..).collect()
}

/// How many blocks before it each block's first holder holds first.
fn turns(holders: &[Vec<u32>], hosts: u32) -> Vec<usize> {
    let mut counts = vec![0; hosts as usize];
    let turn = |holders: &Vec<u32>| {
        let Some(first) = holders.first() else { return 0 };
        let turn = counts[*first as usize];
        counts[*first as usize] += 1;
        turn
    };
    holders.iter().map(turn).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    #[test]
    fn the_block_with_the_fewest_copies_is_helped_first_and_by_the_emptiest_host() {
        // Hosts 0 to 3 have 5 + 7, 5, 7 and 0 bytes of copies.
        let holders = vec![vec![0, 1], vec![0], vec![2], vec![]];
        assert_eq!(place_copies(&[5, 7, 7, 9], &holders, 4, 2), [(2, 3), (1, 1)]);
        assert_eq!(place_copies(&[5, 7, 7, 9], &holders, 4, 3), [(2, 3), (1, 1), (2, 0), (1, 2), (0, 3)]);
    }

    #[test]
    fn followers_of_one_hosts_primaries_spread_over_all_the_others_alike() {
        let placed = place_copies(&[10; 12], &vec![vec![0]; 12], 4, 2);
        let on = |host| placed.iter().filter(|(_, h)| *h == host).count();
        assert_eq!([0, 1, 2, 3].map(on), [0, 4, 4, 4]);
    }

    #[test]
    fn empty_blocks_spread_too() {
        let placed = place_copies(&[0; 6], &vec![vec![0]; 6], 3, 2);
        assert_eq!(placed.iter().filter(|(_, host)| *host == 1).count(), 3);
    }

    #[derive(Debug)]
    struct Case {
        sizes: Vec<u64>,
        holders: Vec<Vec<u32>>,
        hosts: u32,
        copies: usize,
    }

    fn case() -> impl Strategy<Value = Case> {
        (1u32..7, 0usize..5, 0usize..30).prop_flat_map(|(hosts, copies, blocks)| {
            let size = prop_oneof![Just(64u64), 0u64..1000, (0u32..30).prop_map(|bits| 1 << bits)];
            let held = btree_set(0..hosts, 0..=hosts.min(3) as usize).prop_map(Vec::from_iter);
            let holders = vec(held, blocks);
            (vec(size, blocks), holders).prop_map(move |(sizes, holders)| Case {
                sizes,
                holders,
                hosts,
                copies,
            })
        })
    }

    proptest! {
        #[test]
        fn every_held_block_gets_its_copies_each_on_another_host(case in case()) {
            let mut holders = case.holders.clone();
            for (block, host) in place_copies(&case.sizes, &case.holders, case.hosts, case.copies) {
                prop_assert!(host < case.hosts && !holders[block].contains(&host));
                holders[block].push(host);
            }
            for (before, after) in case.holders.iter().zip(&holders) {
                let most = case.copies.min(case.hosts as usize);
                let wanted = if before.is_empty() { 0 } else { before.len().max(most) };
                prop_assert_eq!(after.len(), wanted);
            }
        }

        #[test]
        fn each_copy_goes_to_a_host_with_the_fewest_bytes_that_lacks_the_block(case in case()) {
            let mut holders = case.holders.clone();
            let mut order = Vec::new();
            let turn = |block: usize| {
                let first = |block: usize| case.holders[block].first();
                (0..block).filter(|before| first(*before) == first(block)).count()
            };
            for (block, host) in place_copies(&case.sizes, &case.holders, case.hosts, case.copies) {
                let size = |block: usize| case.sizes[block].max(1);
                let load = |host| -> u64 {
                    (0..holders.len()).filter(|b| holders[*b].contains(&host)).map(size).sum()
                };
                for other in (0..case.hosts).filter(|other| !holders[block].contains(other)) {
                    prop_assert!((load(host), host) <= (load(other), other));
                }
                order.push((holders[block].len(), Reverse(size(block)), turn(block), block));
                holders[block].push(host);
            }
            prop_assert!(order.is_sorted());
        }

        #[test]
        fn equal_blocks_end_up_evenly_on_hosts_that_began_evenly(
            rows in 1u32..20, hosts in 3u32..9, copies in 2usize..4
        ) {
            let holders: Vec<Vec<u32>> = (0..rows * hosts).map(|block| vec![block / rows]).collect();
            let sizes = vec![1u64 << 20; holders.len()];
            let mut loads = vec![rows; hosts as usize];
            for (_, host) in place_copies(&sizes, &holders, hosts, copies) {
                loads[host as usize] += 1;
            }
            let (least, most) = (loads.iter().min().unwrap(), loads.iter().max().unwrap());
            prop_assert!(most - least <= 2, "{:?}", loads);
        }
    }
}
