//! Tests of the master's machine: joins, registrations, leases and reports, as callers meet them.

use super::*;
use crate::document::{Mark, Wanted};
use crate::lease::Progress;
use crate::members::State;
use crate::reports::BlockProgress;
use fixture::*;
use proptest::prelude::*;
use shoal_job::counters::{PserverCounters, TrainerCounters};
use shoal_runtime::cluster::{BlockId, Fill, Ledger, Mode, Node, Rewind, Table, Task, Term, Version, Work};

mod counts;
mod damage;
mod deltas;
mod ends;
mod environments;
mod failover;
pub(crate) mod fixture;
mod histories;
mod hosts;
mod recorded;
mod standstill;
mod suspicions;
mod terms;
mod troubles;

#[test]
fn a_job_waits_for_the_declaration_and_for_the_wanted_pservers_whichever_comes_first() {
    let mut trainer_first = waiting(2);
    let (a, routing) = trainer_first.join("a", 1, 1, declaration(), None, at(0)).unwrap();
    trainer_first.settle(0);
    assert_eq!((routing, trainer_first.call(a, 1, &[], 0)), (None, LeaseOutcome::Wait));
    assert_eq!(trainer_first.next_deadline(), Some(at(TTL_MILLIS)), "when it may be lost");
    trainer_first.pserver("p0", 1, 1).unwrap();
    assert_eq!(trainer_first.phase(), Phase::Waiting);
    assert_eq!(trainer_first.call(a, 2, &[], 1), LeaseOutcome::Wait);
    trainer_first.pserver("p1", 1, 2).unwrap();
    assert_eq!(trainer_first.phase(), Phase::Training);
    assert!(trainer_first.join("a", 1, 1, declaration(), None, at(3)).unwrap().1.is_some(), "asked again");
    assert_eq!(trainer_first.call(a, 3, &[], 3), LeaseOutcome::Wait, "nothing is known of the blocks");
    trainer_first.publish_everywhere(0, 3);
    only_task(trainer_first.call(a, 4, &[], 3));

    let mut pservers_first = waiting(1);
    pservers_first.pserver("p0", 1, 0).unwrap();
    assert_eq!(pservers_first.phase(), Phase::Waiting);
    assert_eq!(
        pservers_first.join("a", 1, 1, declaration(), None, at(0)).unwrap().1,
        None,
        "nothing is adopted yet"
    );
    pservers_first.settle(0);
    assert!(pservers_first.join("a", 1, 1, declaration(), None, at(0)).unwrap().1.is_some());
}

#[test]
fn a_table_whose_rows_go_before_their_gradients_come_is_refused() {
    let table = |age_max| {
        let mut declaration = declaration();
        let table = Table { age_max: Some(age_max), ..Table::default() };
        declaration.parameters[0] = declaration.parameters[0].clone().as_table(table);
        declaration
    };
    let asynchronous = Mode::Async { staleness_window: 4, scale_by_staleness: false };
    let mut job = Job::new(JobSettings { mode: asynchronous, ..settings(8, 1, 4, 1) }, 1, 0);
    let refusal = job.join("a", 1, 1, table(4), None, at(0)).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::DeclarationMismatch);
    assert!(refusal.detail.contains("age_max above the staleness window (4)"), "{}", refusal.detail);
    assert!(job.join("a", 1, 1, table(5), None, at(0)).is_ok());
    assert!(waiting(1).join("a", 1, 1, table(1), None, at(0)).is_ok(), "steps name their versions");
}

#[test]
fn a_pserver_that_fell_silent_before_placement_is_waited_for_and_hurts_nobody() {
    let mut machine = waiting(1);
    let early = machine.pserver("p0", 1, 0).unwrap();
    assert_eq!(machine.next_deadline(), Some(at(TTL_MILLIS)));
    machine.pass(TTL_MILLIS);
    machine.trainer("a", 1, TTL_MILLIS).unwrap();
    assert_eq!(machine.phase(), Phase::Waiting, "blocks are not placed on a silent pserver");
    machine.pserver("p0", 2, TTL_MILLIS + 1).unwrap();
    assert_eq!((machine.phase(), machine.blocks_of(early).len()), (Phase::Training, 0));
}

#[test]
fn another_jobs_call_is_refused_and_told_what_runs_here() {
    let refusal = waiting(1).check_job("digits-2").unwrap_err();
    assert_eq!((refusal.kind, refusal.subject.as_str()), (RefusalKind::WrongJob, "job \"digits-2\""));
    assert!(refusal.detail.contains("digits-1"));
    waiting(1).check_job("digits-1").unwrap();
}

