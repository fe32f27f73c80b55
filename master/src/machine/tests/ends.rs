//! How jobs end, how blocks are placed, and what every call keeps.

use super::*;
use crate::document::{Evaluation, KeptCheckpoint, Value, Wanted};
use crate::fixture::{at, manifest, settings};
use shoal_runtime::cluster::routing::BlockRoute;
use shoal_runtime::cluster::{
    CheckpointId, Evaluated, LeaseId, ManifestRecord, Period, RewindCause, RewindCauses,
};

#[test]
fn the_third_trainer_that_fails_fails_the_job_with_its_message() {
    let (mut machine, _, a) = training();
    let others: Vec<Incarnation> = (0..5).map(|n| machine.trainer(&format!("t{n}"), 1, 0).unwrap()).collect();
    machine.bye(others[0], "", 1).unwrap();
    for _ in 0..3 {
        machine.bye(others[1], "cannot read chunk 4", 2).unwrap();
    }
    machine.bye(others[2], "loss is not finite", 3).unwrap();
    machine.trainer("t3", 2, 3).unwrap();
    machine.pass(3);
    assert_eq!(
        machine.phase(),
        Phase::Training,
        "leaving, being replaced and saying it twice are no failures"
    );
    machine.bye(others[4], "out of memory", 4).unwrap();
    let Phase::Failed(why) = machine.phase() else { panic!("{:?}", machine.phase()) };
    assert!(why.contains("out of memory") && why.contains('3'), "{why}");
    assert_eq!(machine.call(a, 1, &[], 5), LeaseOutcome::Failed(why.clone()));
    machine.publish_everywhere(machine.settings().steps(), 6);
    assert_eq!(machine.phase(), Phase::Failed(why), "a failure is final");
}

#[test]
fn steps_that_others_make_forgive_trainers_that_failed_and_steps_made_again_do_not() {
    let (mut job, _, _) = training();
    let mut born = 0;
    let mut fails = |job: &mut Job| {
        born += 1;
        let trainer = job.trainer(&format!("t{born}"), 1, 0).unwrap();
        job.bye(trainer, "cannot read chunk 4", 0).unwrap();
        job.phase() == Phase::Training
    };
    // Two a step, as data errors of a month are.
    for version in 1..=3 {
        assert!(fails(&mut job) && fails(&mut job), "step {version}");
        assert_eq!(job.document().failures, 2);
        job.publish_everywhere(version, 0);
    }
    assert!(fails(&mut job));
    // The next master is told of those, and cannot know what was made before its time.
    job.restart("m2", 0);
    job.publish_everywhere(3, 0);
    assert!(fails(&mut job));
    assert_eq!(job.document().failures, 2);
    // Started again, and gone back: what is made again was made before.
    for name in ["p0", "p1"] {
        job.pserver(name, 2, 1).unwrap();
    }
    job.publish_everywhere(0, 1);
    assert_eq!(job.front(), Step(0));
    job.publish_everywhere(2, 1);
    assert_eq!(job.front(), Step(2));
    let trainer = job.trainer("last", 1, 1).unwrap();
    job.bye(trainer, "loss is not finite", 1).unwrap();
    assert!(matches!(job.phase(), Phase::Failed(why) if why.contains("loss is not finite")));
}

#[test]
fn trainers_that_fall_silent_are_no_failures() {
    let (mut machine, pservers, _) = training();
    for life in 0..10 {
        let millis = life * TTL_MILLIS;
        machine.trainer(&format!("t{life}"), 1, millis).unwrap();
        pservers.iter().for_each(|pserver| machine.publish(*pserver, 0, millis));
        machine.pass(millis + TTL_MILLIS);
    }
    assert_eq!(machine.phase(), Phase::Training);
}

#[test]
fn a_lost_pserver_is_waited_for_and_then_its_job_goes_back_without_it() {
    let (mut machine, [p0, p1], a) = training();
    machine.publish_everywhere(1, 0);
    assert_eq!(machine.front(), Step(1));
    machine.publish(p0, 1, 1000);
    machine.pass(TTL_MILLIS - 1);
    assert_eq!(machine.pservers.get(p1).unwrap().state, State::Live);
    machine.pass(TTL_MILLIS);
    assert_eq!(machine.pservers.get(p1).unwrap().state, State::Lost);
    let before = machine.document().clone();
    machine.publish(p0, 1, 2000);
    machine.pass(2 * TTL_MILLIS - 1);
    assert_eq!(*machine.document(), before, "a replacement, or its return, is waited for");
    machine.pass(2 * TTL_MILLIS);
    assert_eq!((machine.phase(), machine.blocks_of(p0).len()), (Phase::Training, 5));
    assert_eq!(machine.front(), Step(0), "there is no copy of what it held");
    assert_eq!(
        machine.lease(a, 1, 1, at(2 * TTL_MILLIS)),
        LeaseOutcome::Wait,
        "nothing is known of the new history"
    );
}

