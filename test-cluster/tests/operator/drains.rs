//! What people do to the nodes and the objects of jobs that train: drains, evictions, deletions by each cascade, a node whose runtime
//! starts nothing. On a real control plane; without one the tests say so and pass, or fail when `SHOAL_REQUIRE_ALL=1`.

use crate::world::{World, whole};
use serde_json::{Value, json};
use shoal_test_cluster::Run;
use shoal_tests::processes::pack_digits;
use std::time::{Duration, Instant};

/// A job of processes: its pservers have copies of one another's blocks.
fn digits(world: &World, name: &str, more: Value) -> Value {
    let data = pack_digits(&world.programs, &world.path("data")).unwrap();
    let container = json!({
        "name": "trainer", "image": "digits:test", "command": ["digits"],
        "env": [{ "name": "SHOAL_PACE_MILLIS", "value": "150" }],
        "resources": { "requests": { "cpu": "1" } },
    });
    let mut spec = json!({
        "data": [data], "epochs": 8, "seed": 7, "copies": 1, "leaseTtlMillis": 30_000,
        "checkpoint": { "place": world.path(&format!("checkpoints-{name}")) },
        "pserver": { "minReplicas": 2 },
        "trainer": { "minReplicas": 1, "maxReplicas": 2, "replicas": 2, "template": { "spec": { "containers": [container] } } },
    });
    more.as_object().unwrap().iter().for_each(|(key, value)| spec[key] = value.clone());
    json!({ "apiVersion": "shoal.dev/v1alpha1", "kind": "TrainingJob", "metadata": { "name": name }, "spec": spec })
}

fn nodes_of_pods(world: &World) -> String {
    world.kubectl(&["get", "pods", "-l", "shoal.dev/job", "-o", "jsonpath={.items[*].spec.nodeName}"])
}

/// How often a job has gone back to steps that it had made, by its master.
fn rewinds(world: &World, job: &str) -> Value {
    world.status_of_master(job)["rewinds"].clone()
}

