//! Others that say how many: a HorizontalPodAutoscaler, a scheduler that makes room, a second operator. On a real control plane; without one
//! the tests say so and pass, or fail when `SHOAL_REQUIRE_ALL=1`.

use crate::world::{World, whole};
use serde_json::{Value, json};
use shoal_test_cluster::{Metrics, PodUse, Run};
use std::time::Duration;

/// The trainers of a job as a metrics server sees them, each with so much of a processor.
fn uses(world: &World, job: &str, cpu_millis: u64) -> Vec<PodUse> {
    let labels = [("shoal.dev/job", job), ("shoal.dev/role", "trainer")];
    let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let trainers = world.pods().into_iter().filter(|pod| pod.starts_with(&format!("{job}-trainer-")));
    let one = |name| PodUse {
        namespace: "default".to_owned(),
        name,
        labels: labels.clone().into(),
        container: "trainer".to_owned(),
        cpu_millis,
    };
    trainers.map(one).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_autoscaler_scales_a_job_that_leaves_its_number_to_the_operator() {
    let Some(mut world) = World::start(4, Run::Pretended).await else { return };
    world.patience = Duration::from_secs(240);
    let metrics = Metrics::start(&world.plane).await.unwrap();
    let mut job = world.pretended("j", json!({}));
    job["spec"]["trainer"].as_object_mut().unwrap().remove("replicas");
    // All of a node is one trainer's, so that the operator alone would have two.
    job["spec"]["trainer"]["maxReplicas"] = json!(6);
    world.apply(&job);
    world.wait_for_condition("j", "Ready").await;
    let scale = |world: &World| {
        let scale = world.kubectl(&[
            "get",
            "--raw",
            "/apis/shoal.dev/v1alpha1/namespaces/default/trainingjobs/j/scale",
        ]);
        serde_json::from_str::<Value>(&scale).unwrap()["spec"]["replicas"].clone()
    };
    let planned = world.job("j")["status"]["trainer"]["wanted"].clone();
    let is_written = async |world: &World| scale(world) == planned;
    world.wait_for("an autoscaler has a number to begin with", is_written).await;

    let behavior = json!({ "scaleDown": { "stabilizationWindowSeconds": 0, "policies": [{ "type": "Pods", "value": 9, "periodSeconds": 1 }] } });
    let metric = json!({ "type": "Resource", "resource": { "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 50 } } });
    let autoscaler = json!({
        "apiVersion": "autoscaling/v2beta2", "kind": "HorizontalPodAutoscaler", "metadata": { "name": "j" },
        "spec": {
            "scaleTargetRef": { "apiVersion": "shoal.dev/v1alpha1", "kind": "TrainingJob", "name": "j" },
            "minReplicas": 2, "maxReplicas": 6, "metrics": [metric], "behavior": behavior,
        },
    });
    world.apply(&autoscaler);
    for (cpu_millis, wanted) in [(10, 2), (5000, 6), (10, 2)] {
        let has = async |world: &World| {
            metrics.set(uses(world, "j", cpu_millis));
            world.job("j")["status"]["trainer"]["ready"] == wanted && scale(world) == wanted
        };
        world.wait_for(&format!("{wanted} trainers"), has).await;
    }
    let why = world.job("j")["status"]["decisions"][0]["why"].clone();
    assert_eq!(why, "replicas, as the job's spec says", "it is the autoscaler's wish");
    world.wait_for_condition("j", "Ready").await;

    // Taken out, the number is the operator's again.
    world.kubectl(&["delete", "hpa", "j"]);
    world.kubectl(&[
        "patch",
        "trainingjob",
        "j",
        "--type=json",
        "-p",
        r#"[{"op":"remove","path":"/spec/trainer/replicas"}]"#,
    ]);
    let is_planned = async |world: &World| world.job("j")["status"]["trainer"]["ready"] == planned;
    world.wait_for("as many as were planned", is_planned).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_trainers_go_than_the_scheduler_takes_for_what_matters_more() {
    let Some(world) = World::start(4, Run::Pretended).await else { return };
    let class = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": "urgent" }, "value": 1000,
    });
    world.apply(&class);
    let mut job = world.pretended("j", json!({}));
    let trainer = &mut job["spec"]["trainer"];
    (trainer["minReplicas"], trainer["maxReplicas"], trainer["replicas"]) = (json!(1), json!(8), json!(8));
    trainer["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("6");
    trainer["template"]["spec"]["terminationGracePeriodSeconds"] = json!(3);
    trainer["template"]["metadata"] = json!({ "annotations": { "kubelet.shoal.dev/stop-seconds": "2" } });
    world.apply(&job);
    for round in 0..4 {
        let has_all = async |world: &World| world.job("j")["status"]["trainer"]["ready"].as_u64() >= Some(7);
        world.wait_for("all trainers that fit", has_all).await;
        let before = world.uids();
        let trainers = before.keys().filter(|name| name.contains("trainer")).count();
        // As much as two trainers have, on whatever node.
        let urgent = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "urgent" }, "spec": {
            "priorityClassName": "urgent", "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
            "containers": [{ "name": "main", "image": "digits:test", "resources": { "requests": { "cpu": "14" } } }] } });
        world.apply(&urgent);
        let runs = async |world: &World| {
            world.kubectl(&["get", "pod", "urgent", "-o", "jsonpath={.status.phase}"]) == "Running"
        };
        world.wait_for("what matters more runs", runs).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let now = world.uids();
        let kept = before
            .iter()
            .filter(|(name, uid)| name.contains("trainer") && now.get(*name) == Some(uid))
            .count();
        assert!(kept + 2 >= trainers, "round {round}: of {trainers} trainers {kept} are left");
        world.kubectl(&["delete", "pod", "urgent"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_of_the_cluster_leaves_a_namespace_to_its_own_and_takes_it_over_when_that_is_gone() {
    let Some(mut world) = World::start(3, Run::Pretended).await else { return };
    let mut job = world.pretended("j", json!({}));
    // The one plans as many as there is room for, the other keeps the least: they would never agree.
    job["spec"]["trainer"].as_object_mut().unwrap().remove("replicas");
    world.apply(&job);
    world.wait_for_condition("j", "Ready").await;
    world.wait_for("the cluster's plans", async |world| world.pods().len() > whole("j", 0..1, 2).len()).await;

    // In the administrator's name: what a Role of that namespace gives is not what is tested here.
    let admin = world.plane.kubeconfig();
    world.start_operator_with(
        &admin,
        &["--identity", "own", "--namespace", "default", "--lease-namespace", "default"],
    );
    world.wait_for_pods(whole("j", 0..1, 2)).await;
    let generation = |world: &World| world.job("j")["metadata"]["generation"].clone();
    world.wait_for_condition("j", "Ready").await;
    let (before, version) = (world.uids(), generation(&world));
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!((world.uids(), generation(&world)), (before, version), "nobody undoes what the other does");

    world.kill_operator();
    let is_back = async |world: &World| world.pods().len() > whole("j", 0..1, 2).len();
    world.wait_for("the cluster's takes over", is_back).await;
}
