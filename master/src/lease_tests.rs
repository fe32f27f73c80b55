//! Tests of the lease machine: each rule by its name, then any interleaving of calls against a model of blocks.

use super::*;
use crate::reports::{BlockProgress, Reports};
use proptest::prelude::*;
use shoal_runtime::cluster::tree::aligned;
use shoal_runtime::cluster::{BlockId, Version};
use std::collections::BTreeSet;

const TTL: Duration = Duration::from_millis(1600);
const A: Incarnation = Incarnation(1);
const B: Incarnation = Incarnation(2);
const C: Incarnation = Incarnation(3);

fn at(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
fn node(level: u8, index: u32) -> Node {
    Node { level, index }
}
fn done(lease: LeaseId, microbatches: u32) -> Progress {
    Progress { lease, microbatches, pushed: false }
}

/// Blocks that hold these slots of every step, and lack all others.
#[derive(Default)]
struct Held(BTreeSet<u32>);
impl Lacking for Held {
    fn lacking(&self, _: Step, node: Node) -> Vec<Node> {
        (node.first()..node.end()).filter(|slot| !self.0.contains(slot)).map(Node::leaf).collect()
    }
}
fn nothing() -> Held {
    Held::default()
}

/// Leases of a job of four steps of eight microbatches.
fn leases() -> Leases {
    Leases::new(EpochShape::new(32, 1, 8), 4, TTL, at(0))
}
fn free(leases: &Leases, step: u64) -> Vec<Node> {
    leases.open.iter().filter(|open| open.step == Step(step)).flat_map(|open| open.free.iter()).collect()
}
/// One task for one of `live` trainers, if there is any.
fn take(leases: &mut Leases, trainer: Incarnation, live: u32, millis: u64) -> Option<Grant> {
    leases.lease(trainer, live, 1, at(millis), &nothing()).first().copied()
}
fn nodes(grants: &[Grant]) -> Vec<(u64, Node)> {
    grants.iter().map(|grant| (grant.step.0, grant.node)).collect()
}

#[test]
fn progress_renews_a_lease_and_heartbeats_without_progress_do_not() {
    let mut leases = leases();
    let lease = take(&mut leases, A, 1, 0).unwrap().lease;
    leases.progress(A, &[done(lease, 1)], at(1000));
    assert_eq!(leases.next_deadline(), Some(at(2600)));
    leases.progress(A, &[done(lease, 1)], at(2000));
    leases.progress(A, &[done(lease, 0)], at(2100));
    leases.progress(B, &[done(lease, 8)], at(2200));
    assert_eq!(
        leases.next_deadline(),
        Some(at(2600)),
        "the same word again is no progress, nor is another's"
    );
    leases.expire(at(2599), &nothing());
    assert_eq!(leases.in_hand(A), 1);
    leases.expire(at(2600), &nothing());
    assert_eq!((leases.in_hand(A), leases.counters().expired), (0, 1));
}

#[test]
fn a_finished_push_renews_once_and_an_expired_lease_is_not_brought_back_by_words() {
    let mut leases = leases();
    let lease = take(&mut leases, A, 1, 0).unwrap().lease;
    let pushed = Progress { lease, microbatches: 8, pushed: true };
    leases.progress(A, &[done(lease, 8)], at(100));
    leases.progress(A, &[pushed], at(200));
    leases.progress(A, &[pushed], at(900));
    assert_eq!((leases.next_deadline(), leases.in_hand(A)), (Some(at(1800)), 0));
    leases.expire(at(1800), &nothing());
    leases.progress(A, &[pushed], at(1801));
    assert_eq!(
        free(&leases, 0),
        [node(3, 0)],
        "a trainer's word is no proof: what blocks lack is free again"
    );
}

#[test]
fn a_trainers_word_alone_never_moves_the_front() {
    let mut leases = leases();
    let lease = take(&mut leases, A, 1, 0).unwrap().lease;
    leases.progress(A, &[Progress { lease, microbatches: 8, pushed: true }], at(1));
    leases.expire(at(5000), &Held((0..8).collect()));
    assert_eq!(leases.front(), Step(0));
    leases.advance(Step(2), at(5001));
    leases.advance(Step(1), at(5002));
    assert_eq!(leases.front(), Step(2), "and it never goes back");
}

#[test]
fn a_hand_back_is_leased_again_at_once() {
    let mut leases = leases();
    assert_eq!(take(&mut leases, A, 2, 0).unwrap().node, node(2, 0));
    assert_eq!(take(&mut leases, B, 2, 0).unwrap().node, node(2, 1));
    leases.hand_back(A, &nothing());
    assert_eq!(take(&mut leases, B, 1, 0).unwrap().node, node(2, 0));
    assert_eq!((leases.counters().handed_back, leases.counters().expired), (1, 0));
}

#[test]
fn what_a_lost_trainer_held_is_leased_again_at_once_in_both_steps() {
    let mut leases = leases();
    let held = nodes(&leases.lease(A, 1, 4, at(0), &nothing()));
    assert_eq!(held, [(0, node(3, 0)), (1, node(3, 0))]);
    leases.lose(A, &nothing());
    assert_eq!(nodes(&leases.lease(B, 1, 4, at(0), &nothing())), held);
    assert_eq!(leases.counters().expired, 2);
}

#[test]
fn a_grant_whose_reply_was_lost_is_free_again_when_its_trainer_does_not_know_it() {
    let mut leases = leases();
    let known = take(&mut leases, A, 2, 0).unwrap();
    let pushed = take(&mut leases, A, 2, 1).unwrap();
    take(&mut leases, B, 2, 2).unwrap();
    leases.progress(A, &[Progress { lease: pushed.lease, microbatches: 4, pushed: true }], at(3));
    leases.forget_unknown(A, &[], &nothing());
    assert!(free(&leases, 0).iter().any(|free| free.covers(known.node)));
    assert_eq!(leases.of(A).count(), 1, "what it has pushed it need not name again");
    assert_eq!(leases.of(B).count(), 1, "another's leases are not its to forget");
}

#[test]
fn expiry_frees_only_what_some_block_lacks() {
    let mut leases = leases();
    take(&mut leases, A, 1, 0);
    leases.expire(TTL, &Held([0, 1, 2, 5].into()));
    assert_eq!(free(&leases, 0), [node(0, 3), node(0, 4), node(1, 3)]);
    assert_eq!(leases.counters().expired, 1);
    take(&mut leases, A, 1, 1700).unwrap();
    leases.expire(TTL + at(1700), &Held((0..8).collect()));
    assert_eq!((leases.of(A).count(), leases.counters().expired), (0, 1), "a finished task did not expire");
}

#[test]
fn a_lease_of_the_step_after_the_front_does_not_expire_before_that_step_is_the_front() {
    let mut leases = leases();
    leases.lease(A, 1, 2, at(0), &nothing());
    leases.expire(at(50_000), &nothing());
    assert_eq!((free(&leases, 0), free(&leases, 1)), (vec![node(3, 0)], vec![]));
    leases.advance(Step(1), at(60_000));
    assert_eq!(leases.next_deadline(), Some(at(61_600)));
    leases.expire(at(61_599), &nothing());
    assert_eq!(free(&leases, 1), []);
    leases.expire(at(61_600), &nothing());
    assert_eq!(free(&leases, 1), [node(3, 0)]);
}

#[test]
fn speculation_gives_the_right_half_then_the_left_each_once_and_only_to_idle_trainers() {
    let mut leases = leases();
    let slow = take(&mut leases, A, 1, 0).unwrap();
    leases.lease(A, 1, 1, at(0), &nothing());
    let patience = 400;
    assert_eq!(take(&mut leases, B, 3, patience - 1), None, "not before the patience is over");
    let right = take(&mut leases, B, 3, patience).unwrap();
    assert_eq!((right.step, right.node), (slow.step, node(2, 1)));
    assert_eq!(take(&mut leases, B, 3, patience), None, "it is not idle now");
    assert_eq!(take(&mut leases, C, 3, patience).unwrap().node, node(2, 0));
    assert_eq!(take(&mut leases, Incarnation(4), 4, patience), None, "each half is given once");
    assert_eq!((leases.counters().speculative, leases.counters().leased_again), (2, 0));
}

#[test]
fn speculation_leaves_out_what_no_block_lacks_and_what_makes_progress() {
    let mut leases = leases();
    let slow = take(&mut leases, A, 1, 0).unwrap();
    leases.lease(A, 1, 1, at(0), &nothing());
    leases.progress(A, &[done(slow.lease, 3)], at(300));
    assert_eq!(take(&mut leases, B, 2, 699), None);
    let left_only = Held((4..8).collect());
    assert_eq!(nodes(&leases.lease(B, 2, 1, at(700), &left_only)), [(0, node(2, 0))]);
    assert_eq!(leases.lease(C, 2, 1, at(700), &left_only), []);
}

#[test]
fn what_two_trainers_hold_is_free_only_when_both_leases_have_ended() {
    let mut leases = leases();
    let slow = take(&mut leases, A, 1, 0).unwrap();
    leases.lease(A, 1, 1, at(0), &nothing());
    assert_eq!(take(&mut leases, B, 2, 400).unwrap().node, node(2, 1));
    leases.hand_back(B, &nothing());
    assert_eq!(free(&leases, 0), [], "the slow trainer still holds it");
    assert_eq!(take(&mut leases, C, 2, 500).unwrap().node, node(2, 0));
    leases.progress(A, &[done(slow.lease, 1)], at(600));
    leases.hand_back(A, &nothing());
    assert_eq!(free(&leases, 0), [node(2, 1)], "the idle trainer still holds the left half");
    leases.hand_back(C, &nothing());
    assert_eq!(free(&leases, 0), [node(3, 0)]);
}

#[test]
fn leases_of_slots_that_were_leased_before_are_counted_as_leased_again() {
    let mut leases = leases();
    take(&mut leases, A, 2, 0).unwrap();
    take(&mut leases, B, 2, 0).unwrap();
    assert_eq!(leases.counters().leased_again, 0);
    leases.hand_back(A, &nothing());
    take(&mut leases, B, 1, 1).unwrap();
    assert_eq!((leases.counters().leased, leases.counters().leased_again), (3, 1));
    leases.advance(Step(1), at(2));
    take(&mut leases, B, 1, 2).unwrap();
    assert_eq!((leases.counters().leased, leases.counters().leased_again), (4, 1), "a new step is new work");
}

#[test]
fn a_trainer_that_has_not_asked_yet_finds_its_share_kept_for_an_eighth_of_the_ttl() {
    let mut leases = leases();
    assert_eq!(nodes(&leases.lease(A, 2, 4, at(0), &nothing())), [(0, node(2, 0)), (1, node(2, 0))]);
    assert_eq!(take(&mut leases, A, 2, 199), None, "the other half is kept");
    assert_eq!(take(&mut leases, B, 2, 199).unwrap().node, node(2, 1));
    leases.advance(Step(1), at(1000));
    assert_eq!(take(&mut leases, A, 2, 1000).unwrap().step, Step(2));
    assert_eq!(take(&mut leases, A, 2, 1199), None, "and so it is in every step anew");
    assert_eq!(
        take(&mut leases, A, 2, 1200).unwrap().node,
        node(1, 2),
        "then it is anyone's, in smaller pieces"
    );
}

#[test]
fn a_call_takes_at_most_four_tasks_and_nothing_beyond_the_step_after_the_front_nor_beyond_the_last() {
    let mut leases = Leases::new(EpochShape::new(15, 1, 15), 1, TTL, at(0));
    let grants = leases.lease(A, 1, u32::MAX, at(0), &nothing());
    assert_eq!(nodes(&grants), [(0, node(3, 0)), (0, node(2, 2)), (0, node(1, 6)), (0, node(0, 14))]);
    let mut whole = self::leases();
    assert_eq!(nodes(&whole.lease(A, 1, 4, at(0), &nothing())), [(0, node(3, 0)), (1, node(3, 0))]);
    whole.advance(Step(4), at(1));
    assert_eq!((whole.lease(A, 1, 4, at(1), &nothing()), whole.next_deadline()), (vec![], None));
}

proptest! {
    #[test]
    fn with_a_constant_number_of_honest_trainers_each_keeps_its_lanes_step_after_step(
        slots in 1u32..40, trainers in 1u32..7, want in 1u32..5,
        orders in proptest::collection::vec(Just((1..7).collect::<Vec<u64>>()).prop_shuffle(), 24)
    ) {
        prop_assume!(slots >= trainers);
        let steps = 6;
        let shape = EpochShape::new(u64::from(slots) * steps, 1, slots);
        let mut leases = Leases::new(shape, steps, TTL, at(0));
        let mut firsts: BTreeMap<(u64, u64), Node> = BTreeMap::new();
        let mut calls = orders.iter().cycle().flatten().filter(|trainer| **trainer <= u64::from(trainers));
        for step in 0..steps {
            let mut leased = 0;
            while leased < slots {
                let trainer = *calls.next().unwrap();
                let grants = leases.lease(Incarnation(trainer), trainers, want, at(0), &nothing());
                for grant in grants {
                    firsts.entry((trainer, grant.step.0)).or_insert(grant.node);
                }
                leased = slots - leases.open[0].free.slots();
            }
            leases.advance(Step(step + 1), at(0));
        }
        for ((trainer, step), first) in &firsts {
            prop_assert_eq!(first, &firsts[&(*trainer, 0)], "trainer {} in step {}", trainer, step);
        }
        prop_assert_eq!(firsts.len() as u64, u64::from(trainers) * steps);
    }
}

/// One block as its pserver has it.
#[derive(Clone, Debug, Default)]
struct Block {
    version: u64,
    /// Slots held of the step that reads `version`.
    held: BTreeSet<u32>,
}

/// A task in a trainer's hands, or its pushes on the way.
#[derive(Clone, Debug)]
struct InHand {
    grant: Grant,
    computed: u32,
    answered: BTreeSet<usize>,
    lies: bool,
}

#[derive(Debug)]
struct Trainer {
    name: Incarnation,
    is_live: bool,
    tasks: Vec<InHand>,
}

/// What may happen; numbers are taken modulo what there is.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A trainer calls for tasks; the reply may be lost.
    Call {
        trainer: usize,
        want: u32,
        is_lost: bool,
    },
    /// A call that says how far the trainer is and asks for nothing.
    Heartbeat {
        trainer: usize,
    },
    Compute {
        trainer: usize,
        task: usize,
        microbatches: u32,
    },
    /// A push that reaches only the blocks of the mask: again, late, or before a death.
    Push {
        trainer: usize,
        task: usize,
        blocks: u8,
    },
    /// Computes and pushes everything that can be.
    Work {
        trainer: usize,
    },
    /// From now on says to have pushed a task, which is not true.
    Lie {
        trainer: usize,
        task: usize,
    },
    Lose {
        trainer: usize,
    },
    Return {
        trainer: usize,
    },
    /// Leaves, its pushes still under way; another life begins.
    Leave {
        trainer: usize,
    },
    /// A push of a trainer that has left arrives.
    LatePush {
        task: usize,
        blocks: u8,
    },
    Report {
        pserver: usize,
    },
    /// A report arrives, whichever was sent first.
    Deliver {
        report: usize,
    },
    DropReport {
        report: usize,
    },
    Wait {
        millis: u64,
    },
}

