//! A block whose primary is lost is led by another copy: nobody goes back, and what nobody has in hand is leased again.

use super::*;
use crate::reports::CopyProgress;
use shoal_runtime::cluster::RefusalKind;
use std::collections::BTreeSet;

fn slots(node: Node) -> impl Iterator<Item = u32> {
    node.first()..node.end()
}

/// A trainer and what it says of its leases.
type AtWork = (Incarnation, Vec<Progress>);

/// Two pservers with copies of one another's blocks at step 2, `a` and `b` at work on a half of it each, and on one
/// of the next. `b` has pushed its half, every block holds it, and its lease has run out; `a` gets on with its own.
fn half_a_step() -> (Job, Vec<Incarnation>, [AtWork; 2]) {
    let (mut job, pservers, a) = copied(2);
    let b = job.trainer("b", 1, 0).unwrap();
    job.publish_everywhere(2, 1);
    let mut trainers = [(a, vec![]), (b, vec![])];
    for call in 1..=2 {
        for (trainer, known) in &mut trainers {
            let task = only_task(job.call(*trainer, call, known, 1));
            known.push(knows(&task));
        }
    }
    let [(_, of_a), (_, of_b)] = &mut trainers;
    of_b[0].pushed = true;
    for (call, millis) in [(3, 900), (4, 1700)] {
        of_a[0].microbatches += 1;
        job.call(a, call, of_a, millis);
        job.call(b, call, of_b, millis);
        pservers.iter().for_each(|pserver| {
            let said = job.standing(*pserver, 2).into_iter();
            let said =
                said.map(|word| BlockProgress { held: vec![(Step(2), vec![node(2, 1)])], ..word }).collect();
            job.say(*pserver, said, millis);
        });
    }
    let [(_, of_a), _] = &mut trainers;
    of_a[0].microbatches += 1;
    job.call(a, 5, of_a, 2600);
    job.pass(2600);
    assert_eq!(
        job.job.as_ref().unwrap().dispatch.counters().expired,
        0,
        "what every block holds did not expire"
    );
    (job, pservers, trainers)
}

#[test]
fn a_lost_pserver_with_a_follower_takes_nobody_back_and_what_nobody_has_in_hand_is_leased_again() {
    let (mut job, pservers, [(a, of_a), (b, of_b)]) = half_a_step();
    let before = job.document().clone();
    let lost = job.blocks_of(pservers[1]);
    job.lose_pserver(pservers[1]);
    job.settle(2601);
    assert_eq!((job.front(), job.blocks_of(pservers[0]).len()), (Step(2), 5));
    for (id, (was, is)) in before.blocks.iter().zip(&job.document().blocks).enumerate() {
        let is_moved = lost.contains(&BlockId(id as u32));
        assert_eq!((is.rewind, is.term > was.term), (was.rewind, is_moved), "block {id}");
    }
    let known = [of_b[1]];
    assert_eq!(job.call(b, 5, &known, 2602), LeaseOutcome::Wait, "the new primaries are unheard of");
    job.publish(pservers[0], 2, 2603);
    let mut taken: BTreeSet<u32> = BTreeSet::new();
    let mut in_hand = known.to_vec();
    for call in 6..20 {
        let LeaseOutcome::Tasks(tasks) = job.call(b, call, &in_hand, 2604) else { break };
        for task in tasks {
            assert_eq!(step(&task), Step(2));
            assert!(slots(work(&task).1).all(|slot| taken.insert(slot)), "{task:?} is leased twice");
            in_hand.push(knows(&task));
        }
    }
    assert_eq!(taken, slots(node(2, 1)).collect(), "and not what the other has in hand: {of_a:?}");
    assert_eq!(job.job.as_ref().unwrap().dispatch.in_hand(a), 2);
}

