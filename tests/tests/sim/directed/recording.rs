//! Directed stories of recorded hashes: whoever trains, on however many pservers, they are the same; what happens between them and
//! storage loses none.

use shoal_runtime::cluster::StepHashes;
use shoal_tests::sim::evaluated::Evaluations;
use shoal_tests::sim::evidence::Evidence;
use shoal_tests::sim::run::in_paused_time;
use shoal_tests::sim::scenario::Scenario;
use shoal_tests::sim::stage::{FIRST, Stage, millis, rewinds};
use shoal_tests::sim::tables::Tables;
use std::time::Duration;
use tokio::time::sleep;

/// Twenty steps, with tables and evaluations.
fn recording(record_hashes: u64) -> Scenario {
    let scenario = Scenario { pservers: 2, epochs: 4, record_hashes, ..Scenario::quiet(7) };
    let per_step = u64::from(scenario.microbatches_per_step * scenario.microbatch_records);
    let evaluations = (0..)
        .find_map(|seed| Evaluations::drawn(seed, per_step))
        .map(|one| Evaluations { target: None, ..one });
    let tables = (0..).find_map(Tables::drawn);
    Scenario { evaluations, tables, ..scenario }
}

fn steps(evidence: &Evidence) -> Vec<u64> {
    evidence.recorded.as_ref().unwrap().keys().copied().collect()
}

fn hashes(evidence: &Evidence) -> Vec<(u64, Vec<Vec<u64>>)> {
    let recorded = evidence.recorded.as_ref().unwrap().values();
    recorded.map(|StepHashes { step, blocks, .. }| (*step, blocks.clone())).collect()
}

#[test]
fn every_third_step_is_recorded_with_the_same_hashes_whoever_trains() {
    in_paused_time(async {
        let mut alone = Stage::set(Scenario { pservers: 1, ..recording(3) });
        alone.trainer("a", millis(5));
        let alone = alone.finished().await;
        assert_eq!(steps(&alone), [0, 3, 6, 9, 12, 15, 18]);
        let status = alone.status.as_ref().unwrap();
        assert_eq!((status.record_hashes, status.steps_recorded, status.steps_unrecorded), (3, 7, 0));

        let mut many = Stage::set(Scenario { pservers: 4, replicas: 2, ..recording(3) });
        for name in ["a", "b", "c"] {
            many.trainer(name, millis(5));
        }
        assert_eq!(hashes(&many.finished().await), hashes(&alone));
    });
}

#[test]
fn without_it_nothing_is_recorded() {
    in_paused_time(async {
        let mut stage = Stage::set(recording(0));
        stage.trainer("a", millis(5));
        let evidence = stage.finished().await;
        assert_eq!((steps(&evidence), evidence.status.unwrap().steps_recorded), (vec![], 0));
    });
}

/// A master dies with what it has gathered, and the next gathers it again.
#[test]
fn no_hash_is_lost_with_a_master_or_while_storage_does_not_answer_and_the_end_waits() {
    in_paused_time(async {
        let mut stage = Stage::set(recording(1));
        for name in ["a", "b"] {
            stage.trainer(name, millis(20));
        }
        let place = stage.world.place.clone().unwrap();
        stage.until_status("it trains", |status| status.step >= 2).await;
        place.set_silent(true);
        stage.until_status("it goes on", |status| status.step >= 8).await;
        stage.world.masters.last().unwrap().crash();
        stage.world.start_master();
        stage.until_status("the last step is made", |status| status.step == 20).await;
        sleep(Duration::from_secs(2)).await;
        assert_eq!(stage.observer.status().await.unwrap().phase, "training", "nothing is durable yet");
        place.set_silent(false);
        assert_eq!(steps(&stage.finished().await), (0..=20).collect::<Vec<_>>());
    });
}

/// What a pserver had yet to tell its followers still have; without any the job makes it again.
#[test]
fn a_pserver_takes_no_hash_along_and_what_is_made_again_is_recorded_again() {
    for replicas in [0, 1] {
        in_paused_time(async move {
            let mut stage = Stage::set(Scenario { replicas, checkpoint_steps: 4, ..recording(1) });
            for name in ["a", "b"] {
                stage.trainer(name, millis(20));
            }
            stage.until_status("it trains", |status| status.step >= 10).await;
            stage.replace(FIRST, "pserver-9").await;
            let evidence = stage.finished().await;
            assert_eq!(rewinds(&evidence), Some(u64::from(replicas == 0)));
            let (steps, status) = (steps(&evidence), evidence.status.as_ref().unwrap());
            assert_eq!(steps, (0..=20).collect::<Vec<_>>(), "{}", status.steps_unrecorded);
        });
    }
}