fn event() -> impl Strategy<Value = Event> {
    let (trainer, task) = (0usize..6, 0usize..4);
    prop_oneof![
        6 => (trainer.clone(), 0u32..6, proptest::bool::weighted(0.2))
            .prop_map(|(trainer, want, is_lost)| Event::Call { trainer, want, is_lost }),
        2 => trainer.clone().prop_map(|trainer| Event::Heartbeat { trainer }),
        2 => (trainer.clone(), task.clone(), 1u32..9)
            .prop_map(|(trainer, task, microbatches)| Event::Compute { trainer, task, microbatches }),
        3 => (trainer.clone(), task.clone(), 1u8..8)
            .prop_map(|(trainer, task, blocks)| Event::Push { trainer, task, blocks }),
        4 => trainer.clone().prop_map(|trainer| Event::Work { trainer }),
        1 => (trainer.clone(), task.clone()).prop_map(|(trainer, task)| Event::Lie { trainer, task }),
        1 => trainer.clone().prop_map(|trainer| Event::Lose { trainer }),
        1 => trainer.clone().prop_map(|trainer| Event::Return { trainer }),
        1 => trainer.prop_map(|trainer| Event::Leave { trainer }),
        1 => (task, 1u8..8).prop_map(|(task, blocks)| Event::LatePush { task, blocks }),
        4 => (0usize..2).prop_map(|pserver| Event::Report { pserver }),
        5 => (0usize..4).prop_map(|report| Event::Deliver { report }),
        1 => (0usize..4).prop_map(|report| Event::DropReport { report }),
        3 => (0u64..900).prop_map(|millis| Event::Wait { millis }),
    ]
}

