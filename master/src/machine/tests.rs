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

mod ends;

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
    assert_eq!(trainer_first.next_deadline(), Some(at(TTL_MILLIS)), "when it may be lost");
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
    assert_eq!(machine.next_deadline(), Some(at(PATIENCE_MILLIS)));
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
    let again = only_task(machine.call(new, 1, &[], 2));
    assert_eq!((again.step, again.node), (task.step, task.node));
    for call in [1, 2] {
        let word = TrainerWord { call, ..TrainerWord::default() };
        let refusal = machine.hear_trainer(old, word, &[knows(&task)], at(3)).unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::StaleIncarnation, "late or not");
        assert!(refusal.subject.contains("\"a\""));
    }
}

#[test]
fn a_silent_trainers_leases_are_released_and_it_may_come_back() {
    let (mut machine, _, a) = training();
    let b = machine.trainer("b", 1, 0).unwrap();
    let task = only_task(machine.call(a, 1, &[], 1));
    let ours = only_task(machine.call(b, 1, &[], 1));
    let next = only_task(machine.call(a, 2, &[knows(&task)], 1));
    assert_eq!((task.step, next.step), (Step(0), Step(1)));
    machine.tick(at(1000));
    machine
        .hear_trainer(b, TrainerWord { call: 2, ..TrainerWord::default() }, &[knows(&ours)], at(1000))
        .unwrap();
    assert_eq!(machine.next_deadline(), Some(at(1 + TTL_MILLIS)));
    machine.tick(at(1 + TTL_MILLIS));
    assert_eq!(machine.trainers.get(a).unwrap().state, State::Lost);
    assert_eq!(machine.job.as_ref().unwrap().leases.in_hand(a), 0, "of either step");
    let again = Progress { microbatches: 1, ..knows(&ours) };
    assert_eq!(only_task(machine.call(b, 3, &[again], 1 + TTL_MILLIS)).step, Step(0));
    machine.call(a, 3, &[knows(&task)], 2 + TTL_MILLIS);
    assert_eq!(machine.trainers.get(a).unwrap().state, State::Live);
}

#[test]
fn a_trainer_that_speaks_without_progress_stays_a_member_and_loses_its_lease_in_time() {
    let (mut machine, pservers, a) = training();
    let task = only_task(machine.call(a, 1, &[], 1));
    machine.call(a, 2, &[knows(&task)], 1000);
    pservers.iter().for_each(|pserver| machine.publish(*pserver, 0, 1000));
    assert_eq!(machine.next_deadline(), Some(at(1 + TTL_MILLIS)));
    machine.tick(at(1 + TTL_MILLIS));
    let leases = &machine.job.as_ref().unwrap().leases;
    assert_eq!((leases.in_hand(a), leases.counters().expired), (1, 1), "that of the next step it keeps");
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
