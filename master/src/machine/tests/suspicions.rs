//! Trainers that are lost with what they compute, and those that only seem to be.

use super::fixture::*;
use super::*;
use crate::suspects::{DEATH_TTLS, LOSSES};

fn suspects(job: &Job) -> Vec<std::ops::Range<u64>> {
    job.machine.job.as_ref().unwrap().suspects.places(LOSSES)
}
/// A new trainer joins, and is given a task.
fn given(job: &mut Job, life: u64, now: u64) -> (Incarnation, Task) {
    let who = job.trainer(&format!("t{life}"), life, now).unwrap();
    let task = only_task(job.call(who, 1, &[], now));
    (who, task)
}
/// Pservers speak; so long later whoever did not is lost.
fn silence(job: &mut Job, now: &mut u64) {
    for _ in 0..4 {
        *now += TTL_MILLIS / 3;
        job.publish_everywhere(0, *now);
        job.pass(*now);
    }
}

#[test]
fn twenty_that_leave_are_preempted_late_or_lose_their_name_and_live_count_nothing() {
    let (mut job, _, a) = training();
    let first = only_task(job.call(a, 1, &[], 0));
    job.bye(a, "", 1).unwrap();
    let mut now = 1;
    for life in 1..=20 {
        let (mut who, task) = given(&mut job, life, now);
        assert_eq!((work(&task), task.is_careful), (work(&first), false), "life {life}");
        let alive = |call| TrainerWord { call, ..TrainerWord::default() };
        match life % 3 {
            // Its lease expires while it lives, and says how far it is.
            0 => {
                for call in 2..8 {
                    now += TTL_MILLIS / 3;
                    job.publish_everywhere(0, now);
                    job.hear_trainer(who, alive(call), &[knows(&task)], &[], at(now)).unwrap();
                    job.pass(now);
                }
                assert_eq!(job.machine.job.as_ref().unwrap().dispatch.in_hand(who), 0, "it has expired");
            }
            // Another process takes its name while it lives.
            1 => {
                let again = job.trainer(&format!("t{life}"), 100 + life, now).unwrap();
                let refused = job.hear_trainer(who, alive(2), &[knows(&task)], &[], at(now));
                assert_eq!(refused.unwrap_err().kind, RefusalKind::StaleIncarnation);
                who = again;
            }
            _ => {}
        }
        job.bye(who, "", now).unwrap();
        silence(&mut job, &mut now);
    }
    assert_eq!(suspects(&job), []);
    assert_eq!(job.phase(), Phase::Training);
}

/// Whoever starts many trainers under one name has each take it from the one before, and all of them live.
#[test]
fn who_lost_its_name_is_no_loss_before_it_has_been_silent_for_a_time_to_live() {
    let (mut job, _, a) = training();
    job.bye(a, "", 0).unwrap();
    let lives = 1..=LOSSES as u64 + 2;
    let mut all = Vec::new();
    for life in lives {
        let who = job.trainer("t", life, life).unwrap();
        let task = only_task(job.call(who, 1, &[], life));
        assert!(!task.is_careful && work(&task).1.width() == 8, "life {life}");
        all.push((who, task));
    }
    assert_eq!(suspects(&job), []);
    let (_, superseded) = all.split_last().unwrap();
    for (who, task) in superseded {
        let word = TrainerWord { call: 2, ..TrainerWord::default() };
        job.hear_trainer(*who, word, &[knows(task)], &[], at(TTL_MILLIS / 2)).unwrap_err();
    }
    let mut now = TTL_MILLIS / 2;
    silence(&mut job, &mut now);
    assert_eq!(suspects(&job), [], "all of them have spoken");
}

/// How a trainer is lost with what it computes.
#[derive(Clone, Copy, Debug)]
enum Lost {
    Silent,
    Told,
    Renamed,
}

/// Trainers that record 5 ends, or a microbatch whose records do no harm alone. Returns how the job ended, and after how many.
fn killed(lost: Lost, record: Option<u64>) -> (Job, usize) {
    let (mut job, _, a) = training();
    job.bye(a, "", 0).unwrap();
    job.publish_everywhere(0, 0);
    let (mut now, mut count) = (0, 0);
    while job.phase() == Phase::Training && job.document().exclusions.list.is_empty() {
        count += 1;
        assert!(count < 20, "never found");
        let life = if matches!(lost, Lost::Renamed) { 0 } else { count };
        let who = job.trainer(&format!("t{life}"), count, now).unwrap();
        silence_pending(&mut job, who, &mut now);
        if job.phase() != Phase::Training {
            return (job, count as usize - 1);
        }
        let task = only_task(job.call(who, 2, &[], now));
        let width = work(&task).1.width();
        assert_eq!(width, if count <= LOSSES as u64 { 8 } else { 1 }, "of {count}");
        assert_eq!(task.is_careful, count > 4, "{count}");
        if count == LOSSES as u64 + 1 {
            let told: Vec<_> = job.suspicions().collect();
            assert_eq!((told.len(), told[0].trainers.len()), (1, LOSSES));
            assert_eq!(told[0].what, "microbatch 0 of step 0 and 7 after it");
        }
        if count > LOSSES as u64 {
            assert_eq!(job.call(who, 3, &[knows(&task)], now), LeaseOutcome::Wait, "nothing beside it");
        }
        if task.is_careful {
            job.hear_announcement(who, task.lease, Some(4), at(now));
            job.hear_announcement(who, task.lease, record, at(now));
        }
        match lost {
            Lost::Silent => silence(&mut job, &mut now),
            Lost::Told => {
                job.machine.ends(who, "signal 6 (SIGABRT): it aborted", at(now));
                job.settle(now);
            }
            // The next life takes its name.
            Lost::Renamed => now += 1,
        }
    }
    (job, count as usize)
}

/// A trainer asks until those whose name it has taken are known to be lost, and those who are silent to be dead.
fn silence_pending(job: &mut Job, who: Incarnation, now: &mut u64) {
    for _ in 0..=3 * DEATH_TTLS {
        if job.machine.job.as_ref().unwrap().suspects.next_deadline().is_none() {
            break;
        }
        *now += TTL_MILLIS / 3;
        job.publish_everywhere(0, *now);
        job.machine.trainers.hear(who, at(*now)).unwrap();
        job.pass(*now);
    }
}

#[test]
fn by_the_fifth_loss_a_record_is_named_however_they_were_lost() {
    for lost in [Lost::Silent, Lost::Told, Lost::Renamed] {
        let (job, count) = killed(lost, Some(5));
        let Phase::Failed(why) = job.phase() else { panic!("{lost:?}: {:?}", job.phase()) };
        assert_eq!(count, 5, "{lost:?}: {why}");
        let how = if matches!(lost, Lost::Told) { "SIGABRT" } else { "it fell silent" };
        for words in ["train.recordio, chunk 0 at offset", "record 5 of 7", "5 trainers were lost", how] {
            assert!(why.contains(words), "{words}: {why}");
        }
        assert!(why.contains("--exclude-max 1"), "{why}");
    }
}

#[test]
fn a_microbatch_that_only_kills_as_a_whole_ends_the_job_by_its_name() {
    let (job, count) = killed(Lost::Told, None);
    let Phase::Failed(why) = job.phase() else { panic!("{:?}", job.phase()) };
    assert_eq!(count, 5, "{why}");
    assert!(why.contains("microbatch 0 of step 0") && why.contains("no harm"), "{why}");
}