/// Blocks and the pserver that hosts each.
const HOSTS: [usize; 3] = [0, 0, 1];

/// A small job: lease machine, reports and trainers on one side, the truth (blocks) on the other.
#[derive(Debug)]
struct Job {
    shape: EpochShape,
    steps: u64,
    leases: Leases,
    reports: Reports,
    blocks: [Block; 3],
    trainers: Vec<Trainer>,
    gone: Vec<InHand>,
    sent: Vec<(usize, Vec<BlockProgress>)>,
    /// Per pserver the highest version it has reported for all of its blocks, as far as reports arrived.
    told: [u64; 2],
    served: BTreeSet<(Incarnation, Step)>,
    granted: u64,
    now: Duration,
    names: u64,
}

impl Job {
    fn new(shape: EpochShape, epochs: u64, trainers: usize) -> Job {
        let steps = epochs * shape.steps();
        let pserver = |at: usize| Incarnation(100 + at as u64);
        let hosted = BTreeMap::from([(pserver(0), 2), (pserver(1), 1)]);
        let trainer = |name| Trainer { name: Incarnation(name), is_live: true, tasks: Vec::new() };
        Job {
            shape,
            steps,
            leases: Leases::new(shape, steps, TTL, at(0)),
            reports: Reports::new(shape, hosted),
            blocks: Default::default(),
            trainers: (1..=trainers as u64).map(trainer).collect(),
            gone: Vec::new(),
            sent: Vec::new(),
            told: [0; 2],
            served: BTreeSet::new(),
            granted: 0,
            now: at(0),
            names: trainers as u64,
        }
    }

