//! The least that any rebalance must move: what `rebalance` is measured against. It must never say too much. Pure.

use super::band::Band;
use super::weigh;

/// A lower bound on [`moved_bytes`](super::moved_bytes) of every placement that keeps the promise of
/// [`rebalance`](super::rebalance); exact where all blocks have one size.
///
/// Two bounds, of which the greater counts, with *n* hosts and *total* bytes:
/// - out: a block that is nowhere moves, and a host keeps no more than `most_kept`;
/// - in: every host must come up to the floor, or to what the promise allows below it: if the least loaded host has
///   *least*, each of the others has at most *least* and its own smallest block, so *least* is no less than *total*
///   without the *n* - 1 largest blocks, divided by *n*.
///
/// # Panics
/// As `rebalance`.
pub fn least_bytes(sizes: &[u64], present: &[Option<u32>], hosts: u32) -> u64 {
    assert_eq!(sizes.len(), present.len(), "a size and a place for every block");
    let mut sizes = weigh(sizes);
    let band = Band::new(&sizes, hosts);
    let total: u64 = sizes.iter().sum();
    let mut residents = vec![Vec::new(); hosts as usize];
    let mut bytes_out = 0;
    for (size, host) in sizes.iter().zip(present) {
        match host {
            Some(host) => residents[*host as usize].push(*size),
            None => bytes_out += size,
        }
    }
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let largest: u64 = sizes.iter().take(hosts as usize - 1).sum();
    let floor = band.floor.min((total - largest).div_ceil(u64::from(hosts)));
    let unit = unit_of(&sizes);
    let mut bytes_in = 0;
    for mut held in residents {
        held.sort_unstable_by(|a, b| b.cmp(a));
        let load: u64 = held.iter().sum();
        let surplus = load - most_kept(&held, band, total, hosts);
        bytes_out += surplus.next_multiple_of(unit_of(&held));
        bytes_in += floor.saturating_sub(load).next_multiple_of(unit);
    }
    bytes_out.max(bytes_in)
}

/// The most that a host with the blocks `held`, the largest first, may keep of them.
///
/// Up to the ceiling, or as much as no single move betters: its load is then at most the least load, itself at most
/// the mean of the other hosts, plus its smallest block. With `size` for the smallest block kept: at most
/// (total + size * (hosts - 1)) / hosts, and no more than the blocks that are no smaller.
fn most_kept(held: &[u64], band: Band, total: u64, hosts: u32) -> u64 {
    let mut most = band.ceiling.min(held.iter().sum());
    let mut sum = 0;
    for size in held {
        sum += size;
        let unbettered = (u128::from(total) + u128::from(*size) * u128::from(hosts - 1)) / u128::from(hosts);
        most = most.max(u128::from(sum).min(unbettered) as u64);
    }
    most
}

/// What all loads are multiples of: the greatest common divisor, 1 for no blocks.
fn unit_of(sizes: &[u64]) -> u64 {
    sizes.iter().fold(0, |a, b| greatest_common_divisor(a, *b)).max(1)
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}
