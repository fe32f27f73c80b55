//! Services, disruption budgets and network policies of jobs: applied once, and again now and then. Decides nothing.

use crate::api::TrainingJob;
use crate::manifest::{Defaults, FIELD_MANAGER, disruption_budget, network_policy, service, service_name};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use std::fmt::Debug;

/// Which version of disruption budgets a server has: from 1.21 on `policy/v1`.
pub(super) async fn budget_version(client: &Client) -> kube::Result<&'static str> {
    let groups = client.list_api_groups().await?;
    let policy = groups.groups.iter().find(|group| group.name == "policy");
    let has_v1 = policy.is_some_and(|group| group.versions.iter().any(|one| one.version == "v1"));
    Ok(if has_v1 { "v1" } else { "v1beta1" })
}

fn budgets(client: &Client, namespace: &str, version: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("policy", version, "PodDisruptionBudget");
    Api::namespaced_with(
        client.clone(),
        namespace,
        &ApiResource::from_gvk_with_plural(&kind, "poddisruptionbudgets"),
    )
}

fn budget_name(job: &TrainingJob) -> String {
    format!("{}-pserver", job.name_any())
}

/// Applies all of them.
pub(super) async fn make(
    client: &Client,
    job: &TrainingJob,
    defaults: &Defaults,
    budget_version: &str,
) -> kube::Result<()> {
    let namespace = job.namespace().unwrap_or_default();
    let how = PatchParams::apply(FIELD_MANAGER).force();
    let services: Api<Service> = Api::namespaced(client.clone(), &namespace);
    services.patch(&service_name(job), &how, &Patch::Apply(service(job))).await?;
    let budget = disruption_budget(job, &format!("policy/{budget_version}"));
    budgets(client, &namespace, budget_version).patch(&budget_name(job), &how, &Patch::Apply(budget)).await?;
    let policies: Api<NetworkPolicy> = Api::namespaced(client.clone(), &namespace);
    let policy = network_policy(job, defaults).map_err(kube::Error::SerdeError)?;
    policies.patch(&job.name_any(), &how, &Patch::Apply(policy)).await?;
    Ok(())
}

/// Deletes all of them.
pub(super) async fn delete(client: &Client, job: &TrainingJob, budget_version: &str) -> kube::Result<()> {
    let namespace = job.namespace().unwrap_or_default();
    let services: Api<Service> = Api::namespaced(client.clone(), &namespace);
    unless_gone(services.delete(&service_name(job), &DeleteParams::default()).await)?;
    let budgets = budgets(client, &namespace, budget_version);
    unless_gone(budgets.delete(&budget_name(job), &DeleteParams::default()).await)?;
    let policies: Api<NetworkPolicy> = Api::namespaced(client.clone(), &namespace);
    unless_gone(policies.delete(&job.name_any(), &DeleteParams::default()).await)
}

/// What is gone already needs no deleting.
pub(super) fn unless_gone<T: Debug>(deleted: kube::Result<T>) -> kube::Result<()> {
    match deleted {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(drop),
    }
}
