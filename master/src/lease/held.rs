//! The leases of one step, found by place, by slot and by age: none of these walks over the others. Pure.

use super::Progress;
use crate::free_nodes::FreeNodes;
use shoal_runtime::cluster::tree::aligned;
use shoal_runtime::cluster::{Incarnation, LeaseId, Node};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

/// One lease.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) id: LeaseId,
    pub(super) node: Node,
    pub(super) trainer: Incarnation,
    pub(super) microbatches: u32,
    pub(super) pushed: bool,
    /// Its trainer said last that pservers have yet to find room for it.
    pub(super) waits: bool,
    pub(super) renewed: Duration,
    /// How many of its halves were given to others as well.
    pub(super) speculated: u8,
}

impl Lease {
    /// Whether its trainer said that it is pushed or waits for room: nobody can help it then.
    fn is_computed(&self) -> bool {
        self.pushed || self.waits
    }

    /// Whether nothing of it is left to compute.
    pub(super) fn is_over(&self) -> bool {
        self.is_computed() || self.microbatches >= self.node.width()
    }
}

/// Where a lease is among those of its step. Once it has ended, others may be there; they have other numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeasePlace {
    at: u32,
    pub(super) id: LeaseId,
}

/// All leases of one step.
#[derive(Debug)]
pub(super) struct HeldLeases {
    places: LeasePlaces,
    /// How many leases hold each present slot: speculation leases slots twice.
    holders: Vec<u32>,
    /// By when they were last renewed, those that are computed as far as is known apart.
    waiting: Ages,
    computed: Ages,
}

/// A lease keeps its place until it ends: as many places as there have been leases at one time.
#[derive(Debug, Default)]
struct LeasePlaces {
    all: Vec<Option<Lease>>,
    vacant: Vec<u32>,
}

/// Leases in the order in which they were renewed. An entry of a lease that has ended, was renewed since or is of the other
/// kind now counts no more; the first one counts always.
#[derive(Debug, Default)]
struct Ages(VecDeque<(Duration, LeasePlace)>);

impl HeldLeases {
    /// None, of a step of so many present slots.
    pub(super) fn new(present: u32) -> HeldLeases {
        HeldLeases {
            places: LeasePlaces::default(),
            holders: vec![0; present as usize],
            waiting: Ages::default(),
            computed: Ages::default(),
        }
    }

    /// Adds one.
    pub(super) fn insert(&mut self, lease: Lease) -> LeasePlace {
        let slots = self.slots(lease.node);
        self.holders[slots].iter_mut().for_each(|holders| *holders += 1);
        let (renewed, is_computed) = (lease.renewed, lease.is_computed());
        let place = self.places.insert(lease);
        self.ages(is_computed).0.push_back((renewed, place));
        place
    }

    /// Takes one out.
    pub(super) fn remove(&mut self, place: LeasePlace) -> Option<Lease> {
        let lease = self.places.remove(place)?;
        let slots = self.slots(lease.node);
        self.holders[slots].iter_mut().for_each(|holders| *holders -= 1);
        self.tidy();
        Some(lease)
    }

    /// How far its trainer is with one; what it has said before changes nothing, but that it waits renews it each time. Returns
    /// how many more it has computed.
    pub(super) fn progress(&mut self, place: LeasePlace, word: Progress, now: Duration) -> u32 {
        let Some(lease) = self.places.get_mut(place) else { return 0 };
        let more = word.microbatches.saturating_sub(lease.microbatches);
        let waits = word.waits && !lease.pushed && !word.pushed;
        let is_renewed = more > 0 || (word.pushed && !lease.pushed) || waits || lease.waits;
        lease.microbatches = lease.microbatches.max(word.microbatches);
        lease.pushed |= word.pushed;
        lease.waits = waits;
        if is_renewed {
            lease.renewed = now;
            let is_computed = lease.is_computed();
            self.ages(is_computed).0.push_back((now, place));
            self.tidy();
        }
        more
    }

    /// Its trainer got on with what it does before this one.
    pub(super) fn renew(&mut self, place: LeasePlace, now: Duration) {
        let Some(lease) = self.places.get_mut(place).filter(|lease| !lease.is_computed()) else { return };
        lease.renewed = now;
        self.waiting.0.push_back((now, place));
        self.tidy();
    }

