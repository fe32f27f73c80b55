//! Directed traces of records that some or all trainers cannot use, each built by hand out of real roles. The numbers are
//! those of the traces that broke earlier wordings of the rules.

use object_store::memory::InMemory;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use shoal_runtime::cluster::{Mode, Step};
use shoal_runtime::host::storage::Storage;
use shoal_runtime::host::store::MemoryStore;
use shoal_runtime::wire::proto::{self, PushAnswer};
use shoal_tests::sim::evidence::{End, Evidence};
use shoal_tests::sim::reference::records_of;
use shoal_tests::sim::run::in_paused_time;
use shoal_tests::sim::scenario::Scenario;
use shoal_tests::sim::spoiled::{Poisoned, Spoiled};
use shoal_tests::sim::stage::{Asked, FIRST, ROOT, SECOND, Stage, all, millis, rewinds};
use shoal_tests::sim::world::World;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::time::sleep;

const ASYNC: Mode = Mode::Async { staleness_window: 8, scale_by_staleness: false };

fn allowing(exclude_max: u64) -> Scenario {
    Scenario { pservers: 2, exclude_max, epochs: 2, ..Scenario::quiet(7) }
}

/// Trainers whose program fails on a record.
fn poisoned(stage: &mut Stage, names: &[&str], record: u64) {
    for name in names {
        let program = stage.world.scenario.program();
        let model = Poisoned { program, records: vec![record], evaluated: None, panics: false };
        stage.world.start_trainer_with(name, Duration::ZERO, model);
    }
}

/// A trainer on whose machine a chunk is damaged.
fn sick(stage: &mut Stage, name: &str, chunk: u32) -> usize {
    let source = Arc::new(Spoiled { data: stage.world.data.clone(), chunk });
    let program = stage.world.scenario.program();
    stage.world.start_trainer_over(name, Duration::ZERO, program, source)
}

fn troubles(evidence: &Evidence) -> &[proto::TroubleStatus] {
    &evidence.status.as_ref().unwrap().troubles
}

/// The job fails, and says of what.
async fn failure(stage: Stage) -> String {
    let evidence = Evidence::when_over(stage.world, &stage.observer, Duration::from_secs(60)).await;
    let status = evidence.status.unwrap();
    assert_eq!(status.phase, "failed", "at step {}", status.step);
    status.failure
}

/// 16, and a record that fails on some trainers only, after one push has landed: a trainer that can use it has given its
/// step to A, and is gone; the others cannot. The push to B is still on its way when B's primary dies.
#[test]
fn a_record_is_left_out_on_every_block_or_on_none() {
    in_paused_time(async {
        let mut stage = Stage::set(Scenario { replicas: 1, pservers: 3, ..allowing(1) });
        let mut hand = stage.hand("hand").await;
        let poison = records_of(&stage.world.job, &stage.world.data, Step(0))[5];
        let (first, second) = (hand.index(FIRST), hand.index(SECOND));
        hand.push_until_applied(&stage.world, first, 0, ROOT).await.unwrap();
        let late = hand.message(&stage.world, second, 0, ROOT);
        poisoned(&mut stage, &["a", "b", "c"], poison);
        stage.until("it is left out", |document| !document.exclusions.list.is_empty()).await;
        stage.replace(SECOND, "pserver-4").await;
        stage.until("others lead", |document| document.led_by(SECOND).is_empty()).await;
        hand.look_again().await.unwrap();
        for pserver in 0..hand.routing.pservers.len() {
            let known = late.blocks.iter().filter(|block| {
                hand.routing.blocks_of(pserver).contains(&shoal_runtime::cluster::BlockId(block.block))
            });
            let push = proto::PushRequest { blocks: known.cloned().collect(), ..late.clone() };
            let answers = hand.send(pserver, push).await.unwrap();
            assert!(answers.iter().all(|answer| *answer == PushAnswer::Rewound), "{answers:?}");
        }
        let evidence = stage.finished().await;
        let trouble = &troubles(&evidence)[0];
        assert_eq!(trouble.records, Some(proto::RecordRange { first: poison, end: poison + 1 }));
        assert_eq!(trouble.excluded_from, Some(0));
        assert!(
            trouble.what.contains("part-0.recordio, chunk") && trouble.why.contains("is poison"),
            "{trouble:?}"
        );
        // The pserver was killed before the new history had copies.
        assert!(rewinds(&evidence) >= Some(1));
    });
}