#[test]
fn a_word_of_the_same_term_leases_nothing_again() {
    let (mut job, pservers, [(_, _), (b, of_b)]) = half_a_step();
    pservers.iter().for_each(|pserver| {
        let said = job.standing(*pserver, 2).into_iter();
        let said =
            said.map(|word| BlockProgress { held: vec![(Step(2), vec![node(2, 1)])], ..word }).collect();
        job.say(*pserver, said, 2601);
    });
    assert_eq!(job.call(b, 5, &[of_b[1]], 2602), LeaseOutcome::Wait);
}

#[test]
fn the_front_of_a_failed_over_job_waits_for_the_word_of_the_new_primaries() {
    let (mut job, pservers, _) = copied(2);
    job.publish_everywhere(3, 1);
    job.lose_pserver(pservers[1]);
    job.settle(2);
    let (led_before, led_since): (Vec<_>, Vec<_>) = job
        .standing(pservers[0], 4)
        .into_iter()
        .partition(|word| word.term.0 < job.document().routing_version);
    assert!(!led_since.is_empty());
    job.say(pservers[0], led_before, 3);
    assert_eq!(job.front(), Step(3));
    job.publish(pservers[0], 4, 4);
    assert_eq!(job.front(), Step(4));
}

#[test]
fn a_pserver_that_was_lost_and_speaks_again_is_an_empty_host() {
    let (mut job, pservers, a) = copied(3);
    job.publish_everywhere(1, 1);
    let said_before = job.standing(pservers[2], 7);
    job.lose_pserver(pservers[2]);
    job.settle(2);
    let without = job.document().clone();
    assert!(!without.holds_copies(pservers[2]) && !without.pservers.contains_key(&pservers[2]));
    job.publish_everywhere(1, 3);
    job.say(pservers[2], said_before, 4);
    assert_eq!(job.pservers.get(pservers[2]).unwrap().state, State::Live);
    for copy in job.document().blocks.iter().filter_map(|block| block.copy_on(pservers[2])) {
        assert!(copy.mark == Mark::Filling && copy.fill.0 > without.routing_version, "{copy:?}");
    }
    assert!(job.document().holds_copies(pservers[2]), "it is used again");
    assert_eq!((job.front(), job.blocks_of(pservers[2])), (Step(1), vec![]), "what it led is led by others");
    only_task(job.call(a, 1, &[], 5));
}

#[test]
fn only_copies_that_are_level_are_promoted() {
    let mut job = Job::new(settings(64, 2, 8, 2), 2, 1);
    let [p0, p1] = ["p0", "p1"].map(|name| job.pserver(name, 1, 0).unwrap());
    job.trainer("a", 1, 0).unwrap();
    job.publish_everywhere(1, 0);
    assert!(job.document().blocks.iter().all(|block| block.copies.len() == 2), "on their way");
    job.lose_pserver(p1);
    job.settle(1);
    assert_eq!(job.blocks_of(p0).len() + job.blocks_of(p1).len(), 5);
    assert_ne!(job.blocks_of(p1), [], "nobody else has those");
}

#[test]
fn a_report_of_updates_that_the_job_has_not_is_refused_and_copies_of_no_block_are_forgotten() {
    let (mut job, pservers, _) = copied(3);
    job.publish_everywhere(1, 1);
    let before = format!("{:?}", job.document());
    for version in [9, u64::MAX] {
        let refusal = job.report(pservers[0], job.word(pservers[0], version), 2).unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::OutOfRange);
    }
    assert_eq!(format!("{:?}", job.document()), before);
    let copies =
        CopyProgress { blocks: vec![BlockId(u32::MAX)], fill: Fill(1), name: None, is_broken: false };
    let word = PserverWord { copies: vec![copies], ..job.word(pservers[0], 1) };
    job.report(pservers[0], word, 3).unwrap();
    assert!(job.machine.job.as_ref().unwrap().reports.copies().keys().all(|(block, _)| block.0 < 100));
    for name in [String::new(), "n".repeat(254), String::from("a\nb")] {
        assert_eq!(job.pserver(&name, 1, 4).unwrap_err().kind, RefusalKind::Malformed);
    }
}
