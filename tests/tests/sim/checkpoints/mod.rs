//! Checkpoints of a whole job: killed at every stage of writing, damaged at every byte, restored by any number of
//! pservers and trainers, to the same bits.

mod damage;
mod memory;
mod stages;

use shoal_runtime::cluster::Mode;
use shoal_runtime::host::rpc::master_client;
use shoal_runtime::host::storage::Storage;
use shoal_runtime::host::store::MemoryStore;
use shoal_runtime::wire::proto;
use shoal_tests::sim::evidence::{End, Evidence};
use shoal_tests::sim::invariants;
use shoal_tests::sim::observer::Observer;
use shoal_tests::sim::place::Place;
use shoal_tests::sim::scenario::Scenario;
use shoal_tests::sim::world::{JOB, MASTER, World};
use std::sync::Arc;
use std::time::Duration;

/// Longer than any of these jobs takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// Three pservers and four trainers, ten steps, a checkpoint every other one.
fn scenario() -> Scenario {
    let mut scenario = Scenario { pservers: 3, trainers: 4, checkpoint_steps: 1, ..Scenario::quiet(7) };
    scenario.data.records = 60;
    scenario.epochs = 2;
    scenario.paces = vec![Duration::from_millis(3), Duration::from_millis(7)];
    scenario
}

/// A job over what an earlier one left behind, if anything, with its trainers.
fn begin(scenario: Scenario, store: MemoryStore, place: &Place) -> (World, Observer) {
    let storage = Storage::over(Arc::new(place.clone()), "memory");
    let mut world = World::start_over(scenario, store, storage, true);
    let observer = Observer::new(&world.network);
    for number in 1..=world.scenario.trainers {
        world.start_trainer(&format!("trainer-{number}"));
    }
    (world, observer)
}

/// Everybody comes back, with so many pservers, and the job is asked to have them.
async fn resume(world: &mut World, observer: &Observer, pservers: u32, trainers: u32) {
    world.scenario.pservers = pservers;
    world.start_master();
    for number in 1..=pservers {
        world.start_pserver(&format!("later-{number}"));
    }
    for number in 1..=trainers {
        world.start_trainer(&format!("later-trainer-{number}"));
    }
    let mut master = master_client(observer.door(), MASTER).unwrap();
    let request = proto::ScaleRequest { job: JOB.into(), pservers: Some(pservers), ..Default::default() };
    while master.scale(request.clone()).await.is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits for the end; all promises must be kept.
async fn finished(world: World, observer: &Observer, story: &str) -> proto::StatusReply {
    let evidence = Evidence::when_over(world, observer, PATIENCE).await;
    let violations = invariants::check(&evidence);
    let tail = evidence.trace.lines();
    let tail = tail[tail.len().saturating_sub(40)..].join("\n");
    assert!(violations.is_empty(), "{story}: {violations:#?}\n{tail}");
    assert!(evidence.lives.iter().all(|life| !matches!(life.end, End::NotYet)), "{story}");
    evidence.status.unwrap()
}
