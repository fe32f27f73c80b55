//! Jobs over TLS, by certificates that the operator issues: changed while they train, believed by nobody else, shown nowhere.
//! Without a control plane (`KUBEBUILDER_ASSETS`) and root the tests say so and pass, or fail when `SHOAL_REQUIRE_ALL=1`.

use crate::world::World;
use serde_json::{Value, json};
use shoal_test_cluster::Run;
use shoal_tests::processes::pack_digits;
use std::process::Command;

/// Certificates are changed every 16 s.
const LIFE: &[&str] = &["--certificate-life", "24s"];

/// A job over the digits that lasts for so many epochs.
fn digits(world: &World, name: &str, epochs: u32, more: Value) -> Value {
    let data = pack_digits(&world.programs, &world.path("data")).unwrap();
    let mut spec = json!({
        "data": [data],
        "epochs": epochs,
        "seed": 7,
        "checkpoint": { "place": world.path(&format!("checkpoints-{name}")), "everySteps": 20 },
        "pserver": { "minReplicas": 1, "maxReplicas": 3, "resources": { "requests": { "cpu": "1", "memory": "1Gi" } } },
        "trainer": { "minReplicas": 1, "maxReplicas": 4, "replicas": 1, "template": { "spec": { "containers": [{
            "name": "trainer", "image": "digits:test", "command": ["digits"],
            "env": [{ "name": "SHOAL_PACE_MILLIS", "value": "60" }],
            "resources": { "requests": { "cpu": "1" } },
        }] } } },
    });
    more.as_object().unwrap().iter().for_each(|(key, value)| spec[key] = value.clone());
    json!({ "apiVersion": "shoal.dev/v1alpha1", "kind": "TrainingJob", "metadata": { "name": name }, "spec": spec })
}

/// When a certificate of a job was issued.
fn issued(world: &World, job: &str, role: &str) -> String {
    let at = r"jsonpath={.metadata.annotations.shoal\.dev/issued}";
    world.kubectl(&["get", "secret", &format!("{job}-{role}-tls"), "-o", at])
}

fn step(world: &World, job: &str) -> u64 {
    world.job(job)["status"]["progress"]["step"].as_u64().unwrap_or(0)
}

/// All that anybody may read who may not read secrets: what processes were started with, what they say, events and resources.
fn in_the_open(world: &World) -> String {
    let shown = Command::new("ps").args(["axeww", "-o", "args"]).output().unwrap();
    let resources = "trainingjobs,scaleplans,pods,services,events,events.events.k8s.io,networkpolicies";
    let mut all = String::from_utf8_lossy(&shown.stdout).into_owned();
    all += &world.kubectl(&["get", resources, "--all-namespaces", "-o", "yaml"]);
    for pod in world.pods() {
        all += &world.plane.kubectl(&["logs", &pod]).unwrap_or_default();
    }
    all + &world.operator_logs()
}

/// Pieces of all private keys that there are in secrets.
fn keys(world: &World) -> Vec<String> {
    let template = r#"go-template={{range .items}}{{if index .data "tls.key"}}{{index .data "tls.key" | base64decode}}{{end}}{{end}}"#;
    let all = world.kubectl(&[
        "get",
        "secrets",
        "--all-namespaces",
        "--field-selector=type=kubernetes.io/tls",
        "-o",
        template,
    ]);
    all.lines().filter(|line| !line.starts_with('-') && line.len() > 20).map(str::to_owned).collect()
}

fn assert_nothing_secret(world: &World) {
    let (open, keys) = (in_the_open(world), keys(world));
    assert!(keys.len() >= 5, "{} keys", keys.len());
    assert!(!open.contains("PRIVATE KEY"), "a private key is shown");
    for key in keys {
        assert!(!open.contains(&key), "a piece of a private key is shown");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_trains_over_tls_to_the_model_of_shoal_run_while_its_certificates_are_changed_and_it_is_scaled()
{
    let Some(world) = World::start_with(3, Run::Processes, LIFE).await else { return };
    let job = digits(&world, "sealed", 24, json!({}));
    world.apply(&job);
    world.wait_for_condition("sealed", "Running").await;
    assert_eq!(world.job("sealed")["status"]["tls"], "Issued");
    let mut uids = world.uids();
    let first = ["master", "pserver", "trainer", "client"].map(|role| issued(&world, "sealed", role));
    world.wait_for("progress is seen", async |world| step(world, "sealed") > 0).await;
    let plain = Command::new(&world.programs.shoal)
        .args(["status", "--plaintext", "--master"])
        .arg(format!(
            "{}:7400",
            world.kubectl(&["get", "pod", "sealed-master", "-o", "jsonpath={.status.podIP}"])
        ))
        .output()
        .unwrap();
    assert!(!plain.status.success(), "nobody is answered in plaintext");
    assert_eq!(
        world.status_of_master("sealed")["phase"],
        "training",
        "whoever may get the client's secret is"
    );

    let changed = async |before: &[String; 4]| {
        world
            .wait_for("all four certificates are changed", async |world| {
                let now =
                    ["master", "pserver", "trainer", "client"].map(|role| issued(world, "sealed", role));
                assert_ne!(world.job("sealed")["status"]["phase"], "Succeeded", "the job is too short");
                now.iter().zip(before).all(|(now, before)| now != before)
            })
            .await;
        ["master", "pserver", "trainer", "client"].map(|role| issued(&world, "sealed", role))
    };
    let second = changed(&first).await;
    world.kubectl(&["scale", "trainingjob", "sealed", "--replicas=2"]);
    world
        .wait_for("two trainers", async |world| world.job("sealed")["status"]["trainer"]["ready"] == 2)
        .await;
    let third = changed(&second).await;
    let seen = step(&world, "sealed");
    // By now every connection was made by a certificate that did not exist when its process started.
    world.wait_for("it goes on", async |world| step(world, "sealed") > seen + 5).await;
    assert_ne!(first, third);
    world.kubectl(&[
        "patch",
        "trainingjob",
        "sealed",
        "--type=merge",
        "-p",
        r#"{"spec":{"copies":1,"pserver":{"replicas":2}}}"#,
    ]);
    world
        .wait_for("two pservers", async |world| world.job("sealed")["status"]["pserver"]["ready"] == 2)
        .await;
    let now = world.uids();
    uids.retain(|name, uid| now.get(name) != Some(uid));
    assert!(uids.is_empty(), "no pod was started again: {uids:?}");
    let master = world.status_of_master("sealed");
    assert_eq!(master["rewinds"].as_u64().unwrap_or(0), 0, "{master}");
    assert_nothing_secret(&world);

    world.wait_for_condition("sealed", "Succeeded").await;
    assert_eq!(world.job("sealed")["status"]["ends"], Value::Null, "no pod ended before its time");
    assert_eq!(world.trained("checkpoints-sealed"), world.undisturbed(&job));
    world.kubectl(&["delete", "trainingjob", "sealed"]);
    let is_gone = async |world: &World| {
        world.kubectl(&["get", "secrets", "-l", "shoal.dev/job", "-o", "name"]).is_empty()
    };
    world.wait_for("its secrets go with the job", is_gone).await;
}
