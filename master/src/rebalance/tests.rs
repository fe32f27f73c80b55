//! Tests of the rebalance: its promise for any blocks and hosts, what it leaves alone, what it moves.

use super::drain::drain;
use super::*;
use crate::placement::place;
use proptest::collection::vec;
use proptest::prelude::*;

mod brute_force;
mod cost;

fn loads(sizes: &[u64], at: &[u32], hosts: u32) -> Vec<u128> {
    let mut loads = vec![0; hosts as usize];
    for (size, host) in sizes.iter().zip(at) {
        loads[*host as usize] += u128::from((*size).max(1));
    }
    loads
}

/// Whether a host may have `load`, the tenth around the fair share taken literally.
fn is_near_fair(load: u128, total: u128, hosts: u32) -> bool {
    let scaled = load * 10 * u128::from(hosts);
    9 * total <= scaled && scaled <= 11 * total
}

/// The promise as it is written: block by block, host by host.
fn keeps_promise(sizes: &[u64], at: &[u32], hosts: u32) -> bool {
    let loads = loads(sizes, at, hosts);
    let total: u128 = loads.iter().sum();
    let nobody_starves = loads.iter().all(|load| load * 10 * u128::from(hosts) >= 9 * total);
    let is_in_band = |load| is_near_fair(load, total, hosts) && nobody_starves;
    sizes.iter().zip(at).all(|(size, host)| {
        let load = loads[*host as usize];
        is_in_band(load)
            || (0..hosts)
                .all(|other| other == *host || loads[other as usize] + u128::from((*size).max(1)) >= load)
    })
}

fn ranges(at: &[u32]) -> usize {
    at.chunk_by(|a, b| a == b).count()
}

fn settled(at: &[u32]) -> Vec<Option<u32>> {
    at.iter().copied().map(Some).collect()
}

#[test]
fn one_host_becomes_three_and_every_host_has_one_run() {
    let at = rebalance(&[1 << 20; 30], &[Some(0); 30], 3);
    let expected = [vec![0; 11], vec![1; 10], vec![2; 9]].concat();
    assert_eq!(at, expected);
}

#[test]
fn a_new_host_takes_no_more_than_balance_asks() {
    let sizes = [1 << 20; 1000];
    let at = rebalance(&sizes, &settled(&place(&sizes, 10)), 11);
    // Fair is 90.9 blocks, nine tenths of it 81.8.
    assert_eq!(at.iter().filter(|host| **host == 10).count(), 82);
}

#[test]
fn a_large_block_does_not_go_where_a_few_small_ones_are_enough() {
    // Fair is 1,000; host 0 has 8 more than 1,100, host 1 lacks 8 of 900, and 180 fit between.
    let sizes = [vec![180], vec![1; 928], vec![892]].concat();
    let present: Vec<Option<u32>> = (0..sizes.len()).map(|block| Some(u32::from(block == 929))).collect();
    assert_eq!(moved_bytes(&sizes, &present, &rebalance(&sizes, &present, 2)), 8);
}

#[test]
fn a_starving_host_gets_the_block_that_is_just_enough() {
    // Fair is 1,000 and host 2 lacks 8 of 900.
    let (sizes, present) = ([150, 8, 896, 1054, 892], [Some(0), Some(0), Some(0), Some(1), Some(2)]);
    assert_eq!(rebalance(&sizes, &present, 3), [0, 2, 0, 1, 2]);
}

#[test]
fn a_lost_hosts_blocks_go_to_the_others_in_runs() {
    let sizes = [1 << 20; 30];
    let present: Vec<Option<u32>> = place(&sizes, 3).into_iter().map(|host| host.checked_sub(1)).collect();
    let at = rebalance(&sizes, &present, 2);
    let expected = [vec![0; 5], vec![1; 5], vec![0; 10], vec![1; 10]].concat();
    assert_eq!(at, expected);
}

#[test]
fn blocks_of_one_size_that_are_nowhere_are_placed_as_in_a_new_job() {
    for (blocks, hosts) in [(12, 3), (100, 7), (5, 9), (1000, 1)] {
        let sizes = vec![1 << 20; blocks];
        let at = rebalance(&sizes, &vec![None; blocks], hosts);
        assert_eq!(ranges(&at), ranges(&place(&sizes, hosts)), "{blocks} on {hosts}");
    }
}

#[test]
fn blocks_of_nearly_one_size_move_in_runs_too() {
    let sizes: Vec<u64> = (0..1000).map(|block| 900 + block * 7919 % 200).collect();
    let at = rebalance(&sizes, &settled(&place(&sizes, 10)), 20);
    assert!(ranges(&at) <= 200, "{} ranges", ranges(&at));
    let nowhere = rebalance(&sizes, &vec![None; 1000], 10);
    assert_eq!(ranges(&nowhere), 10);
}

#[test]
fn empty_blocks_spread_too() {
    assert_eq!(rebalance(&[0; 6], &[None; 6], 3), [0, 0, 1, 1, 2, 2]);
}

#[test]
fn no_blocks_are_no_work() {
    assert_eq!((rebalance(&[], &[], 3), least_bytes(&[], &[], 3)), (vec![], 0));
}

#[test]
fn sizes_near_the_end_of_the_range_are_counted_right() {
    let half = u64::MAX / 2;
    assert_eq!(rebalance(&[half, half], &[Some(0), Some(0)], 2), [0, 1]);
    assert_eq!(least_bytes(&[half, half], &[Some(0), Some(0)], 2), half);
}