    /// One of them.
    pub(super) fn get(&self, place: LeasePlace) -> Option<&Lease> {
        self.places.get(place)
    }
    /// All of them, and whether another has some of it too.
    pub(super) fn into_all(self) -> impl Iterator<Item = (Lease, bool)> {
        let holders = self.holders;
        self.places.all.into_iter().flatten().map(move |lease| {
            let slots = slots(lease.node, holders.len());
            let is_shared = holders[slots].iter().any(|holders| *holders > 1);
            (lease, is_shared)
        })
    }
    /// Returns all leases of the step.
    pub(super) fn all(&self) -> impl Iterator<Item = &Lease> {
        self.places.all.iter().flatten()
    }

    /// When the one that was renewed longest ago was.
    pub(super) fn oldest(&self) -> Option<Duration> {
        [&self.waiting, &self.computed].into_iter().filter_map(|ages| ages.0.front()).map(|(at, _)| *at).min()
    }
    /// Those that were last renewed at `until` or before.
    pub(super) fn renewed_until(&self, until: Duration) -> Vec<LeasePlace> {
        let old =
            [(&self.waiting, false), (&self.computed, true)].into_iter().flat_map(|(ages, is_computed)| {
                let present = ages.0.iter().take_while(|(at, _)| *at <= until);
                present.filter(move |entry| self.places.count(is_computed, entry)).map(|(_, place)| *place)
            });
        old.collect()
    }
    /// Those that are not computed as far as is known, the one that was renewed longest ago first.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (LeasePlace, &Lease)> {
        let present = self.waiting.0.iter().filter(|entry| self.places.count(false, entry));
        present.filter_map(|(_, place)| Some((*place, self.get(*place)?)))
    }
    /// So many halves of one were given to others as well.
    pub(super) fn speculated(&mut self, place: LeasePlace, halves: u8) {
        if let Some(lease) = self.places.get_mut(place) {
            lease.speculated = halves;
        }
    }

    /// How many leases hold the slot of `node` that most hold.
    pub(super) fn holders(&self, node: Node) -> u32 {
        self.holders[self.slots(node)].iter().copied().max().unwrap_or(0)
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
        slots(node, self.holders.len())
    }

    fn ages(&mut self, is_computed: bool) -> &mut Ages {
        if is_computed { &mut self.computed } else { &mut self.waiting }
    }

    /// The first of each age counts, and no more than about half of the entries do not.
    fn tidy(&mut self) {
        for (ages, is_computed) in [(&mut self.waiting, false), (&mut self.computed, true)] {
            while ages.0.pop_front_if(|entry| !self.places.count(is_computed, entry)).is_some() {}
            if ages.0.len() > 2 * self.places.len() + 16 {
                ages.0.retain(|entry| self.places.count(is_computed, entry));
            }
        }
    }
}

/// Those of a node that are present.
fn slots(node: Node, present: usize) -> Range<usize> {
    (node.first() as usize).min(present)..(node.end() as usize).min(present)
}

impl LeasePlaces {
    fn insert(&mut self, lease: Lease) -> LeasePlace {
        let id = lease.id;
        if let Some(at) = self.vacant.pop() {
            self.all[at as usize] = Some(lease);
            return LeasePlace { at, id };
        }
        self.all.push(Some(lease));
        LeasePlace { at: self.all.len() as u32 - 1, id }
    }

    fn remove(&mut self, place: LeasePlace) -> Option<Lease> {
        let lease = self.all.get_mut(place.at as usize)?.take_if(|lease| lease.id == place.id)?;
        self.vacant.push(place.at);
        Some(lease)
    }

    fn get(&self, place: LeasePlace) -> Option<&Lease> {
        self.all.get(place.at as usize)?.as_ref().filter(|lease| lease.id == place.id)
    }
    fn get_mut(&mut self, place: LeasePlace) -> Option<&mut Lease> {
        self.all.get_mut(place.at as usize)?.as_mut().filter(|lease| lease.id == place.id)
    }
    fn len(&self) -> usize {
        self.all.len() - self.vacant.len()
    }

