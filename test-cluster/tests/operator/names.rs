//! Objects that have the names of a job's and are not its own, objects that the API server refuses, and what jobs that are
//! over cost. On a real control plane with pods that are pretended; without one the tests say so and pass, or fail when
//! `SHOAL_REQUIRE_ALL=1`.

use crate::world::{World, whole};
use serde_json::{Value, json};
use shoal_test_cluster::Run;
use std::time::Duration;

/// What somebody else has made under names of a job's: as it is now, without what the server writes by itself.
const FOREIGN: [(&str, &str); 4] = [
    ("service", "j-master"),
    ("poddisruptionbudget", "j-pserver"),
    ("networkpolicy", "j-shoal"),
    // What operators before called the policy of a job.
    ("networkpolicy", "j"),
];

fn foreign_objects(world: &World) {
    let labels = json!({ "app": "somebody" });
    let object = |api: &str, kind: &str, name: &str, spec: Value| {
        let metadata = json!({ "name": name, "labels": labels });
        json!({ "apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec })
    };
    let select = json!({ "matchLabels": labels });
    let items = [
        object("v1", "Service", "j-master", json!({ "selector": labels, "ports": [{ "port": 80 }] })),
        object(
            "policy/v1beta1",
            "PodDisruptionBudget",
            "j-pserver",
            json!({ "maxUnavailable": 7, "selector": select }),
        ),
        object("networking.k8s.io/v1", "NetworkPolicy", "j-shoal", json!({ "podSelector": select })),
        object("networking.k8s.io/v1", "NetworkPolicy", "j", json!({ "podSelector": select })),
    ];
    world.apply(&json!({ "apiVersion": "v1", "kind": "List", "items": items }));
}

/// Which they are, and as which of all that was ever written; a name that has gone is not there.
fn versions(world: &World) -> Vec<String> {
    let version = "jsonpath={.metadata.uid} {.metadata.resourceVersion}";
    let of =
        |(kind, name): (&str, &str)| world.kubectl(&["get", kind, name, "--ignore-not-found", "-o", version]);
    FOREIGN.into_iter().map(of).collect()
}

fn message(world: &World, job: &str) -> String {
    world.job(job)["status"]["message"].as_str().unwrap_or_default().to_owned()
}

async fn says(world: &World, job: &str, words: &[&str]) {
    let is_said = async |world: &World| words.iter().all(|word| message(world, job).contains(word));
    world.wait_for(&format!("{job} says {words:?}"), is_said).await;
}

fn warnings(world: &World, reason: &str) -> String {
    let fields = format!("reason={reason},type=Warning");
    world.kubectl(&["get", "events", "--field-selector", &fields, "-o", "jsonpath={.items[*].message}"])
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_a_jobs_name_and_is_somebody_elses_is_as_it_was_before_during_and_after_the_job() {
    let Some(world) = World::start(2, Run::Pretended).await else { return };
    foreign_objects(&world);
    let before = versions(&world);
    // Of two pservers, for which there is a budget.
    let two = json!({ "pserver": { "minReplicas": 2 } });
    world.apply(&world.pretended("j", two));
    says(&world, "j", &["NameTaken", "Service j-master", "rename the job or remove"]).await;
    assert!(warnings(&world, "NameTaken").contains("j-master"), "{}", warnings(&world, "NameTaken"));
    assert_eq!(versions(&world), before, "while the job is kept up");
    // Without its Service nobody finds the master: it is made, and nobody else.
    world.wait_for_pods(vec!["j-master".to_owned()]).await;

    world.kubectl(&["delete", "service", "j-master"]);
    world.wait_for_pods(whole("j", 0..2, 2)).await;
    says(&world, "j", &["NameTaken", "PodDisruptionBudget j-pserver"]).await;
    assert_eq!(versions(&world)[1..], before[1..], "while it runs");

    world.kubectl(&["patch", "trainingjob", "j", "--type=merge", "-p", r#"{"spec":{"suspend":true}}"#]);
    world.wait_for_condition("j", "Suspended").await;
    let is_released = async |world: &World| versions(world)[0].is_empty();
    world.wait_for("its own service is deleted", is_released).await;
    assert_eq!(versions(&world)[1..], before[1..], "once it has stopped");
    world.kubectl(&["delete", "trainingjob", "j"]);
    assert_eq!(versions(&world)[1..], before[1..], "once it is gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_somebody_else_that_has_the_masters_name_is_named_and_the_job_goes_on_when_it_goes() {
    let Some(world) = World::start(2, Run::Pretended).await else { return };
    let foreign = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "j-master" }, "spec": {
        "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
        "containers": [{ "name": "main", "image": "digits:test" }] } });
    world.apply(&foreign);
    world.apply(&world.pretended("j", json!({})));
    says(&world, "j", &["NameTaken", "Pod j-master", "rename the job or remove"]).await;
    assert!(warnings(&world, "NameTaken").contains("j-master"));
    assert_eq!(world.pods(), ["j-master"]);
    world.kubectl(&["delete", "pod", "j-master"]);
    world.wait_for_condition("j", "Ready").await;
    world.wait_for_pods(whole("j", 0..1, 2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_a_quota_refuses_is_named_the_master_is_made_and_the_job_goes_on_once_there_is_room() {
    let Some(world) = World::start(2, Run::Pretended).await else { return };
    let none = json!({ "hard": { "services": "0" } });
    let quota =
        json!({ "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "none" }, "spec": none });
    world.apply(&quota);
    let is_counted = async |world: &World| {
        !world.kubectl(&["get", "resourcequota", "none", "-o", "jsonpath={.status.hard.services}"]).is_empty()
    };
    world.wait_for("the quota is in force", is_counted).await;
    world.apply(&world.pretended("j", json!({ "pserver": { "minReplicas": 2 } })));
    says(&world, "j", &["Service j-master", "exceeded quota"]).await;
    world.wait_for_pods(vec!["j-master".to_owned()]).await;
    let budget = world.kubectl(&["get", "poddisruptionbudget", "j-pserver", "-o", "name"]);
    assert!(budget.contains("j-pserver"), "the others of its surroundings are made: {budget}");
    world.kubectl(&["delete", "resourcequota", "none"]);
    world.wait_for_condition("j", "Ready").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_are_over_cost_an_operator_that_begins_no_call() {
    let Some(mut world) = World::start(2, Run::Pretended).await else { return };
    let annotations = json!({ "kubelet.shoal.dev/run-seconds": "2", "kubelet.shoal.dev/exit-code": "1" });
    let ends = json!({ "metadata": { "annotations": annotations } });
    let policy = json!({ "serverFailures": 1 });
    let over = json!({ "cleanPodPolicy": "All", "failurePolicy": policy, "master": { "template": ends } });
    let names = ["a", "b", "c"];
    names.iter().for_each(|name| world.apply(&world.pretended(name, over.clone())));
    for name in names {
        world.wait_for_condition(name, "Failed").await;
    }
    let is_released = async |world: &World| {
        let made = "pods,services,networkpolicies,poddisruptionbudgets";
        world.kubectl(&["get", made, "-l", "shoal.dev/job", "-o", "name"]).is_empty()
    };
    world.wait_for("everything is released", is_released).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    world.kill_operator();
    let before = world.faults.counts();
    world.start_operator("second");
    // Another job is looked after: by then those that are over have been looked at as well.
    world.apply(&world.pretended("alive", json!({ "suspend": true })));
    world.wait_for_condition("alive", "Suspended").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let after = world.faults.counts();
    let of_jobs = |call: &str| {
        let resources = ["services", "poddisruptionbudgets", "networkpolicies", "pods"];
        !call.starts_with("LIST")
            && !call.starts_with("WATCH")
            && resources.iter().any(|one| call.ends_with(one))
    };
    let more = after
        .iter()
        .filter(|(call, count)| before.get(call) != Some(count))
        .map(|(call, _)| call.to_string());
    let more: Vec<String> = more.filter(|call| of_jobs(call)).collect();
    assert_eq!(more, Vec::<String>::new(), "calls for objects of jobs that are over");
}