#[test]
fn a_pserver_that_was_started_again_brings_its_job_back_at_once() {
    let (mut machine, [_, p1], _) = training();
    let (before, led) = (machine.document().clone(), machine.blocks_of(p1).len());
    assert_eq!(machine.pserver("p1", 1, 1).unwrap(), p1, "the same life registering again is harmless");
    assert_eq!(*machine.document(), before);
    let again = machine.pserver("p1", 2, 2).unwrap();
    let version = machine.document().routing_version;
    assert!(version > before.routing_version);
    assert!(machine.document().blocks.iter().all(|block| block.rewind == Rewind(version)), "all of them");
    assert_eq!((before.rewinds, machine.document().rewinds), (0, 1), "placing blocks is no going back");
    assert_eq!(machine.document().rewind_causes, RewindCauses::from([(RewindCause::PserverLost, 1)]));
    assert_eq!((machine.blocks_of(p1).len(), machine.blocks_of(again).len()), (0, led));
}

#[test]
fn a_pserver_that_is_replaced_calls_for_one_other_and_only_until_it_leaves() {
    let (mut machine, [_, p1], _) = training();
    machine.drain("p1", true).unwrap();
    machine.settle(1);
    assert_eq!(machine.pservers_to_run(), 3);
    machine.pserver("p2", 1, 2).unwrap();
    assert!(machine.document().leaving.contains(&p1));
    assert_eq!(machine.pservers_to_run(), 2);
    machine.lose_pserver(p1);
    machine.settle(3);
    assert_eq!(machine.pservers_to_run(), 2, "it is gone, as it was told to");
    let (mut machine, [_, p1], _) = training();
    machine.drain("p1", true).unwrap();
    machine.settle(1);
    machine.lose_pserver(p1);
    machine.settle(2);
    assert_eq!(machine.pservers_to_run(), 2, "it was gone before: only the wanted ones are missing");
}

#[test]
fn of_pservers_from_before_its_time_a_master_asks_whether_they_are_still_there_until_they_attend() {
    let (mut machine, [p0, p1], _) = training();
    machine.restart("m2", 10);
    let suspects =
        |machine: &Job| machine.suspects(at(11)).into_iter().map(|(who, _)| who).collect::<Vec<_>>();
    assert_eq!(suspects(&machine), [p0, p1]);
    machine.attend_pserver(p0, at(11)).unwrap();
    assert_eq!(suspects(&machine), [p1]);
    machine.lose_pserver(p1);
    assert_eq!(machine.pservers.get(p1).unwrap().state, State::Lost);
}

#[test]
fn a_pserver_that_says_why_it_cannot_go_on_fails_the_job_with_its_words() {
    let (mut machine, [p0, _], _) = training();
    let why = "block 3: two results for node (1, 2) differ";
    machine.report(p0, PserverWord { failure: why.into(), ..PserverWord::default() }, 1).unwrap();
    assert_eq!(machine.phase(), Phase::Failed(why.to_owned()));
    let another = PserverWord { failure: "and then another".into(), ..PserverWord::default() };
    machine.report(p0, another, 2).unwrap();
    assert_eq!(machine.phase(), Phase::Failed(why.to_owned()), "the first cause is kept");
}

#[test]
fn a_pserver_without_blocks_may_be_lost_or_started_again() {
    let (mut machine, pservers, _) = training();
    let before = machine.document().blocks.clone();
    machine.pserver("p2", 1, 0).unwrap();
    pservers.iter().for_each(|pserver| machine.publish(*pserver, 0, 1000));
    machine.pass(TTL_MILLIS);
    machine.pserver("p2", 2, TTL_MILLIS).unwrap();
    assert_eq!((machine.phase(), &machine.document().blocks), (Phase::Training, &before));
}

#[test]
fn placement_does_not_depend_on_who_registers_first() {
    let place = |order: [&str; 3]| {
        let mut machine = waiting(3);
        machine.trainer("a", 1, 0).unwrap();
        for (millis, name) in order.into_iter().enumerate() {
            machine.pserver(name, 1 + millis as u64, millis as u64).unwrap();
        }
        let routing = machine.job.as_ref().unwrap().routing.as_ref().clone();
        let address = |route: &BlockRoute| routing.pservers[route.primary as usize].address.clone();
        routing.blocks.iter().map(address).collect::<Vec<String>>()
    };
    let first = place(["p0", "p1", "p2"]);
    assert!(first.is_sorted(), "{first:?}");
    assert!(
        ["p0:7000", "p1:7000", "p2:7000"].iter().all(|name| first.iter().any(|at| at == name)),
        "{first:?}"
    );
    for order in
        [["p0", "p2", "p1"], ["p1", "p0", "p2"], ["p1", "p2", "p0"], ["p2", "p0", "p1"], ["p2", "p1", "p0"]]
    {
        assert_eq!(place(order), first, "{order:?}");
    }
}

