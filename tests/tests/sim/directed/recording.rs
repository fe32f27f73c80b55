//! Directed stories of recorded hashes: whoever trains, on however many pservers, they are the same; what happens between them and
//! storage loses none.

use shoal_runtime::cluster::StepHashes;
use shoal_runtime::host::recorded;
use shoal_runtime::wire::proto::{self, followed_block::News};
use shoal_tests::sim::evaluated::Evaluations;
use shoal_tests::sim::evidence::Evidence;
use shoal_tests::sim::run::in_paused_time;
use shoal_tests::sim::scenario::Scenario;
use shoal_tests::sim::stage::{Asked, FIRST, SECOND, Stage, Switch, millis, rewinds};
use shoal_tests::sim::tables::Tables;
use shoal_tests::sim::world::JOB;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
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

/// The next update that the first pserver takes from the second reaches it with a bit that is another. Returns the version that it makes,
/// 0 before.
fn alter_an_update(stage: &Stage, alters: &Switch) -> Arc<AtomicU64> {
    let (altered, alters) = (Arc::new(AtomicU64::new(0)), alters.clone());
    let version = Arc::clone(&altered);
    stage.world.network.alter_replies("Follow", move |call, reply: &mut proto::FollowReply| {
        if !alters.is_on() || !call.is(FIRST, SECOND, "Follow") || version.load(Relaxed) > 0 {
            return;
        }
        for block in &mut reply.blocks {
            if let Some(News::Entry(entry)) = &mut block.news
                && !entry.gradient.is_empty()
            {
                let mut gradient = entry.gradient.to_vec();
                // The highest bit of an exponent: no rounding hides it, whatever the value is.
                gradient[3] ^= 0x40;
                entry.gradient = gradient.into();
                let follows = entry.follows.map_or(0, |follows| follows.version);
                return version.store(follows + 1, Relaxed);
            }
        }
    });
    altered
}

/// The first pserver's copy of a block of the second's is altered. The job fails and names both, before and after the step is durable.
#[test]
fn a_copy_that_differs_fails_the_job_although_the_step_was_durable_before_the_copy_told_its_hash() {
    for is_late in [false, true] {
        in_paused_time(async move {
            let mut stage = Stage::set(Scenario {
                pservers: 2,
                replicas: 1,
                record_hashes: 1,
                epochs: 4,
                ..Scenario::quiet(7)
            });
            let alters = Switch::default();
            let altered = alter_an_update(&stage, &alters);
            let unheard = stage.lose(|call| call.is(FIRST, "master", "Report"));
            stage.trainer("a", millis(20));
            stage.until("all copies are in-sync", |document| document.is_level()).await;
            stage.until_status("it trains", |status| status.step >= 4).await;
            if is_late {
                unheard.on();
            }
            alters.on();
            let storage = stage.world.storage.clone();
            let is_durable = async || {
                let identity = stage.document().await.identity;
                let steps = recorded::read(&storage, JOB, identity.as_deref()).await.unwrap();
                steps.values().any(|step| step.version.0 == altered.load(Relaxed))
            };
            while is_late && !(altered.load(Relaxed) > 0 && is_durable().await) {
                sleep(millis(5)).await;
            }
            assert!(!is_late || stage.observer.status().await.unwrap().phase == "training");
            unheard.off();
            let evidence = Evidence::when_over(stage.world, &stage.observer, Duration::from_secs(60)).await;
            let status = evidence.status.unwrap();
            assert_eq!(status.phase, "failed", "at step {}", status.step);
            let version = format!("at version {}, in parameter", altered.load(Relaxed));
            for words in ["two copies of block", &version, FIRST, SECOND] {
                assert!(status.failure.contains(words), "{words}: {}", status.failure);
            }
        });
    }
}
