//! Tests of the master's machine: joins, registrations, leases, reports and ends, as callers meet them.

use super::*;
use crate::lease::Progress;
use crate::members::State;
use crate::reports::BlockProgress;
use proptest::prelude::*;
use shoal_runtime::cluster::initial::Initial;
use shoal_runtime::cluster::parameter::{Parameter, Rule};
use shoal_runtime::cluster::schedule::Schedule;
use shoal_runtime::cluster::{BlockId, JobId, LeaseId, Node, Task, Version};

const TTL_MILLIS: u64 = 1600;
const PATIENCE_MILLIS: u64 = TTL_MILLIS * PSERVER_PATIENCE_TTLS as u64;

fn at(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn manifest(records: u64) -> Manifest {
    let mut manifest = Manifest::default();
    manifest.push_file("train.recordio".into(), 0);
    let mut left = records as u32;
    while left > 0 {
        manifest.push_chunk(0, 100, left.min(7), 1);
        left -= left.min(7);
    }
    manifest
}

fn settings(records: u64, microbatch_records: u32, microbatches_per_step: u32, epochs: u64) -> JobSettings {
    JobSettings {
        job: JobId("digits-1".into()),
        seed: 7,
        epochs,
        microbatch_records,
        microbatches_per_step,
        shuffle_run: 2,
        records,
        manifest_fingerprint: [0; 32],
        lease_ttl_millis: TTL_MILLIS,
    }
}

/// Two epochs of four steps of eight microbatches, waiting for so many pservers.
fn machine(pservers: u32) -> Machine {
    Machine::new(settings(64, 2, 8, 2), manifest(64), Wanted { pservers, trainers: 2 }, 1)
}

/// Five blocks: four of `w`, one of `b` (25 elements would not fit beside it).
fn declaration() -> Declaration {
    let dense = |name, elements| {
        Parameter::new(name, &[elements], Rule::Sgd, Schedule::constant(0.1), Initial::Zeros)
    };
    Declaration { parameters: vec![dense("w", 100), dense("b", 10)], block_elements: 25 }
}

fn digest(machine: &Machine) -> String {
    format!("{machine:?}")
}

/// The calls of a scenario, with what most of them do not care about left out.
impl Machine {
    fn pserver(&mut self, name: &str, nonce: u64, millis: u64) -> Result<Incarnation, Refusal> {
        self.register(name, &format!("{name}:7000"), nonce, 1, at(millis))
    }
    fn trainer(&mut self, name: &str, nonce: u64, millis: u64) -> Result<Incarnation, Refusal> {
        self.join(name, nonce, 1, declaration(), at(millis)).map(|(incarnation, _)| incarnation)
    }
    fn call(&mut self, trainer: Incarnation, call: u64, progress: &[Progress], millis: u64) -> LeaseOutcome {
        let word = TrainerWord { call, ..TrainerWord::default() };
        match self.hear_trainer(trainer, word, progress, at(millis)) {
            Ok(true) => self.lease(trainer, call, 1, at(millis)),
            Ok(false) => LeaseOutcome::Overtaken,
            Err(refusal) => panic!("{refusal}"),
        }
    }
    fn bye(&mut self, trainer: Incarnation, failure: &str, millis: u64) -> Result<(), Refusal> {
        self.leave(trainer, &[], TrainerCounters::default(), failure, at(millis))
    }
    fn say(&mut self, pserver: Incarnation, progress: Vec<BlockProgress>, millis: u64) -> Option<Assignment> {
        self.report(pserver, 1, progress, PserverCounters::default(), "", at(millis)).unwrap()
    }
    fn blocks_of(&self, pserver: Incarnation) -> Vec<BlockId> {
        let routing = &self.job.as_ref().unwrap().routing;
        let at = routing.pservers.iter().position(|known| known.incarnation == pserver);
        at.map_or_else(Vec::new, |at| routing.blocks_of(at))
    }
    /// One pserver says that all of its blocks stand at `version`.
    fn publish(&mut self, pserver: Incarnation, version: u64, millis: u64) {
        let blocks = self.blocks_of(pserver);
        self.say(pserver, vec![BlockProgress { blocks, version: Version(version), held: vec![] }], millis);
    }
    fn publish_everywhere(&mut self, version: u64, millis: u64) {
        let pservers: Vec<Incarnation> = self.pservers.live().map(|(incarnation, _)| incarnation).collect();
        for pserver in pservers {
            self.publish(pserver, version, millis);
        }
    }
}

fn only_task(outcome: LeaseOutcome) -> Task {
    match outcome {
        LeaseOutcome::Tasks(mut tasks) if tasks.len() == 1 => tasks.remove(0),
        other => panic!("expected one task, got {other:?}"),
    }
}
fn knows(task: &Task) -> Progress {
    Progress { lease: task.lease, microbatches: 0, pushed: false }
}
fn node(level: u8, index: u32) -> Node {
    Node { level, index }
}

/// A job in training: two pservers, one trainer `a` that has asked for nothing yet.
fn training() -> (Machine, [Incarnation; 2], Incarnation) {
    let mut machine = machine(2);
    let pservers = [machine.pserver("p0", 1, 0).unwrap(), machine.pserver("p1", 1, 0).unwrap()];
    let trainer = machine.trainer("a", 1, 0).unwrap();
    (machine, pservers, trainer)
}

#[test]
fn a_job_waits_for_the_declaration_and_for_the_wanted_pservers_whichever_comes_first() {
    let mut trainer_first = machine(2);
    let (a, routing) = trainer_first.join("a", 1, 1, declaration(), at(0)).unwrap();
    assert_eq!((routing, trainer_first.call(a, 1, &[], 0)), (None, LeaseOutcome::Wait));
    trainer_first.pserver("p0", 1, 1).unwrap();
    assert_eq!(trainer_first.phase(), Phase::Waiting);
    assert_eq!(trainer_first.call(a, 2, &[], 1), LeaseOutcome::Wait);
    trainer_first.pserver("p1", 1, 2).unwrap();
    assert_eq!(trainer_first.phase(), Phase::Training);
    assert!(trainer_first.join("a", 1, 1, declaration(), at(3)).unwrap().1.is_some(), "asked again");
    only_task(trainer_first.call(a, 3, &[], 3));

    let mut pservers_first = machine(1);
    pservers_first.pserver("p0", 1, 0).unwrap();
    assert_eq!(pservers_first.phase(), Phase::Waiting);
    assert!(pservers_first.join("a", 1, 1, declaration(), at(0)).unwrap().1.is_some());
}

#[test]
fn a_pserver_that_fell_silent_before_placement_is_waited_for_and_hurts_nobody() {
    let mut machine = machine(1);
    let early = machine.pserver("p0", 1, 0).unwrap();
    machine.tick(at(PATIENCE_MILLIS));
    machine.trainer("a", 1, PATIENCE_MILLIS).unwrap();
    assert_eq!(machine.phase(), Phase::Waiting, "blocks are not placed on a silent pserver");
    machine.pserver("p0", 2, PATIENCE_MILLIS + 1).unwrap();
    assert_eq!((machine.phase(), machine.blocks_of(early).len()), (Phase::Training, 0));
}

#[test]
fn another_jobs_call_is_refused_and_told_what_runs_here() {
    let refusal = machine(1).check_job("digits-2").unwrap_err();
    assert_eq!((refusal.kind, refusal.subject.as_str()), (RefusalKind::WrongJob, "job \"digits-2\""));
    assert!(refusal.detail.contains("digits-1"));
    machine(1).check_job("digits-1").unwrap();
}

#[test]
fn a_declaration_that_differs_is_refused_by_parameter_and_changes_nothing() {
    let (mut machine, ..) = training();
    let before = digest(&machine);
    let mut other = declaration();
    other.parameters[1].shape = vec![11];
    for (name, nonce) in [("b", 1), ("a", 1), ("a", 2)] {
        let refusal = machine.join(name, nonce, 1, other.clone(), at(5)).unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::DeclarationMismatch);
        assert_eq!(refusal.subject, "parameter \"b\"");
    }
    assert_eq!(digest(&machine), before);
}

