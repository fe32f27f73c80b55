//! Jobs over TLS, by certificates that the operator issues: changed while they train, believed by nobody else, shown nowhere.
//! Without a control plane (`KUBEBUILDER_ASSETS`) and root the tests say so and pass, or fail when `SHOAL_REQUIRE_ALL=1`.

use crate::world::World;
use serde_json::{Value, json};
use shoal_runtime::host::authority::Authority;
use shoal_runtime::host::clock::wall_seconds;
use shoal_runtime::host::rpc::tls::{PemSet, Role, Validity};
use shoal_test_cluster::Run;
use std::process::Command;
use std::time::Duration;

/// Certificates are changed every 16 s.
const LIFE: &[&str] = &["--certificate-life", "24s"];

/// A job over the digits that lasts for so many epochs.
pub(crate) fn digits(world: &World, name: &str, epochs: u32, more: Value) -> Value {
    let checkpoint = json!({ "place": world.path(&format!("checkpoints-{name}")), "everySteps": 20 });
    let mut all = json!({ "epochs": epochs, "checkpoint": checkpoint });
    more.as_object().unwrap().iter().for_each(|(key, value)| all[key] = value.clone());
    world.digits(name, all)
}

/// When a certificate of a job was issued.
fn issued(world: &World, job: &str, role: &str) -> String {
    let at = r"jsonpath={.metadata.annotations.shoal\.dev/issued}";
    world.kubectl(&["get", "secret", &format!("{job}-{role}-tls"), "-o", at])
}

fn all_issued(world: &World, job: &str) -> [String; 4] {
    Role::ALL.map(|role| issued(world, job, role.word()))
}

