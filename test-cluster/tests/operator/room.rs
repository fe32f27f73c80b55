//! Jobs where there is too little room: preempted by the scheduler, kept out by quotas and taints. On a real control plane;
//! without one the tests say so and pass, or fail when `SHOAL_REQUIRE_ALL=1`.

use crate::world::{World, whole};
use serde_json::{Value, json};
use shoal_test_cluster::Run;
use shoal_tests::processes::pack_digits;
use std::time::Duration;

fn message(world: &World, job: &str) -> String {
    world.job(job)["status"]["message"].as_str().unwrap_or_default().to_owned()
}

/// Something that matters more, and needs so many cores.
fn urgent(cpu: u32) -> Value {
    let class = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": "urgent" }, "value": 1000,
    });
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "urgent" }, "spec": {
        "priorityClassName": "urgent", "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": false, "containers": [{
            "name": "main", "image": "digits:test", "command": ["sleep", "1000"],
            "resources": { "requests": { "cpu": cpu.to_string() } } }] } });
    json!({ "apiVersion": "v1", "kind": "List", "items": [class, pod] })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scheduler_takes_elastic_trainers_alone_for_what_matters_more_and_they_hand_their_tasks_back() {
    // One node of 16 cores: the job has 12 of them for its trainers.
    let Some(world) = World::start(1, Run::Processes).await else { return };
    let data = pack_digits(&world.programs, &world.path("data")).unwrap();
    let container = json!({
        "name": "trainer", "image": "digits:test", "command": ["digits"],
        "env": [{ "name": "SHOAL_PACE_MILLIS", "value": "80" }],
        "resources": { "requests": { "cpu": "4" } },
    });
    let job = json!({ "apiVersion": "shoal.dev/v1alpha1", "kind": "TrainingJob", "metadata": { "name": "j" }, "spec": {
        "data": [data], "epochs": 6, "checkpoint": { "place": world.path("checkpoints") }, "leaseTtlMillis": 60_000,
        "trainer": { "minReplicas": 1, "maxReplicas": 3, "replicas": 3,
            "template": { "spec": { "containers": [container] } } },
    } });
    world.apply(&job);
    let are_three = async |world: &World| world.job("j")["status"]["trainer"]["ready"] == 3;
    world.wait_for("three trainers", are_three).await;
    let is_under_way = async |world: &World| world.job("j")["status"]["progress"]["step"].as_u64() > Some(0);
    world.wait_for("it makes steps", is_under_way).await;
    let before = world.uids();

    world.apply(&urgent(8));
    let runs = async |world: &World| {
        world.kubectl(&["get", "pod", "urgent", "-o", "jsonpath={.status.containerStatuses[0].ready}"])
            == "true"
    };
    world.wait_for("what matters more runs", runs).await;
    let now = world.uids();
    for kept in ["j-master", "j-pserver-0", "j-trainer-0"] {
        assert_eq!(now.get(kept), before.get(kept), "{kept} is not elastic");
    }
    world
        .wait_for("it says what it waits for", async |world| {
            message(world, "j").contains("1 of 3 trainers: ")
        })
        .await;
    assert_eq!(world.job("j")["status"]["phase"], "Running", "it goes on with its least");
    let said = world.status_of_master("j");
    assert_eq!(
        (&said["tasks_expired"], &said["rewinds"]),
        (&json!(0), &json!(0)),
        "tasks were handed back: {said}"
    );

    world.kubectl(&["delete", "pod", "urgent"]);
    world.wait_for("they come back", are_three).await;
    world.wait_for_condition("j", "Succeeded").await;
    let status = world.job("j")["status"].clone();
    assert_eq!(status["lastFailure"], Value::Null, "preemption is nobody's failure");
    // Whether the scheduler was first, or the plan that let them go: neither is an error.
    assert_eq!(status["ends"]["errors"], Value::Null, "{status}");
    assert_eq!(world.trained("checkpoints"), world.undisturbed(&job));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_and_taints_leave_a_job_waiting_with_the_reason_and_without_a_storm_of_calls() {
    let Some(world) = World::start(2, Run::Pretended).await else { return };
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "few" }, "spec": { "hard": { "pods": "5" } },
    });
    world.apply(&quota);
    // The controller counts what there is before the quota holds.
    let counts = async |world: &World| {
        !world.kubectl(&["get", "resourcequota", "few", "-o", "jsonpath={.status.used.pods}"]).is_empty()
    };
    world.wait_for("the quota is in force", counts).await;
    let mut job = world.pretended("j", json!({}));
    job["spec"]["trainer"]["replicas"] = json!(6);
    world.apply(&job);
    world.wait_for("the quota is named", async |world| message(world, "j").contains("few")).await;
    // The least first, then any of the others.
    let are_there = async |world: &World| {
        let pods = world.pods();
        pods.len() == 5 && whole("j", 0..1, 2).iter().all(|pod| pods.contains(pod))
    };
    world.wait_for("the least and as many more as the quota has room for", are_there).await;
    world.wait_for_condition("j", "Running").await;
    let tried = |world: &World| {
        let counts = world.faults.counts();
        counts
            .iter()
            .filter(|(call, _)| call.to_string() == "POST pods")
            .map(|(_, count)| *count)
            .sum::<u64>()
    };
    let before = tried(&world);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let in_ten_seconds = tried(&world) - before;
    assert!(in_ten_seconds <= 20, "{in_ten_seconds} pods were tried in 10 s");
    world.kubectl(&["delete", "resourcequota", "few"]);
    world.wait_for_pods(whole("j", 0..1, 6)).await;
    world.wait_for_condition("j", "Ready").await;

    world.kubectl(&["taint", "nodes", "--all", "dedicated=others:NoSchedule"]);
    world.apply(&world.pretended("tainted", json!({})));
    world.wait_for("taints are named", async |world| message(world, "tainted").contains("taint")).await;
    world.kubectl(&["taint", "nodes", "--all", "dedicated-"]);
    world.wait_for_condition("tainted", "Ready").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_deleted_while_it_stops_scales_or_has_ended_leaves_nothing() {
    let Some(world) = World::start(2, Run::Processes).await else { return };
    let data = pack_digits(&world.programs, &world.path("data")).unwrap();
    let digits = |name: &str, epochs: u32, pserver: Value| {
        let container = json!({
            "name": "trainer", "image": "digits:test", "command": ["digits"],
            "env": [{ "name": "SHOAL_PACE_MILLIS", "value": if epochs == 1 { "0" } else { "200" } }],
        });
        json!({ "apiVersion": "shoal.dev/v1alpha1", "kind": "TrainingJob", "metadata": { "name": name }, "spec": {
            "data": [data], "epochs": epochs, "checkpoint": { "place": world.path(&format!("checkpoints-{name}")) },
            "pserver": pserver,
            "trainer": { "minReplicas": 1, "maxReplicas": 3, "replicas": 1, "template": { "spec": { "containers": [container] } } },
        } })
    };
    let orphan = "apiVersion: shoal.dev/v1alpha1\nkind: ScalePlan\nmetadata:\n  name: early\nspec:\n  ownerJob: scaling\n  \
                  replicaResourceSpecs:\n    ps:\n      replicas: 3\n";
    world.plane.apply(orphan).unwrap();
    let plan = |world: &World, field: &str| {
        world.kubectl(&["get", "scaleplan", "early", "-o", &format!("jsonpath={{.status.{field}}}")])
    };
    let says =
        async |world: &World| plan(world, "message").contains("there is no job scaling in namespace default");
    world.wait_for("a plan says that its job is not there", says).await;

    world.apply(&digits("succeeded", 1, json!({})));
    world.apply(&digits("stopping", 30, json!({})));
    // There is room for two of its pservers, so it goes on scaling for as long as it is there.
    let large = json!({ "minReplicas": 1, "maxReplicas": 3, "resources": { "requests": { "cpu": "10" } } });
    world.apply(&digits("scaling", 30, large));
    world.wait_for_condition("succeeded", "Succeeded").await;
    world.wait_for_condition("stopping", "Ready").await;
    let is_scaling = async |world: &World| {
        plan(world, "phase") == "Scaling" && message(world, "scaling").contains("waits for room")
    };
    world.wait_for("the plan is taken up once there is a job", is_scaling).await;
    let suspend = r#"{"spec":{"suspend":true}}"#;
    world.kubectl(&["patch", "trainingjob", "stopping", "--type=merge", "-p", suspend]);
    let is_stopping = async |world: &World| {
        ["Suspending", "Suspended"].contains(&world.job("stopping")["status"]["phase"].as_str().unwrap())
    };
    world.wait_for("it stops", is_stopping).await;
    for name in ["stopping", "scaling", "succeeded"] {
        // Twice: a person who is impatient.
        world.kubectl(&["delete", "trainingjob", name, "--wait=false"]);
        world.kubectl(&["delete", "trainingjob", name, "--wait=false", "--ignore-not-found"]);
    }
    for name in ["stopping", "scaling", "succeeded"] {
        world.nothing_is_left(name).await;
    }
    assert_eq!(world.pods(), Vec::<String>::new());
    let is_gone = async |world: &World| {
        world.kubectl(&["get", "scaleplan", "early", "--ignore-not-found", "-o", "name"]).is_empty()
    };
    world.wait_for("its plan goes with the job", is_gone).await;
}
