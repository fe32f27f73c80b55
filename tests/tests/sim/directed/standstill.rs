//! Jobs that are made to stand still, each in its own way: within three times to live the master names the true cause, and once it is
//! gone the job ends as ever (P6).

use shoal_runtime::cluster::Slice;
use shoal_runtime::wire::proto::Standstill;
use shoal_tests::sim::data_set::DataSet;
use shoal_tests::sim::host::Host;
use shoal_tests::sim::place::CALLS;
use shoal_tests::sim::run::in_paused_time;
use shoal_tests::sim::scenario::Scenario;
use shoal_tests::sim::stage::{FIRST, SECOND, Stage, millis, rewinds};
use shoal_trainer_sdk::Decisions;
use shoal_trainer_sdk::chunks::{ChunkSource, ReadError};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// Times to live within which the cause is named.
const NAMED_TTLS: u32 = 3;

/// Waits until the master names one of these reasons, and returns the cause.
async fn named(stage: &Stage, reasons: &[&str]) -> Standstill {
    let (began, ttl) = (Instant::now(), stage.world.scenario.ttl);
    loop {
        let status = stage.observer.status().await;
        let standstill = status.as_ref().and_then(|status| status.standstill.clone());
        match standstill {
            Some(found) if reasons.contains(&found.reason.as_str()) => {
                assert!(!found.cause.is_empty() && !found.way_out.is_empty(), "{found:?}");
                return found;
            }
            other if began.elapsed() > ttl * NAMED_TTLS => {
                panic!(
                    "{reasons:?} is not named, but {other:?}\n{}",
                    stage.world.network.trace().lines().join("\n")
                )
            }
            _ => sleep(millis(20)).await,
        }
    }
}

/// Waits until blocks are placed and all copies in-sync.
async fn level(stage: &Stage) {
    stage.hand("hand").await;
}

#[test]
fn a_pserver_that_stands_still_is_named() {
    in_paused_time(async {
        let mut stage = Stage::quiet(2, 0);
        level(&stage).await;
        stage.host(SECOND).pause();
        stage.trainer("a", Duration::ZERO);
        let found = named(&stage, &["PserverSilent", "NoCopyLeft"]).await;
        assert_eq!(found.subject, SECOND, "{found:?}");
        stage.host(SECOND).resume();
        stage.finished().await;
    });
}

#[test]
fn a_copy_whose_primary_it_cannot_reach_is_named() {
    in_paused_time(async {
        let mut stage = Stage::quiet(2, 1);
        level(&stage).await;
        stage.part(FIRST, SECOND);
        stage.trainer("a", Duration::ZERO);
        named(&stage, &["CopyBehind"]).await;
        // Its call is kept open for as long as it may be, and then has failed.
        let says_why = |found: &Standstill| found.cause.contains("it gets no answer from pserver-1");
        stage.until_status("why is told", |status| status.standstill.as_ref().is_some_and(says_why)).await;
        stage.join(FIRST, SECOND);
        stage.finished().await;
    });
}

#[test]
fn a_pserver_that_a_trainer_cannot_reach_is_named() {
    in_paused_time(async {
        let mut stage = Stage::quiet(2, 0);
        level(&stage).await;
        stage.part("a", SECOND);
        stage.trainer("a", Duration::ZERO);
        let found = named(&stage, &["PserverUnreachable"]).await;
        assert_eq!(found.subject, SECOND, "{found:?}");
        stage.join("a", SECOND);
        stage.finished().await;
    });
}

#[test]
fn a_decision_that_cannot_be_asked_for_is_named() {
    in_paused_time(async {
        let decisions = Some(Decisions { clip_norm: Some(0.5), ..Decisions::default() });
        let mut stage = Stage::set(Scenario { pservers: 2, decisions, ..Scenario::quiet(7) });
        level(&stage).await;
        stage.part(FIRST, SECOND);
        stage.trainer("a", Duration::ZERO);
        named(&stage, &["Undecided"]).await;
        stage.join(FIRST, SECOND);
        stage.finished().await;
    });
}

#[test]
fn a_job_without_trainers_and_one_whose_trainer_computes_for_long_are_told_apart() {
    in_paused_time(async {
        let mut stage = Stage::quiet(1, 0);
        named(&stage, &["NoTrainer"]).await;
        let slow = stage.trainer("slow", Duration::from_secs(100_000));
        let found = named(&stage, &["Computing"]).await;
        assert_eq!(found.subject, "slow", "{found:?}");
        stage.world.trainers[slow].host.crash();
        stage.trainer("a", Duration::ZERO);
        stage.finished().await;
    });
}

/// A data set that leaves reads unanswered until it is told to answer.
struct Hanging(Arc<DataSet>, Arc<Notify>);

impl ChunkSource for Hanging {
    fn read<'a>(
        &'a self,
        slice: &'a Slice,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, ReadError>> + Send + 'a>> {
        Box::pin(async {
            self.1.notified().await;
            self.1.notify_one();
            self.0.read(slice).await
        })
    }
}