    fn live(&self) -> u32 {
        self.trainers.iter().filter(|trainer| trainer.is_live).count() as u32
    }
    /// The version that every block has published.
    fn published(&self) -> u64 {
        self.blocks.iter().map(|block| block.version).min().unwrap()
    }
    fn lacks(&self, step: Step, slot: u32) -> bool {
        self.blocks
            .iter()
            .any(|block| block.version < step.0 || (block.version == step.0 && !block.held.contains(&slot)))
    }

    fn happen(&mut self, event: Event) {
        let count = self.trainers.len();
        match event {
            Event::Call { trainer, want, is_lost } => self.call(trainer % count, want, is_lost),
            Event::Heartbeat { trainer } => self.heartbeat(trainer % count),
            Event::Compute { trainer, task, microbatches } => {
                let published = self.published();
                if let Some(task) = nth(&mut self.trainers[trainer % count].tasks, task)
                    && task.grant.step.0 <= published
                {
                    task.computed = (task.computed + microbatches).min(task.grant.node.width());
                }
            }
            Event::Push { trainer, task, blocks } => {
                if let Some(task) = nth(&mut self.trainers[trainer % count].tasks, task) {
                    push(&mut self.blocks, self.shape, task, blocks);
                }
            }
            Event::Work { trainer } => self.work(trainer % count),
            Event::Lie { trainer, task } => {
                if let Some(task) = nth(&mut self.trainers[trainer % count].tasks, task) {
                    task.lies = true;
                }
            }
            Event::Lose { trainer } => {
                self.trainers[trainer % count].is_live = false;
                self.leases.lose(self.trainers[trainer % count].name, &self.reports);
            }
            Event::Return { trainer } => self.trainers[trainer % count].is_live = true,
            Event::Leave { trainer } => self.leave(trainer % count),
            Event::LatePush { task, blocks } => {
                if let Some(task) = nth(&mut self.gone, task) {
                    push(&mut self.blocks, self.shape, task, blocks);
                }
            }
            Event::Report { pserver } => self.sent.push((pserver, self.report_of(pserver))),
            Event::Deliver { report } => self.deliver(report),
            Event::DropReport { report } if !self.sent.is_empty() => {
                self.sent.remove(report % self.sent.len());
            }
            Event::DropReport { .. } => {}
            Event::Wait { millis } => self.wait(at(millis)),
        }
        self.check();
    }