#[test]
#[should_panic = "cannot be counted"]
fn sizes_beyond_the_range_are_refused_loudly() {
    rebalance(&[u64::MAX, 1], &[None, None], 2);
}

/// Sizes that are equal, nearly equal, mixed, or wildly unequal.
fn sizes(most: usize) -> impl Strategy<Value = Vec<u64>> {
    prop_oneof![
        (1u64..1 << 40, 0..most).prop_map(|(size, blocks)| vec![size; blocks]),
        vec(900u64..1100, 0..most),
        vec(0u64..2000, 0..most),
        vec((0u32..40).prop_map(|bits| 1 << bits), 0..most),
        vec(prop_oneof![9 => Just(1u64 << 20), 1 => 1u64..1 << 20], 0..most),
    ]
}

#[derive(Debug)]
struct Case {
    sizes: Vec<u64>,
    present: Vec<Option<u32>>,
    hosts: u32,
}

/// Blocks in runs or anywhere, on some of the hosts, some of them nowhere.
fn case() -> impl Strategy<Value = Case> {
    let fates = vec((any::<u32>(), 0u32..10), 120);
    (sizes(120), 1u32..12, 1u32..12, any::<bool>(), 0u32..4, fates).prop_map(
        |(sizes, hosts, used, in_runs, lost_tenths, fates)| {
            let used = used.min(hosts);
            let runs = place(&weigh(&sizes), used);
            let host = |(run, (any, tenth)): (u32, &(u32, u32))| {
                Some(if in_runs { run } else { any % used }).filter(|_| *tenth >= lost_tenths)
            };
            let present = runs.into_iter().zip(&fates).map(host).collect();
            Case { sizes, present, hosts }
        },
    )
}

proptest! {
    #[test]
    fn the_promise_is_kept_for_any_blocks_on_any_hosts(case in case()) {
        let at = rebalance(&case.sizes, &case.present, case.hosts);
        prop_assert_eq!(at.len(), case.sizes.len());
        prop_assert!(keeps_promise(&case.sizes, &at, case.hosts), "{:?}", at);
    }

    #[test]
    fn what_keeps_the_promise_is_left_alone(case in case()) {
        let at = rebalance(&case.sizes, &case.present, case.hosts);
        prop_assert_eq!(&rebalance(&case.sizes, &settled(&at), case.hosts), &at);
        let runs = place(&weigh(&case.sizes), case.hosts);
        if keeps_promise(&case.sizes, &runs, case.hosts) {
            prop_assert_eq!(&rebalance(&case.sizes, &settled(&runs), case.hosts), &runs);
        }
    }

    #[test]
    fn blocks_of_at_most_a_tenth_of_fair_bring_every_host_within_a_tenth_of_fair(
        sizes in vec(1000u64..=2000, 120), hosts in 1u32..=6,
        present in vec(proptest::option::weighted(0.8, 0u32..6), 120), used in 1u32..=6
    ) {
        // A tenth of fair is no less than 120 * 1000 / 6 / 10 = 2000 bytes.
        let present: Vec<Option<u32>> = present.iter().map(|host| host.map(|host| host % used.min(hosts))).collect();
        let loads = loads(&sizes, &rebalance(&sizes, &present, hosts), hosts);
        let total = loads.iter().sum();
        prop_assert!(loads.iter().all(|load| is_near_fair(*load, total, hosts)), "{:?}", loads);
    }

    #[test]
    fn with_no_more_blocks_than_hosts_every_block_has_a_host_for_itself(case in case()) {
        let hosts = case.hosts.max(case.sizes.len() as u32);
        let mut at = rebalance(&case.sizes, &case.present, hosts);
        at.sort_unstable();
        prop_assert!(at.windows(2).all(|pair| pair[0] != pair[1]), "{:?}", at);
    }

    #[test]
    fn no_fewer_bytes_move_than_the_least_and_no_more_where_blocks_have_one_size(case in case()) {
        let moved = |sizes: &[u64]| {
            let at = rebalance(sizes, &case.present, case.hosts);
            (moved_bytes(sizes, &case.present, &at), least_bytes(sizes, &case.present, case.hosts))
        };
        let (bytes, least) = moved(&case.sizes);
        prop_assert!(bytes >= least, "{} < {}", bytes, least);
        let (bytes, least) = moved(&vec![4096; case.sizes.len()]);
        prop_assert_eq!(bytes, least);
    }

    #[test]
    fn hosts_come_and_go_from_one_to_three_to_two_to_four_to_one(
        sizes in sizes(120), chances in vec(any::<u8>(), 120)
    ) {
        let mut present = vec![None; sizes.len()];
        let mut now = 0;
        for wanted in [1, 3, 2, 4, 1] {
            let at: Vec<u32> = present.iter().flatten().copied().collect();
            let held: Vec<u64> = loads(&sizes, &at, now).into_iter().map(|load| load as u64).collect();
            let leaving = drain(&held, wanted);
            let staying: Vec<u32> = (0..now).filter(|host| !leaving.contains(host)).collect();
            for (host, chance) in present.iter_mut().zip(&chances) {
                // Now and then a copy is lost as well.
                *host = host.filter(|_| *chance > 20)
                    .and_then(|host| staying.iter().position(|stays| *stays == host))
                    .map(|host| host as u32);
            }
            let at = rebalance(&sizes, &present, wanted);
            prop_assert!(keeps_promise(&sizes, &at, wanted), "{} hosts: {:?}", wanted, at);
            prop_assert!(moved_bytes(&sizes, &present, &at) >= least_bytes(&sizes, &present, wanted));
            present = settled(&at);
            now = wanted;
        }
    }
}
