//! The leases of one step, found by number, by slot and by age: none of these walks over the others. Pure.

use crate::free_nodes::FreeNodes;
use shoal_runtime::cluster::tree::aligned;
use shoal_runtime::cluster::{Incarnation, LeaseId, Node};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

/// One lease.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) node: Node,
    pub(super) trainer: Incarnation,
    pub(super) microbatches: u32,
    pub(super) pushed: bool,
    pub(super) renewed: Duration,
    /// How many of its halves were given to others as well.
    pub(super) speculated: u8,
}

/// All leases of one step.
#[derive(Debug)]
pub(super) struct HeldLeases {
    by_id: BTreeMap<LeaseId, Lease>,
    /// How many leases hold each present slot: speculation leases slots twice.
    holders: Vec<u32>,
    /// By when they were last renewed, those that are pushed apart.
    waiting: Ages,
    pushed: Ages,
}

/// Leases in the order in which they were renewed. An entry of a lease that has ended, was renewed since or is of the other
/// kind now counts no more; the first one counts always.
#[derive(Debug, Default)]
struct Ages(VecDeque<(Duration, LeaseId)>);

impl HeldLeases {
    /// None, of a step of so many present slots.
    pub(super) fn new(present: u32) -> HeldLeases {
        HeldLeases {
            by_id: BTreeMap::new(),
            holders: vec![0; present as usize],
            waiting: Ages::default(),
            pushed: Ages::default(),
        }
    }

    /// Adds one.
    pub(super) fn insert(&mut self, id: LeaseId, lease: Lease) {
        let slots = self.slots(lease.node);
        self.holders[slots].iter_mut().for_each(|holders| *holders += 1);
        self.ages(lease.pushed).0.push_back((lease.renewed, id));
        self.by_id.insert(id, lease);
    }

    /// Takes one out.
    pub(super) fn remove(&mut self, id: LeaseId) -> Option<Lease> {
        let lease = self.by_id.remove(&id)?;
        let slots = self.slots(lease.node);
        self.holders[slots].iter_mut().for_each(|holders| *holders -= 1);
        self.tidy();
        Some(lease)
    }

    /// How far a trainer is with one; what it has said before, and of others' leases, changes nothing. Whether it is here.
    pub(super) fn progress(
        &mut self,
        id: LeaseId,
        trainer: Incarnation,
        microbatches: u32,
        pushed: bool,
        now: Duration,
    ) -> bool {
        let Some(lease) = self.by_id.get_mut(&id) else { return false };
        if lease.trainer != trainer {
            return true;
        }
        let is_more = microbatches > lease.microbatches || (pushed && !lease.pushed);
        lease.microbatches = lease.microbatches.max(microbatches);
        lease.pushed |= pushed;
        if is_more {
            lease.renewed = now;
            let pushed = lease.pushed;
            self.ages(pushed).0.push_back((now, id));
            self.tidy();
        }
        true
    }

    /// One of them.
    pub(super) fn get(&self, id: LeaseId) -> Option<&Lease> {
        self.by_id.get(&id)
    }
    #[cfg(test)]
    pub(super) fn all(&self) -> impl Iterator<Item = &Lease> {
        self.by_id.values()
    }

    /// When the one that was renewed longest ago was.
    pub(super) fn oldest(&self) -> Option<Duration> {
        [&self.waiting, &self.pushed].into_iter().filter_map(|ages| ages.0.front()).map(|(at, _)| *at).min()
    }
    /// Those that were last renewed at `until` or before.
    pub(super) fn renewed_until(&self, until: Duration) -> Vec<LeaseId> {
        let old = [(&self.waiting, false), (&self.pushed, true)].into_iter().flat_map(|(ages, pushed)| {
            let present = ages.0.iter().take_while(|(at, _)| *at <= until);
            present.filter(move |entry| counts(&self.by_id, pushed, entry)).map(|(_, id)| *id)
        });
        old.collect()
    }
    /// Those that are not pushed, the one that was renewed longest ago first.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (LeaseId, &Lease)> {
        let present = self.waiting.0.iter().filter(|entry| counts(&self.by_id, false, entry));
        present.filter_map(|(_, id)| Some((*id, self.by_id.get(id)?)))
    }
    /// So many halves of one were given to others as well.
    pub(super) fn speculated(&mut self, id: LeaseId, halves: u8) {
        if let Some(lease) = self.by_id.get_mut(&id) {
            lease.speculated = halves;
        }
    }

    /// Makes free what of `node` no lease holds.
    pub(super) fn release(&self, node: Node, free: &mut FreeNodes) {
        let (mut nodes, slots) = (Vec::new(), self.slots(node));
        let mut first = slots.start;
        for run in self.holders[slots].chunk_by(|left, right| (*left == 0) == (*right == 0)) {
            if run[0] == 0 {
                aligned(first as u32, (first + run.len()) as u32, &mut nodes);
            }
            first += run.len();
        }
        nodes.into_iter().for_each(|node| free.release(node));
    }

    fn slots(&self, node: Node) -> Range<usize> {
        let present = self.holders.len();
        (node.first() as usize).min(present)..(node.end() as usize).min(present)
    }

    fn ages(&mut self, pushed: bool) -> &mut Ages {
        if pushed { &mut self.pushed } else { &mut self.waiting }
    }

    /// The first of each age counts, and no more than about half of the entries do not.
    fn tidy(&mut self) {
        for (ages, pushed) in [(&mut self.waiting, false), (&mut self.pushed, true)] {
            while ages.0.pop_front_if(|entry| !counts(&self.by_id, pushed, entry)).is_some() {}
            if ages.0.len() > 2 * self.by_id.len() + 16 {
                ages.0.retain(|entry| counts(&self.by_id, pushed, entry));
            }
        }
    }
}