    /// Time passes; as the master does, leases are expired when they are due.
    fn wait(&mut self, time: Duration) {
        self.now += time;
        let (before, due) = (format!("{:?}", self.leases), self.leases.next_deadline());
        let leases = |leases: &Leases| leases.open.iter().map(|open| open.leases.len()).sum::<usize>();
        let count = leases(&self.leases);
        self.leases.expire(self.now, &self.reports);
        if due.is_some_and(|due| due <= self.now) {
            assert!(leases(&self.leases) < count, "a deadline was due and nothing was done");
        } else {
            assert_eq!(format!("{:?}", self.leases), before, "expiry acts before its deadline {due:?}");
        }
        assert!(self.leases.next_deadline().is_none_or(|due| due > self.now));
    }

    fn report_of(&self, pserver: usize) -> Vec<BlockProgress> {
        let hosted = (0..self.blocks.len()).filter(|block| HOSTS[*block] == pserver);
        let progress = |block: usize| {
            let Block { version, held } = &self.blocks[block];
            let mut nodes = Vec::new();
            let (mut from, end) = (0, held.last().map_or(0, |last| last + 1));
            while from < end {
                let to = (from..=end).find(|slot| !held.contains(slot)).unwrap();
                aligned(from, to, &mut nodes);
                from = to + 1;
            }
            BlockProgress { blocks: vec![BlockId(block as u32)], version: Version(*version), held: nodes }
        };
        hosted.map(progress).collect()
    }

