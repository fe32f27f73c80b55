//! What the operator does when things break: nodes, operators, the API server, images, memory. On a real control plane,
//! with pods that are pretended; without one the tests say so and pass, or fail when `SHOAL_REQUIRE_ALL=1`.

use crate::world::{World, whole};
use rustix::process::Signal;
use serde_json::{Value, json};
use shoal_test_cluster::Run;
use std::collections::BTreeMap;
use std::time::Duration;

/// Why a condition is so.
fn reason(world: &World, job: &str, condition: &str) -> String {
    let conditions = world.job(job)["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.iter().find(|one| one["type"] == condition && one["status"] == "True");
    found.map(|one| one["reason"].as_str().unwrap_or_default().to_owned()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_lost_node_are_given_up_and_made_again_elsewhere() {
    let Some(world) = World::start(3, Run::Pretended).await else { return };
    world.apply(&world.pretended("j", json!({})));
    world.wait_for_condition("j", "Ready").await;
    let before = world.uids();
    let node = world.kubectl(&["get", "pod", "j-trainer-1", "-o", "jsonpath={.spec.nodeName}"]);
    world.kubelet.lose(&node).await.unwrap();
    let is_elsewhere = async |world: &World| {
        let nodes = world.kubectl(&["get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}"]);
        !nodes.contains(&node) && world.job("j")["status"]["trainer"]["ready"] == 2
    };
    world.wait_for("nobody is on the lost node", is_elsewhere).await;
    world.wait_for_condition("j", "Ready").await;
    assert_ne!(world.uids().get("j-trainer-1"), before.get("j-trainer-1"));
    assert_eq!(world.job("j")["status"]["lastFailure"], Value::Null, "a lost node is nobody's failure");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_killed_fifty_times_leaves_one_pod_for_each_name_and_what_was_asked_for() {
    let Some(mut world) = World::start(3, Run::Pretended).await else { return };
    world.apply(&world.pretended("j", json!({})));
    let mut random = shoal_runtime::host::random::Random::seeded(9);
    let mut trainers = 2;
    for round in 0..50u64 {
        tokio::time::sleep(Duration::from_millis(random.bits() % 700)).await;
        world.kill_operator();
        world.start_operator("first");
        if round % 5 == 0 {
            trainers = 2 + (random.bits() % 6) as u32;
            world.kubectl(&["scale", "trainingjob", "j", &format!("--replicas={trainers}")]);
        }
    }
    world.wait_for_pods(whole("j", 0..1, trainers)).await;
    world.wait_for_condition("j", "Ready").await;
    let before = world.uids();
    world.kill_operator();
    world.start_operator("first");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(world.uids(), before, "an operator that begins changes nothing that is as it should be");
    assert_eq!(world.job("j")["status"]["ends"], Value::Null, "no end was counted that was not");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_operators_the_one_that_was_paused_finds_that_it_leads_no_more_and_ends() {
    let Some(mut world) = World::start(3, Run::Pretended).await else { return };
    world.apply(&world.pretended("j", json!({})));
    world.wait_for_condition("j", "Ready").await;
    world.start_operator("second");
    world.signal_operator(0, Signal::STOP);
    world.kubectl(&["scale", "trainingjob", "j", "--replicas=4"]);
    world.wait_for_pods(whole("j", 0..1, 4)).await;
    world.wait_for_condition("j", "Ready").await;
    let before = world.uids();
    world.signal_operator(0, Signal::CONT);
    world.kubectl(&["scale", "trainingjob", "j", "--replicas=5"]);
    world.wait_for_pods(whole("j", 0..1, 5)).await;
    let mut end = None;
    for _ in 0..100 {
        end = end.or_else(|| world.operator_end(0));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(end, Some(1), "one that has lost the lease ends, so that it is started again");
    let after: BTreeMap<String, String> =
        world.uids().into_iter().filter(|(name, _)| before.contains_key(name)).collect();
    assert_eq!(after, before, "nobody was made twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_image_or_memory_cannot_do_fails_and_says_so_and_what_is_deleted_in_any_phase_goes() {
    let Some(world) = World::start(2, Run::Pretended).await else { return };
    let no_image = json!({ "spec": { "containers": [{ "name": "trainer", "image": "missing:1" }] } });
    world.apply(&world.pretended("image", json!({ "trainer": { "minReplicas": 1, "template": no_image } })));
    world.wait_for("it stalls", async |world| reason(world, "image", "Stalled") == "ImageUnusable").await;
    world.wait_for_condition("image", "Failed").await;
    assert_eq!(reason(&world, "image", "Failed"), "ImageUnusable");

    let annotations = json!({
        "kubelet.shoal.dev/run-seconds": "1", "kubelet.shoal.dev/exit-code": "137", "kubelet.shoal.dev/reason": "OOMKilled",
    });
    let hungry = json!({
        "minReplicas": 1,
        "resources": { "limits": { "memory": "1Gi" } },
        "template": { "metadata": { "annotations": annotations } },
    });
    let policy = json!({ "memoryMax": "4Gi", "serverFailures": 2 });
    world.apply(&world.pretended("memory", json!({ "pserver": hungry, "failurePolicy": policy })));
    let had = async |world: &World| {
        let limit = world.kubectl(&[
            "get",
            "pod",
            "memory-pserver-0",
            "--ignore-not-found",
            "-o",
            "jsonpath={.spec.containers[0].resources.limits.memory}",
        ]);
        limit == (4u64 << 30).to_string() || limit == "4Gi"
    };
    world.wait_for("four times the memory", had).await;
    world.wait_for_condition("memory", "Failed").await;
    let status = world.job("memory")["status"].clone();
    assert_eq!(
        (reason(&world, "memory", "Failed").as_str(), &status["memory"]["pserver"]["now"]),
        ("OutOfMemory", &json!(4u64 << 30))
    );
    assert_eq!(status["ends"]["outOfMemory"], 4, "1, 2 and 4 GiB, and once more: {status}");

    // Never scheduled; under way; suspended.
    world.apply(&world.pretended(
        "pending",
        json!({ "trainer": {
        "minReplicas": 1, "template": { "spec": { "containers": [{ "name": "trainer", "image": "digits:test",
            "resources": { "requests": { "cpu": "1000" } } }] } } } }),
    ));
    world.apply(&world.pretended("running", json!({})));
    world.apply(&world.pretended("suspended", json!({ "suspend": true })));
    world.wait_for_condition("running", "Ready").await;
    world.wait_for_condition("suspended", "Suspended").await;
    world
        .wait_for("it waits for room", async |world| {
            world.job("pending")["status"]["message"].as_str().unwrap_or_default().contains("waits for room")
        })
        .await;
    for job in ["image", "memory", "pending", "running", "suspended"] {
        world.kubectl(&["delete", "trainingjob", job, "--wait=false"]);
    }
    for job in ["image", "memory", "pending", "running", "suspended"] {
        world.nothing_is_left(job).await;
    }
    assert_eq!(world.pods(), Vec::<String>::new());
}