/// The same in an asynchronous job: the block that has it keeps it, the others do without, and it is said.
#[test]
fn an_asynchronous_job_leaves_a_record_out_where_it_is_still_lacking() {
    in_paused_time(async {
        let mut stage = Stage::set(Scenario { mode: ASYNC, ..allowing(1) });
        let hand = stage.hand("hand").await;
        let (first, second) = (hand.index(FIRST), hand.index(SECOND));
        let push = hand.position_message(&stage.world, first, 0);
        let answers = hand.send(first, push).await.unwrap();
        assert!(all(&answers, PushAnswer::Applied), "{answers:?}");
        let late = hand.position_message(&stage.world, second, 0);
        // The first microbatch of the epoch fills slot 0 of step 0.
        let poison = records_of(&stage.world.job, &stage.world.data, Step(0))[1];
        poisoned(&mut stage, &["a", "b", "c"], poison);
        let excluded = stage.until("it is left out", |document| !document.exclusions.list.is_empty()).await;
        stage.until("pservers know", |document| document.routing_version >= excluded.routing_version).await;
        sleep(millis(500)).await;
        let answers = hand.send(second, late).await.unwrap();
        let is_refused =
            |answer: &PushAnswer| matches!(answer, PushAnswer::Rewound | PushAnswer::AlreadyApplied);
        assert!(answers.iter().all(is_refused), "{answers:?}");
        let evidence = stage.finished().await;
        assert_eq!(troubles(&evidence)[0].excluded_from, Some(0));
        assert_eq!(evidence.status.as_ref().unwrap().records_excluded, 1);
        assert_eq!(rewinds(&evidence), Some(0));
    });
}

/// A chunk that is damaged on one machine only: the others read it, and the job is as if nothing had been.
#[test]
fn a_chunk_that_one_machine_cannot_read_is_read_by_the_others() {
    for mode in [Mode::SYNC, ASYNC] {
        in_paused_time(async move {
            let mut stage = Stage::set(Scenario { mode, ..allowing(0) });
            let sick = sick(&mut stage, "sick", 1);
            let well = stage.trainer("well", millis(2));
            let evidence = stage.finished().await;
            let lives = [&evidence.lives[sick].end, &evidence.lives[well].end];
            assert!(lives.iter().all(|end| matches!(end, End::Well(_))), "{lives:?}");
            let trouble = &troubles(&evidence)[0];
            assert_eq!(
                (trouble.excluded_from, trouble.trainers.as_slice()),
                (None, &["sick".to_owned()][..])
            );
            assert!(trouble.what.contains("part-0.recordio, chunk 1 at offset"), "{trouble:?}");
            assert_eq!(rewinds(&evidence), Some(0));
        });
    }
}

/// A chunk that nobody can read is left out whole, where so much may be.
#[test]
fn a_chunk_that_nobody_can_read_is_left_out_or_ends_the_job() {
    for mode in [Mode::SYNC, ASYNC] {
        in_paused_time(async move {
            let mut stage = Stage::set(Scenario { mode, ..allowing(60) });
            for name in ["a", "b", "c"] {
                sick(&mut stage, name, 1);
            }
            let evidence = stage.finished().await;
            let excluded = evidence.status.as_ref().unwrap().records_excluded;
            assert_eq!(excluded, u64::from(evidence.data.manifest().chunk(1).records));
        });
        in_paused_time(async move {
            let mut stage = Stage::set(Scenario { mode, ..allowing(2) });
            for name in ["a", "b", "c"] {
                sick(&mut stage, name, 1);
            }
            let why = failure(stage).await;
            assert!(
                why.contains("part-0.recordio, chunk 1 at offset") && why.contains("--exclude-max"),
                "{why}"
            );
        });
    }
}

/// Without leave to leave anything out the job fails, and names file, chunk and record. One trainer alone is enough for
/// that: there is nobody else to ask.
#[test]
fn a_poison_record_ends_a_job_that_may_leave_nothing_out() {
    for (mode, panics) in [(Mode::SYNC, false), (ASYNC, false)] {
        in_paused_time(async move {
            let mut stage = Stage::set(Scenario { mode, ..allowing(0) });
            let program = stage.world.scenario.program();
            stage.world.start_trainer_with(
                "only",
                Duration::ZERO,
                Poisoned { program, records: vec![9], evaluated: None, panics },
            );
            let why = failure(stage).await;
            assert!(why.contains("part-0.recordio, chunk") && why.contains("record"), "{why}");
            assert!(why.contains("record 9 is poison") && why.contains("3 attempts"), "{why}");
        });
    }
}

