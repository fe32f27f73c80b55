//! Decisions over random sights: they come to rest, and break none of the rules.

use super::*;
use crate::document::{PlacedBlock, Wanted};
use proptest::prelude::*;
use shoal_runtime::cluster::{JobId, JobSettings, Mode, Precision, Version};
use std::cell::RefCell;

fn job(is_sync: bool) -> JobSettings {
    let mode = match is_sync {
        true => Mode::SYNC,
        false => Mode::Async { staleness_window: 4, scale_by_staleness: false },
    };
    JobSettings {
        job: JobId("test".into()),
        seed: 1,
        epochs: 1,
        microbatch_records: 1,
        microbatches_per_step: 4,
        shuffle_run: 1,
        records: 100,
        manifest_fingerprint: [0; 32],
        lease_ttl_millis: 1000,
        mode,
        gradients: Precision::F32,
        warm_start: None,
        evaluated: None,
    }
}

/// A job and its pservers, moved by hand.
#[derive(Debug)]
pub(super) struct World {
    pub(super) document: Document,
    pub(super) wishes: Wishes,
    hosts: BTreeMap<Incarnation, PserverAt>,
    copies: BTreeMap<(BlockId, Incarnation), CopyWord>,
    admissions: Vec<Admission>,
    pub(super) damages: Vec<Damage>,
    pub(super) complaints: Vec<Complaint>,
    pub(super) sums: Sums,
    pub(super) front: Option<Version>,
    sizes: Vec<u64>,
    is_patience_over: bool,
    born: u64,
    log: RefCell<Vec<String>>,
}

impl World {
    pub(super) fn new(is_sync: bool, blocks: usize, pservers: u32, replicas: u32) -> World {
        let wanted = Wanted { pservers, trainers: 1, replicas, exclude_max: 0 };
        let mut world = World {
            document: Document::new(job(is_sync), wanted),
            wishes: Wishes {
                environment: None,
                declaration: Some(Declaration::default()),
                wanted,
                checks: Checks::usual(&job(is_sync)),
                told: None,
                leaving: BTreeSet::new(),
                replacing: BTreeSet::new(),
                committed: None,
                keep_last: 2,
                base: None,
                is_checkpoint_due: false,
                end: None,
                failures: 0,
            },
            hosts: BTreeMap::new(),
            copies: BTreeMap::new(),
            admissions: Vec::new(),
            damages: Vec::new(),
            complaints: Vec::new(),
            sums: Sums::new(),
            front: None,
            sizes: (0..blocks).map(|block| 4 + block as u64 % 3).collect(),
            is_patience_over: false,
            born: 0,
            log: RefCell::default(),
        };
        (0..pservers).for_each(|_| world.join());
        world
    }

    fn join(&mut self) {
        self.born += 1;
        let name = format!("pserver-{}", self.born);
        self.hosts.insert(Incarnation(self.born), PserverAt { name: name.clone(), address: name });
    }

    /// Decides until there is nothing left to decide; says how often.
    pub(super) fn settle(&mut self) -> usize {
        for round in 0..200 {
            let seen = Seen {
                hosts: &self.hosts,
                has_suspects: false,
                copies: &self.copies,
                admissions: &self.admissions,
                damages: &self.damages,
                complaints: &self.complaints,
                able_trainers: 1,
                sizes: &self.sizes,
                sums: &self.sums,
                front: self.front,
                is_abandoned: false,
                is_patience_over: self.is_patience_over,
            };
            let Some(next) = next(&self.document, &self.wishes, &seen) else { return round };
            let copies = |block: &PlacedBlock| {
                let copies = block.copies.iter().map(|copy| (copy.pserver.0, copy.fill.0, copy.mark));
                copies.collect::<Vec<_>>()
            };
            let blocks: Vec<_> = next.blocks.iter().map(copies).collect();
            self.log
                .borrow_mut()
                .push(format!("{blocks:?} moves {:?} leaving {:?}", next.moves, next.leaving));
            assert!(next.routing_version > self.document.routing_version);
            self.check(&next);
            self.document = next;
            self.admissions.clear();
            self.damages.clear();
            self.complaints.clear();
        }
        let log = self.log.borrow();
        panic!("never comes to rest: {:#?}", &log[log.len() - 4..]);
    }

