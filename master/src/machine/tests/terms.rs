//! A change of masters: what the next one knows from the document, and what it has to be told again.

use super::*;
use crate::document::Wanted;

fn rejoin(
    job: &mut Job,
    name: &str,
    nonce: u64,
    previous: Incarnation,
    millis: u64,
) -> Result<Incarnation, Refusal> {
    let joined = job.machine.join(name, nonce, 1, declaration(), Some(previous), at(millis));
    job.settle(millis);
    joined.map(|(incarnation, _)| incarnation)
}

#[test]
fn the_next_master_knows_the_pservers_and_waits_for_them_from_its_own_beginning() {
    let (mut job, [p0, p1], _) = training();
    let before = job.document().clone();
    job.restart("m2", 50_000);
    assert_eq!((job.phase(), job.document().master_term), (Phase::Training, 2));
    assert!(job.document().routing_version > before.routing_version);
    assert_eq!(job.document().blocks, before.blocks);
    let told = job.assignment(p0, 1, before.routing_version).unwrap();
    assert_eq!((told.master_term, told.routing_version), (2, job.document().routing_version));
    job.publish(p0, 3, 50_000 + 1000);
    job.pass(50_000 + TTL_MILLIS - 1);
    assert_eq!(job.pservers.get(p1).unwrap().state, State::Live);
    job.pass(50_000 + TTL_MILLIS);
    assert_eq!(job.pservers.get(p1).unwrap().state, State::Lost);
    assert_eq!(job.pservers.get(p0).unwrap().state, State::Live);
    assert_eq!(job.document().blocks, before.blocks, "their return is waited for");
}

#[test]
fn the_next_master_leases_nothing_before_it_has_heard_of_every_block_and_then_from_their_front() {
    let (mut job, [p0, p1], _) = training();
    job.publish_everywhere(5, 1);
    job.restart("m2", 10);
    let b = job.trainer("b", 1, 10).unwrap();
    assert_eq!((job.front(), job.call(b, 1, &[], 10)), (Step(0), LeaseOutcome::Wait));
    job.publish(p0, 5, 11);
    assert_eq!(job.call(b, 2, &[], 11), LeaseOutcome::Wait);
    job.publish(p1, 6, 12);
    assert_eq!(step(&only_task(job.call(b, 3, &[], 12))), Step(5));
}

#[test]
fn a_trainer_of_an_earlier_term_is_told_to_join_again_and_is_then_as_good_as_before() {
    let (mut job, _, a) = training();
    job.restart("m2", 10);
    job.publish_everywhere(0, 10);
    let before = digest(&job);
    let word = TrainerWord { call: 7, ..TrainerWord::default() };
    let refusal = job.hear_trainer(a, word, &[], &[], at(11)).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::UnknownIncarnation);
    assert_eq!(
        job.machine.leave(a, &[], TrainerCounters::default(), "", &[], at(11)).unwrap_err().kind,
        refusal.kind
    );
    assert_eq!(digest(&job), before);
    let again = rejoin(&mut job, "a", 1, a, 12).unwrap();
    assert_eq!((again.term(), again > a), (2, true));
    only_task(job.call(again, 1, &[], 12));
}

#[test]
fn a_pserver_of_an_earlier_term_that_holds_nothing_is_told_to_register_again() {
    let (mut job, ..) = training();
    let wanted = Wanted { pservers: 3, ..job.wanted() };
    let idle = job.pserver("p2", 1, 1).unwrap();
    job.scale(wanted);
    assert!(!job.document().holds_copies(idle));
    job.restart("m2", 10);
    assert_eq!(job.hear_pserver(idle, at(10)).unwrap_err().kind, RefusalKind::UnknownIncarnation);
    assert_eq!(job.pserver("p2", 1, 11).unwrap().term(), 2);
}

