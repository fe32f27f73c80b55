//! What a master adds up for people over the lives of trainers and the histories of its job.

use super::*;
use crate::status;

fn records(records: u64) -> TrainerCounters {
    TrainerCounters { records, ..TrainerCounters::default() }
}
fn said(job: &Job, millis: u64) -> (u64, u64, u64, u64) {
    let said = status::reply(&job.machine, at(millis), true);
    let computed = said.trainer_totals.unwrap_or_default().records;
    (computed, said.records_applied, said.records_lost, said.records_trained)
}

#[test]
fn a_trainer_that_left_or_was_superseded_stays_counted() {
    let (mut job, _, a) = training();
    job.hear_trainer(a, TrainerWord { call: 1, counters: records(10) }, &[], &[], at(1)).unwrap();
    job.hear_trainer(a, TrainerWord { call: 2, counters: records(11) }, &[], &[], at(1)).unwrap();
    job.machine.leave(a, &[], records(16), "", &[], at(2)).unwrap();
    let b = job.trainer("b", 1, 3).unwrap();
    job.hear_trainer(b, TrainerWord { call: 1, counters: records(4) }, &[], &[], at(3)).unwrap();
    job.trainer("b", 2, 4).unwrap();
    assert_eq!(said(&job, 4).0, 20);
}

#[test]
fn of_a_life_that_began_under_an_earlier_master_only_what_follows_is_counted() {
    let (mut job, _, _) = training();
    job.restart("m2", 10);
    let previous = Some(Incarnation::new(1, 1));
    let (a, _) = job.machine.join("a", 1, 1, declaration(), previous, at(11)).unwrap();
    job.hear_trainer(a, TrainerWord { call: 1, counters: records(500) }, &[], &[], at(12)).unwrap();
    assert_eq!(said(&job, 12).0, 0);
    job.hear_trainer(a, TrainerWord { call: 2, counters: records(507) }, &[], &[], at(13)).unwrap();
    assert_eq!(said(&job, 13).0, 7);
}

#[test]
fn what_the_job_lost_by_going_back_is_told_and_applied_never_falls() {
    let (mut job, _, _) = training();
    job.publish_everywhere(3, 1);
    assert_eq!(said(&job, 1), (0, 48, 0, 48));
    job.pserver("p1", 2, 2).unwrap();
    let reply = status::reply(&job.machine, at(2), true);
    assert!(
        !reply.is_progress_known && reply.records_applied == 48,
        "it is not known yet how far it went back"
    );
    job.publish_everywhere(0, 3);
    assert!(status::reply(&job.machine, at(3), true).is_progress_known);
    assert_eq!(said(&job, 3), (0, 48, 48, 0));
    job.publish_everywhere(2, 4);
    assert_eq!(said(&job, 4), (0, 80, 48, 32));
}

#[test]
fn a_later_master_counts_from_where_the_job_is_when_it_has_heard_of_all_of_it() {
    let (mut job, [p0, p1], _) = training();
    job.publish_everywhere(3, 1);
    job.restart("m2", 10);
    job.publish(p0, 4, 11);
    assert_eq!((said(&job, 11).1, status::reply(&job.machine, at(11), true).is_progress_known), (0, false));
    job.publish(p1, 4, 12);
    assert_eq!(said(&job, 12), (0, 0, 0, 64));
    job.publish_everywhere(5, 13);
    assert_eq!(said(&job, 13), (0, 16, 0, 80));
}

#[test]
fn a_checkpoint_is_as_old_as_its_keeping_and_before_the_first_as_the_masters_office() {
    let (mut job, _, _) = training();
    assert_eq!(status::reply(&job.machine, at(700), true).checkpoint_age_millis, 700);
    job.demand_checkpoint();
    job.settle(800);
    job.publish_everywhere(2, 900);
    assert!(job.document().newest().is_some());
    assert_eq!(status::reply(&job.machine, at(1000), true).checkpoint_age_millis, 100);
    job.publish_everywhere(3, 1100);
    assert_eq!(status::reply(&job.machine, at(1500), true).checkpoint_age_millis, 600);
}
