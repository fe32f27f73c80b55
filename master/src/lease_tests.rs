//! Tests of the lease machine: each rule by its name, then any interleaving of calls against a model of blocks.

use super::*;
use crate::document::PlacedBlock;
use crate::fixture::shape;
use crate::reports::{BlockProgress, Reports};
use proptest::prelude::*;
use shoal_runtime::cluster::tree::aligned;
use shoal_runtime::cluster::{BlockId, Ledger, Term, Version};
use std::collections::BTreeSet;

#[path = "lease_alone_tests.rs"]
mod alone;
#[path = "lease_model_tests.rs"]
mod model;
#[path = "lease_room_tests.rs"]
mod room;
#[path = "lease_speed_tests.rs"]
mod speed;

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
    Progress { lease, microbatches, pushed: false, waits: false }
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
    Leases::new(shape(32, 8), 4, 1, TTL, LeaseId(1), at(0))
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
    let pushed = Progress { lease, microbatches: 8, pushed: true, waits: false };
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
    leases.progress(A, &[Progress { lease, microbatches: 8, pushed: true, waits: false }], at(1));
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
    leases.progress(
        A,
        &[Progress { lease: pushed.lease, microbatches: 4, pushed: true, waits: false }],
        at(3),
    );
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

/// Two tasks of the front for A, of four slots and of what is free then.
fn one_behind_the_other(leases: &mut Leases, millis: u64) -> (Grant, Grant) {
    let first = take(leases, A, 2, millis).unwrap();
    let behind = take(leases, A, 1, millis).unwrap();
    assert_eq!((first.node.width(), first.step, behind.step), (4, Step(0), Step(0)));
    (first, behind)
}

#[test]
fn progress_renews_what_its_trainer_does_after_it_and_nothing_before_it() {
    let mut leases = leases();
    let (first, behind) = one_behind_the_other(&mut leases, 0);
    leases.progress(A, &[done(first.lease, 1)], at(1000));
    leases.expire(at(2599), &nothing());
    assert_eq!(leases.in_hand(A), 2);
    leases.progress(A, &[done(behind.lease, 1)], at(2599));
    leases.expire(at(2600), &nothing());
    assert_eq!((leases.in_hand(A), leases.counters().expired), (1, 1), "the one before it stood still");
    leases.expire(at(4199), &nothing());
    assert_eq!(leases.counters().expired, 2);
}

#[test]
fn a_task_behind_another_of_its_trainer_is_late_only_when_both_could_be_done_twice() {
    let mut leases = Leases::new(shape(32, 8), 1, 1, TTL, LeaseId(1), at(0));
    // A microbatch takes ten milliseconds, and two of the eight are done.
    let done = take(&mut leases, C, 4, 0).unwrap();
    leases.progress(
        C,
        &[Progress { lease: done.lease, microbatches: 2, pushed: true, waits: false }],
        at(20),
    );
    let (_, behind) = one_behind_the_other(&mut leases, 20);
    assert_eq!(behind.node.width(), 2);
    let mut help = |millis: u64| {
        assert_eq!(take(&mut leases, B, 3, millis - 1), None);
        let helps = [B, C, Incarnation(4)].map(|trainer| take(&mut leases, trainer, 3, millis));
        helps.map(|grant| grant.map(|grant| grant.node))
    };
    assert_eq!(help(20 + 2 * 40), [Some(node(1, 3)), Some(node(1, 2)), None], "the halves of the first");
    assert_eq!(help(20 + 2 * 60), [None, None, Some(node(0, 3))], "the two that help are not idle");
}

#[test]
fn who_could_not_do_a_microbatch_is_not_given_it_again_because_another_is_slow() {
    let mut leases = leases();
    let first = take(&mut leases, A, 1, 0).unwrap();
    let next = take(&mut leases, A, 1, 0).unwrap();
    assert!(leases.refuse(A, first.lease, (first.step, 6), at(0), &nothing()));
    let slow = take(&mut leases, B, 1, 0).unwrap();
    assert_eq!(slow.node, first.node);
    leases.progress(A, &[Progress { lease: next.lease, microbatches: 8, pushed: true, waits: false }], at(0));
    let patience = 400;
    assert_eq!(take(&mut leases, A, 3, patience), None, "slot 6 is in the right half");
    assert_eq!(take(&mut leases, C, 3, patience).unwrap().node, node(2, 1));
    assert_eq!(
        take(&mut leases, A, 3, patience).unwrap().node,
        node(2, 0),
        "of the left half it has said nothing"
    );
}

#[test]
fn who_is_alone_tries_again_at_once_what_it_could_not_do() {
    for (live, again) in [(1, Some(node(3, 0))), (2, None)] {
        let mut leases = leases();
        let first = take(&mut leases, A, 1, 0).unwrap();
        take(&mut leases, A, 1, 0).unwrap();
        assert!(leases.refuse(A, first.lease, (first.step, 6), at(0), &nothing()));
        let found = take(&mut leases, A, live, 0).map(|grant| grant.node);
        assert_eq!(found.filter(|node| node.first() <= 6 && 6 < node.end()), again);
    }
}

#[test]
fn who_finds_out_late_that_it_cannot_do_a_microbatch_has_said_so_all_the_same() {
    let mut leases = leases();
    let first = take(&mut leases, A, 1, 0).unwrap();
    leases.expire(TTL, &nothing());
    assert!(leases.refuse(A, first.lease, (first.step, 6), TTL, &nothing()));
    let found = take(&mut leases, A, 2, 1600).map(|grant| grant.node);
    assert_eq!(found.filter(|node| node.first() <= 6 && 6 < node.end()), None, "others go first");
    for (step, slot) in [(Step(9), 0), (first.step, 1000)] {
        assert!(!leases.refuse(A, first.lease, (step, slot), TTL, &nothing()), "there is no such place");
    }
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
fn of_a_trainers_lanes_only_those_since_its_newest_step_are_kept_and_none_once_it_is_gone() {
    let mut leases = leases();
    for step in 0..4 {
        leases.advance(Step(step), at(step));
        leases.lease(A, 1, 4, at(step), &nothing());
        assert_eq!(leases.trainers[&A].lanes, [node(3, 0)]);
    }
    leases.lease(B, 2, 4, at(5000), &nothing());
    leases.hand_back(A, &nothing());
    leases.lose(B, &nothing());
    assert!(leases.trainers.values().all(|known| known.lanes.is_empty()), "{:?}", leases.trainers);
    leases.advance(Step(5), at(6000));
    assert!(leases.trainers.is_empty(), "{:?}", leases.trainers);
}

#[test]
fn a_call_takes_at_most_four_tasks_and_nothing_beyond_the_step_after_the_front_nor_beyond_the_last() {
    let mut leases = Leases::new(shape(15, 15), 1, 1, TTL, LeaseId(1), at(0));
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
        let mut leases = Leases::new(shape(u64::from(slots) * steps, slots), steps, 1, TTL, LeaseId(1), at(0));
        let mut firsts: BTreeMap<(u64, u64), Node> = BTreeMap::new();
        let mut calls = orders.iter().cycle().flatten().filter(|trainer| **trainer <= u64::from(trainers));
        for step in 0..steps {
            let (mut leased, mut count) = (0, 0);
            while leased < slots {
                count += 1;
                prop_assert!(count < 1000, "slots stay free although everybody asks");
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
