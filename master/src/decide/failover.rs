//! First placement, promotion, restores.

use super::Seen;
use crate::document::{Document, PlacedBlock, PlacedCopy};
use crate::placement;
use crate::rebalance::rebalance;
use shoal_runtime::cluster::{BlockId, Incarnation, RewindCause};
use std::collections::BTreeSet;

/// Places the blocks once the wanted pservers are there.
pub(super) fn place(next: &mut Document, seen: &Seen<'_>, version: u64) {
    if (seen.hosts.len() as u32) < next.wanted.pservers.max(1) {
        return;
    }
    // In name order, so that placement does not depend on who was faster.
    let mut hosts: Vec<(&str, Incarnation)> =
        seen.hosts.iter().map(|(who, host)| (host.name.as_str(), *who)).collect();
    hosts.sort_unstable();
    let placed = placement::place(seen.sizes, hosts.len() as u32);
    // A job that plays another's steps again has that one's checkpoint before it has any block.
    let origin = next.newest().map(|kept| kept.record);
    let restored =
        |host: u32| PlacedBlock { origin, ..PlacedBlock::restored(hosts[host as usize].1, version) };
    next.blocks = placed.into_iter().map(restored).collect();
}

/// Copies on pservers that are gone are gone. Blocks whose primary was there are led by another copy, or restored; and
/// so are those that were to begin from an `unreadable` checkpoint.
pub(super) fn forget_the_lost(
    next: &mut Document,
    unreadable: BTreeSet<BlockId>,
    seen: &Seen<'_>,
    version: u64,
) {
    let is_live = |pserver: Incarnation| seen.hosts.contains_key(&pserver);
    next.leaving.retain(|pserver| is_live(*pserver));
    next.replacing.retain(|pserver| is_live(*pserver));
    // Nobody has to come before these can be restored.
    let is_urgent = !unreadable.is_empty();
    let (mut homeless, mut cause) = (unreadable, RewindCause::CheckpointDamaged);
    for at in 0..next.blocks.len() {
        let id = BlockId(at as u32);
        if !is_live(next.blocks[at].primary) {
            match furthest(&next.blocks[at], id, next, seen) {
                Some(heir) => next.blocks[at].promote(heir, version),
                None => {
                    homeless.insert(id);
                    cause = RewindCause::PserverLost;
                    continue;
                }
            }
        }
        let block = &mut next.blocks[at];
        block.copies.retain(|copy| is_live(copy.pserver));
        block.heir = block.heir.filter(|heir| is_live(*heir));
    }
    let is_enough = is_urgent || seen.hosts.len() as u32 >= next.wanted.pservers || seen.is_patience_over;
    if !homeless.is_empty() && !seen.hosts.is_empty() && is_enough {
        restore(next, &homeless, seen, version, cause);
    }
}

/// The live in-sync copy that has said to be furthest; of equals one that is not leaving.
fn furthest(block: &PlacedBlock, id: BlockId, next: &Document, seen: &Seen<'_>) -> Option<Incarnation> {
    let live = block.in_sync().filter(|copy| seen.hosts.contains_key(&copy.pserver));
    let said = |copy: &&PlacedCopy| {
        let word = seen.copies.get(&(id, copy.pserver)).filter(|word| word.fill == copy.fill);
        (word.and_then(|word| word.name), !next.leaving.contains(&copy.pserver))
    };
    live.max_by_key(said).map(|copy| copy.pserver)
}

/// Begins a new history: of the homeless blocks alone, or in synchronous jobs of all.
pub(super) fn restore(
    next: &mut Document,
    homeless: &BTreeSet<BlockId>,
    seen: &Seen<'_>,
    version: u64,
    cause: RewindCause,
) {
    let hosts: Vec<Incarnation> =
        seen.hosts.keys().copied().filter(|who| !next.leaving.contains(who)).collect();
    let hosts = if hosts.is_empty() { seen.hosts.keys().copied().collect() } else { hosts };
    let present: Vec<Option<u32>> = next
        .blocks
        .iter()
        .map(|block| hosts.binary_search(&block.primary).ok().map(|at| at as u32))
        .collect();
    let targets = rebalance(seen.sizes, &present, hosts.len() as u32);
    let is_sync = next.job.is_sync();
    let origin = next.newest().map(|kept| kept.record);
    next.rewinds += 1;
    *next.rewind_causes.entry(cause).or_default() += 1;
    for (at, target) in targets.into_iter().enumerate() {
        if is_sync || homeless.contains(&BlockId(at as u32)) {
            // Those that are still at home stay: moving them can wait until they are level.
            let home = present[at].unwrap_or(target);
            next.blocks[at] = PlacedBlock { origin, ..PlacedBlock::restored(hosts[home as usize], version) };
            next.moves.remove(&BlockId(at as u32));
        }
    }
}