    /// What may not happen from one document to the next.
    fn check(&self, next: &Document) {
        for (before, after) in self.document.blocks.iter().zip(&next.blocks) {
            let is_restored = after.rewind > before.rewind;
            if is_restored {
                assert_eq!(after.term.0, after.rewind.0);
                assert_eq!(after.copies.iter().filter(|copy| copy.mark == Mark::InSync).count(), 1);
                continue;
            }
            if after.primary != before.primary {
                let heir = before.copy_on(after.primary).expect("promoted from nowhere");
                assert_eq!(heir.mark, Mark::InSync, "a filling copy was promoted");
                assert!(after.term > before.term);
            } else {
                assert_eq!(after.term, before.term);
            }
            for copy in after.in_sync() {
                let known = before.copy_on(copy.pserver).expect("in-sync from the first");
                assert_eq!(known.fill, copy.fill);
                let asked = |asked: &Admission| (asked.pserver, asked.fill) == (copy.pserver, copy.fill);
                assert!(known.mark == Mark::InSync || self.admissions.iter().any(asked));
            }
        }
        let is_one_history = next.blocks.windows(2).all(|pair| pair[0].rewind == pair[1].rewind);
        assert!(is_one_history || !next.job.is_sync(), "blocks of a synchronous job went back apart");
    }

    /// Filling copies become level and are asked for; heirs are handed over to.
    fn fill(&mut self) {
        for (at, block) in self.document.blocks.iter().enumerate() {
            for copy in block.copies.iter().filter(|copy| copy.pserver != block.primary) {
                let asked = |is_heir| Admission {
                    block: BlockId(at as u32),
                    pserver: copy.pserver,
                    fill: copy.fill,
                    term: block.term,
                    primary: block.primary,
                    is_heir,
                };
                if copy.mark == Mark::Filling {
                    self.admissions.push(asked(false));
                } else if block.heir == Some(copy.pserver) {
                    self.admissions.push(asked(true));
                }
            }
        }
    }

    /// Lets everything become level until nothing moves any more.
    pub(super) fn rest(&mut self) {
        for _ in 0..100 {
            self.settle();
            self.fill();
            if self.admissions.is_empty() {
                return;
            }
        }
        panic!("never at rest");
    }

    fn wish(&mut self, pservers: u32, replicas: u32) {
        (self.wishes.wanted.pservers, self.wishes.wanted.replicas) = (pservers, replicas);
    }

    fn staying(&self) -> Vec<Incarnation> {
        self.hosts.keys().copied().filter(|host| !self.document.leaving.contains(host)).collect()
    }
}

#[derive(Clone, Debug)]
enum Event {
    Join,
    Lose(usize),
    Scale(u32, u32),
    Leave(usize),
    Break(usize),
    Fill,
    Settle,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        Just(Event::Join),
        (0usize..5).prop_map(Event::Lose),
        (1u32..5, 0u32..3).prop_map(|(pservers, replicas)| Event::Scale(pservers, replicas)),
        (0usize..5).prop_map(Event::Leave),
        (0usize..20).prop_map(Event::Break),
        Just(Event::Fill),
        Just(Event::Settle),
    ];
    proptest::collection::vec(event, 0..25)
}

