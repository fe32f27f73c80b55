//! Jobs train on whatever becomes of the API server, and afterwards all that was asked for meanwhile is done once. On a real
//! control plane, where pods are processes; without one the test says so and passes, or fails when `SHOAL_REQUIRE_ALL=1`.
//! `SHOAL_OUTAGE_SECONDS` says how long everything takes together: 600 for a real outage.

use crate::world::{WayToMaster, World};
use serde_json::{Value, json};
use shoal_test_cluster::{Cut, Refusal, Run};
use shoal_tests::processes::pack_digits;
use std::time::Duration;

/// What an API server that is there answers at its worst.
const ERRORS: [u16; 4] = [500, 503, 429, 410];

/// `SHOAL_OUTAGE_SECONDS`, or as long as makes sense in a run of all tests.
fn outage_seconds() -> u64 {
    std::env::var("SHOAL_OUTAGE_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(30)
}

/// A job that lasts longer than the outage with three trainers.
fn digits(world: &World) -> Value {
    let data = pack_digits(&world.programs, &world.path("data")).unwrap();
    let (epochs, microbatches_in_epoch, trainers) = (12, 256, 3);
    let pace_millis = (outage_seconds() * 3 / 2 + 40) * 1000 * trainers / (epochs * microbatches_in_epoch);
    let container = json!({
        "name": "trainer", "image": "digits:test", "command": ["digits"],
        "env": [{ "name": "SHOAL_PACE_MILLIS", "value": pace_millis.to_string() }],
    });
    json!({ "apiVersion": "shoal.dev/v1alpha1", "kind": "TrainingJob", "metadata": { "name": "j" }, "spec": {
        "data": [data], "epochs": epochs, "checkpoint": { "place": world.path("checkpoints") },
        "trainer": { "minReplicas": 2, "maxReplicas": 3, "replicas": 2, "template": { "spec": { "containers": [container] } } },
    } })
}

/// The step that the job's master is at, asked past the operator.
fn step(world: &World, master: &WayToMaster) -> u64 {
    world.status_at(master)["step"].as_u64().unwrap()
}

/// For so long, while which the job must make steps. An operator that ends is started again, as its Deployment would.
async fn train_on(world: &mut World, what: &str, master: &WayToMaster, seconds: u64) {
    let before = step(world, master);
    for _ in 0..seconds.max(1) {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if world.newest_operator_end().is_some() {
            world.start_operator("first");
        }
    }
    let after = step(world, master);
    assert!(after > before, "{what}: the job stands at step {before}");
    eprintln!(
        "{what}: {seconds} s, steps {before} to {after}, {} calls refused so far",
        world.faults.refused()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_makes_its_steps_whatever_the_api_server_answers_and_what_was_asked_for_is_done_once() {
    let Some(mut world) = World::start(3, Run::Processes).await else { return };
    let job = digits(&world);
    world.apply(&job);
    world.wait_for_condition("j", "Ready").await;
    let is_under_way = async |world: &World| world.job("j")["status"]["progress"]["step"].as_u64() > Some(0);
    world.wait_for("it has made steps", is_under_way).await;
    let before = world.uids();
    let master = world.way_to_master("j");
    let each = outage_seconds() / 6;

    world.kubectl(&["scale", "trainingjob", "j", "--replicas=3"]);
    for code in ERRORS {
        world.faults.refuse(Refusal::of(code));
        world.faults.cut_watches(Cut::Expired);
        train_on(&mut world, &format!("all calls answered with {code}"), &master, each).await;
        world.faults.pass();
    }
    // It lists again, and then what it watches is gone again, without a word.
    world.faults.cut_watches(Cut::Silent);
    let refused = world.faults.refused();
    assert!(
        refused > 0 && refused < 20 * outage_seconds(),
        "{refused} calls: it neither gives up nor storms"
    );
    world.plane.stop_api_server();
    train_on(&mut world, "no API server", &master, 2 * each).await;
    world.plane.start_api_server().await.unwrap();
    if world.newest_operator_end().is_some() {
        world.start_operator("first");
    }

    let is_scaled = async |world: &World| world.job("j")["status"]["trainer"]["ready"] == 3;
    world.wait_for("what was asked for in the outage is done", is_scaled).await;
    let after = world.uids();
    assert_eq!(after.len(), before.len() + 1, "{after:?}");
    assert!(before.iter().all(|(pod, uid)| after.get(pod) == Some(uid)), "nobody was made anew");
    // What is left of the job after the outage grows with it.
    world.patience += Duration::from_secs(2 * outage_seconds());
    world.wait_for_condition("j", "Succeeded").await;
    assert_eq!(world.job("j")["status"]["ends"], Value::Null, "no pod has ended before its time");
    assert_eq!(world.trained("checkpoints"), world.undisturbed(&job));
}