proptest! {
    #[test]
    fn records_trained_are_those_of_the_tasks_and_add_up_to_all_epochs(
        records in 1u64..90, microbatch in 1u32..6, slots in 1u32..9, epochs in 1u64..4, trainers in 1u64..4
    ) {
        let settings = settings(records, microbatch, slots, epochs);
        let steps = settings.steps();
        let mut machine = Job::new(settings, 1, 0);
        let p0 = machine.pserver("p0", 1, 0).unwrap();
        let names: Vec<Incarnation> =
            (0..trainers).map(|n| machine.trainer(&format!("t{n}"), 1, 0).unwrap()).collect();
        machine.publish(p0, 0, 0);
        let mut by_tasks = vec![0; steps as usize + 2];
        let mut known: BTreeMap<Incarnation, Vec<Progress>> = BTreeMap::new();
        let (mut call, mut calls_in_step) = (0, 0);
        while machine.phase() != Phase::Done {
            call += 1;
            let trainer = names[(call % trainers) as usize];
            let known = known.entry(trainer).or_default();
            if let LeaseOutcome::Tasks(tasks) = machine.call(trainer, call, known, 0) {
                for task in tasks {
                    known.push(Progress { pushed: true, ..knows(&task) });
                    let slices = task.microbatches.iter().flat_map(|microbatch| &microbatch.slices);
                    by_tasks[step(&task).0 as usize] += slices.map(|slice| u64::from(slice.records)).sum::<u64>();
                }
            }
            calls_in_step += 1;
            // Every slot has been leased: a call takes one task, and a step has no more tasks than slots.
            if calls_in_step == 2 * u64::from(slots) * trainers + trainers {
                let front = machine.front().0;
                prop_assert_eq!(machine.records_trained(), by_tasks[..front as usize].iter().sum::<u64>());
                machine.publish_everywhere(front + 1, 0);
                calls_in_step = 0;
            }
        }
        prop_assert_eq!(machine.records_trained(), records * epochs);
        prop_assert_eq!(by_tasks.iter().sum::<u64>(), records * epochs);
    }

    #[test]
    fn a_refused_call_changes_nothing(
        calls in proptest::collection::vec((0u8..9, 0u64..4, 0u64..3, 0u64..1200), 0..60)
    ) {
        let (mut machine, _, _) = training();
        let mut now = 0;
        for (call, who, nonce, wait) in calls {
            now += wait;
            machine.pass(now);
            let before = digest(&machine);
            // Incarnations of both roles are counted from one, so that unknown, live and final ones all occur.
            let member = Incarnation::new(1, who * 2 + nonce);
            let name = format!("{}{who}", if who % 2 == 0 { 'a' } else { 'p' });
            let tasks = [Progress { lease: LeaseId(nonce + 1), microbatches: who as u32, pushed: who == 3, waits: false }];
            let word = TrainerWord { call: now / 100, ..TrainerWord::default() };
            let counters = PserverCounters { pushes: now, ..PserverCounters::default() };
            let progress = vec![progress(0, Term(2), who)];
            let said = PserverWord { progress, counters, is_leaving: who == 2, ..PserverWord::default() };
            let broken = PserverWord { failure: "broken".into(), ..said.clone() };
            let refused = match call {
                0 => machine.trainer(&name, nonce, now).is_err(),
                1 => machine.pserver(&name, nonce, now).is_err(),
                2 => machine.bye(member, "", now).is_err(),
                3 => machine.bye(member, "it failed", now).is_err(),
                4 | 5 => machine.hear_trainer(member, word, &tasks, &[], at(now)).is_err(),
                6 => machine.report(member, said, now).is_err(),
                7 => machine.report(Incarnation::new(1, 77 + who), broken, now).is_err(),
                _ => {
                    let mut other = declaration();
                    other.block_elements += nonce;
                    machine.join(&name, nonce, 1, other, None, at(now)).is_err()
                }
            };
            if refused {
                prop_assert_eq!(digest(&machine), before);
            }
        }
    }
}

#[test]
fn a_job_is_not_done_before_its_last_evaluation_is_judged() {
    let evaluated = Some(Evaluated { records: 8, every: Period::Epochs(1), outputs: None });
    let wanted = Wanted { pservers: 1, trainers: 1, replicas: 0, exclude_max: 0 };
    let document = Document::new(JobSettings { evaluated, ..settings(16, 2, 2, 1) }, wanted);
    let mut job = Machine::new(document, manifest(24), at_the_end(), String::from("here"), at(0));
    let record = ManifestRecord { checkpoint: CheckpointId(1), bytes: 1, crc32: 1 };
    let version = job.document.last_version();
    job.document.checkpoints.push(KeptCheckpoint { record, version, rewind: Rewind(0), oldest: None });
    // As a master that takes over between the two knows it: the sums are still to be heard again.
    assert!(!job.is_complete());
    job.document.evaluations.push(Evaluation { values: vec![Value(Some(0.5))] });
    assert!(job.is_complete());
}
