//! What is applied to the cluster: jobs and services of a scenario.

use super::real::Real;
use serde_json::{Value, json};
use shoal_experiments::simulator::scenario::{Amounts, JobGroup, Scenario, Service, Span};
use shoal_test_cluster::annotations::{START_SECONDS, STOP_SECONDS};

/// The image of all that is not a master or pserver.
pub(crate) const IMAGE: &str = "program:test";

/// A training job. Where it is not real, its speed is the bench's affair.
pub(crate) fn job(scenario: &Scenario, job: &JobGroup, real: Option<&Real>) -> Value {
    let starts = &scenario.start_seconds;
    let pod = |start: Span| json!({ "metadata": { "annotations": times(scenario, start) } });
    let mut trainer = pod(starts.trainer);
    let container =
        json!({ "name": "trainer", "image": IMAGE, "resources": resources(&job.trainers.amounts) });
    trainer["spec"]["containers"] = json!([container]);
    let mut manifest = json!({
        "apiVersion": "shoal.dev/v1alpha1", "kind": "TrainingJob", "metadata": { "name": job.name },
        "spec": {
            "data": ["/data/*.recordio"],
            "checkpoint": { "place": "/shared/place" },
            "master": { "resources": resources(&job.master), "template": pod(starts.master) },
            "pserver": { "minReplicas": job.pservers.count, "maxReplicas": job.pservers.count,
                "resources": resources(&job.pservers.amounts), "template": pod(starts.pserver) },
            "trainer": { "minReplicas": job.trainers.min, "maxReplicas": job.trainers.max, "template": trainer },
        },
    });
    match real {
        Some(real) => real.fill_in(job, &mut manifest["spec"]),
        // The end of a pretended master is the end of its job.
        None => manifest["spec"]["failurePolicy"] = json!({ "serverFailures": 1 }),
    }
    manifest
}

/// A service, with as many pods as it wants at first, and who scales it if its number is to change.
pub(crate) fn service(scenario: &Scenario, service: &Service) -> Vec<Value> {
    let name = &service.name;
    let class = json!({ "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": name },
        "value": service.priority });
    let container = json!({ "name": name, "image": IMAGE, "resources": resources(&service.amounts) });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
        "spec": {
            "replicas": service.wanted(0.0),
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name, "part": "serving" }, "annotations": times(scenario, scenario.start_seconds.serving) },
                "spec": { "priorityClassName": name, "containers": [container] },
            },
        },
    });
    let target = json!({ "type": "AverageValue", "averageValue": service.per_pod.to_string() });
    // Down as fast as up: the simulator's services wait for nothing.
    let behaviour = json!({ "scaleDown": { "stabilizationWindowSeconds": 0 } });
    let autoscaler = json!({
        "apiVersion": "autoscaling/v2beta2", "kind": "HorizontalPodAutoscaler", "metadata": { "name": name },
        "spec": {
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": name },
            "minReplicas": service.min, "maxReplicas": service.max, "behavior": behaviour,
            "metrics": [{ "type": "Resource", "resource": { "name": "cpu", "target": target } }],
        },
    });
    let mut all = vec![class, deployment];
    all.extend((service.min < service.max).then_some(autoscaler));
    all
}

fn times(scenario: &Scenario, start: Span) -> Value {
    let start = match start {
        Span::Exactly(seconds) => seconds.to_string(),
        Span::Between(least, most) => format!("{least}-{most}"),
    };
    json!({ START_SECONDS: start, STOP_SECONDS: scenario.stop_seconds.to_string() })
}

/// What a pod asks for, or a node has.
pub(crate) fn amounts(amounts: &Amounts) -> Value {
    let memory = format!("{}Mi", (amounts.memory * 1024.0).round());
    let mut all = json!({ "cpu": amounts.cpu.to_string(), "memory": memory });
    if amounts.gpu > 0 {
        all["nvidia.com/gpu"] = amounts.gpu.to_string().into();
    }
    all
}

fn resources(asked: &Amounts) -> Value {
    json!({ "requests": amounts(asked), "limits": amounts(asked) })
}
