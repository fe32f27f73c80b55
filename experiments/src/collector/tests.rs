//! Tests of what is made of a cluster.

use super::*;
use serde_json::{Value, json};

const BEGAN: &str = "2026-11-24T12:00:00Z";

fn began() -> Moment {
    serde_json::from_value(json!(BEGAN)).unwrap()
}

fn node(cpu: u32) -> Arc<Node> {
    let allocatable = json!({ "cpu": cpu, "memory": "8Gi", "nvidia.com/gpu": 2 });
    let node = json!({ "metadata": { "name": "n" }, "status": { "allocatable": allocatable } });
    Arc::new(serde_json::from_value(node).unwrap())
}

/// A pod of one core and one GPU.
fn pod(name: &str, labels: Value, is_placed: bool, is_ready: bool) -> Value {
    let ready = json!([{ "type": "Ready", "status": if is_ready { "True" } else { "False" } }]);
    let requests = json!({ "cpu": 1, "memory": "1Gi", "nvidia.com/gpu": 1 });
    let mut pod = json!({
        "metadata": { "name": name, "uid": name, "labels": labels, "creationTimestamp": "2026-11-24T12:00:10Z" },
        "spec": { "containers": [{ "name": "c", "resources": { "requests": requests } }] },
        "status": { "phase": if is_ready { "Running" } else { "Pending" }, "conditions": ready },
    });
    if is_placed {
        pod["spec"]["nodeName"] = json!("n");
    }
    pod
}

fn ours(role: &str, ordinal: u32, is_ready: bool) -> Value {
    let labels =
        json!({ "shoal.dev/job": "a", "shoal.dev/role": role, "shoal.dev/ordinal": ordinal.to_string() });
    let mut pod = pod(&format!("a-{role}-{ordinal}"), labels, true, is_ready);
    let owner =
        json!({ "apiVersion": "shoal.dev/v1alpha1", "kind": "TrainingJob", "name": "a", "uid": "job-a" });
    pod["metadata"]["ownerReferences"] = json!([owner]);
    pod
}

fn job(name: &str, made: &str, status: Value) -> Arc<TrainingJob> {
    let spec = json!({ "trainer": { "minReplicas": 2, "maxReplicas": 8 }, "pserver": { "minReplicas": 1 } });
    let made = format!("2026-11-24T{made}Z");
    Arc::new(
        serde_json::from_value(json!({
            "apiVersion": "shoal.dev/v1alpha1", "kind": "TrainingJob", "spec": spec, "status": status,
            "metadata": { "name": name, "uid": format!("job-{name}"), "creationTimestamp": made },
        }))
        .unwrap(),
    )
}

fn take(collector: &mut Collector, at_seconds: f64, pods: &[Value], jobs: &[Arc<TrainingJob>]) -> Sample {
    let typed = |pod: &Value| Arc::new(serde_json::from_value::<Pod>(pod.clone()).unwrap());
    let pods: Vec<Arc<Pod>> = pods.iter().map(typed).collect();
    collector.take(&Look { at_seconds, nodes: &[node(4), node(4)], pods: &pods, jobs }).clone()
}

#[test]
fn a_sample_counts_what_is_asked_for_and_what_is_ready() {
    let mut collector = Collector::new(Resource::Cpu, Some(selector("app=nginx").unwrap()), 3, began());
    let mut ended = pod("e", json!({}), true, false);
    ended["status"]["phase"] = json!("Succeeded");
    let mut leaving = ours("trainer", 2, true);
    leaving["metadata"]["deletionTimestamp"] = json!("2026-11-24T12:00:11Z");
    let pods = [
        ours("master", 0, true),
        ours("pserver", 0, true),
        ours("trainer", 0, true),
        ours("trainer", 1, false),
        leaving,
        pod("nginx-0", json!({ "app": "nginx" }), true, true),
        pod("nginx-1", json!({ "app": "nginx" }), false, false),
        ended,
    ];
    let jobs = [job("a", "12:00:00", json!({})), job("b", "12:00:01", json!({}))];
    let seen = take(&mut collector, 12.0, &pods, &jobs);
    assert_eq!(
        seen,
        Sample {
            at_seconds: 12.0,
            utilisation: 0.75,
            jobs_absent: 1,
            jobs_pending: 1,
            jobs_running: 1,
            jobs_done: 0,
            pods_pending: 1,
            pods_placed: 6,
            serving: 1,
            trainers: vec![1, 0],
            asked: vec![5.0, 0.0],
        }
    );
    for (resource, utilisation) in [(Resource::Gpu, 1.5), (Resource::Memory, 0.375)] {
        let mut collector = Collector::new(resource, None, 1, began());
        let seen = take(&mut collector, 12.0, &pods, &jobs);
        assert_eq!((seen.utilisation, seen.serving), (utilisation, 0));
    }
}

