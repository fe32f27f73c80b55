//! The pservers' side of the machine: names, suspicion, overtaken reports, leaving, draining.

use super::*;

fn counted(pushes: u64) -> PserverWord {
    let counters = PserverCounters { pushes, ..PserverCounters::default() };
    PserverWord { counters, ..PserverWord::default() }
}

#[test]
fn a_later_life_takes_the_name_of_a_pserver_and_the_copies_of_the_earlier_are_gone() {
    let (mut job, pservers, _) = copied(3);
    let old = pservers[1];
    let new = job.pserver("p1", 2, 1).unwrap();
    assert_ne!(new, old);
    assert!(!job.document().holds_copies(old) && !job.document().pservers.contains_key(&old));
    assert_eq!(job.report(old, PserverWord::default(), 2).unwrap_err().kind, RefusalKind::StaleIncarnation);
    assert_eq!(job.hear_pserver(old, at(2)).unwrap_err().kind, RefusalKind::StaleIncarnation);
    let on_new = job.document().blocks.iter().filter_map(|block| block.copy_on(new)).collect::<Vec<_>>();
    assert!(on_new.iter().all(|copy| copy.mark == Mark::Filling), "it begins empty");
    assert_eq!(job.front(), Step(0));
}

#[test]
fn a_pserver_without_an_open_call_is_a_suspect_until_it_has_one_or_is_lost() {
    let (mut job, pservers, _) = copied(3);
    let suspects_at =
        |job: &Job, millis| job.suspects(at(millis)).into_iter().map(|(who, _)| who).collect::<Vec<_>>();
    let suspects = |job: &Job| suspects_at(job, 4);
    let patience = UNATTENDED_MAX.as_millis() as u64;
    assert_eq!(suspects_at(&job, patience - 1), []);
    assert_eq!(suspects_at(&job, patience), pservers, "they have registered, and that is all");
    pservers.iter().for_each(|pserver| job.attend_pserver(*pserver, at(0)).unwrap());
    assert_eq!(suspects_at(&job, patience), []);
    job.suspect_pserver(pservers[0], at(1));
    job.suspect_pserver(pservers[2], at(1));
    job.suspect_pserver(Incarnation(77), at(1));
    let expected = [(pservers[0], "p0:7000".to_owned()), (pservers[2], "p2:7000".to_owned())];
    assert_eq!(job.suspects(at(1)), expected);
    assert_eq!(job.decide(at(1)), None, "suspicion alone decides nothing");
    job.hear_pserver(pservers[2], at(2)).unwrap();
    job.attend_pserver(pservers[0], at(2)).unwrap();
    assert_eq!(suspects(&job), [pservers[2]], "it was heard, but its end would not be told");
    job.lose_pserver(pservers[2]);
    assert_eq!(suspects(&job), []);
    job.settle(3);
    assert!(!job.document().holds_copies(pservers[2]), "at once, its time to live notwithstanding");
    let before = job.document().clone();
    job.suspect_pserver(pservers[2], at(4));
    job.lose_pserver(pservers[2]);
    job.settle(4);
    assert_eq!((suspects(&job), job.document()), (vec![], &before), "the lost are neither");
}

#[test]
fn an_overtaken_report_is_a_sign_of_life_and_nothing_else() {
    let (mut job, [p0, _], _) = training();
    job.report(p0, counted(9), 1).unwrap();
    let asked = Admission {
        block: BlockId(0),
        pserver: p0,
        fill: Fill(2),
        term: Term(2),
        primary: p0,
        is_heir: true,
    };
    let overtaken = PserverWord {
        call: 1,
        progress: job.standing(p0, 5),
        admissions: vec![asked],
        failure: "no".into(),
        is_leaving: true,
        ..counted(3)
    };
    let before = digest(&job);
    job.machine.report(p0, overtaken, at(1)).unwrap();
    assert_eq!(digest(&job), before);
    job.machine.report(p0, PserverWord { call: 1, ..counted(3) }, at(1000)).unwrap();
    job.pass(1 + TTL_MILLIS);
    assert_eq!(job.pservers.get(p0).unwrap().state, State::Live);
}