#[test]
fn a_superseded_trainers_leases_are_released_to_its_later_life() {
    let (mut machine, _, old) = training();
    let task = only_task(machine.call(old, 1, &[], 1));
    let new = machine.trainer("a", 2, 2).unwrap();
    assert_eq!(only_task(machine.call(new, 1, &[], 2)).node, task.node);
    let word = TrainerWord { call: 2, ..TrainerWord::default() };
    let refusal = machine.hear_trainer(old, word, &[knows(&task)], at(3)).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::StaleIncarnation);
    assert!(refusal.subject.contains("\"a\""));
}

#[test]
fn a_silent_trainers_leases_are_released_and_it_may_come_back() {
    let (mut machine, _, a) = training();
    let b = machine.trainer("b", 1, 0).unwrap();
    let task = only_task(machine.call(a, 1, &[], 1));
    let ours = only_task(machine.call(b, 1, &[], 1));
    machine.call(b, 2, &[knows(&ours)], 1000);
    assert_eq!(machine.next_deadline(), Some(at(1 + TTL_MILLIS)));
    machine.tick(at(1 + TTL_MILLIS));
    assert_eq!(machine.trainers.get(a).unwrap().state, State::Lost);
    let again = Progress { microbatches: 1, ..knows(&ours) };
    assert_eq!(only_task(machine.call(b, 3, &[again], 1 + TTL_MILLIS)).step, Step(0));
    machine.call(a, 2, &[knows(&task)], 2 + TTL_MILLIS);
    assert_eq!(machine.trainers.get(a).unwrap().state, State::Live);
}