#[test]
fn a_job_is_pending_until_it_can_make_steps_and_runs_until_it_is_over() {
    let mut collector = Collector::new(Resource::Cpu, None, 1, began());
    take(&mut collector, 0.0, &[], &[]);
    assert!(!collector.is_over(), "one is awaited");
    // Made within the second that the cluster says, but not before it was looked for.
    take(&mut collector, 5.5, &[], &[job("a", "12:00:05", json!({}))]);
    take(&mut collector, 6.5, &[], &[job("a", "12:00:05", json!({})), job("b", "12:00:05", json!({}))]);
    let jobs = [job("a", "12:00:05", json!({})), job("b", "12:00:05", json!({}))];
    let server = || ours("pserver", 0, true);
    take(&mut collector, 7.0, &[server(), ours("trainer", 0, true)], &jobs);
    take(&mut collector, 9.0, &[server(), ours("trainer", 0, true), ours("master", 0, true)], &jobs);
    let whole = [server(), ours("trainer", 0, true), ours("master", 0, true), ours("trainer", 1, true)];
    take(&mut collector, 15.0, &whole, &jobs);
    let over = json!({ "phase": "Failed", "completionTime": "2026-11-24T12:00:18Z" });
    take(&mut collector, 19.5, &[], &[job("a", "12:00:05", over.clone()), jobs[1].clone()]);
    assert!(!collector.is_over());
    // The other is deleted.
    let last = take(&mut collector, 20.5, &[], &[job("a", "12:00:05", over)]);
    assert!(collector.is_over());
    assert_eq!((last.jobs_done, last.jobs_pending), (2, 0));
    let experiment = collector.experiment();
    let rows: Vec<_> = experiment.jobs.iter().map(|job| (job.submitted, job.started, job.ended)).collect();
    assert_eq!(rows, [(5.0, Some(9.0), Some(18.0)), (5.5, None, Some(20.5))]);
    let notes = [("mean until the least trainers are ready, s", 10.0), ("jobs failed", 1.0)];
    assert_eq!(experiment.notes, notes.map(|(name, value)| (name.to_owned(), value)));
}

#[test]
fn what_was_so_before_the_first_look_is_dated_by_the_cluster_and_who_was_over_has_no_part() {
    let mut collector = Collector::new(Resource::Cpu, Some(selector("app=nginx").unwrap()), 1, began());
    let running = json!({ "phase": "Running", "conditions": [{ "type": "Running", "status": "True",
        "reason": "Trains", "message": "", "lastTransitionTime": "2026-11-24T11:59:50Z" }] });
    let over = json!({ "phase": "Succeeded", "completionTime": "2026-11-24T11:00:00Z" });
    let jobs = [job("a", "11:59:30", running), job("old", "10:00:00", over)];
    let mut old = pod("nginx-0", json!({ "app": "nginx" }), true, true);
    old["metadata"]["creationTimestamp"] = json!("2026-11-24T11:00:00Z");
    let pods = [ours("master", 0, true), ours("pserver", 0, true), ours("trainer", 0, true), old.clone()];
    take(&mut collector, 0.0, &pods, &jobs);
    take(&mut collector, 11.0, &[old.clone(), pod("nginx-1", json!({ "app": "nginx" }), true, false)], &jobs);
    take(&mut collector, 14.0, &[old, pod("nginx-1", json!({ "app": "nginx" }), true, true)], &jobs);
    let experiment = collector.experiment();
    let rows: Vec<_> =
        experiment.jobs.iter().map(|job| (job.name.as_str(), job.submitted, job.started)).collect();
    assert_eq!(rows, [("a", -30.0, Some(-10.0))]);
    assert_eq!(experiment.notes, [("mean wait of serving pods, s".to_owned(), 4.0)]);
}

#[test]
fn a_selector_is_labels_by_their_values() {
    let labels = |text| selector(text).unwrap();
    assert_eq!(labels("app=nginx"), [("app".to_owned(), "nginx".to_owned())]);
    assert_eq!(labels("a=b, c=").len(), 2);
    for wrong in ["", "nginx", "a!=b", "a==b", "=b", "a=b,"] {
        assert!(selector(wrong).unwrap_err().contains("app=nginx"), "{wrong}");
    }
}
