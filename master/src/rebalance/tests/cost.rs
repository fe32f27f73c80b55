//! What a rebalance costs as blocks and hosts grow tenfold, and how its result fares beside the least possible.
//! Measured with the dev profile on a loaded machine: 0.02 to 0.2 s for 100,000 blocks on 1,000 hosts, 10 to 19 times
//! what a tenth of both costs; 0.2 s for two followers of each, 17 times.

use super::*;
use crate::rebalance::copies::place_copies;
use tokio::time::Instant;

/// Blocks and hosts.
const SCALES: [(usize, u32); 3] = [(1_000, 10), (10_000, 100), (100_000, 1_000)];

fn wild(block: u64) -> u64 {
    1 << (block.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 59)
}

fn mixed(block: u64) -> u64 {
    1 + (block.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 44)
}

fn equal(_: u64) -> u64 {
    1 << 20
}

/// From `hosts` before to how many after.
type Change = (&'static str, fn(u32) -> (u32, u32));
const CHANGES: [Change; 4] = [
    ("one to all", |hosts| (1, hosts)),
    ("a tenth more", |hosts| (hosts - hosts / 10, hosts)),
    ("a tenth fewer", |hosts| (hosts, hosts - hosts / 10)),
    ("half", |hosts| (hosts, hosts / 2)),
];

fn timed<T>(work: impl Fn() -> T) -> (T, f64) {
    let mut times: Vec<f64> = (0..5)
        .map(|_| {
            let begin = Instant::now();
            std::hint::black_box(work());
            begin.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    (work(), times[2])
}

#[test]
#[ignore = "prints a table"]
#[allow(clippy::print_stdout, reason = "its output is what it is for")]
fn how_the_cost_grows() {
    for (kind, size) in [("equal", equal as fn(u64) -> u64), ("mixed", mixed), ("wild", wild)] {
        for (change, of) in CHANGES {
            for (blocks, hosts) in SCALES {
                let sizes: Vec<u64> = (0..blocks as u64).map(size).collect();
                let (before, after) = of(hosts);
                let placed = place(&sizes, before).into_iter();
                let present: Vec<Option<u32>> =
                    placed.map(|host| Some(host).filter(|host| *host < after)).collect();
                let (at, millis) = timed(|| rebalance(&sizes, &present, after));
                assert!(rebalance(&sizes, &settled(&at), after) == at, "not left alone");
                let moved = moved_bytes(&sizes, &present, &at);
                let least = least_bytes(&sizes, &present, after);
                let (times, ranges) = (moved as f64 / least as f64, ranges(&at));
                println!(
                    "{kind:>6}, {change:>13}, {blocks:>6} on {after:>4}: {millis:>7.2} ms, {times:.3} of the least, {ranges} ranges"
                );
            }
        }
    }
    for (blocks, hosts) in SCALES {
        let sizes: Vec<u64> = (0..blocks as u64).map(mixed).collect();
        let holders: Vec<Vec<u32>> = place(&sizes, hosts).into_iter().map(|host| vec![host]).collect();
        let (_, millis) = timed(|| place_copies(&sizes, &holders, hosts, 3));
        println!("two followers each, {blocks:>6} on {hosts:>4}: {millis:>7.2} ms");
    }
}
