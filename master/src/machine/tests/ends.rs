//! How jobs end, how blocks are placed, and what every call keeps.

use super::*;

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
    machine.tick(at(3));
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
fn trainers_that_fall_silent_are_no_failures() {
    let (mut machine, pservers, _) = training();
    for life in 0..10 {
        let millis = life * TTL_MILLIS;
        machine.trainer(&format!("t{life}"), 1, millis).unwrap();
        pservers.iter().for_each(|pserver| machine.publish(*pserver, 0, millis));
        machine.tick(at(millis + TTL_MILLIS));
    }
    assert_eq!(machine.phase(), Phase::Training);
}

#[test]
fn a_lost_pserver_fails_the_job_by_name_and_address() {
    let (mut machine, [p0, _], a) = training();
    machine.publish(p0, 0, 1000);
    machine.tick(at(PATIENCE_MILLIS - 1));
    assert_eq!(machine.phase(), Phase::Training);
    machine.tick(at(PATIENCE_MILLIS));
    let Phase::Failed(why) = machine.phase() else { panic!("{:?}", machine.phase()) };
    assert!(why.contains("\"p1\"") && why.contains("p1:7000") && why.contains("lost"), "{why}");
    assert_eq!(machine.lease(a, 1, 1, at(PATIENCE_MILLIS)), LeaseOutcome::Failed(why));
}

#[test]
fn a_pserver_that_was_started_again_fails_the_job_by_name() {
    let (mut machine, [_, p1], _) = training();
    assert_eq!(machine.pserver("p1", 1, 1).unwrap(), p1, "the same life registering again is harmless");
    assert_eq!(machine.phase(), Phase::Training);
    machine.pserver("p1", 2, 2).unwrap();
    let Phase::Failed(why) = machine.phase() else { panic!("{:?}", machine.phase()) };
    assert!(why.contains("\"p1\"") && why.contains("started again"), "{why}");
}

#[test]
fn a_pserver_that_says_why_it_cannot_go_on_fails_the_job_with_its_words() {
    let (mut machine, [p0, _], _) = training();
    let why = "block 3: two results for node (1, 2) differ";
    machine.report(p0, 1, vec![], PserverCounters::default(), why, at(1)).unwrap();
    assert_eq!(machine.phase(), Phase::Failed(why.to_owned()));
    machine.report(p0, 1, vec![], PserverCounters::default(), "and then another", at(2)).unwrap();
    assert_eq!(machine.phase(), Phase::Failed(why.to_owned()), "the first cause is kept");
}

#[test]
fn a_pserver_without_blocks_may_be_lost_or_started_again() {
    let (mut machine, pservers, _) = training();
    machine.pserver("p2", 1, 0).unwrap();
    pservers.iter().for_each(|pserver| machine.publish(*pserver, 0, 9000));
    machine.tick(at(PATIENCE_MILLIS));
    machine.pserver("p2", 2, PATIENCE_MILLIS).unwrap();
    assert_eq!(machine.phase(), Phase::Training);
}

#[test]
fn placement_does_not_depend_on_who_registers_first() {
    let place = |order: [&str; 3]| {
        let mut machine = machine(3);
        machine.trainer("a", 1, 0).unwrap();
        for (millis, name) in order.into_iter().enumerate() {
            machine.pserver(name, millis as u64, millis as u64).unwrap();
        }
        let routing = machine.job.unwrap().routing;
        let addresses: Vec<String> = routing.pservers.into_iter().map(|pserver| pserver.address).collect();
        (addresses, routing.primary)
    };
    let first = place(["p0", "p1", "p2"]);
    assert_eq!(first.0, ["p0:7000", "p1:7000", "p2:7000"]);
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
        let mut machine = Machine::new(settings, manifest(records), Wanted { pservers: 1, trainers: 1 }, 1);
        machine.pserver("p0", 1, 0).unwrap();
        let names: Vec<Incarnation> =
            (0..trainers).map(|n| machine.trainer(&format!("t{n}"), 1, 0).unwrap()).collect();
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
                    by_tasks[task.step.0 as usize] += slices.map(|slice| u64::from(slice.records)).sum::<u64>();
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
            machine.tick(at(now));
            let before = digest(&machine);
            // Incarnations of both roles are counted from one, so that unknown, live and final ones all occur.
            let member = Incarnation::new(1, who * 2 + nonce);
            let name = format!("{}{who}", if who % 2 == 0 { 'a' } else { 'p' });
            let progress = [Progress { lease: LeaseId(nonce + 1), microbatches: who as u32, pushed: who == 3 }];
            let word = TrainerWord { call: now / 100, ..TrainerWord::default() };
            let counters = PserverCounters { pushes: now, ..PserverCounters::default() };
            let said = vec![BlockProgress { blocks: vec![BlockId(0)], version: Version(who), held: vec![] }];
            let refused = match call {
                0 => machine.trainer(&name, nonce, now).is_err(),
                1 => machine.pserver(&name, nonce, now).is_err(),
                2 => machine.bye(member, "", now).is_err(),
                3 => machine.bye(member, "it failed", now).is_err(),
                4 | 5 => machine.hear_trainer(member, word, &progress, at(now)).is_err(),
                6 => machine.report(member, nonce, said, counters, "", at(now)).is_err(),
                7 => machine.report(Incarnation::new(1, 77 + who), 1, said, counters, "broken", at(now)).is_err(),
                _ => {
                    let mut other = declaration();
                    other.block_elements += nonce;
                    machine.join(&name, nonce, 1, other, at(now)).is_err()
                }
            };
            if refused {
                prop_assert_eq!(digest(&machine), before);
            }
        }
    }
}
