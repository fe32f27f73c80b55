//! Blocks over hosts while a rebalance is being worked out: who has what, and who has the least. Pure.

use super::band::Band;
use super::moved_bytes;
use std::collections::BTreeSet;

/// Every block on a host; loads follow each move.
#[derive(Clone, Debug)]
pub(super) struct Spread<'a> {
    sizes: &'a [u64],
    present: &'a [Option<u32>],
    at: Vec<u32>,
    loads: Vec<u64>,
    by_load: BTreeSet<(u64, u32)>,
}

impl<'a> Spread<'a> {
    /// Blocks where they are at present; those that are nowhere on the least loaded hosts, in the order given.
    pub(super) fn new(
        sizes: &'a [u64],
        present: &'a [Option<u32>],
        hosts: u32,
        heaviest_first: &[usize],
    ) -> Spread<'a> {
        let mut loads = vec![0; hosts as usize];
        for (size, host) in sizes.iter().zip(present) {
            if let Some(host) = host {
                loads[*host as usize] += size;
            }
        }
        let by_load = loads.iter().copied().zip(0..).collect();
        let at = present.iter().map(|host| host.unwrap_or(0)).collect();
        let mut spread = Spread { sizes, present, at, loads, by_load };
        for block in heaviest_first.iter().filter(|block| present[**block].is_none()) {
            let (least, to) = spread.least();
            spread.at[*block] = to;
            spread.set_load(to, least + sizes[*block]);
        }
        spread
    }

    /// Bytes on a host.
    pub(super) fn load(&self, host: u32) -> u64 {
        self.loads[host as usize]
    }

    /// The least loaded host, with its load; the first of several.
    pub(super) fn least(&self) -> (u64, u32) {
        self.by_load.first().copied().unwrap_or_default()
    }

    /// Every host with its load, the least loaded first.
    pub(super) fn by_load(&self) -> &BTreeSet<(u64, u32)> {
        &self.by_load
    }

    /// The blocks that are where they were, each with its size and host.
    pub(super) fn residents(&self) -> impl Iterator<Item = (usize, u64, u32)> {
        (0..self.at.len())
            .filter(|block| !self.is_moved(*block))
            .map(|block| (block, self.sizes[block], self.at[block]))
    }

    /// Moves a block.
    pub(super) fn shift(&mut self, block: usize, to: u32) {
        let from = std::mem::replace(&mut self.at[block], to);
        self.set_load(from, self.load(from) - self.sizes[block]);
        self.set_load(to, self.load(to) + self.sizes[block]);
    }

    /// Makes the promise true: whatever block a single move would better goes to the least loaded host.
    ///
    /// One pass, heaviest first, is enough. The least load never falls. A block once passed is joined by none that is
    /// heavier, and only on what is the least loaded host; without the block that was passed this host then has no more
    /// than `least`. (Even-Dar, Kesselman, Mansour 2003, "Convergence time to Nash equilibria", on "max weight job".)
    pub(super) fn settle(&mut self, heaviest_first: &[usize], band: Band) {
        for block in heaviest_first {
            let (least, to) = self.least();
            let load = self.load(self.at[*block]);
            if !band.holds(load, least) && load - self.sizes[*block] > least {
                self.shift(*block, to);
            }
        }
    }

    /// Deals the moved blocks out again, in their order: each host gets a contiguous stretch of about as many bytes of
    /// them as it has now (exactly as many where blocks have one size).
    pub(super) fn gather(&mut self) {
        let moved: Vec<usize> = (0..self.at.len()).filter(|block| self.is_moved(*block)).collect();
        let mut ends = vec![0; self.loads.len()];
        for block in &moved {
            ends[self.at[*block] as usize] += self.sizes[*block];
        }
        for host in 1..ends.len() {
            ends[host] += ends[host - 1];
        }
        let (mut host, mut dealt) = (0, 0);
        for block in moved {
            dealt += self.sizes[block];
            while dealt > ends[host] {
                host += 1;
            }
            self.shift(block, host as u32);
        }
    }

    /// Bytes of the blocks that are not where they were.
    pub(super) fn moved_bytes(&self) -> u64 {
        moved_bytes(self.sizes, self.present, &self.at)
    }

    /// How far the farthest host is outside the band.
    pub(super) fn stray_bytes(&self, band: Band) -> u64 {
        let (most, _) = self.by_load.last().copied().unwrap_or_default();
        most.saturating_sub(band.ceiling).max(band.floor.saturating_sub(self.least().0))
    }

    /// The host of each block.
    pub(super) fn into_hosts(self) -> Vec<u32> {
        self.at
    }

    fn is_moved(&self, block: usize) -> bool {
        self.present[block] != Some(self.at[block])
    }

    fn set_load(&mut self, host: u32, load: u64) {
        let before = std::mem::replace(&mut self.loads[host as usize], load);
        self.by_load.remove(&(before, host));
        self.by_load.insert((load, host));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fullest_and_the_emptiest_host_may_be_astray() {
        let stray_bytes = |sizes: [u64; 4]| {
            let hosts = [Some(0), Some(1), Some(2), Some(3)];
            Spread::new(&sizes, &hosts, 4, &[]).stray_bytes(Band::new(&sizes, 4))
        };
        assert_eq!(stray_bytes([110, 90, 90, 110]), 0);
        assert_eq!(stray_bytes([130, 90, 90, 90]), 20);
        assert_eq!(stray_bytes([105, 105, 105, 85]), 5);
        assert_eq!(stray_bytes([70, 105, 110, 115]), 20);
    }
}