#[test]
fn data_that_cannot_be_read_are_named_by_their_file() {
    in_paused_time(async {
        let mut stage = Stage::quiet(1, 0);
        let answers = Arc::new(Notify::new());
        let source = Arc::new(Hanging(stage.world.data.clone(), answers.clone()));
        let program = stage.world.scenario.program();
        stage.world.start_trainer_over("a", Duration::ZERO, program, source);
        let found = named(&stage, &["Data"]).await;
        assert!(found.subject.contains("recordio"), "{found:?}");
        answers.notify_one();
        stage.finished().await;
    });
}

#[test]
fn a_store_that_takes_nothing_is_named() {
    in_paused_time(async {
        let mut stage =
            Stage::set(Scenario { pservers: 2, replicas: 1, has_disk: true, ..Scenario::quiet(7) });
        named(&stage, &["NoTrainer"]).await;
        let disk = stage.world.disk.clone().unwrap();
        disk.set_stall(Duration::from_secs(3));
        stage.trainer("a", Duration::ZERO);
        let found = named(&stage, &["Store"]).await;
        assert_eq!(found.subject, "the store", "{found:?}");
        disk.set_stall(Duration::ZERO);
        stage.finished().await;
    });
}

/// Every kind of call, one at a time: each either holds up nothing, or is named.
#[test]
fn storage_that_hangs_holds_up_nothing_or_is_named_whichever_call_it_is() {
    for call in CALLS {
        in_paused_time(async {
            let scenario = Scenario { checkpoint_steps: 1, pservers: 2, ..Scenario::quiet(7) };
            let mut stage = Stage::set(scenario);
            level(&stage).await;
            let place = stage.world.place.clone().unwrap();
            place.set_hanging(Some(call));
            stage.trainer("a", Duration::ZERO);
            sleep(stage.world.scenario.ttl * NAMED_TTLS).await;
            let status = stage.observer.status().await.unwrap();
            let holds_up = call != "removes";
            assert_eq!(status.phase == "done", !holds_up, "{call}: {status:?}");
            if holds_up {
                let found = named(&stage, &["Storage"]).await;
                assert!(found.subject.contains("memory/"), "{call}: {found:?}");
            }
            place.set_hanging(None);
            stage.finished().await;
        });
    }
}

#[test]
fn updates_that_wait_for_the_memory_of_a_checkpoint_name_the_file_that_is_not_written() {
    in_paused_time(async {
        let scenario = Scenario { checkpoint_steps: 1, checkpoint_memory: 1, ..Scenario::quiet(7) };
        let mut stage = Stage::set(scenario);
        level(&stage).await;
        let place = stage.world.place.clone().unwrap();
        place.set_hanging(Some("sends"));
        stage.trainer("a", Duration::ZERO);
        let found = named(&stage, &["CheckpointMemory"]).await;
        assert!(found.subject.starts_with("write memory/checkpoint-"), "{found:?}");
        place.set_hanging(None);
        stage.finished().await;
    });
}

/// A restore from a checkpoint that cannot be read.
#[test]
fn a_checkpoint_that_is_not_read_is_named_by_its_file() {
    in_paused_time(async {
        let scenario = Scenario { checkpoint_steps: 1, pservers: 2, ..Scenario::quiet(7) };
        let mut stage = Stage::set(scenario);
        level(&stage).await;
        stage.trainer("a", millis(40));
        stage.until("a checkpoint is kept", |document| document.newest().is_some()).await;
        let place = stage.world.place.clone().unwrap();
        place.set_hanging(Some("reads"));
        stage.replace(FIRST, "pserver-3").await;
        stage.until("the job goes back", |document| document.rewinds == 1).await;
        let found = named(&stage, &["Storage"]).await;
        assert!(found.cause.contains("read memory/checkpoint-"), "{found:?}");
        place.set_hanging(None);
        stage.finished().await;
    });
}

/// A sleeping laptop: all processes are stopped for fifteen times to live, and woken in any order. None is taken for dead.
#[test]
fn a_pause_that_all_share_costs_nothing_whoever_wakes_first() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        in_paused_time(async {
            let mut stage = Stage::quiet(2, 0);
            level(&stage).await;
            stage.trainer("a", millis(40));
            sleep(millis(300)).await;
            let all: Vec<Arc<Host>> = stage.world.hosts().cloned().collect();
            let role = |host: &Arc<Host>| match &*host.name {
                "master" => 0,
                name if name.starts_with("pserver") => 1,
                _ => 2,
            };
            all.iter().for_each(|host| host.pause());
            sleep(stage.world.scenario.ttl * 15).await;
            for wakes in order {
                all.iter().filter(|host| role(host) == wakes).for_each(|host| host.resume());
                sleep(millis(200)).await;
            }
            assert_eq!(rewinds(&stage.finished().await), Some(0), "{order:?}");
        });
    }
}
