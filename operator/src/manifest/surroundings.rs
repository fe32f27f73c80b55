//! What a job has besides pods: the service that names its master, the budget that keeps its pservers from being drained
//! all at once, and the policy that keeps others off.

use super::{
    Defaults, HTTP_PORT, JOB_LABEL, MASTER_PORT, ROLE_LABEL, budget_name, metadata, policy_name, service_name,
};
use crate::api::TrainingJob;
use crate::decide::Role;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::ResourceExt;
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn selector(job: &TrainingJob, role: Option<Role>) -> BTreeMap<String, String> {
    let job = (JOB_LABEL.to_owned(), job.name_any());
    std::iter::once(job).chain(role.map(|role| (ROLE_LABEL.to_owned(), role.name().to_owned()))).collect()
}

/// The service at which a job's master is found, whichever pod it is.
pub fn service(job: &TrainingJob) -> Service {
    let port = |name: &str, port: u16| ServicePort {
        name: Some(name.to_owned()),
        port: port.into(),
        // The default, which servers of the age of 1.20 want to see where an object is applied.
        protocol: Some("TCP".to_owned()),
        ..ServicePort::default()
    };
    Service {
        metadata: metadata(job, service_name(job)),
        spec: Some(ServiceSpec {
            // Names alone: a connection goes to the pod itself.
            cluster_ip: Some("None".to_owned()),
            publish_not_ready_addresses: Some(true),
            selector: Some(selector(job, Some(Role::Master))),
            ports: Some(vec![port("rpc", MASTER_PORT), port("http", HTTP_PORT)]),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

/// What of disruption budgets a server knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetApi {
    /// The version of the group `policy`.
    pub version: &'static str,
    /// Whether a budget may say that pods that are not ready do not hold up a drain.
    pub has_eviction_policy: bool,
}

/// The disruption budget of a job's pservers, of which one may go at a time; none for a job of a single one, which may go as well. Trainers
/// have none: they may go at any time.
///
/// By the number of pods that stay, and never by `maxUnavailable`: for that the disruption controller asks the scale of the pods' owner how many
/// there should be, and the scale of a job is its number of trainers.
pub fn disruption_budget(job: &TrainingJob, api: BudgetApi) -> Option<Value> {
    let wanted = job.status.as_ref().map_or(0, |status| status.pserver.wanted);
    let mut spec = json!({
        "minAvailable": wanted.checked_sub(1).filter(|stay| *stay > 0)?,
        "selector": { "matchLabels": selector(job, Some(Role::Pserver)) },
    });
    if api.has_eviction_policy {
        spec["unhealthyPodEvictionPolicy"] = "AlwaysAllow".into();
    }
    Some(json!({
        "apiVersion": format!("policy/{}", api.version),
        "kind": "PodDisruptionBudget",
        "metadata": metadata(job, budget_name(job)),
        "spec": spec,
    }))
}

/// Who may connect to a job's pods: the job's own, the operator, and whoever reads the pages for probes.
pub fn network_policy(job: &TrainingJob, defaults: &Defaults) -> Result<NetworkPolicy, serde_json::Error> {
    let mut operator =
        json!({ "podSelector": { "matchLabels": { "app.kubernetes.io/name": "shoal-operator" } } });
    // Anybody may give a pod that label, but not in the operator's namespace.
    if job.namespace().as_ref() != Some(&defaults.namespace) {
        let label = json!({ "kubernetes.io/metadata.name": defaults.namespace });
        operator["namespaceSelector"] = json!({ "matchLabels": label });
    }
    serde_json::from_value(json!({
        "metadata": metadata(job, policy_name(job)),
        "spec": {
            "podSelector": { "matchLabels": selector(job, None) },
            "policyTypes": ["Ingress"],
            "ingress": [
                { "from": [{ "podSelector": { "matchLabels": selector(job, None) } }] },
                { "from": [operator], "ports": [{ "port": MASTER_PORT, "protocol": "TCP" }] },
                { "ports": [{ "port": HTTP_PORT, "protocol": "TCP" }] },
            ],
        },
    }))
}