fn counts(leases: &BTreeMap<LeaseId, Lease>, pushed: bool, (at, id): &(Duration, LeaseId)) -> bool {
    leases.get(id).is_some_and(|lease| (lease.renewed, lease.pushed) == (*at, pushed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const PRESENT: u32 = 13;

    #[derive(Clone, Debug)]
    enum Call {
        Insert { trainer: u64, slot: u32, level: u8 },
        Remove { which: usize },
        Progress { which: usize, trainer: u64, microbatches: u32, pushed: bool },
    }

    fn call() -> impl Strategy<Value = Call> {
        prop_oneof![
            (0..4u64, 0..PRESENT, 0..4u8).prop_map(|(trainer, slot, level)| Call::Insert {
                trainer,
                slot,
                level
            }),
            (0..9usize).prop_map(|which| Call::Remove { which }),
            (0..9usize, 0..4u64, 0..4u32, any::<bool>()).prop_map(
                |(which, trainer, microbatches, pushed)| {
                    Call::Progress { which, trainer, microbatches, pushed }
                }
            ),
        ]
    }

    fn all(held: &HeldLeases) -> Vec<(LeaseId, &Lease)> {
        held.by_id.iter().map(|(id, lease)| (*id, lease)).collect()
    }

    /// What a walk over all of them would find is what the indexes say.
    fn assert_indexed(held: &HeldLeases, now: Duration) {
        let all = all(held);
        assert_eq!(held.oldest(), all.iter().map(|(_, lease)| lease.renewed).min());
        for until in (0..=now.as_secs()).map(Duration::from_secs) {
            let old = all.iter().filter(|(_, lease)| lease.renewed <= until).map(|(id, _)| *id);
            let found: BTreeSet<LeaseId> = held.renewed_until(until).into_iter().collect();
            assert_eq!(found, old.collect());
        }
        let waiting: Vec<(Duration, LeaseId)> =
            held.waiting().map(|(id, lease)| (lease.renewed, id)).collect();
        assert!(waiting.is_sorted_by_key(|(renewed, _)| *renewed));
        let unpushed = all.iter().filter(|(_, lease)| !lease.pushed).map(|(id, _)| *id);
        assert_eq!(waiting.iter().map(|(_, id)| *id).collect::<BTreeSet<_>>(), unpushed.collect());
        let entries = held.waiting.0.len() + held.pushed.0.len();
        assert!(entries <= 2 * (2 * all.len() + 16), "{entries} entries of {} leases", all.len());
        let mut free = FreeNodes::default();
        held.release(Node { level: 4, index: 0 }, &mut free);
        let is_held = |slot: &u32| all.iter().any(|(_, lease)| lease.node.covers(Node::leaf(*slot)));
        let unheld: Vec<u32> = (0..PRESENT).filter(|slot| !is_held(slot)).collect();
        assert_eq!(free.iter().flat_map(|node| node.first()..node.end()).collect::<Vec<_>>(), unheld);
    }

    proptest! {
        #[test]
        fn whatever_happens_the_indexes_say_what_a_walk_would_find(calls in prop::collection::vec(call(), 0..120)) {
            let mut held = HeldLeases::new(PRESENT);
            for (number, call) in calls.into_iter().enumerate() {
                let (id, now) = (LeaseId(number as u64), Duration::from_secs(number as u64 / 3));
                let present: Vec<LeaseId> = all(&held).into_iter().map(|(id, _)| id).collect();
                match call {
                    Call::Insert { trainer, slot, level } => {
                        let (node, trainer) = (Node { level, index: slot >> level }, Incarnation(trainer));
                        let (microbatches, pushed, speculated) = (0, false, 0);
                        held.insert(id, Lease { node, trainer, microbatches, pushed, renewed: now, speculated });
                    }
                    Call::Remove { which } => {
                        let id = present.get(which).copied().unwrap_or(id);
                        prop_assert_eq!(held.remove(id).is_some(), present.contains(&id));
                    }
                    Call::Progress { which, trainer, microbatches, pushed } => {
                        let id = present.get(which).copied().unwrap_or(id);
                        let is_here = held.progress(id, Incarnation(trainer), microbatches, pushed, now);
                        prop_assert_eq!(is_here, present.contains(&id));
                    }
                }
                assert_indexed(&held, now);
            }
        }
    }
}
