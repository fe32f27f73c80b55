//! The plan for all jobs, carried out on a real control plane with pretended pods; without one the tests say so and pass, or
//! fail when `SHOAL_REQUIRE_ALL=1`.

use crate::world::World;
use serde_json::{Value, json};
use shoal_test_cluster::Run;

/// A job whose number of trainers is the operator's to say, each of which asks for so many cores.
fn elastic(world: &World, name: &str, (least, most): (u32, u32), cpu: u32, more: Value) -> Value {
    let mut pod = json!({
        "terminationGracePeriodSeconds": 1,
        "containers": [{ "name": "trainer", "image": "digits:test", "resources": { "requests": { "cpu": cpu.to_string() } } }],
    });
    more.as_object().unwrap().iter().for_each(|(key, value)| pod[key] = value.clone());
    let mut job = world.pretended(name, json!({}));
    job["spec"]["trainer"] =
        json!({ "minReplicas": least, "maxReplicas": most, "template": { "spec": pod } });
    job
}

/// A pod of somebody else's, on that node alone if one is named.
fn stranger(name: &str, cpu: u32, node: Option<&str>) -> Value {
    let mut spec = json!({
        "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
        "containers": [{ "name": "main", "image": "digits:test", "resources": { "requests": { "cpu": cpu.to_string() } } }],
    });
    if let Some(node) = node {
        spec["nodeSelector"] = json!({ "kubernetes.io/hostname": node });
    }
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": spec })
}

fn ready(world: &World, job: &str) -> u64 {
    world.job(job)["status"]["trainer"]["ready"].as_u64().unwrap_or_default()
}

async fn has_trainers(world: &World, job: &str, count: u64) {
    let is_so = async |world: &World| {
        let trainer = world.job(job)["status"]["trainer"].clone();
        trainer["ready"] == count && trainer["replicas"] == count && trainer["wanted"] == count
    };
    world.wait_for(&format!("{job} has {count} trainers"), is_so).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_fill_the_cluster_give_way_to_the_least_of_others_and_wait_without_pods() {
    // Two nodes of 16 cores. A master and a pserver ask for 0.35 together; 3 % stay free: 0.96.
    let Some(world) = World::start(2, Run::Pretended).await else { return };
    world.apply(&elastic(&world, "first", (1, 40), 3, json!({})));
    // 5 fit on each node; the tenth would reach into what is kept free on neither.
    has_trainers(&world, "first", 10).await;

    // Its least takes three of ten trainers of the first; then neither has fewer than the other could give.
    world.apply(&elastic(&world, "second", (3, 40), 3, json!({})));
    has_trainers(&world, "second", 5).await;
    has_trainers(&world, "first", 5).await;
    let plan = world.job("first")["status"]["plan"].clone();
    assert_eq!(plan["blocker"], "FairShare", "{plan}");

    // Nobody can make room for all of its least: it has no pod at all, and says why.
    world.apply(&elastic(&world, "third", (6, 6), 4, json!({})));
    let waits = async |world: &World| world.job("third")["status"]["plan"]["blocker"] == "NoRoomForLeast";
    world.wait_for("the third waits", waits).await;
    let third = world.job("third");
    let message = third["status"]["message"].as_str().unwrap();
    assert!(message.contains("6 of its trainers, each asking for cpu 4, "), "{message}");
    assert_eq!(third["status"]["phase"], "Pending");
    assert!(!world.pods().iter().any(|pod| pod.starts_with("third")), "{:?}", world.pods());

    world.kubectl(&["delete", "trainingjob", "second", "--wait=false"]);
    has_trainers(&world, "third", 6).await;
    assert!(ready(&world, "first") >= 1);
    world.wait_for_condition("third", "Ready").await;
    let events = world.kubectl(&[
        "get",
        "events",
        "-o",
        "custom-columns=:.reason,:.involvedObject.name",
        "--no-headers",
    ]);
    for told in [("Admitted", "third"), ("Waits", "third"), ("Scaled", "first")] {
        let is_told = events.lines().any(|line| line.split_whitespace().eq([told.0, told.1]));
        assert!(is_told, "{told:?} is not among\n{events}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_trainers_that_go_are_those_whose_node_others_need() {
    let Some(world) = World::start(2, Run::Pretended).await else { return };
    world.kubectl(&["cordon", "node-1"]);
    world.apply(&elastic(&world, "j", (1, 40), 3, json!({})));
    has_trainers(&world, "j", 5).await;
    world.kubectl(&["uncordon", "node-1"]);
    has_trainers(&world, "j", 10).await;
    let on = |world: &World, node: &str| {
        let field = format!("--field-selector=spec.nodeName={node}");
        let pods = world.kubectl(&["get", "pods", &field, "-l", "shoal.dev/role=trainer", "-o", "name"]);
        pods.lines().count()
    };
    assert_eq!((on(&world, "node-0"), on(&world, "node-1")), (5, 5));

    // Its highest ordinals are on the other node.
    world.apply(&stranger("web", 6, Some("node-0")));
    let runs = async |world: &World| {
        world.kubectl(&["get", "pod", "web", "-o", "jsonpath={.status.phase}"]) == "Running"
    };
    world.wait_for("the other's pod runs", runs).await;
    has_trainers(&world, "j", 8).await;
    assert_eq!((on(&world, "node-0"), on(&world, "node-1")), (3, 5));

    world.kubectl(&["delete", "pod", "web"]);
    has_trainers(&world, "j", 10).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_begins_anew_changes_nothing() {
    let Some(mut world) = World::start(2, Run::Pretended).await else { return };
    world.apply(&elastic(&world, "a", (1, 40), 3, json!({})));
    world.apply(&elastic(&world, "b", (2, 40), 2, json!({})));
    let is_full = async |world: &World| ready(world, "a") + ready(world, "b") >= 11;
    world.wait_for("the cluster is full", is_full).await;
    // What they have no more for is why they have no more.
    let is_settled = async |world: &World| {
        ["a", "b"].iter().all(|job| world.job(job)["status"]["trainer"]["wanted"] == ready(world, job))
    };
    world.wait_for("nothing is under way", is_settled).await;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let before = world.uids();
    world.kill_operator();
    world.start_operator("first");
    tokio::time::sleep(std::time::Duration::from_secs(20)).await;
    assert_eq!(world.uids(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_fit_no_node_are_made_only_where_something_brings_nodes() {
    let Some(world) = World::start(1, Run::Pretended).await else { return };
    // 20 cores each, where nodes have 16.
    world.apply(&elastic(&world, "meek", (2, 2), 20, json!({})));
    let mut bold = elastic(&world, "bold", (2, 2), 20, json!({}));
    bold["spec"]["trainer"]["allowNodeScaleUp"] = json!(true);
    world.apply(&bold);
    let names = ["bold-master", "bold-pserver-0", "bold-trainer-0", "bold-trainer-1"];
    world.wait_for_pods(names.map(str::to_owned).to_vec()).await;
    let waits = async |world: &World| world.job("meek")["status"]["plan"]["blocker"] == "NoRoomForLeast";
    world.wait_for("the other waits", waits).await;
    let trainers = "shoal.dev/role=trainer";
    let phases = world.kubectl(&["get", "pods", "-l", trainers, "-o", "jsonpath={.items[*].status.phase}"]);
    assert_eq!((phases.as_str(), world.pods()), ("Pending Pending", names.map(str::to_owned).to_vec()));
}