#[test]
fn a_call_kept_open_gives_nothing_to_a_trainer_that_has_left_or_fallen_silent_meanwhile() {
    let (mut machine, _, a) = training();
    let word = TrainerWord { call: 1, ..TrainerWord::default() };
    assert!(machine.hear_trainer(a, word, &[], at(0)).unwrap());
    machine.tick(at(TTL_MILLIS));
    let before = digest(&machine);
    assert_eq!(machine.lease(a, 1, 1, at(TTL_MILLIS)), LeaseOutcome::Wait);
    assert_eq!(machine.lease(Incarnation(99), 1, 1, at(TTL_MILLIS)), LeaseOutcome::Overtaken);
    assert_eq!(digest(&machine), before);
    machine.bye(a, "", TTL_MILLIS).unwrap();
    assert_eq!(machine.lease(a, 1, 1, at(TTL_MILLIS)), LeaseOutcome::Overtaken);
    let b = machine.trainer("b", 1, TTL_MILLIS).unwrap();
    machine.trainer("b", 2, TTL_MILLIS).unwrap();
    assert_eq!(machine.lease(b, 1, 1, at(TTL_MILLIS)), LeaseOutcome::Overtaken);
}

#[test]
fn an_overtaken_call_changes_nothing() {
    let (mut machine, _, a) = training();
    let task = only_task(machine.call(a, 5, &[], 1));
    let before = digest(&machine);
    let progress = [Progress { lease: task.lease, microbatches: 8, pushed: true }];
    for call in [4, 5] {
        let counters = TrainerCounters { records: 9, ..TrainerCounters::default() };
        assert!(!machine.hear_trainer(a, TrainerWord { call, counters }, &progress, at(1000)).unwrap());
        assert!(!machine.hear_trainer(a, TrainerWord { call, counters }, &[], at(1000)).unwrap());
    }
    assert_eq!(machine.lease(a, 4, 1, at(1000)), LeaseOutcome::Overtaken);
    assert_eq!(digest(&machine), before);
}

#[test]
fn a_grant_whose_reply_was_lost_is_given_again_with_the_next_call() {
    let (mut machine, _, a) = training();
    let lost = only_task(machine.call(a, 1, &[], 1));
    let again = only_task(machine.call(a, 2, &[], 2));
    assert_eq!((again.node, again.step), (lost.node, lost.step));
    let next = only_task(machine.call(a, 3, &[knows(&again)], 3));
    assert_eq!(next.step, Step(1), "what it knows it keeps");
}

#[test]
fn who_leaves_hands_back_what_it_has_not_pushed() {
    let (mut machine, _, a) = training();
    let b = machine.trainer("b", 1, 0).unwrap();
    let left = only_task(machine.call(a, 1, &[], 1));
    let ours = only_task(machine.call(b, 1, &[], 1));
    assert_eq!((left.node, ours.node), (node(2, 0), node(2, 1)));
    machine.bye(a, "", 2).unwrap();
    assert_eq!(only_task(machine.call(b, 2, &[knows(&ours)], 2)).node, left.node);
    assert_eq!(machine.phase(), Phase::Training);
}