#[test]
fn a_leaving_pserver_may_leave_once_its_blocks_are_elsewhere_and_no_sooner() {
    let (mut job, pservers, _) = copied(3);
    let [leaver, other] = [pservers[1], pservers[0]];
    let may_leave = |job: &Job, who| job.assignment(who, 0, 0).unwrap().may_leave;
    assert!(!may_leave(&job, leaver));
    job.report(leaver, PserverWord { is_leaving: true, ..PserverWord::default() }, 1).unwrap();
    assert!(job.document().leaving.contains(&leaver) && job.document().holds_copies(leaver));
    assert!(!may_leave(&job, leaver), "its copies are still here");
    job.level(2);
    assert!(!job.document().holds_copies(leaver));
    assert!(may_leave(&job, leaver) && !may_leave(&job, other));
    assert!(job.document().blocks.iter().all(|block| block.copies.len() == 2 && block.rewind.0 <= 2));
}

#[test]
fn a_pserver_is_drained_by_name_once_and_never_the_last() {
    let (mut job, pservers, _) = copied(3);
    let unknown = job.drain("p9", false).unwrap_err();
    assert_eq!((unknown.kind, unknown.subject.as_str()), (RefusalKind::OutOfRange, "pserver \"p9\""));
    for _ in 0..2 {
        assert_eq!(job.drain("p1", false).unwrap(), pservers[1]);
        job.settle(1);
        assert_eq!((job.wanted().pservers, job.pservers_to_run()), (2, 2), "asked twice, left once");
    }
    job.level(2);
    assert!(!job.document().holds_copies(pservers[1]));
    job.drain("p0", false).unwrap();
    let refusal = job.drain("p2", false).unwrap_err();
    assert!(refusal.detail.contains("only one"), "{refusal}");
    assert_eq!(job.wanted().pservers, 1);
}

#[test]
fn a_pserver_that_is_to_be_replaced_stays_until_another_has_come() {
    let (mut job, pservers, _) = copied(2);
    let before = job.document().blocks.clone();
    job.drain("p1", true).unwrap();
    job.settle(1);
    assert_eq!((job.wanted().pservers, job.pservers_to_run()), (2, 3));
    assert_eq!((&job.document().blocks, job.document().leaving.len()), (&before, 0));
    job.restart("m2", 2);
    assert_eq!(job.pservers_to_run(), 3, "it is written down");
    let fresh = job.pserver("p2", 1, 3).unwrap();
    assert_eq!(job.pservers_to_run(), 2);
    job.level(4);
    assert!(!job.document().holds_copies(pservers[1]) && job.document().holds_copies(fresh));
}

#[test]
fn a_report_of_another_pservers_blocks_moves_no_front_and_of_unknown_ones_neither() {
    let (mut job, [p0, p1], _) = training();
    let mut said = job.standing(p1, 8);
    said.push(progress(99, Term(1), 8));
    job.say(p0, said, 1);
    job.publish(p0, 8, 1);
    assert_eq!(job.front(), Step(0));
}

/// A drain takes a master and a pserver that has told the old one that it goes. The new master counts on it until it is heard of, or not.
#[test]
fn a_master_that_has_just_begun_sends_nobody_away_while_it_counts_on_who_may_be_gone() {
    for is_gone in [true, false] {
        let (mut job, pservers, _) = copied(2);
        job.restart("m2", 2);
        let fresh = job.pserver("p2", 1, 3).unwrap();
        job.settle(3);
        assert!(job.document().leaving.is_empty(), "of three that are counted on one may be gone");
        [pservers[0], fresh].iter().for_each(|pserver| job.attend_pserver(*pserver, at(4)).unwrap());
        job.settle(4);
        assert!(job.document().leaving.is_empty());
        if is_gone {
            job.lose_pserver(pservers[1]);
        } else {
            job.report(pservers[1], PserverWord { call: 1, is_leaving: true, ..PserverWord::default() }, 5)
                .unwrap();
        }
        job.settle(5);
        assert!(!job.document().leaving.contains(&fresh), "{is_gone}");
    }
    // Of three that have all been heard of, one is too many.
    let (mut job, pservers, _) = copied(2);
    job.restart("m2", 2);
    let fresh = job.pserver("p2", 1, 3).unwrap();
    pservers.iter().chain([&fresh]).for_each(|pserver| job.attend_pserver(*pserver, at(4)).unwrap());
    job.settle(4);
    assert_eq!(job.document().leaving.iter().collect::<Vec<_>>(), [&fresh]);
}
