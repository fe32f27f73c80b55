//! The images that are shipped, in containers: what a pod's spec gives them and no more. It takes a control plane, root, `runc`, and
//! images (`SHOAL_TEST_IMAGES`); without them the tests say so and pass, or fail when `SHOAL_REQUIRE_ALL=1`.

use crate::world::World;
use serde_json::{Value, json};
use shoal_recordio::{Reader, Writer, WriterOptions};
use shoal_test_cluster::Run;
use shoal_tests::processes::pack_digits;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The image that digits are trained with.
const DIGITS: &str = concat!("digits:", env!("CARGO_PKG_VERSION"));

/// A job over the digits, all of whose containers have the same folder of this machine and can write nowhere else.
fn digits(world: &World, name: &str, more: Value) -> Value {
    let data = pack_digits(&world.programs, &world.path("data")).unwrap();
    let shared = world.folder.path();
    let checkpoints = world.path(&format!("checkpoints-{name}"));
    std::fs::create_dir(&checkpoints).unwrap();
    // As a volume is that is open to whoever mounts it.
    std::fs::set_permissions(&checkpoints, std::fs::Permissions::from_mode(0o777)).unwrap();
    let template = |container: Value| {
        let mut container = container;
        container["volumeMounts"] = json!([{ "name": "shared", "mountPath": shared }]);
        container["securityContext"] = json!({ "readOnlyRootFilesystem": true });
        json!({ "spec": {
            "volumes": [{ "name": "shared", "hostPath": { "path": shared } }],
            "containers": [container],
        } })
    };
    let trainer = json!({
        "name": "trainer", "image": DIGITS, "command": ["digits"],
        "env": [{ "name": "SHOAL_PACE_MILLIS", "value": "60" }],
    });
    let mut spec = json!({
        "data": [data],
        "epochs": 4,
        "seed": 7,
        "checkpoint": { "place": checkpoints },
        "master": { "template": template(json!({ "name": "master" })) },
        "pserver": { "minReplicas": 1, "maxReplicas": 2, "template": template(json!({ "name": "pserver" })) },
        "trainer": { "minReplicas": 2, "maxReplicas": 2, "template": template(trainer) },
    });
    more.as_object().unwrap().iter().for_each(|(key, value)| spec[key] = value.clone());
    json!({ "apiVersion": "shoal.dev/v1alpha1", "kind": "TrainingJob", "metadata": { "name": name }, "spec": spec })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_trains_in_containers_of_its_images_to_the_model_that_shoal_run_gives() {
    let Some(world) = World::start(2, Run::Containers).await else { return };
    let job = digits(&world, "boxed", json!({}));
    world.apply(&job);
    world.wait_for_condition("boxed", "Running").await;
    let is_under_way =
        async |world: &World| world.job("boxed")["status"]["progress"]["step"].as_u64() > Some(0);
    world.wait_for("it has made steps", is_under_way).await;
    world.kubectl(&["delete", "pod", "boxed-pserver-0", "--wait=false"]);
    // A trainer that is told to end leaves the job: held back, its pod shows how it ended.
    let held = |finalizers: &str| {
        let patch = format!(r#"{{"metadata":{{"finalizers":{finalizers}}}}}"#);
        world.kubectl(&["patch", "pod", "boxed-trainer-1", "--type=merge", "-p", &patch])
    };
    held(r#"["shoal.dev/looked-at"]"#);
    world.kubectl(&["delete", "pod", "boxed-trainer-1", "--wait=false"]);
    let end = terminated(&world, "boxed-trainer-1").await;
    assert_eq!((&end["exitCode"], &end["reason"]), (&json!(0), &json!("Completed")));
    held("null");
    world.wait_for_condition("boxed", "Succeeded").await;
    assert_eq!(world.job("boxed")["status"]["ends"], json!({ "evicted": 2 }));
    assert_eq!(world.trained("checkpoints-boxed"), world.undisturbed(&job));
}

/// So many records in one chunk, which a trainer has in memory as a whole, and twice while it reads it: 28 MiB of 200,000.
fn pack_one_chunk(world: &World, records: usize) -> String {
    let digits = pack_digits(&world.programs, &world.path("data")).unwrap();
    let reader = Reader::open(digits.replace('*', "0")).unwrap();
    let chunks = 0..reader.index().chunks.len();
    let all: Vec<Vec<u8>> = chunks
        .flat_map(|chunk| reader.chunk(chunk).unwrap().iter().map(<[u8]>::to_vec).collect::<Vec<_>>())
        .collect();
    let file = world.path("large.recordio");
    let options = WriterOptions { chunk_bytes: 1 << 30, ..WriterOptions::default() };
    let mut writer = Writer::new(File::create(&file).unwrap(), options);
    all.iter().cycle().take(records).for_each(|record| writer.write(record).unwrap());
    writer.finish().unwrap();
    file.display().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trainer_whose_limit_of_memory_is_too_small_is_killed_for_it_and_comes_back_with_twice_as_much() {
    let Some(world) = World::start(1, Run::Containers).await else { return };
    let data = pack_one_chunk(&world, 200_000);
    let mut job = digits(&world, "hungry", json!({ "data": [data], "epochs": 1, "microbatchRecords": 512 }));
    let trainer = &mut job["spec"]["trainer"];
    trainer["minReplicas"] = json!(1);
    trainer["maxReplicas"] = json!(1);
    trainer["resources"] = json!({ "limits": { "memory": "24Mi" } });
    world.apply(&job);
    world.wait_for_condition("hungry", "Succeeded").await;
    let status = world.job("hungry")["status"].clone();
    assert_eq!(status["ends"], json!({ "outOfMemory": 1 }), "{status}");
    assert_eq!(status["memory"]["trainer"]["now"], json!(48 << 20), "{status}");
    assert_eq!(world.trained("checkpoints-hungry"), world.undisturbed(&job));
}

/// A pod of the image with the shell of this machine in it, which ends by its own or has to be killed.
fn shell(name: &str, folder: &Path, script: &str, context: Value) -> Value {
    let mount = |name: &str, path: &str| json!({ "name": name, "mountPath": path });
    json!({ "apiVersion": "v1", "kind": "Pod",
        // Once deleted, it stays to be looked at.
        "metadata": { "name": name, "finalizers": ["shoal.dev/looked-at"] },
        "spec": {
            "restartPolicy": "Never", "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 2,
            "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
            "volumes": [
                { "name": "programs", "hostPath": { "path": "/usr/bin" } },
                { "name": "shared", "hostPath": { "path": folder } }, { "name": "own", "emptyDir": {} },
            ],
            "containers": [{
                "name": "shell", "image": DIGITS, "command": ["/programs/sh", "-c", script],
                "env": [
                    { "name": "IP", "valueFrom": { "fieldRef": { "fieldPath": "status.podIP" } } },
                    { "name": "AT", "value": "$(IP):80" },
                ],
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "securityContext": context,
                "volumeMounts": [mount("programs", "/programs"), mount("shared", "/shared"), mount("own", "/own")],
            }],
        },
    })
}

/// What a pod's container has ended with.
async fn terminated(world: &World, pod: &str) -> Value {
    let state = |world: &World| -> Value {
        let pod: Value = serde_json::from_str(&world.kubectl(&["get", "pod", pod, "-o", "json"])).unwrap();
        pod["status"]["containerStatuses"][0]["state"]["terminated"].clone()
    };
    world.wait_for(&format!("{pod} has ended"), async |world| state(world) != Value::Null).await;
    state(world)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_has_what_its_pod_says_and_no_more() {
    let Some(world) = World::start(1, Run::Containers).await else { return };
    let folder = world.path("open");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    let restricted = json!({
        "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] },
    });
    let look = r#"
        while read -r key value _; do
            case $key in Uid:|Gid:|CapBnd:|CapEff:|NoNewPrivs:|Seccomp:) echo "$key $value";; esac
        done </proc/self/status
        (echo >/tmp/x) 2>/dev/null && echo "writes to its root"
        (echo >/own/x) && (echo >/shared/x) && echo "writes to its volumes"
        set -- /proc/[0-9]*; echo "$# process, $HOSTNAME, $AT"
        set -- /sys/class/net/*; echo "$*"
        exit 7"#;
    world.apply(&shell("restricted", &folder, look, restricted));
    let end = terminated(&world, "restricted").await;
    let ip = world.kubectl(&["get", "pod", "restricted", "-o", "jsonpath={.status.podIP}"]);
    assert!(ip.starts_with("198.18.") || ip.starts_with("198.19."), "{ip}");
    let none = "0000000000000000";
    let said = format!(
        "Uid: 65532\nGid: 65532\nCapEff: {none}\nCapBnd: {none}\nNoNewPrivs: 1\nSeccomp: 2\nwrites to its volumes\n\
         1 process, restricted, {ip}:80\n/sys/class/net/eth0 /sys/class/net/lo\n"
    );
    assert_eq!(end["message"], said);
    assert_eq!((&end["exitCode"], &end["reason"]), (&json!(7), &json!("Error")));

    // Of a pod that asks for nothing, the files of the image alone stand in the way.
    world.apply(&shell("plain", &folder, "echo >/tmp/x && exit 3", json!({})));
    assert_eq!(terminated(&world, "plain").await["exitCode"], 3);
    let root = json!({ "runAsUser": 0 });
    world.apply(&shell("root", &folder, "exit 0", root));
    let waiting = "jsonpath={.status.containerStatuses[0].state.waiting.reason}";
    let is_refused = async |world: &World| {
        world.kubectl(&["get", "pod", "root", "-o", waiting]) == "CreateContainerConfigError"
    };
    world.wait_for("a pod as root is refused", is_refused).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_told_to_end_and_killed_once_its_time_is_over() {
    let Some(world) = World::start(1, Run::Containers).await else { return };
    let folder = world.folder.path();
    let runs = async |pod: &str| {
        let phase = async |world: &World| {
            world.kubectl(&["get", "pod", pod, "-o", "jsonpath={.status.phase}"]) == "Running"
        };
        world.wait_for(&format!("{pod} runs"), phase).await;
    };
    let listens = "trap 'echo told; exit 0' TERM; echo ready; while :; do /programs/sleep 0.1; done";
    world.apply(&shell("listens", folder, listens, json!({})));
    world.apply(&shell("deaf", folder, "echo ready; exec /programs/sleep 1000", json!({})));
    for pod in ["listens", "deaf"] {
        runs(pod).await;
        let is_ready = async |world: &World| world.kubectl(&["logs", pod]) == "ready\n";
        world.wait_for(&format!("{pod} has begun"), is_ready).await;
        world.kubectl(&["delete", "pod", pod, "--wait=false"]);
    }
    let end = terminated(&world, "listens").await;
    assert_eq!((&end["exitCode"], &end["reason"]), (&json!(0), &json!("Completed")));
    assert_eq!(world.kubectl(&["logs", "listens"]), "ready\ntold\n");
    let end = terminated(&world, "deaf").await;
    assert_eq!((&end["exitCode"], &end["reason"]), (&json!(137), &json!("Error")));
}