    fn deliver(&mut self, report: usize) {
        if self.sent.is_empty() {
            return;
        }
        let (pserver, progress) = self.sent.remove(report % self.sent.len());
        let version = progress.iter().map(|group| group.version.0).min().unwrap();
        self.told[pserver] = self.told[pserver].max(version);
        self.reports.hear(Incarnation(100 + pserver as u64), progress);
        self.leases.advance(Step(self.reports.lowest_version().0), self.now);
    }

    /// A trainer says how far it is and which leases it knows, as every call does.
    fn heartbeat(&mut self, trainer: usize) {
        let Trainer { name, is_live, tasks } = &mut self.trainers[trainer];
        if !*is_live {
            return;
        }
        let front = self.leases.front();
        tasks.retain(|task| task.grant.step >= front);
        let words: Vec<Progress> = tasks.iter().map(|task| task.word()).collect();
        self.leases.progress(*name, &words, self.now);
        self.leases.forget_unknown(*name, &words, &self.reports);
        tasks.retain(|task| !task.word().pushed);
    }

    fn call(&mut self, trainer: usize, want: u32, is_lost: bool) {
        self.heartbeat(trainer);
        let (name, is_live) = (self.trainers[trainer].name, self.trainers[trainer].is_live);
        if !is_live {
            return;
        }
        let free: Vec<(Step, Node)> =
            self.leases.open.iter().flat_map(|open| open.free.iter().map(|node| (open.step, node))).collect();
        let held: Vec<(Step, Node, Incarnation)> = self
            .leases
            .open
            .iter()
            .flat_map(|open| open.leases.values().map(|lease| (open.step, lease)))
            .filter(|(_, lease)| !lease.pushed)
            .map(|(step, lease)| (step, lease.node, lease.trainer))
            .collect();
        let (before, live) = (self.leases.counters(), self.live());
        let grants = self.leases.lease(name, live, want, self.now, &self.reports);
        self.granted += grants.len() as u64;
        assert!(grants.len() <= want.min(GRANTS_PER_CALL_MAX) as usize);
        let is_speculative = self.leases.counters().speculative > before.speculative;
        for (at, grant) in grants.iter().enumerate() {
            let is_within = |outer: &[(Step, Node)]| {
                outer.iter().any(|(step, node)| *step == grant.step && node.covers(grant.node))
            };
            let overlaps = |step: Step, node: Node| {
                step == grant.step && (node.covers(grant.node) || grant.node.covers(node))
            };
            assert!(grants[..at].iter().all(|other| !overlaps(other.step, other.node)), "{grants:?}");
            if is_speculative {
                assert_eq!((grants.len(), grant.step), (1, self.leases.front()));
                assert!(held.iter().all(|(_, _, holder)| *holder != name), "speculation is for the idle");
                assert!(held.iter().any(|(step, node, _)| overlaps(*step, *node)));
            } else {
                assert!(is_within(&free), "{grant:?} was not free");
                assert!(held.iter().all(|(step, node, _)| !overlaps(*step, *node)), "{grant:?} is another's");
            }
            if self.served.insert((name, grant.step)) {
                let share = self.shape.tree(grant.step).present() / live;
                assert!(grant.node.width() <= share.max(1), "{grant:?} of {live} trainers");
            }
        }
        if !is_lost {
            let fresh = |grant| InHand { grant, computed: 0, answered: BTreeSet::new(), lies: false };
            self.trainers[trainer].tasks.extend(grants.into_iter().map(fresh));
        }
    }