#[test]
fn of_two_lives_the_one_that_was_counted_last_keeps_the_name_whichever_joins_first() {
    for is_later_first in [true, false] {
        let (mut job, _, earlier) = training();
        let later = job.trainer("a", 2, 1).unwrap();
        job.restart("m2", 10);
        if is_later_first {
            let kept = rejoin(&mut job, "a", 2, later, 11).unwrap();
            let refusal = rejoin(&mut job, "a", 1, earlier, 12).unwrap_err();
            assert_eq!(
                (refusal.kind, refusal.subject.as_str()),
                (RefusalKind::StaleIncarnation, "trainer \"a\"")
            );
            assert!(job.trainers.is_current(kept));
        } else {
            let first = rejoin(&mut job, "a", 1, earlier, 11).unwrap();
            let kept = rejoin(&mut job, "a", 2, later, 12).unwrap();
            assert!(job.trainers.is_current(kept) && !job.trainers.is_current(first));
        }
        let new = job.trainer("a", 3, 13).unwrap();
        assert!(job.trainers.is_current(new), "who was never counted is later than both");
        assert!(rejoin(&mut job, "a", 4, later, 14).is_err(), "nor does a life of before take it back");
    }
}

#[test]
fn a_member_that_a_later_master_counted_is_sent_on_and_nothing_is_changed() {
    let (mut job, ..) = training();
    let of_later = Incarnation::new(2, 1);
    let before = digest(&job);
    let word = TrainerWord { call: 1, ..TrainerWord::default() };
    let refusals = [
        job.hear_trainer(of_later, word, &[], &[], at(1)).unwrap_err(),
        job.hear_pserver(of_later, at(1)).unwrap_err(),
        job.machine.leave(of_later, &[], TrainerCounters::default(), "", &[], at(1)).unwrap_err(),
    ];
    for refusal in refusals {
        assert_eq!(refusal.kind, RefusalKind::NotLeader, "{refusal}");
    }
    assert_eq!(digest(&job), before);
}

#[test]
fn no_lease_and_no_incarnation_is_given_by_two_masters() {
    let (mut job, ..) = training();
    let mut leases = Vec::new();
    let mut incarnations = Vec::new();
    for (term, master) in ["m1", "m2", "m3"].into_iter().enumerate() {
        let millis = 10 * term as u64;
        if term > 0 {
            job.restart(master, millis);
            job.publish_everywhere(0, millis);
        }
        for name in ["b", "c", "d"] {
            incarnations.push(job.trainer(name, term as u64, millis).unwrap());
            let task = only_task(job.call(incarnations[incarnations.len() - 1], 1, &[], millis));
            leases.push(task.lease);
        }
    }
    assert!(leases.is_sorted_by(|a, b| a < b), "{leases:?}");
    assert!(incarnations.is_sorted_by(|a, b| a < b), "{incarnations:?}");
}

#[test]
fn what_was_asked_for_and_declared_is_known_to_the_next_master() {
    let (mut job, ..) = training();
    let wanted = Wanted { pservers: 2, trainers: 9, replicas: 0, exclude_max: 0 };
    assert_eq!(job.scale(wanted).trainers, 2);
    job.settle(1);
    job.restart("m2", 10);
    assert_eq!((job.wanted(), job.declaration()), (wanted, Some(&declaration())));
    let other = Declaration { block_elements: 26, ..declaration() };
    assert!(job.machine.join("b", 1, 1, other, None, at(11)).is_err());
}

#[test]
fn a_master_that_is_elected_before_anything_was_placed_waits_as_the_first_did() {
    let mut job = waiting(1);
    let a = job.trainer("a", 1, 0).unwrap();
    job.restart("m2", 10);
    assert_eq!((job.phase(), job.declaration()), (Phase::Waiting, Some(&declaration())));
    job.pserver("p0", 1, 11).unwrap();
    assert_eq!(job.phase(), Phase::Training);
    assert!(rejoin(&mut job, "a", 1, a, 12).is_ok());
}