/// kubectl, while kubelets go on.
#[allow(clippy::disallowed_methods, reason = "real processes take real time")]
fn timed(world: &World, words: &[&str]) -> Duration {
    let began = Instant::now();
    tokio::task::block_in_place(|| world.kubectl(words));
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_of_four_nodes_is_drained_in_turn_while_three_jobs_train_and_they_lose_nothing() {
    let Some(mut world) = World::start(4, Run::Processes).await else { return };
    world.patience = Duration::from_secs(300);
    let jobs = ["a", "b", "c"].map(|name| digits(&world, name, json!({})));
    jobs.iter().for_each(|job| world.apply(job));
    for name in ["a", "b", "c"] {
        world.wait_for_condition(name, "Ready").await;
    }
    let mut drained = Vec::new();
    for node in ["node-0", "node-1", "node-2", "node-3"] {
        // As a person does: the budget is looked at by each eviction, again and again until it is granted.
        let words = ["drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=180s"];
        let took = timed(&world, &words);
        assert!(took < Duration::from_secs(180), "{node}: {took:?}");
        assert!(!nodes_of_pods(&world).contains(node), "{}", world.kubectl(&["get", "pods", "-o", "wide"]));
        drained.push(format!("{node} {:.1} s", took.as_secs_f64()));
        world.kubectl(&["uncordon", node]);
        for name in ["a", "b", "c"] {
            world.wait_for_condition(name, "Ready").await;
            let job = world.job(name);
            assert_eq!(job["status"]["phase"], "Running", "{name} is to outlast the drains: {job}");
            assert_eq!(rewinds(&world, name), json!(0), "{name} made no step again");
        }
    }
    println!("drained: {}", drained.join(", "));
    for (name, job) in ["a", "b", "c"].into_iter().zip(&jobs) {
        world.wait_for_condition(name, "Succeeded").await;
        let status = world.job(name)["status"].clone();
        assert_eq!(
            (&status["lastFailure"], &status["ends"]["errors"]),
            (&Value::Null, &Value::Null),
            "{status}"
        );
        assert!(status["ends"]["evicted"].as_u64() > Some(0), "{status}");
        assert_eq!(world.trained(&format!("checkpoints-{name}")), world.undisturbed(job), "{name}");
    }
}

/// What a drain asks, as the API has it.
fn evict(world: &World, pod: &str) -> Result<(), String> {
    let eviction = json!({ "apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": { "name": pod, "namespace": "default" } });
    let file = world.path("eviction.json");
    std::fs::write(&file, eviction.to_string()).unwrap();
    let url = format!("/api/v1/namespaces/default/pods/{pod}/eviction");
    let words = ["create", "--raw", &url, "-f", file.to_str().unwrap()];
    world.plane.kubectl(&words).map(drop).map_err(|error| format!("{error:#}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn of_pservers_one_at_a_time_may_be_evicted_and_a_single_one_always() {
    let Some(world) = World::start(2, Run::Pretended).await else { return };
    let allowed = |world: &World, job: &str| {
        let budget = format!("{job}-pserver");
        world.kubectl(&[
            "get",
            "pdb",
            &budget,
            "--ignore-not-found",
            "-o",
            "jsonpath={.status.disruptionsAllowed}",
        ])
    };
    // As many trainers as are not to be taken for pservers, and none that are stated.
    for (job, pservers, replicas) in [("few", 3, Some(2)), ("many", 3, Some(8)), ("free", 3, None)] {
        let pserver = json!({ "minReplicas": pservers, "template": { "spec": { "terminationGracePeriodSeconds": 2 } } });
        let mut written = world.pretended(job, json!({ "pserver": pserver }));
        let trainer = written["spec"]["trainer"].as_object_mut().unwrap();
        drop(trainer.remove("replicas"));
        trainer.extend(replicas.map(|replicas| ("replicas".to_owned(), json!(replicas))));
        world.apply(&written);
        world.wait_for_condition(job, "Ready").await;
        world.wait_for("one may go", async |world| allowed(world, job) == "1").await;
        // None can come instead of the first before the second is asked for, however long that takes here.
        world.kubectl(&["cordon", "node-0", "node-1"]);
        evict(&world, &format!("{job}-pserver-0")).unwrap();
        let refused = evict(&world, &format!("{job}-pserver-1")).unwrap_err();
        assert!(refused.contains("disruption budget"), "{refused}");
        world.kubectl(&["uncordon", "node-0", "node-1"]);
        world
            .wait_for("another has come, and the next may go", async |world| allowed(world, job) == "1")
            .await;
        world.kubectl(&["delete", "trainingjob", job, "--wait=false"]);
    }
    world.apply(&world.pretended("single", json!({})));
    world.wait_for_condition("single", "Ready").await;
    assert_eq!(allowed(&world, "single"), "", "there is no budget that could hold a drain up");
    evict(&world, "single-pserver-0").unwrap();
    let is_replaced = async |world: &World| world.pods().contains(&"single-pserver-1".to_owned());
    world.wait_for("it is replaced", is_replaced).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_job_of_twenty_pods_is_deleted_by_each_cascade_within_seconds() {
    let Some(world) = World::start(4, Run::Pretended).await else { return };
    let twenty = |name: &str| {
        // With the time to end that pods have by themselves, which a pserver that nobody answers takes.
        let slow = json!({ "metadata": { "annotations": { "kubelet.shoal.dev/stop-seconds": "100" } } });
        let pserver = json!({ "minReplicas": 3, "maxReplicas": 3, "template": slow });
        let mut job = world.pretended(name, json!({ "pserver": pserver }));
        job["spec"]["trainer"]["minReplicas"] = json!(16);
        job["spec"]["trainer"]["maxReplicas"] = json!(16);
        job["spec"]["trainer"].as_object_mut().unwrap().remove("replicas");
        job
    };
    for cascade in ["background", "foreground"] {
        let name = format!("by-{cascade}");
        world.apply(&twenty(&name));
        world.wait_for_condition(&name, "Ready").await;
        assert_eq!(world.pods().len(), 20);
        let took = timed(
            &world,
            &["delete", "trainingjob", &name, &format!("--cascade={cascade}"), "--timeout=60s"],
        );
        assert!(took < Duration::from_secs(15), "{cascade}: {took:?}");
        println!("deleted, {cascade}: {:.1} s", took.as_secs_f64());
        world.nothing_is_left(&name).await;
    }

    world.apply(&twenty("orphans"));
    world.wait_for_condition("orphans", "Ready").await;
    let before = world.uids();
    let took = timed(&world, &["delete", "trainingjob", "orphans", "--cascade=orphan", "--timeout=60s"]);
    assert!(took < Duration::from_secs(15), "orphan: {took:?}");
    println!("deleted, orphan: {:.1} s", took.as_secs_f64());
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(world.uids(), before, "what is an orphan stays as it is");
    let owners = ["get", "pods", "-o", "jsonpath={.items[*].metadata.ownerReferences}"];
    assert_eq!(world.kubectl(&owners).trim(), "");

    // Another job of the name finds its names taken, and says by what.
    world.apply(&twenty("orphans"));
    let is_said = async |world: &World| {
        let message = world.job("orphans")["status"]["message"].to_string();
        message.contains("PodDisruptionBudget orphans-pserver is not this job's, it has no owner")
            && message.contains("and then what is left: `kubectl delete ")
    };
    world.wait_for("the orphans are named", is_said).await;
    let message = world.job("orphans")["status"]["message"].as_str().unwrap().to_owned();
    println!("{message}");
    world.kubectl(&["delete", "trainingjob", "orphans", "--timeout=60s"]);
    assert_eq!(world.uids(), before, "nor are they deleted with it");
    let words = message.split('`').nth(1).unwrap().split(' ').skip(2);
    let more = ["--grace-period=5", "--timeout=60s"];
    world.kubectl(&["delete"].into_iter().chain(words).chain(more).collect::<Vec<_>>());
    world.nothing_is_left("orphans").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_whose_runtime_starts_nothing_is_named_and_left_alone_for_the_whole_of_a_job() {
    let Some(mut world) = World::start(4, Run::Processes).await else { return };
    world.patience = Duration::from_secs(240);
    // Nothing else is on it, so that the scheduler likes it best.
    world.kubelet.break_runtime("node-3");
    let job = digits(&world, "j", json!({ "epochs": 3 }));
    world.apply(&job);
    let is_under_way = async |world: &World| world.job("j")["status"]["progress"]["step"].as_u64() > Some(0);
    world.wait_for("it makes steps", is_under_way).await;
    // Whatever comes later is tried there as well, and goes elsewhere.
    for pod in ["j-trainer-0", "j-trainer-1", "j-pserver-0", "j-master"] {
        world.kubectl(&["delete", "pod", pod, "--wait=false"]);
        tokio::time::sleep(Duration::from_secs(4)).await;
    }
    world.wait_for_condition("j", "Succeeded").await;
    let status = world.job("j")["status"].clone();
    let avoided = status["avoidedNodes"].as_array().cloned().unwrap_or_default();
    assert!(avoided.iter().all(|one| one["node"] == "node-3"), "{avoided:?}");
    assert!(avoided.iter().any(|one| one["why"].as_str().unwrap().contains("driver not loaded")), "{status}");
    let events = world.kubectl(&[
        "get",
        "events",
        "--field-selector=reason=NotStarted",
        "-o",
        "jsonpath={.items[*].message}",
    ]);
    assert!(events.contains("node-3") && events.contains("driver not loaded"), "{events}");
    assert_eq!(world.trained("checkpoints-j"), world.undisturbed(&job));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_beside_the_program_hides_neither_its_failures_nor_its_end() {
    let Some(world) = World::start(2, Run::Pretended).await else { return };
    let beside = |annotations: Value| {
        let mesh = json!({ "name": "proxy", "image": "digits:test" });
        let program = json!({ "name": "trainer", "image": "digits:test" });
        json!({ "minReplicas": 1, "replicas": 1, "template": {
            "metadata": { "annotations": annotations },
            "spec": { "terminationGracePeriodSeconds": 2, "containers": [mesh, program] } } })
    };
    let wrong = json!({ "kubelet.shoal.dev/run-seconds": "1", "kubelet.shoal.dev/exit-code": "2" });
    world.apply(&world.pretended("wrong", json!({ "trainer": beside(wrong) })));
    world.wait_for_condition("wrong", "Failed").await;
    let said = world.job("wrong")["status"]["message"].as_str().unwrap().to_owned();
    assert!(said.contains("exit code 2"), "{said}");
    let is_empty = async |world: &World| {
        world.kubectl(&["get", "pods", "--field-selector=status.phase=Running", "-o", "name"]).is_empty()
    };
    world.wait_for("what runs beside programs goes with the job", is_empty).await;

    world.apply(
        &world
            .pretended("right", json!({ "trainer": beside(json!({ "kubelet.shoal.dev/exit-code": "1" })) })),
    );
    world.wait_for_condition("right", "Ready").await;
    let before = world.uids();
    let ends = r#"{"metadata":{"annotations":{"kubelet.shoal.dev/run-seconds":"0"}}}"#;
    world.kubectl(&["patch", "pod", "right-trainer-0", "--type=merge", "-p", ends]);
    let is_another = async |world: &World| {
        let now = world.uids();
        now.get("right-trainer-0").is_some_and(|uid| Some(uid) != before.get("right-trainer-0"))
    };
    world.wait_for("another trainer", is_another).await;
    world.wait_for_condition("right", "Ready").await;
    assert_eq!(
        world.pods().iter().filter(|pod| pod.starts_with("right")).count(),
        whole("right", 0..1, 1).len()
    );
}