    fn work(&mut self, trainer: usize) {
        let published = self.published();
        for task in self.trainers[trainer].tasks.iter_mut().filter(|task| task.grant.step.0 <= published) {
            task.computed = task.grant.node.width();
            push(&mut self.blocks, self.shape, task, u8::MAX);
        }
    }

    fn leave(&mut self, trainer: usize) {
        self.heartbeat(trainer);
        self.names += 1;
        let next = Trainer { name: Incarnation(self.names), is_live: true, tasks: Vec::new() };
        let left = std::mem::replace(&mut self.trainers[trainer], next);
        self.leases.hand_back(left.name, &self.reports);
        self.gone.extend(left.tasks);
    }

    /// What holds at all times.
    fn check(&self) {
        let front = self.leases.front();
        assert_eq!(front.0, *self.told.iter().min().unwrap(), "the front follows reports only");
        assert!(front.0 <= self.published());
        assert_eq!(self.leases.counters().leased, self.granted);
        for open in &self.leases.open {
            assert!(open.step == front || open.step == front.next());
            assert!(open.step.0 < self.steps);
            let present = self.shape.tree(open.step).present();
            let mut owners = vec![(0, 0); present as usize];
            for slot in open.free.iter().flat_map(|node| node.first()..node.end()) {
                owners[slot as usize].0 += 1;
            }
            for slot in open.leases.values().flat_map(|lease| lease.node.first()..lease.node.end()) {
                owners[slot as usize].1 += 1;
            }
            for (slot, (free, leased)) in owners.into_iter().enumerate() {
                assert!(free == 0 || leased == 0, "slot {slot} of step {} is free and leased", open.step);
                let is_lost = free + leased == 0 && self.lacks(open.step, slot as u32);
                assert!(!is_lost, "slot {slot} of step {} is lacked and nobody's", open.step);
            }
        }
    }

