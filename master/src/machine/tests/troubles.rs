//! Who is waited for before a record is given up.

use super::fixture::*;
use super::*;
use crate::dispatch;
use shoal_runtime::cluster::Work;

/// A trainer cannot do the first microbatch of a task.
fn refused(task: &Task) -> Refused {
    let Work::Node { step, node, .. } = task.work else { panic!("a synchronous job") };
    Refused {
        lease: task.lease,
        place: dispatch::Refused { step, slot: node.first(), position: 0 },
        records: std::iter::once(3..4).collect(),
        why: "it is poison".into(),
    }
}

/// A trainer asks for one task, is given it, and cannot do its first microbatch. Returns whether there was one.
fn fails(job: &mut Job, trainer: Incarnation, call: u64, millis: u64) -> bool {
    job.pass(millis);
    let LeaseOutcome::Tasks(tasks) = job.call(trainer, call, &[], millis) else { return false };
    let refused = refused(&tasks[0]);
    let (word, knows) = (TrainerWord { call: call + 1, ..TrainerWord::default() }, refused.lease);
    let knows = [Progress { lease: knows, microbatches: 0, pushed: false, waits: false }];
    job.hear_trainer(trainer, word, &knows, &[refused], at(millis)).unwrap();
    job.settle(millis);
    true
}

#[test]
fn nobody_waits_for_what_a_trainer_would_say_that_hangs_and_everybody_for_one_that_asks() {
    for hangs in [true, false] {
        let (mut job, pservers, a) = training();
        let b = job.trainer("b", 1, 0).unwrap();
        // It has something to do from now on; whether it ever asks again is the question.
        assert!(matches!(job.call(b, 1, &[], 0), LeaseOutcome::Tasks(_)));
        let (mut call, mut failures) = (2, 0);
        for round in 1..=40 {
            let now = round * TTL_MILLIS / 2;
            for pserver in pservers {
                let word = job.word(pserver, 0);
                job.report(pserver, word, now).unwrap();
            }
            let word = TrainerWord { call: 1 + round, ..TrainerWord::default() };
            job.hear_trainer(b, word, &[], &[], at(now)).unwrap();
            if !hangs {
                // What it is given it finds nothing wrong with, and it never finishes.
                job.lease(b, 1 + round, 1, at(now));
            }
            failures += u32::from(fails(&mut job, a, call, now));
            call += 2;
        }
        assert!(failures >= 3, "{failures}");
        let is_over = matches!(job.phase(), Phase::Failed(_));
        assert_eq!(is_over, hangs, "after {failures} failures");
    }
}

#[test]
fn who_complains_of_what_is_left_out_already_says_nothing_new() {
    let (mut job, _, a) = training();
    job.machine.wishes.wanted.exclude_max = 1;
    let mut call = 1;
    while job.document().exclusions.list.is_empty() {
        assert!(call < 9 && fails(&mut job, a, call, call));
        call += 2;
    }
    job.publish_everywhere(0, call);
    assert!(fails(&mut job, a, call, call), "it has not heard of it");
    assert!(job.document().troubles.is_empty(), "{:?}", job.document().troubles);
}

fn expired(job: &Job) -> u64 {
    job.job.as_ref().unwrap().dispatch.counters().expired
}

#[test]
fn a_word_that_comes_after_its_lease_has_ended_counts_once_however_often_it_is_said() {
    let (mut job, pservers, a) = training();
    let (mut call, mut now) = (1, 0);
    for attempts in 1..3 {
        let LeaseOutcome::Tasks(tasks) = job.call(a, call, &[], now) else { panic!("nothing to do") };
        let before = expired(&job);
        // It speaks, and is not done before its lease has ended.
        for _ in 0..8 {
            now += TTL_MILLIS / 4;
            call += 1;
            for pserver in pservers {
                let word = job.word(pserver, 0);
                job.report(pserver, word, now).unwrap();
            }
            let knows = [Progress { lease: tasks[0].lease, microbatches: 0, pushed: false, waits: false }];
            let word = TrainerWord { call, ..TrainerWord::default() };
            job.hear_trainer(a, word, &knows, &[], at(now)).unwrap();
            job.pass(now);
        }
        assert_eq!(expired(&job), before + 1);
        for _ in 0..3 {
            call += 1;
            let word = TrainerWord { call, ..TrainerWord::default() };
            job.hear_trainer(a, word, &[], &[refused(&tasks[0])], at(now)).unwrap();
            job.settle(now);
            assert_eq!(job.document().troubles[0].attempts, attempts);
        }
        call += 1;
    }
}
