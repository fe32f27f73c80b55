//! Operators of another version over jobs that train: from the last version to this one, and back. The last version is not part of these
//! sources: `SHOAL_OPERATOR_BEFORE` names its program, `SHOAL_CRDS_BEFORE` the file with its definitions. Without them the test says so
//! and passes; `bash .ci/nightly` builds them.

use crate::world::World;
use serde_json::{Value, json};
use shoal_test_cluster::Run;
use shoal_tests::processes::pack_digits;
use std::path::PathBuf;
use std::time::Duration;

fn before() -> Option<(PathBuf, PathBuf)> {
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let found = named("SHOAL_OPERATOR_BEFORE").zip(named("SHOAL_CRDS_BEFORE"));
    if found.is_none() {
        eprintln!(
            "nothing was tested: SHOAL_OPERATOR_BEFORE and SHOAL_CRDS_BEFORE name no operator of before"
        );
    }
    found
}

/// A job over the digits that outlasts two upgrades.
fn job(world: &World, name: &str, trainer: Value) -> Value {
    let data = pack_digits(&world.programs, &world.path("data")).unwrap();
    let container = json!({ "name": "trainer", "image": "digits:test", "command": ["digits"],
        "env": [{ "name": "SHOAL_PACE_MILLIS", "value": "200" }], "resources": { "requests": { "cpu": "1" } } });
    let mut job = json!({ "apiVersion": "shoal.dev/v1alpha1", "kind": "TrainingJob", "metadata": { "name": name }, "spec": {
        "data": [data], "epochs": 6, "seed": 7, "checkpoint": { "place": world.path(&format!("checkpoints-{name}")) },
        "pserver": { "minReplicas": 2 }, "trainer": { "minReplicas": 1, "maxReplicas": 2,
            "template": { "spec": { "containers": [container] } } } } });
    trainer.as_object().unwrap().iter().for_each(|(key, value)| job["spec"]["trainer"][key] = value.clone());
    job
}

/// Whatever version made them before: both pservers of a job are never drained at once, and nothing of it is refused.
fn has_budgets<const N: usize>(world: &World, jobs: [&str; N]) -> bool {
    let budgets = world.kubectl(&["get", "pdb", "-l", "shoal.dev/job", "-o", "name"]);
    let is_stalled = |name: &&str| {
        let conditions = world.job(name)["status"]["conditions"].as_array().cloned();
        let is_true = |one: &Value| one["type"] == "Stalled" && one["status"] == "True";
        conditions.unwrap_or_default().iter().any(is_true)
    };
    budgets.lines().count() == N && !jobs.iter().any(is_stalled)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn jobs_that_train_lose_no_step_when_operator_and_definitions_are_upgraded_and_rolled_back() {
    let Some((operator, definitions)) = before() else { return };
    let Some(mut world) = World::start(3, Run::Processes).await else { return };
    world.patience = Duration::from_secs(240);
    let (now, before) = (
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds.yaml"),
        definitions.to_string_lossy().into_owned(),
    );
    let now = now.to_string_lossy().into_owned();
    let admin = world.plane.kubeconfig();
    let jobs = [("stated", json!({ "replicas": 2 })), ("free", json!({}))]
        .map(|(name, trainer)| (name, job(&world, name, trainer)));
    // One that was taken then and would be refused now.
    let long = "x".repeat(50);
    let refused_now = job(&world, &long, json!({}));

    world.kill_operator();
    world.kubectl(&["apply", "--validate=false", "-f", &before]);
    world.start_operator_program(&operator, &admin, &["--identity", "before"]);
    jobs.iter().for_each(|(_, job)| world.apply(job));
    world.apply(&refused_now);
    for (name, _) in &jobs {
        world.wait_for_condition(name, "Ready").await;
    }
    let pods = world.uids();

    // This version, and the last one again.
    for round in ["upgraded", "rolled back"] {
        world.kill_operator();
        let steps: Vec<u64> =
            jobs.iter().map(|(name, _)| world.status_of_master(name)["step"].as_u64().unwrap()).collect();
        if round == "upgraded" {
            world.kubectl(&["apply", "--validate=false", "-f", &now]);
            world.start_operator_with(&admin, &["--identity", "now"]);
        } else {
            world.kubectl(&["apply", "--validate=false", "-f", &before]);
            world.start_operator_program(&operator, &admin, &["--identity", "before"]);
            // As docs/install.md says.
            world.kubectl(&["delete", "pdb", "-l", "shoal.dev/job"]);
        }
        for ((name, _), step) in jobs.iter().zip(steps) {
            let leads = async |world: &World| {
                let status = world.job(name)["status"].clone();
                status["progress"]["step"].as_u64() > Some(step)
            };
            world.wait_for(&format!("{name} is seen to go on, {round}"), leads).await;
            assert_eq!(world.status_of_master(name)["rewinds"], json!(0), "{name}, {round}");
        }
        let now: std::collections::BTreeMap<String, String> =
            world.uids().into_iter().filter(|(name, _)| pods.contains_key(name)).collect();
        assert_eq!(now, pods, "no pod is made anew, {round}");
        if round == "upgraded" {
            let is_told = async |world: &World| world.job(&long)["status"]["phase"] == "Invalid";
            world.wait_for("a name that no pod can have is told of", is_told).await;
            world.kubectl(&["delete", "trainingjob", &long, "--timeout=60s"]);
        }
        let is_whole = async |world: &World| has_budgets(world, jobs.each_ref().map(|(name, _)| *name));
        world.wait_for(&format!("budgets are there and nothing is refused, {round}"), is_whole).await;
    }
    for (name, job) in &jobs {
        world.wait_for_condition(name, "Succeeded").await;
        assert_eq!(world.trained(&format!("checkpoints-{name}")), world.undisturbed(job), "{name}");
    }
}
