//! Services, disruption budgets and network policies of jobs: made once, seen to again now and then, deleted with the job's end.
//! What is not owned by the job is never touched: it is looked at before it is changed, and changed or deleted as exactly the
//! object that was looked at.

use super::apply::{Outcome, refusal};
use super::owned::{self, Owner, owner};
use crate::api::TrainingJob;
use crate::manifest::{
    BudgetApi, Defaults, FIELD_MANAGER, JOB_LABEL, budget_name, disruption_budget, network_policy,
    policy_name, service, service_name,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions,
};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Objects in one answer of a list.
const PAGE: u32 = 500;

/// From this minor version on budgets may say what becomes of pods that are not ready.
const EVICTION_POLICY_SINCE: u32 = 27;

/// What a server knows of disruption budgets: from 1.21 on `policy/v1`.
pub(super) async fn budget_api(client: &Client) -> kube::Result<BudgetApi> {
    let groups = client.list_api_groups().await?;
    let policy = groups.groups.iter().find(|group| group.name == "policy");
    let has_v1 = policy.is_some_and(|group| group.versions.iter().any(|one| one.version == "v1"));
    let minor = client.apiserver_version().await?.minor;
    Ok(BudgetApi {
        version: if has_v1 { "v1" } else { "v1beta1" },
        has_eviction_policy: minor_number(&minor) >= EVICTION_POLICY_SINCE,
    })
}

/// 36 of `36+`, as vendors write it.
fn minor_number(minor: &str) -> u32 {
    let digits = minor.find(|c: char| !c.is_ascii_digit()).map_or(minor, |end| &minor[..end]);
    digits.parse().unwrap_or(0)
}

/// One of the three kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// By which the job's master is found.
    Service,
    /// Of the job's pservers.
    Budget,
    /// Of all of the job's pods.
    Policy,
}

/// In the order in which they are made.
pub(super) const KINDS: [Kind; 3] = [Kind::Service, Kind::Budget, Kind::Policy];

impl Kind {
    fn resource(self, budget_version: &str) -> ApiResource {
        let (group, version, kind, plural) = match self {
            Kind::Service => ("", "v1", "Service", "services"),
            Kind::Budget => ("policy", budget_version, "PodDisruptionBudget", "poddisruptionbudgets"),
            Kind::Policy => ("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"),
        };
        let kind = kube::api::GroupVersionKind::gvk(group, version, kind);
        ApiResource::from_gvk_with_plural(&kind, plural)
    }

    fn name(self, job: &TrainingJob) -> String {
        match self {
            Kind::Service => service_name(job),
            Kind::Budget => budget_name(job),
            Kind::Policy => policy_name(job),
        }
    }

    /// The kind and the name, for people.
    pub(super) fn of(self, job: &TrainingJob) -> String {
        format!("{} {}", self.resource("v1").kind, self.name(job))
    }

    /// The object as it should be; none if there should be none.
    fn wanted(
        self,
        job: &TrainingJob,
        defaults: &Defaults,
        api: BudgetApi,
    ) -> serde_json::Result<Option<Value>> {
        Ok(match self {
            Kind::Service => Some(serde_json::to_value(service(job))?),
            Kind::Budget => disruption_budget(job, api),
            Kind::Policy => Some(serde_json::to_value(network_policy(job, defaults)?)?),
        })
    }

    /// What of a job its object follows from, beside the job's name: one made for another number is to be changed.
    pub(super) fn made_for(self, job: &TrainingJob) -> u32 {
        match self {
            Kind::Budget => job.status.as_ref().map_or(0, |status| status.pserver.wanted),
            Kind::Service | Kind::Policy => 0,
        }
    }
}

fn api(client: &Client, namespace: Option<&str>, resource: &ApiResource) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
        None => Api::all_with(client.clone(), resource),
    }
}

/// Which jobs have any of these: by uid, and whether there is a policy under the job's bare name, as operators before made it.
#[derive(Debug, Default)]
pub(super) struct Surrounded(BTreeMap<String, bool>);

impl Surrounded {
    /// None for a job that has none; else whether it has a policy under its bare name.
    pub(super) fn of(&self, uid: &str) -> Option<bool> {
        self.0.get(uid).copied()
    }

    /// Notes that a job has some, or is about to. Says the same of the policy.
    pub(super) fn add(&mut self, uid: &str) -> bool {
        *self.0.entry(uid.to_owned()).or_default()
    }

    pub(super) fn has_no_former(&mut self, uid: &str) {
        self.0.insert(uid.to_owned(), false);
    }

    pub(super) fn remove(&mut self, uid: &str) {
        self.0.remove(uid);
    }

    pub(super) fn forget_all_but(&mut self, there: &BTreeSet<String>) {
        self.0.retain(|uid, _| there.contains(uid));
    }

