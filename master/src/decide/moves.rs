//! Live movement: a primary goes to another pserver by a follower there that becomes level, is promoted, and has the
//! old copy dropped. Scaling and draining are nothing but moves.

use super::Seen;
use super::copies::filling_bytes;
use crate::document::Document;
use crate::rebalance::drain::drain;
use crate::rebalance::rebalance;
use shoal_runtime::cluster::{BlockId, Incarnation};

/// More pservers than wanted: those that are to be replaced leave, and then those with the least to move. Nobody else is chosen while one
/// may be gone: a master that has just begun counts on pservers that have left meanwhile, and would send away who came in their place.
/// Returns whether as many have been chosen as are too many: before that nobody knows where blocks belong.
pub(super) fn choose_leavers(next: &mut Document, seen: &Seen<'_>) -> bool {
    let wanted = next.wanted.pservers.max(1) as usize;
    let staying: Vec<Incarnation> =
        seen.hosts.keys().copied().filter(|who| !next.leaving.contains(who)).collect();
    let surplus = staying.len().saturating_sub(wanted);
    let (replaced, others): (Vec<Incarnation>, Vec<Incarnation>) =
        staying.into_iter().partition(|who| next.replacing.contains(who));
    let load = |who: &Incarnation| -> u64 {
        let held = next.blocks.iter().zip(seen.sizes).filter(|(block, _)| block.copy_on(*who).is_some());
        held.map(|(_, size)| *size).sum()
    };
    let loads: Vec<u64> = others.iter().map(load).collect();
    let kept = others.len() - surplus.saturating_sub(replaced.len());
    let too_many = if seen.has_suspects { Vec::new() } else { drain(&loads, kept as u32) };
    let leavers: Vec<Incarnation> = replaced
        .iter()
        .copied()
        .chain(too_many.into_iter().map(|at| others[at as usize]))
        .take(surplus)
        .collect();
    let are_all_chosen = leavers.len() == surplus;
    next.replacing.retain(|who| !leavers.contains(who));
    next.leaving.extend(leavers);
    are_all_chosen
}

/// A move whose target is level waits for the primary to hand over; one that it has handed over is done. Moves to a
/// pserver that is gone or leaving are given up.
pub(super) fn finish(next: &mut Document, seen: &Seen<'_>) {
    for (id, target) in next.moves.clone() {
        let Some(block) = next.blocks.get_mut(id.0 as usize) else { continue };
        let is_possible = seen.hosts.contains_key(&target) && !next.leaving.contains(&target);
        if block.primary == target || !is_possible {
            block.heir = None;
            next.moves.remove(&id);
        } else if block.in_sync().any(|copy| copy.pserver == target) {
            block.heir = Some(target);
        }
    }
}

/// Where there are no moves, those are chosen that the present hosts call for.
pub(super) fn choose(next: &mut Document, seen: &Seen<'_>) {
    let hosts: Vec<Incarnation> =
        seen.hosts.keys().copied().filter(|who| !next.leaving.contains(who)).collect();
    let is_led = next.blocks.iter().all(|block| seen.hosts.contains_key(&block.primary));
    if !next.moves.is_empty() || hosts.is_empty() || !is_led {
        return;
    }
    let present: Vec<Option<u32>> = next
        .blocks
        .iter()
        .map(|block| hosts.binary_search(&block.primary).ok().map(|at| at as u32))
        .collect();
    let targets = rebalance(seen.sizes, &present, hosts.len() as u32);
    for (at, (target, now)) in targets.into_iter().zip(present).enumerate() {
        if now != Some(target) {
            next.moves.insert(BlockId(at as u32), hosts[target as usize]);
        }
    }
}

/// Adds the followers that moves need, as many as may travel at a time.
pub(super) fn begin(next: &mut Document, seen: &Seen<'_>, version: u64) {
    let mut filling = filling_bytes(next, seen);
    for (id, target) in &next.moves {
        let Some(block) = next.blocks.get_mut(id.0 as usize) else { continue };
        let size = seen.sizes.get(id.0 as usize).copied().unwrap_or(0);
        let on_the_way = filling.entry(*target).or_default();
        let has_room = *on_the_way == 0 || *on_the_way + size <= super::copies::FILLING_BYTES_MAX;
        if block.copy_on(*target).is_none() && has_room {
            *on_the_way += size;
            block.add(*target, version);
        }
    }
}
