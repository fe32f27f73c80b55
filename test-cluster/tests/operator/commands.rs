//! `shoal submit`, `get`, `logs`, `why`, `wait`, `delete` and `doctor` on a real control plane, where pods are processes. Without one
//! the tests say so and pass, or fail when `SHOAL_REQUIRE_ALL=1`.

use crate::world::World;
use serde_json::{Value, json};
use shoal_test_cluster::Run;
use shoal_tests::processes::pack_digits;
use std::process::{Command, Output};

/// What a command has said and ended with.
#[derive(Debug)]
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Said {
    /// The closing object.
    fn json(&self) -> Value {
        serde_json::from_str(self.out.lines().last().unwrap_or_default())
            .unwrap_or_else(|_| panic!("{self:?}"))
    }
}

async fn shoal(world: &World, words: &[&str]) -> Said {
    let mut command = Command::new(&world.programs.shoal);
    command.args(words).env("KUBECONFIG", world.plane.kubeconfig()).current_dir(world.folder.path());
    let Output { status, stdout, stderr } =
        tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { code: status.code(), out: text(stdout), err: text(stderr) }
}

fn digits(world: &World, epochs: u32) -> Value {
    let data = pack_digits(&world.programs, &world.path("data")).unwrap();
    let container = json!({
        "name": "trainer", "image": "digits:test", "command": ["digits"],
        "env": [{ "name": "SHOAL_PACE_MILLIS", "value": "30" }],
    });
    json!({ "apiVersion": "shoal.dev/v1alpha1", "kind": "TrainingJob", "metadata": { "name": "digits" }, "spec": {
        "data": [data], "epochs": epochs, "checkpoint": { "place": world.path("checkpoints") },
        "trainer": { "minReplicas": 2, "maxReplicas": 3, "replicas": 2, "template": { "spec": { "containers": [container] } } },
    } })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_submits_a_job_watches_reads_and_deletes_it() {
    let Some(world) = World::start(2, Run::Processes).await else { return };
    let nothing = shoal(&world, &["get"]).await;
    assert_eq!(
        (nothing.code, nothing.err.trim()),
        (Some(0), "there are no training jobs in namespace default")
    );
    let missing = shoal(&world, &["why", "digits"]).await;
    assert!(
        missing.code == Some(2) && missing.err.contains("no job digits in namespace default"),
        "{missing:?}"
    );

    let mut job = digits(&world, 3);
    let file = world.path("job.yaml");
    let file = file.to_str().unwrap();
    std::fs::write(file, job.to_string().replace("epochs", "epoch")).unwrap();
    let wrong = shoal(&world, &["submit", "-f", file]).await;
    assert!(wrong.code == Some(2) && wrong.err.contains("spec.epoch: there is no such field"), "{wrong:?}");

    std::fs::write(file, job.to_string()).unwrap();
    let tried = shoal(&world, &["submit", "-f", file, "--dry-run", "-o", "json"]).await;
    assert_eq!(tried.json()["jobs"], json!([{ "name": "digits", "outcome": "created" }]), "{tried:?}");
    assert_eq!(shoal(&world, &["get", "-o", "json"]).await.json()["jobs"], json!([]), "nothing was done");

    let watched = shoal(&world, &["submit", "-f", file, "--watch", "-o", "json"]).await;
    assert_eq!((watched.code, watched.json()["phase"].as_str()), (Some(0), Some("Succeeded")), "{watched:?}");
    assert!(watched.err.contains("digits created") && watched.err.contains("  Running  "), "{watched:?}");

    let table = shoal(&world, &["get"]).await.out;
    assert!(
        table.starts_with("NAME     PHASE       PROGRESS ") && table.contains("digits   Succeeded   100%"),
        "{table}"
    );
    // Trainers and pservers that have ended by themselves keep their logs.
    let logs = shoal(&world, &["logs", "digits", "--tail", "3"]).await;
    assert!(
        logs.code == Some(0) && logs.out.lines().any(|line| line.starts_with("trainer-0 | {")),
        "{logs:?}"
    );
    let one = shoal(&world, &["logs", "digits", "trainer-1", "-o", "json"]).await;
    assert!(one.json()["pod"] == "trainer-1" && one.json()["line"].is_string(), "{one:?}");

    let again = shoal(&world, &["submit", "-f", file]).await;
    assert_eq!(again.out.trim(), "digits unchanged", "{again:?}");
    job["spec"]["epochs"] = json!(4);
    std::fs::write(file, job.to_string()).unwrap();
    let done = shoal(&world, &["wait", "digits", "--for", "suspended"]).await;
    assert!(done.code == Some(1) && done.err.contains("will not be suspended"), "{done:?}");
    let deleted = shoal(&world, &["delete", "digits"]).await;
    assert_eq!((deleted.code, deleted.out.trim()), (Some(0), "digits deleted"), "{deleted:?}");
    assert_eq!(world.pods(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_waits_says_why_and_waiting_for_it_ends_in_time() {
    let Some(world) = World::start(2, Run::Processes).await else { return };
    let mut job = digits(&world, 500);
    job["spec"]["trainer"]["template"]["spec"]["containers"][0]["resources"] =
        json!({ "requests": { "cpu": "12" } });
    let file = world.path("job.yaml");
    std::fs::write(&file, job.to_string()).unwrap();
    let submitted = shoal(&world, &["submit", "-f", file.to_str().unwrap()]).await;
    assert!(
        submitted.out == "digits created\n" && submitted.err.contains("shoal wait digits"),
        "{submitted:?}"
    );
    let ran = shoal(&world, &["wait", "digits", "--for", "running", "--timeout", "2m"]).await;
    assert_eq!((ran.code, ran.out.trim()), (Some(0), "digits is Running"), "{ran:?}");

    world.kubectl(&["scale", "trainingjob", "digits", "--replicas=3"]);
    let late = shoal(&world, &["wait", "digits", "--timeout", "6s"]).await;
    assert!(late.code == Some(4) && late.err.contains("`shoal why digits`"), "{late:?}");
    let why = shoal(&world, &["why", "digits"]).await;
    assert!(
        why.out.contains(
            "digits is Running: 2 of 3 trainers: no node has room for one more: it asks for cpu 12"
        ) && why.out.contains("no more (NoRoom): "),
        "{why:?}"
    );
    let why = shoal(&world, &["why", "digits", "-o", "json"]).await.json();
    assert_eq!(
        (why["waiting"].as_array().map(Vec::len), why["trainers"]["wanted"].as_u64()),
        (Some(0), Some(2)),
        "no pod is made that has no room"
    );

    let following = shoal(&world, &["logs", "digits", "--follow"]);
    let deleting = async {
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        shoal(&world, &["delete", "digits", "--no-wait"]).await
    };
    let (followed, deleted) = tokio::join!(following, deleting);
    assert_eq!(deleted.out.trim(), "digits is being deleted");
    let has = |who: &str| followed.out.lines().any(|line| line.starts_with(who));
    assert!(
        has("master | ") && has("trainer-0 | ") && has("trainer-1 | ") && has("pserver-0 | "),
        "{followed:?}"
    );
    world.wait_for("all is gone", async |world| world.pods().is_empty()).await;

    let nowhere = world.path("kubeconfig");
    let config = std::fs::read_to_string(world.plane.kubeconfig()).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["clusters"][0]["cluster"]["server"] = json!("https://127.0.0.1:1");
    std::fs::write(&nowhere, config.to_string()).unwrap();
    let asked = Command::new(&world.programs.shoal).arg("get").env("KUBECONFIG", &nowhere).output().unwrap();
    let said = String::from_utf8_lossy(&asked.stderr);
    assert!(asked.status.code() == Some(3) && said.contains("the API server does not answer"), "{said}");
}

/// The outcome of a check, as `shoal doctor` tells it.
fn outcome(said: &Said, name: &str) -> (String, String) {
    let object = said.json();
    let all = object["checks"].as_array().unwrap();
    let check = all.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("{name}: {said:?}"));
    (check["result"].as_str().unwrap().to_owned(), check["found"].as_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_says_of_a_cluster_what_is_there_what_is_older_and_what_is_not_permitted() {
    let Some(world) = World::start(1, Run::Processes).await else { return };
    let said = shoal(&world, &["doctor", "--cluster", "-o", "json"]).await;
    for name in ["cluster", "definitions", "rights"] {
        assert_eq!(outcome(&said, name).0, "ok", "{said:?}");
    }
    // The operator of this world runs beside the cluster: its deployment is there, and has no pod.
    let (result, found) = outcome(&said, "operator");
    assert!(result == "failed" && found.contains("shoal-system: 0 of 0 ready"), "{found}");
    assert_eq!(said.code, Some(1));

    let path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/tls";
    let patch = json!([{ "op": "remove", "path": path }]).to_string();
    world.plane.kubectl(&["patch", "crd", "trainingjobs.shoal.dev", "--type=json", "-p", &patch]).unwrap();
    let (result, found) =
        outcome(&shoal(&world, &["doctor", "--cluster", "-o", "json"]).await, "definitions");
    assert!(result == "warning" && found.contains("without spec.tls"), "{found}");

    let eve = world.plane.kubeconfig_as("eve").unwrap();
    let mut command = Command::new(&world.programs.shoal);
    command.args(["doctor", "-o", "json"]).env("KUBECONFIG", eve).current_dir(world.folder.path());
    let Output { status, stdout, stderr } =
        tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let eve = Said { code: status.code(), out: text(stdout), err: text(stderr) };
    let (result, found) = outcome(&eve, "rights");
    assert!(result == "warning" && found.contains("create trainingjobs.shoal.dev (submit)"), "{found}");
    assert!(found.contains("get pods/log (logs)"), "{found}");
    assert_eq!(outcome(&eve, "operator").0, "not_applicable", "{eve:?}");
    assert_eq!(outcome(&eve, "definitions").0, "ok", "{eve:?}");
    assert_eq!(eve.code, Some(0), "{eve:?}");
}