    /// Whether an entry of those ages is of a lease as it is now.
    fn count(&self, is_computed: bool, (at, place): &(Duration, LeasePlace)) -> bool {
        self.get(*place).is_some_and(|lease| (lease.renewed, lease.is_computed()) == (*at, is_computed))
    }
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
        Progress { which: usize, microbatches: u32, pushed: bool, waits: bool },
        Renew { which: usize },
    }

    fn call() -> impl Strategy<Value = Call> {
        prop_oneof![
            (0..4u64, 0..PRESENT, 0..4u8).prop_map(|(trainer, slot, level)| Call::Insert {
                trainer,
                slot,
                level
            }),
            (0..9usize).prop_map(|which| Call::Remove { which }),
            (0..9usize, 0..4u32, any::<(bool, bool)>()).prop_map(|(which, microbatches, (pushed, waits))| {
                Call::Progress { which, microbatches, pushed, waits }
            }),
            (0..9usize).prop_map(|which| Call::Renew { which }),
        ]
    }

    /// What a walk over all of them would find is what the indexes say.
    fn assert_indexed(held: &HeldLeases, now: Duration) {
        let all: Vec<&Lease> = held.all().collect();
        assert_eq!(held.oldest(), all.iter().map(|lease| lease.renewed).min());
        for until in (0..=now.as_secs()).map(Duration::from_secs) {
            let old = all.iter().filter(|lease| lease.renewed <= until).map(|lease| lease.id);
            let found: BTreeSet<LeaseId> = held.renewed_until(until).iter().map(|place| place.id).collect();
            assert_eq!(found, old.collect());
        }
        let waiting: Vec<(Duration, LeaseId)> =
            held.waiting().map(|(place, lease)| (lease.renewed, place.id)).collect();
        assert!(waiting.is_sorted_by_key(|(renewed, _)| *renewed));
        let uncomputed = all.iter().filter(|lease| !lease.pushed && !lease.waits).map(|lease| lease.id);
        assert_eq!(waiting.iter().map(|(_, id)| *id).collect::<BTreeSet<_>>(), uncomputed.collect());
        let entries = held.waiting.0.len() + held.computed.0.len();
        assert!(entries <= 2 * (2 * all.len() + 16), "{entries} entries of {} leases", all.len());
        let mut free = FreeNodes::new(PRESENT, []);
        held.release(Node { level: 4, index: 0 }, &mut free);
        let is_held = |slot: &u32| all.iter().any(|lease| lease.node.covers(Node::leaf(*slot)));
        let unheld: Vec<u32> = (0..PRESENT).filter(|slot| !is_held(slot)).collect();
        assert_eq!(free.iter().flat_map(|node| node.first()..node.end()).collect::<Vec<_>>(), unheld);
    }

    proptest! {
        #[test]
        fn whatever_happens_the_indexes_say_what_a_walk_would_find(calls in prop::collection::vec(call(), 0..120)) {
            let mut held = HeldLeases::new(PRESENT);
            let (mut present, mut most) = (Vec::new(), 0);
            // Of one that has ended: nothing is found there, whoever has come to its place.
            let mut ended = LeasePlace { at: 0, id: LeaseId(u64::MAX) };
            for (number, call) in calls.into_iter().enumerate() {
                let (id, now) = (LeaseId(number as u64), Duration::from_secs(number as u64 / 3));
                match call {
                    Call::Insert { trainer, slot, level } => {
                        let (node, trainer) = (Node { level, index: slot >> level }, Incarnation(trainer));
                        let lease = Lease {
                            id, node, trainer, microbatches: 0, pushed: false, waits: false, renewed: now, speculated: 0,
                        };
                        present.push(held.insert(lease));
                    }
                    Call::Remove { which } => {
                        let place = present.get(which).copied().unwrap_or(ended);
                        prop_assert_eq!(held.remove(place).map(|lease| lease.id), present.get(which).map(|place| place.id));
                        present.retain(|held| *held != place);
                        ended = place;
                    }
                    Call::Progress { which, microbatches, pushed, waits } => {
                        let place = present.get(which).copied().unwrap_or(ended);
                        let was_pushed = held.get(place).is_some_and(|lease| lease.pushed);
                        held.progress(place, Progress { lease: id, microbatches, pushed, waits }, now);
                        if let Some(lease) = held.get(place) {
                            prop_assert_eq!(lease.pushed, pushed || was_pushed);
                            prop_assert_eq!(lease.waits, waits && !lease.pushed);
                            prop_assert!(!lease.waits || lease.renewed == now, "whoever waits is not late");
                        }
                    }
                    Call::Renew { which } => {
                        let place = present.get(which).copied().unwrap_or(ended);
                        held.renew(place, now);
                        let lease = held.get(place);
                        prop_assert!(lease.is_none_or(|lease| lease.is_computed() || lease.renewed == now));
                    }
                }
                most = most.max(present.len());
                prop_assert_eq!(held.places.all.len(), most, "places are used again");
                prop_assert!(held.get(ended).is_none());
                prop_assert!(present.iter().all(|place| held.get(*place).is_some_and(|lease| lease.id == place.id)));
                prop_assert_eq!(held.all().count(), present.len());
                assert_indexed(&held, now);
            }
        }
    }
}