impl World {
    fn happen(&mut self, event: Event) {
        match event {
            Event::Join => self.join(),
            Event::Lose(which) => {
                let host = self.hosts.keys().nth(which % self.hosts.len().max(1)).copied();
                host.map(|host| self.hosts.remove(&host));
            }
            Event::Scale(pservers, replicas) => self.wish(pservers, replicas),
            Event::Leave(which) => {
                self.wishes.leaving.extend(self.hosts.keys().nth(which).copied());
            }
            Event::Break(which) => {
                let copies = self.document.blocks.iter().enumerate().flat_map(|(at, block)| {
                    let others = block.copies.iter().filter(|copy| copy.pserver != block.primary);
                    others.map(move |copy| (BlockId(at as u32), *copy))
                });
                if let Some((block, copy)) = copies.clone().nth(which % copies.count().max(1)) {
                    let word = CopyWord { fill: copy.fill, name: None, is_broken: true };
                    self.copies.insert((block, copy.pserver), word);
                }
            }
            Event::Fill => self.fill(),
            Event::Settle => {
                self.settle();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn decisions_come_to_rest_with_every_block_led_and_copied_as_wanted(
        is_sync: bool, blocks in 1usize..7, pservers in 1u32..5, replicas in 0u32..3, events in events()
    ) {
        let mut world = World::new(is_sync, blocks, pservers, replicas);
        events.into_iter().for_each(|event| world.happen(event));
        // Healing: what was asked for is decided, somebody lives, and patience with the rest is over.
        world.settle();
        while (world.staying().len() as u32) < world.wishes.wanted.pservers.max(2) {
            world.join();
        }
        world.is_patience_over = true;
        world.rest();
        let staying = world.staying();
        let wanted = (1 + world.wishes.wanted.replicas as usize).min(staying.len());
        for block in &world.document.blocks {
            prop_assert!(staying.contains(&block.primary));
            prop_assert_eq!(block.copies.len(), wanted, "{:?}", world.document);
            prop_assert!(block.copies.iter().all(|copy| copy.mark == Mark::InSync));
        }
        prop_assert_eq!(world.document.blocks.len(), blocks);
        prop_assert!(world.document.moves.is_empty());
    }
}

#[test]
fn an_heir_that_breaks_together_with_another_copy_is_no_heir_any_more() {
    let mut world = World::new(false, 1, 4, 2);
    [Event::Leave(2), Event::Settle, Event::Fill, Event::Settle]
        .into_iter()
        .for_each(|event| world.happen(event));
    let heir = world.document.blocks[0].heir.expect("its primary leaves");
    (0..3).for_each(|which| world.happen(Event::Break(which)));
    world.happen(Event::Settle);
    let block = &world.document.blocks[0];
    assert_eq!((block.heir, block.copy_on(heir).map(|copy| copy.mark)), (None, Some(Mark::Filling)));
}

#[test]
fn the_furthest_in_sync_copy_is_promoted_and_a_filling_one_never() {
    let mut world = World::new(true, 1, 3, 2);
    world.rest();
    let primary = world.document.blocks[0].primary;
    let others: Vec<_> = world.document.blocks[0].copies[1..].to_vec();
    let name = |version| Some(StateName { term: world.document.blocks[0].term, version: Version(version) });
    for (copy, version) in others.iter().zip([4, 5]) {
        let word = CopyWord { fill: copy.fill, name: name(version), is_broken: false };
        world.copies.insert((BlockId(0), copy.pserver), word);
    }
    world.hosts.remove(&primary);
    world.settle();
    assert_eq!(world.document.blocks[0].primary, others[1].pserver);
}

#[test]
fn an_admission_counts_only_with_its_fill_its_term_and_its_primary() {
    let mut world = World::new(true, 1, 2, 1);
    world.settle();
    let block: PlacedBlock = world.document.blocks[0].clone();
    let copy = block.copies[1];
    let right = Admission {
        block: BlockId(0),
        pserver: copy.pserver,
        fill: copy.fill,
        term: block.term,
        primary: block.primary,
        is_heir: false,
    };
    let wrong = [
        Admission { fill: Fill(copy.fill.0 - 1), ..right },
        Admission { term: Term(block.term.0 - 1), ..right },
        Admission { primary: copy.pserver, ..right },
        Admission { block: BlockId(7), ..right },
        Admission { is_heir: true, ..right },
    ];
    for admission in wrong {
        world.admissions.push(admission);
        world.settle();
        assert_eq!(world.document.blocks[0], block, "{admission:?}");
        world.admissions.clear();
    }
    world.admissions.push(right);
    world.settle();
    assert_eq!(world.document.blocks[0].copies[1].mark, Mark::InSync);
}

#[test]
fn a_lost_block_takes_all_of_a_synchronous_job_back_and_one_of_an_asynchronous_job_alone() {
    for is_sync in [true, false] {
        let mut world = World::new(is_sync, 4, 2, 0);
        world.rest();
        let lost = world.document.blocks[0].primary;
        world.hosts.remove(&lost);
        world.settle();
        assert_eq!(world.document.blocks[0].primary, lost, "a replacement is waited for at first");
        world.is_patience_over = true;
        world.settle();
        let gone_back = world.document.blocks.iter().filter(|block| block.rewind.0 > 1).count();
        assert_eq!(gone_back, if is_sync { 4 } else { 2 });
    }
}
