//! Jobs whose pods are pretended make steps at the speed of the scenario's model, and end when they have made all.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use shoal_experiments::simulator::scenario::{JobGroup, Scenario, Service, Speed};
use shoal_operator::manifest::{JOB_LABEL, ROLE_LABEL};
use shoal_test_cluster::PodUse;
use shoal_test_cluster::annotations::RUN_SECONDS;
use std::sync::Arc;

/// How far jobs are.
pub(crate) struct Training {
    jobs: Vec<Course>,
}

/// How far a job is.
struct Course {
    name: String,
    pservers: u32,
    speed: Speed,
    steps: f64,
    made: f64,
    /// Steps in a second, from the last look on.
    rate: f64,
    is_done: bool,
}

impl Training {
    pub(crate) fn new(scenario: &Scenario) -> Training {
        let course = |job: &JobGroup| Course {
            name: job.name.clone(),
            pservers: job.pservers.count,
            speed: job.speed.clone(),
            steps: job.steps,
            made: 0.0,
            rate: 0.0,
            is_done: false,
        };
        Training { jobs: scenario.jobs.iter().map(course).collect() }
    }

    /// Goes on by so many seconds, and from here at the speed of what is ready. Returns the jobs that have made all steps.
    pub(crate) fn go_on(&mut self, seconds: f64, pods: &[Arc<Pod>]) -> Vec<String> {
        let mut done = Vec::new();
        for job in self.jobs.iter_mut().filter(|job| !job.is_done) {
            job.made += job.rate * seconds;
            let ready = |role: &str| {
                let has = |pod: &Pod, label: &str, value: &str| {
                    pod.labels().get(label).is_some_and(|one| one == value)
                };
                let ours =
                    pods.iter().filter(|pod| has(pod, JOB_LABEL, &job.name) && has(pod, ROLE_LABEL, role));
                ours.filter(|pod| is_ready(pod)).count() as u32
            };
            let runs = ready("master") > 0 && ready("pserver") >= job.pservers;
            job.rate = if runs { job.speed.per_second(ready("trainer"), job.pservers) } else { 0.0 };
            if job.made >= job.steps {
                job.is_done = true;
                done.push(job.name.clone());
            }
        }
        done
    }
}

/// The master of a job ends. A pretended one cannot say that its job is done, and no exit code does: the job has failed to its
/// operator, which frees its room as the end of one that is done would.
pub(crate) async fn end(client: &Client, job: &str) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let patch = json!({ "metadata": { "annotations": { RUN_SECONDS: "0" } } });
    pods.patch(&format!("{job}-master"), &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

/// What the pods of services use: those that are ready share the load.
pub(crate) fn uses(services: &[Service], at_seconds: f64, pods: &[Arc<Pod>]) -> Vec<PodUse> {
    let mut all = Vec::new();
    for service in services {
        let is_ours = |pod: &&Arc<Pod>| pod.labels().get("app") == Some(&service.name) && is_ready(pod);
        let ours: Vec<&Arc<Pod>> = pods.iter().filter(is_ours).collect();
        let cpu_millis = (1000.0 * service.load_at(at_seconds) / ours.len().max(1) as f64) as u64;
        all.extend(ours.into_iter().map(|pod| PodUse {
            namespace: pod.namespace().unwrap_or_default(),
            name: pod.name_any(),
            labels: pod.labels().clone(),
            container: service.name.clone(),
            cpu_millis,
        }));
    }
    all
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let is_ready = conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True");
    is_ready && pod.metadata.deletion_timestamp.is_none()
}