#[test]
fn a_declaration_that_differs_is_refused_by_parameter_and_changes_nothing() {
    let (mut machine, ..) = training();
    let before = digest(&machine);
    let mut other = declaration();
    other.parameters[1].shape = vec![11];
    for (name, nonce) in [("b", 1), ("a", 1), ("a", 2)] {
        let refusal = machine.join(name, nonce, 1, other.clone(), None, at(5)).unwrap_err();
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
    assert_eq!(work(&again), work(&task));
    for call in [1, 2] {
        let word = TrainerWord { call, ..TrainerWord::default() };
        let refusal = machine.hear_trainer(old, word, &[knows(&task)], &[], at(3)).unwrap_err();
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
    assert_eq!((step(&task), step(&next)), (Step(0), Step(1)));
    machine.publish_everywhere(0, 1000);
    machine
        .hear_trainer(b, TrainerWord { call: 2, ..TrainerWord::default() }, &[knows(&ours)], &[], at(1000))
        .unwrap();
    assert_eq!(machine.next_deadline(), Some(at(1 + TTL_MILLIS)));
    machine.pass(1 + TTL_MILLIS);
    assert_eq!(machine.trainers.get(a).unwrap().state, State::Lost);
    assert_eq!(machine.job.as_ref().unwrap().dispatch.in_hand(a), 0, "of either step");
    let again = Progress { microbatches: 1, ..knows(&ours) };
    assert_eq!(step(&only_task(machine.call(b, 3, &[again], 1 + TTL_MILLIS))), Step(0));
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
    machine.pass(1 + TTL_MILLIS);
    let leases = &machine.job.as_ref().unwrap().dispatch;
    assert_eq!((leases.in_hand(a), leases.counters().expired), (1, 1), "that of the next step it keeps");
    assert_eq!(machine.trainers.get(a).unwrap().state, State::Live);
}

#[test]
fn a_call_kept_open_gives_nothing_to_a_trainer_that_has_left_or_fallen_silent_meanwhile() {
    let (mut machine, _, a) = training();
    let word = TrainerWord { call: 1, ..TrainerWord::default() };
    assert!(machine.hear_trainer(a, word, &[], &[], at(0)).unwrap());
    machine.pass(TTL_MILLIS);
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
    let progress = [Progress { lease: task.lease, microbatches: 8, pushed: true, waits: false }];
    for call in [4, 5] {
        let counters = TrainerCounters { records: 9, ..TrainerCounters::default() };
        assert!(!machine.hear_trainer(a, TrainerWord { call, counters }, &progress, &[], at(1000)).unwrap());
        assert!(!machine.hear_trainer(a, TrainerWord { call, counters }, &[], &[], at(1000)).unwrap());
    }
    assert_eq!(machine.lease(a, 4, 1, at(1000)), LeaseOutcome::Overtaken);
    assert_eq!(digest(&machine), before);
}

#[test]
fn a_grant_whose_reply_was_lost_is_given_again_with_the_next_call() {
    let (mut machine, _, a) = training();
    let lost = only_task(machine.call(a, 1, &[], 1));
    let again = only_task(machine.call(a, 2, &[], 2));
    assert_eq!(work(&again), work(&lost));
    let next = only_task(machine.call(a, 3, &[knows(&again)], 3));
    assert_eq!(step(&next), Step(1), "what it knows it keeps");
}

#[test]
fn who_leaves_hands_back_what_it_has_not_pushed() {
    let (mut machine, _, a) = training();
    let b = machine.trainer("b", 1, 0).unwrap();
    let left = only_task(machine.call(a, 1, &[], 1));
    let ours = only_task(machine.call(b, 1, &[], 1));
    assert_eq!((work(&left).1, work(&ours).1), (node(2, 0), node(2, 1)));
    machine.bye(a, "", 2).unwrap();
    assert_eq!(work(&only_task(machine.call(b, 2, &[knows(&ours)], 2))), work(&left));
    assert_eq!(machine.phase(), Phase::Training);
}

#[test]
fn what_a_leaving_trainer_says_it_has_pushed_is_not_leased_to_others_before_it_expires() {
    let (mut machine, _, a) = training();
    let b = machine.trainer("b", 1, 0).unwrap();
    let task = only_task(machine.call(a, 1, &[], 1));
    let ours = only_task(machine.call(b, 1, &[], 1));
    let pushed = Progress { lease: task.lease, microbatches: 4, pushed: true, waits: false };
    machine.leave(a, &[pushed], TrainerCounters::default(), "", &[], at(2)).unwrap();
    let next = only_task(machine.call(b, 2, &[knows(&ours)], 2));
    assert_eq!(step(&next), Step(1));
    machine.call(b, 3, &[knows(&ours), knows(&next)], 1500);
    machine.publish_everywhere(0, 1500);
    machine.pass(2 + TTL_MILLIS);
    let known = [Progress { microbatches: 1, ..knows(&ours) }, knows(&next)];
    assert_eq!(step(&only_task(machine.call(b, 4, &known, 2 + TTL_MILLIS))), Step(0), "no block has it");
}

#[test]
fn the_front_follows_the_pservers_reports_of_all_blocks() {
    let (mut machine, [p0, p1], a) = training();
    let task = only_task(machine.call(a, 1, &[], 1));
    machine.call(a, 2, &[Progress { lease: task.lease, microbatches: 8, pushed: true, waits: false }], 2);
    assert_eq!(machine.front(), Step(0), "a trainer's word moves nothing");
    machine.publish(p0, 1, 3);
    assert_eq!(machine.front(), Step(0));
    let some = machine.standing(p1, 1)[..1].to_vec();
    machine.say(p1, some, 4);
    assert_eq!(machine.front(), Step(0), "some block of p1 has not published it");
    machine.publish(p1, 1, 5);
    assert_eq!(machine.front(), Step(1));
    let overtaken = PserverWord { call: 1, progress: machine.standing(p1, 2), ..PserverWord::default() };
    machine.machine.report(p1, overtaken, at(6)).unwrap();
    machine.publish(p0, 2, 7);
    assert_eq!(machine.front(), Step(1), "an overtaken report");
}

#[test]
fn a_pserver_of_another_routing_is_told_what_to_hold_and_its_report_does_not_count() {
    let (mut machine, [p0, p1], _) = training();
    machine.publish(p1, 3, 1);
    let blocks = machine.blocks_of(p0);
    let of_another_term = blocks.iter().map(|id| progress(id.0, Term(0), 3)).collect();
    machine.say(p0, of_another_term, 1);
    let of_another_host = machine.standing(p0, 3);
    machine.say(p1, of_another_host, 1);
    assert_eq!(machine.front(), Step(0));
    let version = machine.document().routing_version;
    let assignment = machine.assignment(p0, 1, version - 1).unwrap();
    assert_eq!((assignment.master_term, assignment.routing_version), (1, version));
    assert_eq!(assignment.declaration.map(Declaration::try_from), Some(Ok(declaration())));
    let told: Vec<BlockId> =
        assignment.blocks.iter().flat_map(|group| &group.blocks).map(|id| BlockId(*id)).collect();
    assert_eq!(told, blocks);
    assert_eq!(machine.assignment(p0, 1, version), None, "it knows");
    assert!(machine.assignment(p0, 0, version + 9).is_some(), "what a master before has told is old");
    let wanted = Wanted { pservers: 3, ..machine.wanted() };
    machine.scale(wanted);
    let extra = machine.pserver("p2", 1, 2).unwrap();
    assert_eq!(machine.blocks_of(extra), [], "who came after placement leads nothing yet");
}

#[test]
fn a_job_is_done_only_after_all_blocks_have_reported_the_last_step() {
    let (mut machine, [p0, p1], a) = training();
    let steps = machine.settings().steps();
    machine.publish_everywhere(steps - 1, 1);
    let last = only_task(machine.call(a, 1, &[], 2));
    assert_eq!(step(&last), Step(steps - 1));
    let pushed = [Progress { lease: last.lease, microbatches: 8, pushed: true, waits: false }];
    assert_eq!(machine.call(a, 2, &pushed, 3), LeaseOutcome::Wait);
    machine.publish(p0, steps, 4);
    assert_eq!((machine.phase(), machine.call(a, 3, &pushed, 4)), (Phase::Training, LeaseOutcome::Wait));
    machine.publish(p1, steps, 5);
    assert_eq!((machine.phase(), machine.call(a, 4, &[], 5)), (Phase::Done, LeaseOutcome::Done));
    machine.pass(TTL_MILLIS * 2);
    machine.pserver("p0", 2, TTL_MILLIS * 2).unwrap();
    assert_eq!(machine.phase(), Phase::Done, "a finished job does not fail any more");
}