    /// From here on one trainer lives, asks, computes and pushes; the others are silent. The job must end (P4).
    fn finish(&mut self) {
        let (silent, ttl_over) = (1..self.trainers.len(), self.now + TTL);
        self.trainers[0].is_live = true;
        self.trainers[0].tasks.iter_mut().for_each(|task| task.lies = false);
        self.sent.clear();
        let (mut calls, mut since, mut front) = (0, self.now, self.leases.front());
        while self.leases.front().0 < self.steps {
            if self.now >= ttl_over {
                silent.clone().for_each(|trainer| self.happen(Event::Lose { trainer }));
            }
            self.happen(Event::Call { trainer: 0, want: 2, is_lost: false });
            self.happen(Event::Work { trainer: 0 });
            for pserver in 0..2 {
                self.happen(Event::Report { pserver });
                self.happen(Event::Deliver { report: 0 });
            }
            calls += 1;
            if self.leases.front() > front {
                (calls, since, front) = (0, self.now, self.leases.front());
            } else if self.trainers[0].tasks.iter().all(|task| task.word().pushed || task.grant.step > front)
            {
                self.happen(Event::Wait { millis: 100 });
            }
            assert!(self.now <= since + 2 * TTL + at(100), "step {front} stands still: {self:#?}");
            assert!(calls <= self.shape.tree(front).present() + 40, "step {front} takes {calls} calls");
        }
        assert_eq!(self.published(), self.steps);
    }
}

impl InHand {
    fn word(&self) -> Progress {
        let pushed = self.lies || self.answered.len() == HOSTS.len();
        Progress { lease: self.grant.lease, microbatches: self.computed, pushed }
    }
}

fn nth<T>(of: &mut [T], at: usize) -> Option<&mut T> {
    let count = of.len();
    of.get_mut(at % count.max(1))
}

/// A computed node reaches the blocks of `mask`; a block that has it, or has made the step, answers all the same.
fn push(blocks: &mut [Block; 3], shape: EpochShape, task: &mut InHand, mask: u8) {
    let Grant { step, node, .. } = task.grant;
    if task.computed < node.width() {
        return;
    }
    for (at, block) in blocks.iter_mut().enumerate().filter(|(at, _)| mask & (1 << at) != 0) {
        assert!(step.0 <= block.version, "a trainer that is ahead of the job");
        task.answered.insert(at);
        if step.0 == block.version {
            block.held.extend(node.first()..node.end());
            if block.held.len() as u32 == shape.tree(step).present() {
                *block = Block { version: step.0 + 1, held: BTreeSet::new() };
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn whatever_happens_nothing_is_stranded_and_one_honest_trainer_finishes_the_job(
        slots in 1u32..20, records in 1u64..60, trainers in 1usize..7,
        events in proptest::collection::vec(event(), 0..160)
    ) {
        let mut job = Job::new(EpochShape::new(records, 1, slots), 2, trainers);
        for event in events {
            job.happen(event);
        }
        job.finish();
    }
}
