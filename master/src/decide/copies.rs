//! Followers: admitted, refilled, added, dropped.

use super::Seen;
use crate::document::{Document, Mark, PlacedBlock, PlacedCopy};
use crate::rebalance::copies::place_copies;
use shoal_runtime::cluster::{BlockId, Fill, Incarnation};
use std::collections::BTreeMap;

/// Copies of each block, the primary among them: as many as are asked for, and no more than there are pservers to stay.
fn wanted(next: &Document, seen: &Seen<'_>) -> usize {
    let staying = seen.hosts.keys().filter(|host| !next.leaving.contains(host)).count();
    (1 + next.wanted.replicas as usize).min(staying.max(1))
}

/// Bytes that may be on their way to one pserver at a time.
pub(super) const FILLING_BYTES_MAX: u64 = 64 << 20;

/// Marks as in-sync, or makes the primary, what primaries have asked for, if it is still what they meant.
pub(super) fn admit(next: &mut Document, seen: &Seen<'_>, version: u64) {
    for asked in seen.admissions {
        let Some(block) = next.blocks.get_mut(asked.block.0 as usize) else { continue };
        if (block.term, block.primary) != (asked.term, asked.primary) {
            continue;
        }
        let is_meant = |copy: &&mut PlacedCopy| (copy.pserver, copy.fill) == (asked.pserver, asked.fill);
        let Some(copy) = block.copies.iter_mut().find(is_meant) else { continue };
        if !asked.is_heir {
            copy.mark = Mark::InSync;
        } else if block.heir == Some(asked.pserver) {
            block.promote(asked.pserver, version);
        }
    }
}

/// Gives copies that cannot be continued a new fill.
pub(super) fn refill_broken(next: &mut Document, seen: &Seen<'_>, version: u64) {
    for (at, block) in next.blocks.iter_mut().enumerate() {
        let primary = block.primary;
        for copy in block.copies.iter_mut().filter(|copy| copy.pserver != primary) {
            let word = seen.copies.get(&(BlockId(at as u32), copy.pserver));
            if word.is_some_and(|word| word.is_broken && word.fill == copy.fill) {
                (copy.fill, copy.mark) = (Fill(version), Mark::Filling);
                block.heir = block.heir.filter(|heir| *heir != copy.pserver);
            }
        }
    }
}

/// Drops copies that are more than wanted, and those on leaving pservers that others stand in for. A copy that is to
/// become the primary does not count until it has.
pub(super) fn drop_surplus(next: &mut Document, seen: &Seen<'_>) {
    let wanted = wanted(next, seen);
    for (at, block) in next.blocks.iter_mut().enumerate() {
        if !seen.hosts.contains_key(&block.primary) {
            continue;
        }
        let target = next.moves.get(&BlockId(at as u32)).copied();
        let is_leaving = |copy: &PlacedCopy| next.leaving.contains(&copy.pserver);
        let counts = |copy: &PlacedCopy| Some(copy.pserver) != target && !is_leaving(copy);
        // The least useful first.
        let mut others = block.copies.clone();
        others.retain(|copy| copy.pserver != block.primary && Some(copy.pserver) != target);
        others.sort_by_key(|copy| (!is_leaving(copy), copy.mark == Mark::InSync));
        for copy in others {
            let left = block.copies.iter().filter(|copy| counts(copy)).count();
            let stand_ins =
                block.in_sync().filter(|other| counts(other) && other.pserver != copy.pserver).count();
            let is_surplus = is_leaving(&copy) || left > wanted;
            if is_surplus && (stand_ins >= wanted || (copy.mark == Mark::Filling && !is_leaving(&copy))) {
                block.remove(copy.pserver);
            }
        }
    }
}

/// Adds copies where fewer than wanted are, as many as may travel at a time.
pub(super) fn add_missing(next: &mut Document, seen: &Seen<'_>, version: u64) {
    let wanted = wanted(next, seen);
    let hosts: Vec<Incarnation> =
        seen.hosts.keys().copied().filter(|who| !next.leaving.contains(who)).collect();
    if wanted == 1 || hosts.is_empty() {
        return;
    }
    let index = |who: Incarnation| hosts.binary_search(&who).ok().map(|at| at as u32);
    // A copy on its way to become the primary counts: it stands in for the one that it replaces.
    // Nothing can be copied of a block that waits to be restored.
    let holders = |block: &PlacedBlock| match seen.hosts.contains_key(&block.primary) {
        true => block.copies.iter().filter_map(|copy| index(copy.pserver)).collect(),
        false => Vec::new(),
    };
    let holders: Vec<Vec<u32>> = next.blocks.iter().map(holders).collect();
    let mut filling = filling_bytes(next, seen);
    for (at, host) in place_copies(seen.sizes, &holders, hosts.len() as u32, wanted) {
        let to = hosts[host as usize];
        let on_the_way = filling.entry(to).or_default();
        if *on_the_way == 0 || *on_the_way + seen.sizes[at] <= FILLING_BYTES_MAX {
            *on_the_way += seen.sizes[at];
            next.blocks[at].add(to, version);
        }
    }
}

/// Bytes on their way to each pserver.
pub(super) fn filling_bytes(next: &Document, seen: &Seen<'_>) -> BTreeMap<Incarnation, u64> {
    let mut filling: BTreeMap<Incarnation, u64> = BTreeMap::new();
    for (block, size) in next.blocks.iter().zip(seen.sizes) {
        for copy in block.copies.iter().filter(|copy| copy.mark == Mark::Filling) {
            *filling.entry(copy.pserver).or_default() += size;
        }
    }
    filling
}