/// Waits until all certificates of a job that is not over are others than before, and says when they were issued.
async fn changed(world: &World, job: &str, before: &[String; 4]) -> [String; 4] {
    let is_changed = async |world: &World| {
        assert_ne!(world.job(job)["status"]["phase"], "Succeeded", "the job is too short");
        all_issued(world, job).iter().zip(before).all(|(now, before)| now != before)
    };
    world.wait_for("all four certificates are changed", is_changed).await;
    all_issued(world, job)
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
    let Some(mut world) = World::start_with(3, Run::Processes, LIFE).await else { return };
    world.patience = Duration::from_secs(240);
    let job = digits(&world, "sealed", 18, json!({}));
    world.apply(&job);
    world.wait_for_condition("sealed", "Running").await;
    assert_eq!(world.job("sealed")["status"]["tls"], "Issued");
    let mut uids = world.uids();
    let first = all_issued(&world, "sealed");
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

    let second = changed(&world, "sealed", &first).await;
    world.kubectl(&["scale", "trainingjob", "sealed", "--replicas=2"]);
    world
        .wait_for("two trainers", async |world| world.job("sealed")["status"]["trainer"]["ready"] == 2)
        .await;
    let third = changed(&world, "sealed", &second).await;
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

/// The authority, as a person sees it who may.
fn authority(world: &World) -> PemSet {
    let read = |file: &str| {
        let template = format!("go-template={{{{index .data \"{file}\" | base64decode}}}}");
        world.kubectl(&["get", "secret", "shoal-authority", "--namespace=shoal-system", "-o", &template])
    };
    PemSet { authorities: read("ca.crt"), certificate: read("tls.crt"), key: read("tls.key") }
}

/// Puts another in its place, and waits until all certificates of a job are by it and their processes have read them.
async fn change_authority(world: &World, job: &str, pem: &PemSet) {
    let fingerprint = |role: &str| {
        let at = r"jsonpath={.metadata.annotations.shoal\.dev/authority}";
        world.kubectl(&["get", "secret", &format!("{job}-{role}-tls"), "-o", at])
    };
    let wanted = Authority::of(pem).unwrap().fingerprint().to_owned();
    let data = json!({ "ca.crt": pem.authorities, "tls.crt": pem.certificate, "tls.key": pem.key });
    let patch = world.path("authority.json");
    std::fs::write(&patch, json!({ "stringData": data }).to_string()).unwrap();
    let patch = std::fs::read_to_string(patch).unwrap();
    world.kubectl(&[
        "patch",
        "secret",
        "shoal-authority",
        "--namespace=shoal-system",
        "--type=merge",
        "-p",
        &patch,
    ]);
    let is_by_it = async |_: &World| Role::ALL.iter().all(|role| fingerprint(role.word()) == wanted);
    world.wait_for("all certificates are by the other authority", is_by_it).await;
    // The kubelet here takes half a second, processes one more.
    tokio::time::sleep(Duration::from_secs(3)).await;
}

/// A pod of nobody's, with the certificate of one job's trainer, which calls another job's master.
fn intruder(world: &World, certificate_of: &str, of: &str) -> Value {
    let master = world.kubectl(&["get", "pod", &format!("{of}-master"), "-o", "jsonpath={.status.podIP}"]);
    let job = world.job(certificate_of)["status"]["identity"].clone();
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "intruder" },
        "spec": {
            "restartPolicy": "Never",
            "volumes": [{ "name": "tls", "secret": { "secretName": format!("{certificate_of}-trainer-tls") } }],
            "containers": [{
                "name": "trainer", "image": "digits:test", "command": ["digits"],
                "env": [
                    { "name": "SHOAL_JOB", "value": job },
                    { "name": "SHOAL_MASTER", "value": format!("{master}:7400") },
                    { "name": "SHOAL_TLS", "value": "/var/run/shoal/tls" },
                    { "name": "SHOAL_PATIENCE_SECONDS", "value": "3" },
                ],
                "volumeMounts": [{ "name": "tls", "mountPath": "/var/run/shoal/tls" }],
            }],
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_authority_is_changed_under_a_job_that_trains_and_another_jobs_certificate_is_believed_by_nobody()
{
    let Some(mut world) = World::start_with(3, Run::Processes, LIFE).await else { return };
    world.patience = Duration::from_secs(240);
    let job = digits(&world, "kept", 12, json!({}));
    world.apply(&job);
    world.apply(&digits(&world, "other", 30, json!({})));
    world.wait_for_condition("kept", "Running").await;
    world.wait_for_condition("other", "Running").await;

    world.apply(&intruder(&world, "other", "kept"));
    let has_failed = async |world: &World| {
        world.kubectl(&["get", "pod", "intruder", "-o", "jsonpath={.status.phase}"]) == "Failed"
    };
    world.wait_for("the intruder gives up", has_failed).await;
    let (said, heard) = (world.kubectl(&["logs", "intruder"]), world.kubectl(&["logs", "kept-master"]));
    assert!(said.contains("certificate is for master of job"), "{said}");
    assert!(heard.contains("a connection is refused"), "{heard}");
    world.kubectl(&["delete", "pod", "intruder", "--wait=false"]);
    world.kubectl(&["delete", "trainingjob", "other", "--wait=false"]);

    let old = authority(&world);
    let new = Authority::generate(Validity::lasting(wall_seconds(), 86_400)).unwrap();
    let both = format!("{}{}", old.certificate, new.certificate);
    change_authority(&world, "kept", &PemSet { authorities: both.clone(), ..old.clone() }).await;
    change_authority(&world, "kept", &PemSet { authorities: both, ..new.clone() }).await;
    change_authority(&world, "kept", &new).await;
    assert_ne!(world.job("kept")["status"]["phase"], "Succeeded", "the job is too short");
    let client = std::fs::read_to_string(world.certificate_of("kept", "client").join("ca.crt")).unwrap();
    assert_eq!(client, new.certificate);
    assert_eq!(world.status_of_master("kept")["rewinds"], 0);
    let seen = step(&world, "kept");
    world.wait_for("it goes on", async |world| step(world, "kept") > seen).await;
    assert_nothing_secret(&world);
    world.wait_for_condition("kept", "Succeeded").await;
    assert_eq!(world.job("kept")["status"]["ends"], Value::Null, "no pod ended before its time");
    assert_eq!(world.trained("checkpoints-kept"), world.undisturbed(&job));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_began_in_plaintext_goes_on_so_under_an_operator_whose_new_jobs_speak_tls() {
    let Some(mut world) = World::start_with(3, Run::Processes, &["--tls-default", "off"]).await else {
        return;
    };
    let job = digits(&world, "open", 8, json!({}));
    world.apply(&job);
    world.wait_for_condition("open", "Running").await;
    assert_eq!(world.job("open")["status"]["tls"], "Plaintext");
    let before = world.uids();
    world.kill_operator();
    // As an operator of before leaves it, which noted nothing of it.
    let mut left = world.job("open");
    left["status"].as_object_mut().unwrap().remove("tls").unwrap();
    std::fs::write(world.path("left.json"), left.to_string()).unwrap();
    let status = "/apis/shoal.dev/v1alpha1/namespaces/default/trainingjobs/open/status";
    world.kubectl(&["replace", "--raw", status, "-f", &world.path("left.json").to_string_lossy()]);
    assert_eq!(world.job("open")["status"]["tls"], Value::Null);

    world.start_operator("second");
    world.wait_for("it is noted", async |world| world.job("open")["status"]["tls"] == "Plaintext").await;
    world.apply(&world.pretended("young", json!({})));
    world
        .wait_for("a new job speaks TLS", async |world| world.job("young")["status"]["tls"] == "Issued")
        .await;
    world.kubectl(&["delete", "trainingjob", "young"]);
    world.kubectl(&["scale", "trainingjob", "open", "--replicas=2"]);
    world.wait_for("two trainers", async |world| world.job("open")["status"]["trainer"]["ready"] == 2).await;
    let seen = step(&world, "open");
    world.wait_for("progress is seen", async |world| step(world, "open") > seen).await;
    let now = world.uids();
    assert!(before.iter().all(|(pod, uid)| now.get(pod) == Some(uid)), "{before:?} {now:?}");
    let of_open = world.kubectl(&["get", "secrets", "-l", "shoal.dev/job=open", "-o", "name"]);
    assert_eq!(of_open, "", "it has no certificates");
    world.wait_for_condition("open", "Succeeded").await;
    assert_eq!(world.trained("checkpoints-open"), world.undisturbed(&job));
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_of_ones_own_are_used_and_the_operator_sees_the_job_by_the_clients_once_it_may() {
    let Some(world) = World::start(3, Run::Processes).await else { return };
    let authority =
        Authority::create(&world.path("authority"), Validity::lasting(wall_seconds(), 3600)).unwrap();
    for role in Role::ALL {
        let identity = shoal_runtime::host::rpc::tls::Identity { job: "mine".to_owned(), role };
        let folder = world.path(role.word());
        authority.issue(&identity, Validity::lasting(wall_seconds(), 3600)).unwrap().write(&folder).unwrap();
        let file = |key: &str, name: &str| format!("--from-file={key}={}", folder.join(name).display());
        let name = format!("own-{role}");
        let files = [file("ca.crt", "ca.pem"), file("tls.crt", "cert.pem"), file("tls.key", "key.pem")];
        let files = files.each_ref().map(String::as_str);
        world.kubectl(
            &[&["create", "secret", "generic", &name, "--type=kubernetes.io/tls"], &files[..]].concat(),
        );
    }
    let secrets = json!({ "master": "own-master", "pserver": "own-pserver", "trainer": "own-trainer", "client": "own-client" });
    let job = digits(&world, "given", 6, json!({ "tls": { "job": "mine", "secrets": secrets } }));
    world.apply(&job);
    let said = async |world: &World| {
        let events = world.kubectl(&["get", "events.events.k8s.io", "-o", "json"]);
        events.contains("may not read secret own-client")
    };
    world.wait_for("the operator says what it lacks", said).await;
    assert_eq!(world.job("given")["status"]["tls"], "Given");
    world.kubectl(&[
        "create",
        "role",
        "see-given",
        "--verb=get",
        "--resource=secrets",
        "--resource-name=own-client",
    ]);
    world.kubectl(&[
        "create",
        "rolebinding",
        "see-given",
        "--role=see-given",
        "--serviceaccount=shoal-system:shoal-operator",
    ]);
    world.wait_for("progress is seen", async |world| step(world, "given") > 0).await;
    world.wait_for_condition("given", "Succeeded").await;
    assert_eq!(world.trained("checkpoints-given"), world.undisturbed(&job));
}