#[test]
fn what_a_leaving_trainer_says_it_has_pushed_is_not_leased_to_others_before_it_expires() {
    let (mut machine, _, a) = training();
    let b = machine.trainer("b", 1, 0).unwrap();
    let task = only_task(machine.call(a, 1, &[], 1));
    let ours = only_task(machine.call(b, 1, &[], 1));
    let pushed = Progress { lease: task.lease, microbatches: 4, pushed: true };
    machine.leave(a, &[pushed], TrainerCounters::default(), "", at(2)).unwrap();
    let next = only_task(machine.call(b, 2, &[knows(&ours)], 2));
    assert_eq!(next.step, Step(1));
    machine.call(b, 3, &[knows(&ours), knows(&next)], 1500);
    machine.tick(at(2 + TTL_MILLIS));
    let known = [Progress { microbatches: 1, ..knows(&ours) }, knows(&next)];
    assert_eq!(only_task(machine.call(b, 4, &known, 2 + TTL_MILLIS)).step, Step(0), "no block has it");
}

#[test]
fn the_front_follows_the_pservers_reports_of_all_blocks() {
    let (mut machine, [p0, p1], a) = training();
    let task = only_task(machine.call(a, 1, &[], 1));
    machine.call(a, 2, &[Progress { lease: task.lease, microbatches: 8, pushed: true }], 2);
    assert_eq!(machine.front(), Step(0), "a trainer's word moves nothing");
    machine.publish(p0, 1, 3);
    assert_eq!(machine.front(), Step(0));
    let some = machine.blocks_of(p1)[..1].to_vec();
    machine.say(p1, vec![BlockProgress { blocks: some, version: Version(1), held: vec![] }], 4);
    assert_eq!(machine.front(), Step(0), "some block of p1 is unheard of");
    machine.publish(p1, 1, 5);
    assert_eq!(machine.front(), Step(1));
    machine.publish(p1, 0, 6);
    assert_eq!(machine.front(), Step(1), "an overtaken report");
}

#[test]
fn a_pserver_of_another_routing_is_told_what_to_host_and_its_report_does_not_count() {
    let (mut machine, [p0, p1], _) = training();
    machine.publish(p1, 3, 1);
    let blocks = machine.blocks_of(p0);
    let said = vec![BlockProgress { blocks: blocks.clone(), version: Version(3), held: vec![] }];
    let assignment = machine.report(p0, 0, said, PserverCounters::default(), "", at(1)).unwrap().unwrap();
    assert_eq!(assignment, Assignment { routing_version: 1, declaration: declaration(), blocks });
    assert_eq!(machine.front(), Step(0));
    let extra = machine.pserver("p2", 1, 2).unwrap();
    let none = machine.report(extra, 0, vec![], PserverCounters::default(), "", at(2)).unwrap().unwrap();
    assert_eq!(none.blocks, [], "who came after placement hosts nothing");
}

#[test]
fn a_job_is_done_only_after_all_blocks_have_reported_the_last_step() {
    let (mut machine, [p0, p1], a) = training();
    let steps = machine.settings().steps();
    machine.publish_everywhere(steps - 1, 1);
    let last = only_task(machine.call(a, 1, &[], 2));
    assert_eq!(last.step, Step(steps - 1));
    let pushed = [Progress { lease: last.lease, microbatches: 8, pushed: true }];
    assert_eq!(machine.call(a, 2, &pushed, 3), LeaseOutcome::Wait);
    machine.publish(p0, steps, 4);
    assert_eq!((machine.phase(), machine.call(a, 3, &pushed, 4)), (Phase::Training, LeaseOutcome::Wait));
    machine.publish(p1, steps, 5);
    assert_eq!((machine.phase(), machine.call(a, 4, &[], 5)), (Phase::Done, LeaseOutcome::Done));
    machine.tick(at(PATIENCE_MILLIS * 2));
    machine.pserver("p0", 2, PATIENCE_MILLIS * 2).unwrap();
    assert_eq!(machine.phase(), Phase::Done, "a finished job does not fail any more");
}

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