/// A step function that panics ends its trainer, which says of what; three of them, and it is known which record it is.
#[test]
fn a_record_that_panics_every_trainer_is_left_out() {
    in_paused_time(async {
        let mut stage = Stage::set(allowing(1));
        for name in ["a", "b", "c"] {
            let program = stage.world.scenario.program();
            let model = Poisoned { program, records: vec![9], evaluated: None, panics: true };
            stage.world.start_trainer_with(name, Duration::ZERO, model);
        }
        stage.until("it is left out", |document| !document.exclusions.list.is_empty()).await;
        stage.trainer("heir", Duration::ZERO);
        let evidence = Evidence::when_over(stage.world, &stage.observer, Duration::from_secs(60)).await;
        let status = evidence.status.unwrap();
        assert_eq!((status.phase.as_str(), status.records_excluded), ("done", 1));
        let ended = evidence.lives.iter().filter(|life| matches!(life.end, End::Failed(_))).count();
        assert_eq!(ended, 3);
    });
}

/// Attempts are counted in the document: a master that is started again counts on. The third is told only the second.
#[test]
fn attempts_that_failed_are_not_forgotten_with_their_master() {
    in_paused_time(async {
        let mut stage = Stage::set(allowing(1));
        let told = AtomicU64::new(0);
        let third = stage.lose(move |call| {
            call.is("a", "master", "Lease")
                && !call.message::<proto::LeaseRequest>().complaints.is_empty()
                && told.fetch_add(1, Relaxed) >= 2
        });
        third.on();
        poisoned(&mut stage, &["a"], 9);
        stage.until("it was tried", |document| document.troubles.iter().any(|it| it.attempts == 2)).await;
        stage.world.masters[0].crash();
        third.off();
        stage.world.start_master();
        let document = stage.until("it is left out", |document| !document.exclusions.list.is_empty()).await;
        assert_eq!(document.master_term, 2);
        assert!(document.exclusions.list[0].why.contains("3 attempts"), "{:?}", document.exclusions);
        stage.finished().await;
    });
}

/// 20: the pieces of a checkpoint are written, but the master does not hear of it until a record of the step after it is
/// left out and the job goes back. The pieces are of a history that is no more: no checkpoint is made of them.
#[test]
fn pieces_of_before_an_exclusion_make_no_checkpoint() {
    in_paused_time(async {
        let scenario = Scenario { checkpoint_steps: 2, ..allowing(1) };
        let slow = Arc::new(ThrottledStore::new(InMemory::new(), ThrottleConfig::default()));
        let storage = Storage::over(slow.clone(), "memory");
        let mut stage = Stage::of(World::start_over(scenario, MemoryStore::new(), storage, true));
        let unwritten = stage.lose(|call| {
            call.is(FIRST, "master", "Report") && !call.message::<proto::ReportRequest>().written.is_empty()
        });
        unwritten.on();
        let hand = stage.hand("hand").await;
        hand.do_step(&stage.world, 0).await.unwrap();
        hand.do_step(&stage.world, 1).await.unwrap();
        let named = stage.until("a checkpoint is named", |document| document.named.is_some()).await;
        for step in 2..named.named.unwrap().version.0 {
            hand.do_step(&stage.world, step).await.unwrap();
        }
        sleep(millis(500)).await;
        slow.config_mut(|config| config.wait_put_per_call = Duration::from_secs(60));
        let poison = records_of(&stage.world.job, &stage.world.data, Step(4))[0];
        poisoned(&mut stage, &["a", "b", "c"], poison);
        stage.until("it was tried", |document| !document.troubles.is_empty()).await;
        unwritten.off();
        stage.until("it is left out", |document| !document.exclusions.list.is_empty()).await;
        slow.config_mut(|config| *config = ThrottleConfig::default());
        sleep(Duration::from_secs(1)).await;
        let document = stage.document().await;
        assert!(document.checkpoints.iter().all(|kept| kept.rewind == document.rewind()), "{document:?}");
        let evidence = stage.finished().await;
        assert_eq!(rewinds(&evidence), Some(1));
    });
}
