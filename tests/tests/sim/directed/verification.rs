//! Directed stories of microbatches that are computed twice: by one trainer, by several, under evaluations and tables; and of programs
//! that are no functions.

use shoal_runtime::cluster::Mode;
use shoal_runtime::cluster::verification::WHOLE_SHARE;
use shoal_runtime::wire::proto::StatusReply;
use shoal_tests::sim::evaluated::Evaluations;
use shoal_tests::sim::evidence::Evidence;
use shoal_tests::sim::faults::Edit;
use shoal_tests::sim::run::in_paused_time;
use shoal_tests::sim::scenario::Scenario;
use shoal_tests::sim::spoiled::{LIED_ABOUT, Lie, Lying};
use shoal_tests::sim::stage::{FIRST, Stage, millis, rewinds};
use shoal_tests::sim::tables::Tables;
use std::time::Duration;
use tokio::time::sleep;

/// Forty microbatches in ten steps.
fn verifying(verify_millionths: u32) -> Scenario {
    Scenario { pservers: 2, epochs: 2, verify_millionths, ..Scenario::quiet(7) }
}

fn counts(evidence: &Evidence) -> (u64, u64) {
    let status = evidence.status.as_ref().unwrap();
    (status.microbatches_verified, status.microbatches_unverified)
}

fn lying(stage: &mut Stage, name: &str, honest: u64, lie: Lie) {
    let program = stage.world.scenario.program();
    stage.world.start_trainer_with(name, millis(5), Lying { program, honest, lie });
}

/// The job fails, and says of what.
async fn failed(stage: Stage) -> StatusReply {
    let evidence = Evidence::when_over(stage.world, &stage.observer, Duration::from_secs(60)).await;
    let status = evidence.status.unwrap();
    assert_eq!(status.phase, "failed", "at step {}", status.step);
    status
}

#[test]
fn one_trainer_computes_every_microbatch_twice_and_the_last_ones_too() {
    for delay in [0, 2] {
        in_paused_time(async move {
            let mut stage = Stage::set(Scenario { mode: Mode::Sync { delay }, ..verifying(WHOLE_SHARE) });
            stage.trainer("a", millis(5));
            assert_eq!(counts(&stage.finished().await), (40, 0), "delay {delay}");
        });
    }
}

#[test]
fn several_trainers_compute_what_others_have_computed() {
    for (millionths, most) in [(WHOLE_SHARE, 40), (300_000, 25)] {
        in_paused_time(async move {
            let mut stage = Stage::set(verifying(millionths));
            for name in ["a", "b", "c"] {
                stage.trainer(name, millis(5));
            }
            let (verified, given_up) = counts(&stage.finished().await);
            assert!(verified + given_up <= most && verified > most / 8, "{verified} {given_up}");
            assert!(given_up <= verified / 8, "{verified} {given_up}");
        });
    }
}

#[test]
fn evaluations_and_tables_are_verified_like_everything_else() {
    in_paused_time(async {
        let scenario = verifying(WHOLE_SHARE);
        let per_step = u64::from(scenario.microbatches_per_step * scenario.microbatch_records);
        let evaluations = (0..)
            .find_map(|seed| Evaluations::drawn(seed, per_step))
            .map(|one| Evaluations { target: None, ..one });
        let tables = (0..).find_map(Tables::drawn);
        let mut stage = Stage::set(Scenario { evaluations, tables, ..scenario });
        for name in ["a", "b"] {
            stage.trainer(name, millis(5));
        }
        let (verified, given_up) = counts(&stage.finished().await);
        assert!(verified > 40 && given_up <= verified / 8, "{verified} {given_up}");
    });
}

/// A share that is edited while the job lives: none, all, none again.
#[test]
fn a_share_that_is_edited_counts_from_then_on() {
    in_paused_time(async {
        let mut stage = Stage::set(Scenario { epochs: 6, ..verifying(0) });
        for name in ["a", "b"] {
            stage.trainer(name, millis(20));
        }
        let edit = |verify_millionths| Edit { replicas: 1, verify_millionths, checkpoint_steps: 0 };
        for (step, share) in [(4, WHOLE_SHARE), (10, 0)] {
            stage.until_status("it trains", |status| status.step >= step).await;
            let before = stage.observer.status().await.unwrap().microbatches_verified;
            assert_eq!(before > 0, share == 0, "at step {step}");
            assert!(stage.observer.tell(&stage.world.scenario.edited(edit(share))).await);
        }
        let evidence = stage.finished().await;
        let status = evidence.status.as_ref().unwrap();
        assert_eq!((status.replicas_wanted, status.verify_millionths, rewinds(&evidence)), (1, 0, Some(0)));
        assert!(status.copies_in_sync > 0, "copies are made once they are asked for");
    });
}

/// Trainers leave, die and hang, the master is replaced, the job goes back: no difference is told, and the job ends.
#[test]
fn whatever_happens_to_those_who_compute_no_function_is_accused_and_nothing_waits() {
    in_paused_time(async {
        let mut stage = Stage::set(Scenario { epochs: 4, checkpoint_steps: 2, ..verifying(WHOLE_SHARE) });
        for name in ["a", "b", "c"] {
            stage.trainer(name, millis(20));
        }
        stage.until_status("it trains", |status| status.step >= 4).await;
        stage.world.trainers[0].host.crash();
        sleep(millis(50)).await;
        stage.world.trainers[1].ask_to_leave();
        stage.until_status("it goes on", |status| status.step >= 6).await;
        stage.world.masters.last().unwrap().crash();
        stage.world.start_master();
        stage.until_status("the next one leads", |status| status.step >= 8).await;
        stage.replace(FIRST, "pserver-9").await;
        let evidence = stage.finished().await;
        assert_eq!(rewinds(&evidence), Some(1));
        let (verified, _) = counts(&evidence);
        assert!(verified > 0);
    });
}

#[test]
fn a_trainer_whose_sums_differ_in_a_bit_is_found_within_two_steps_by_step_microbatch_parameter_and_name() {
    for (first, second) in [(true, false), (false, true)] {
        in_paused_time(async move {
            let mut stage = Stage::set(verifying(WHOLE_SHARE));
            for (name, is_liar) in [("a", first), ("b", second)] {
                match is_liar {
                    true => lying(&mut stage, name, 3, Lie::Bit),
                    false => drop(stage.trainer(name, millis(5))),
                }
            }
            let status = failed(stage).await;
            for words in ["microbatch ", " of step ", "was computed twice", LIED_ABOUT, "\"a\"", "\"b\""] {
                assert!(status.failure.contains(words), "{words}: {}", status.failure);
            }
            assert!((3..=5).contains(&status.step), "{}: {}", status.step, status.failure);
        });
    }
}

#[test]
fn a_share_finds_a_liar_sooner_or_later() {
    in_paused_time(async {
        let mut stage = Stage::set(Scenario { epochs: 6, ..verifying(200_000) });
        stage.trainer("a", millis(5));
        lying(&mut stage, "b", 0, Lie::Bit);
        let status = failed(stage).await;
        assert!(status.step <= 12, "{}: {}", status.step, status.failure);
    });
}

#[test]
fn a_program_that_counts_its_calls_is_found_by_one_trainer_alone() {
    in_paused_time(async {
        let mut stage = Stage::set(verifying(500_000));
        lying(&mut stage, "a", 0, Lie::Calls(0));
        let status = failed(stage).await;
        let words = "by trainer \"a\" both times";
        assert!(status.failure.contains(words) && status.failure.contains(LIED_ABOUT), "{}", status.failure);
        assert!(status.step <= 3, "{}", status.step);
    });
}
