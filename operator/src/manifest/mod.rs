//! The Kubernetes objects of a job, made from its spec and from what was decided. Talks to nobody.

mod certificates;
mod containers;
mod pod;
mod surroundings;
#[cfg(test)]
mod tests;

pub use certificates::{
    Issuer, SECRET_TYPE, certificate, certificate_name, certificate_of, certificate_request,
    certificate_secret, credentials_of, secret_data,
};
pub use pod::{pod, program_of};
pub use surroundings::{BudgetApi, disruption_budget, network_policy, service};

use crate::api::{GROUP, TlsMode, TrainingJob};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};
use std::collections::BTreeMap;

/// Where masters listen.
pub const MASTER_PORT: u16 = 7400;
/// Where pservers listen.
pub const PSERVER_PORT: u16 = 7500;
/// Where the pages for probes and metrics are.
pub const HTTP_PORT: u16 = 8080;

/// The label with a job's name.
pub const JOB_LABEL: &str = "shoal.dev/job";
/// The label with a pod's role.
pub const ROLE_LABEL: &str = "shoal.dev/role";
/// The label with a pod's number among those of its role.
pub const ORDINAL_LABEL: &str = "shoal.dev/ordinal";
/// Who writes the fields that this operator applies.
pub const FIELD_MANAGER: &str = "shoal-operator";

/// What all jobs of a cluster have in common.
#[derive(Clone, Debug, Default)]
pub struct Defaults {
    /// The image of masters.
    pub master_image: String,
    /// The image of pservers.
    pub pserver_image: String,
    /// The priority class of trainers beyond the least, if there is one.
    pub elastic_class: Option<String>,
    /// The namespace in which operators run.
    pub namespace: String,
    /// Below what the states of jobs are kept, if anywhere: `etcd://HOST:PORT/PREFIX`.
    pub store: Option<String>,
    /// The secret, in the namespaces of jobs, with what that etcd is shown, where it is one over TLS.
    pub store_secret: Option<String>,
}

/// The name by which a job's processes know it: another for a job that is made again under the same name.
pub fn identity(job: &TrainingJob) -> String {
    if let Some(tls) = job.spec.tls.as_ref().filter(|_| job.tls() == TlsMode::Given) {
        return tls.job.clone();
    }
    let uid = job.uid().unwrap_or_default();
    format!("{}-{}", job.name_any(), uid.split('-').next().unwrap_or_default())
}

/// The name of a job's service, at which its master is found.
pub fn service_name(job: &TrainingJob) -> String {
    format!("{}-master", job.name_any())
}

/// The name of the disruption budget of a job's pservers.
pub fn budget_name(job: &TrainingJob) -> String {
    format!("{}-pserver", job.name_any())
}

/// The name of a job's network policy. The bare name would be anybody's: of a policy `default-deny`, or of a job called so.
pub fn policy_name(job: &TrainingJob) -> String {
    format!("{}-shoal", job.name_any())
}

fn labels(job: &TrainingJob) -> BTreeMap<String, String> {
    let all = [
        ("app.kubernetes.io/name", "shoal".to_owned()),
        ("app.kubernetes.io/managed-by", FIELD_MANAGER.to_owned()),
        (JOB_LABEL, job.name_any()),
    ];
    all.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn owner(job: &TrainingJob) -> OwnerReference {
    OwnerReference {
        api_version: TrainingJob::api_version(&()).into_owned(),
        kind: TrainingJob::kind(&()).into_owned(),
        name: job.name_any(),
        uid: job.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// The job that owns an object, if one does: others may be among the owners, too.
pub fn job_of(object: &ObjectMeta) -> Option<&OwnerReference> {
    let is_job = |owner: &&OwnerReference| {
        owner.kind == TrainingJob::kind(&()) && owner.api_version.starts_with(&format!("{GROUP}/"))
    };
    object.owner_references.iter().flatten().find(is_job)
}

fn metadata(job: &TrainingJob, name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: job.namespace(),
        labels: Some(labels(job)),
        owner_references: Some(vec![owner(job)]),
        ..ObjectMeta::default()
    }
}
