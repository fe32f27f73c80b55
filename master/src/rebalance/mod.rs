//! Rebalance: which host shall hold which block, decided from where the blocks are now, so that little moves.
//! It must never depend on anything but its arguments: whichever master leads decides the same. Pure.
//!
//! A host is a live pserver that may hold blocks, named by its index. A block of no bytes counts as one byte
//! everywhere here, so that empty blocks spread like others.

pub mod copies;
pub mod drain;

mod band;
mod least;
mod spread;
mod trim;

pub use least::least_bytes;

use band::Band;
use spread::Spread;
use std::cmp::Reverse;

/// For each block of `sizes` bytes the host that shall hold its primary. `present` says where it is now: an index
/// below `hosts`, or none where its host is lost or leaving; such a block is placed anew and counts as moved.
///
/// The promise, with *fair* for the bytes of all blocks divided by `hosts`; for every host *h* one of these holds:
/// - *h* has at most 1.1 fair, and no host has less than 0.9 fair;
/// - no single move betters it: whatever block of *h* went to whatever host *g*, *g* would then have at least what
///   *h* has now.
///
/// So every host is within a tenth of fair wherever no block is larger than a tenth of fair, and no host ever has more
/// than the larger of 1.1 fair and what the least loaded host has plus its own smallest block.
///
/// Where the promise holds already nothing moves; so its own output is left alone. Blocks of one size move exactly
/// [`least_bytes`]; in general the least is a packing problem, and this is a heuristic. O(n log n) in blocks + hosts.
///
/// # Panics
/// No host at all, `present` of another length or beyond `hosts`, sizes that add up to 2^64 bytes or more.
pub fn rebalance(sizes: &[u64], present: &[Option<u32>], hosts: u32) -> Vec<u32> {
    assert_eq!(sizes.len(), present.len(), "a size and a place for every block");
    let sizes = weigh(sizes);
    let band = Band::new(&sizes, hosts);
    let mut heaviest_first: Vec<usize> = (0..sizes.len()).collect();
    heaviest_first.sort_by_key(|block| Reverse(sizes[*block]));

    let mut spread = Spread::new(&sizes, present, hosts, &heaviest_first);
    trim::trim(&mut spread, band);
    spread.settle(&heaviest_first, band);

    let mut gathered = spread.clone();
    gathered.gather();
    gathered.settle(&heaviest_first, band);
    let costs_nothing = gathered.moved_bytes() <= spread.moved_bytes()
        && gathered.stray_bytes(band) <= spread.stray_bytes(band);
    if costs_nothing { gathered.into_hosts() } else { spread.into_hosts() }
}

/// Bytes of the blocks whose `target` is not where they are at `present`.
pub fn moved_bytes(sizes: &[u64], present: &[Option<u32>], target: &[u32]) -> u64 {
    let places = present.iter().zip(target);
    weigh(sizes).iter().zip(places).filter(|(_, (from, to))| **from != Some(**to)).map(|(size, _)| size).sum()
}

/// A block of no bytes counts as one.
fn weigh(sizes: &[u64]) -> Vec<u64> {
    sizes.iter().map(|size| (*size).max(1)).collect()
}

#[cfg(test)]
mod tests;
