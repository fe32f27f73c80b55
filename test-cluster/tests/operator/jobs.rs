//! Training jobs on a real control plane: applied with kubectl, scaled by it and by plans, trained by real processes.
//! Without a control plane (`KUBEBUILDER_ASSETS`) and root the tests say so and pass, or fail when `SHOAL_REQUIRE_ALL=1`.

use crate::world::World;
use serde_json::{Value, json};
use shoal_test_cluster::Run;

/// A plan as the field writes them, but for the group and the job's name.
fn plan(name: &str, job: &str, what: &str) -> String {
    format!(
        "apiVersion: shoal.dev/v1alpha1\nkind: ScalePlan\nmetadata:\n  name: {name}\n  labels:\n    elasticjob-name: {job}\n    \
         scale-type: manual\nspec:\n  ownerJob: {job}\n{what}"
    )
}

async fn carried_out(world: &World, name: &str, manifest: &str) {
    world.plane.apply(manifest).unwrap();
    let is_over = async |world: &World| {
        let phase = world.kubectl(&["get", "scaleplan", name, "-o", "jsonpath={.status.phase}"]);
        assert_ne!(phase, "Failed", "{}", world.kubectl(&["get", "scaleplan", name, "-o", "yaml"]));
        phase == "Succeeded"
    };
    world.wait_for(&format!("plan {name}"), is_over).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_applied_with_kubectl_is_scaled_by_plans_and_trains_to_the_model_that_shoal_run_gives() {
    let Some(world) = World::start(3, Run::Processes).await else { return };
    // Long enough for all that is asked for below on a machine that is slow.
    let job = world.digits("deepctr", json!({ "epochs": 10 }));
    world.apply(&job);
    world.wait_for_condition("deepctr", "Running").await;
    assert_eq!(world.pods(), ["deepctr-master", "deepctr-pserver-0", "deepctr-trainer-0"]);

    // By default the first checkpoint is made after ten minutes: its master is told otherwise, and makes copies, while it trains.
    assert_eq!(world.job("deepctr")["status"]["checkpoint"]["number"], Value::Null);
    let edit = r#"{"spec":{"copies":1,"checkpoint":{"everySteps":5}}}"#;
    world.kubectl(&["patch", "trainingjob", "deepctr", "--type=merge", "-p", edit]);
    let is_told =
        async |world: &World| world.job("deepctr")["status"]["checkpoint"]["number"].as_u64() > Some(0);
    world.wait_for("a checkpoint is made by the edited settings", is_told).await;

    world.kubectl(&["scale", "trainingjob", "deepctr", "--replicas=2"]);
    world
        .wait_for("two trainers", async |world| world.job("deepctr")["status"]["trainer"]["ready"] == 2)
        .await;

    let workers = plan("plan-0", "deepctr", "  replicaResourceSpecs:\n    worker:\n      replicas: 3\n");
    carried_out(&world, "plan-0", &workers).await;
    let trainers = ["deepctr-trainer-0", "deepctr-trainer-1", "deepctr-trainer-2"];
    assert_eq!(world.pods()[2..], trainers);

    let up = plan("plan-1", "deepctr", "  replicaResourceSpecs:\n    ps:\n      replicas: 2\n");
    carried_out(&world, "plan-1", &up).await;
    assert_eq!(world.pods()[..3], ["deepctr-master", "deepctr-pserver-0", "deepctr-pserver-1"]);

    let down = plan("plan-2", "deepctr", "  replicaResourceSpecs:\n    ps:\n      replicas: 1\n");
    carried_out(&world, "plan-2", &down).await;
    assert_eq!(world.pods()[..2], ["deepctr-master", "deepctr-pserver-0"]);

    let moves = "  migratePods:\n    - name: deepctr-edljob-ps-0\n      resource:\n        cpu: \"2\"\n        memory: 4Gi\n";
    carried_out(&world, "plan-3", &plan("plan-3", "deepctr", moves)).await;
    assert_eq!(world.pods()[..2], ["deepctr-master", "deepctr-pserver-2"]);
    let resources = world.kubectl(&[
        "get",
        "pod",
        "deepctr-pserver-2",
        "-o",
        "jsonpath={.spec.containers[0].resources.requests}",
    ]);
    assert_eq!(serde_json::from_str::<Value>(&resources).unwrap(), json!({ "cpu": "2", "memory": "4Gi" }));

    world.kubectl(&["scale", "trainingjob", "deepctr", "--replicas=4"]);
    world.wait_for_condition("deepctr", "Succeeded").await;
    let is_released = async |world: &World| {
        let running = world.kubectl(&["get", "pods", "--field-selector=status.phase=Running", "-o", "name"]);
        running.is_empty()
            && world
                .kubectl(&["get", "service,networkpolicy", "-l", "shoal.dev/job", "-o", "name"])
                .is_empty()
    };
    world.wait_for("everything is released", is_released).await;

    assert_eq!(world.trained("checkpoints-deepctr"), world.undisturbed(&job));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_was_suspended_and_lost_pods_has_the_same_model() {
    let Some(world) = World::start(3, Run::Processes).await else { return };
    let job = world.digits("paused", json!({}));
    world.apply(&job);
    world.wait_for_condition("paused", "Running").await;
    let is_under_way =
        async |world: &World| world.job("paused")["status"]["progress"]["step"].as_u64() > Some(0);
    world.wait_for("it has made steps", is_under_way).await;
    world.kubectl(&["patch", "trainingjob", "paused", "--type=merge", "-p", r#"{"spec":{"suspend":true}}"#]);
    world.wait_for_condition("paused", "Suspended").await;
    assert_eq!(world.pods(), Vec::<String>::new());
    assert!(
        world.job("paused")["status"]["checkpoint"]["number"].as_u64() > Some(0),
        "{}",
        world.job("paused")["status"]
    );
    world.kubectl(&["patch", "trainingjob", "paused", "--type=merge", "-p", r#"{"spec":{"suspend":false}}"#]);
    world.wait_for_condition("paused", "Ready").await;
    // A person, or a drain, deletes each of them once.
    world.kubectl(&["delete", "pod", "paused-trainer-0", "paused-master"]);
    world.wait_for_condition("paused", "Ready").await;
    world.kubectl(&["delete", "pod", "paused-pserver-0", "--wait=false"]);
    world.wait_for_condition("paused", "Succeeded").await;
    assert_eq!(world.trained("checkpoints-paused"), world.undisturbed(&job));
    let ends = world.job("paused")["status"]["ends"].clone();
    assert_eq!(ends, json!({ "evicted": 3 }), "each was counted once, as nobody's failure");
}

#[tokio::test(flavor = "multi_thread")]
async fn pservers_that_have_too_much_to_do_become_more() {
    let Some(world) = World::start(1, Run::Processes).await else { return };
    // A thousandth of a processor: whatever a pserver does is too much for it.
    let pserver = json!({ "maxReplicas": 2, "resources": { "requests": { "cpu": "1m", "memory": "1Gi" } } });
    world.apply(&world.digits("loaded", json!({ "epochs": 100, "pserver": pserver })));
    let has_two = async |world: &World| world.job("loaded")["status"]["pserver"]["ready"] == 2;
    world.wait_for("a second pserver", has_two).await;
    let status = world.job("loaded")["status"].clone();
    let decisions = status["decisions"].as_array().unwrap();
    let grew = decisions.iter().find(|one| one["what"] == "pservers 1 -> 2").unwrap();
    assert_eq!(grew["why"], "their load is 100 % on average, of 60 % aimed at");
    world.kubectl(&["delete", "trainingjob", "loaded", "--wait=false"]);
    world.nothing_is_left("loaded").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_jobs_with_one_place_the_second_fails_at_once_and_says_whose_it_is() {
    let Some(world) = World::start(2, Run::Processes).await else { return };
    let place = json!({ "checkpoint": { "place": world.path("checkpoints-first") } });
    world.apply(&world.digits("first", json!({ "epochs": 100 })));
    world.wait_for_condition("first", "Ready").await;
    world.apply(&world.digits("second", place));
    world.wait_for_condition("second", "Failed").await;
    let said = world.job("second")["status"]["message"].as_str().unwrap().to_owned();
    assert!(said.contains("is the place of first") && said.contains("spec.checkpoint.place"), "{said}");
    let first = world.job("first")["status"].clone();
    assert_eq!((&first["phase"], &first["lastFailure"]), (&json!("Running"), &Value::Null), "{first}");
    world.kubectl(&["delete", "trainingjob", "first", "second", "--wait=false"]);
    world.nothing_is_left("first").await;
}