    /// Three lists, of metadata alone: after them a job that has none costs an operator that begins no call.
    pub(super) async fn list(
        client: &Client,
        namespace: Option<&str>,
        budgets: BudgetApi,
    ) -> kube::Result<Surrounded> {
        let mut found = Surrounded::default();
        for kind in KINDS {
            let all = api(client, namespace, &kind.resource(budgets.version));
            let mut which = ListParams::default().labels(JOB_LABEL).limit(PAGE);
            loop {
                let page = all.list_metadata(&which).await?;
                page.items.iter().for_each(|one| found.note(kind, &one.metadata));
                which.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
                if which.continue_token.is_none() {
                    break;
                }
            }
        }
        Ok(found)
    }

    fn note(&mut self, kind: Kind, object: &ObjectMeta) {
        for owner in object.owner_references.iter().flatten() {
            let is_former = kind == Kind::Policy && object.name.as_ref() == Some(&owner.name);
            *self.0.entry(owner.uid.clone()).or_default() |= is_former;
        }
    }
}

/// Makes one of them, or sees that it is as it should be, or is not there. Also returns whether it is there, the job's own.
pub(super) async fn make(
    client: &Client,
    job: &TrainingJob,
    defaults: &Defaults,
    budgets: BudgetApi,
    kind: Kind,
) -> kube::Result<(Outcome, bool)> {
    let resource = kind.resource(budgets.version);
    let all = api(client, job.namespace().as_deref(), &resource);
    let (name, what) = (kind.name(job), kind.of(job));
    let wanted = kind.wanted(job, defaults, budgets).map_err(kube::Error::SerdeError)?;
    let Some(mut wanted) = wanted else {
        delete_owned(&all, &name, job).await?;
        return Ok((Outcome::Done, false));
    };
    let there = all.get_metadata_opt(&name).await?;
    let is_there = there.is_some();
    let written = match there {
        None => {
            let typed = typed(wanted, &resource).map_err(kube::Error::SerdeError)?;
            let how = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
            all.create(&how, &typed).await.map(drop)
        }
        Some(there) => {
            if let Some(refused) = owned::refused(&what, &there.metadata, job) {
                return Ok((refused, false));
            }
            (wanted["apiVersion"], wanted["kind"]) = (resource.api_version.into(), resource.kind.into());
            // The object that was looked at, and as it was looked at: under this name there may be another by now.
            wanted["metadata"]["uid"] = there.metadata.uid.into();
            wanted["metadata"]["resourceVersion"] = there.metadata.resource_version.into();
            if kind == Kind::Budget {
                // Operators before asked for this, and no budget may have both.
                wanted["spec"]["maxUnavailable"] = Value::Null;
                let how = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..Default::default() };
                all.patch(&name, &how, &Patch::Merge(wanted)).await.map(drop)
            } else {
                let how = PatchParams::apply(FIELD_MANAGER).force();
                all.patch(&name, &how, &Patch::Apply(wanted)).await.map(drop)
            }
        }
    };
    match written {
        Ok(()) => Ok((Outcome::Done, true)),
        Err(error) => Ok((refusal(&what, error)?, is_there)),
    }
}

fn typed(wanted: Value, resource: &ApiResource) -> serde_json::Result<DynamicObject> {
    let mut object = wanted;
    (object["apiVersion"], object["kind"]) =
        (resource.api_version.clone().into(), resource.kind.clone().into());
    serde_json::from_value(object)
}

/// Deletes those that are the job's own.
pub(super) async fn delete(client: &Client, job: &TrainingJob, budgets: BudgetApi) -> kube::Result<()> {
    for kind in KINDS {
        let all = api(client, job.namespace().as_deref(), &kind.resource(budgets.version));
        delete_owned(&all, &kind.name(job), job).await?;
    }
    Ok(())
}

/// Deletes the policy that operators before made under the job's bare name, if it is the job's own.
pub(super) async fn delete_former_policy(client: &Client, job: &TrainingJob) -> kube::Result<()> {
    let all = api(client, job.namespace().as_deref(), &Kind::Policy.resource("v1"));
    delete_owned(&all, &job.name_any(), job).await
}

async fn delete_owned(all: &Api<DynamicObject>, name: &str, job: &TrainingJob) -> kube::Result<()> {
    let Some(there) = all.get_metadata_opt(name).await? else { return Ok(()) };
    if owner(&there.metadata, job) != Owner::Job || there.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let (uid, resource_version) = (there.metadata.uid, there.metadata.resource_version);
    let how = DeleteParams::default().preconditions(Preconditions { uid, resource_version });
    // Changed or replaced meanwhile, it is looked at again.
    unless_gone(all.delete(name, &how).await)
}

/// What is gone already needs no deleting.
pub(super) fn unless_gone<T: std::fmt::Debug>(deleted: kube::Result<T>) -> kube::Result<()> {
    match deleted {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_a_server_is_read_as_vendors_write_it() {
        let numbers = ["20", "27", "36+", "28-gke.1", "", "x"].map(minor_number);
        assert_eq!(numbers, [20, 27, 36, 28, 0, 0]);
    }
}
