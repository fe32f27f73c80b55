//! A Kubernetes cluster, as the commands that speak with one find it. It asks, and writes nothing: a review of one's own rights is a
//! question that is put like an object.

use crate::cluster::{Cluster, ClusterChoice, explained};
use crate::doctor::judge::cluster::{Operator, Right, unknown_fields};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use shoal_operator::api::{GROUP, VERSION, definitions};

/// Verb, group, resource, subresource, and which commands need it.
type Needed = (&'static str, &'static str, &'static str, &'static str, &'static str);

/// What commands need in the job's namespace. `ui` needs the secret of the
/// job's client, too, which may be granted by its name alone; `collect` looks at the whole cluster.
const RIGHTS: [Needed; 12] = [
    ("get", GROUP, "trainingjobs", "", "every command"),
    ("list", GROUP, "trainingjobs", "", "get"),
    ("watch", GROUP, "trainingjobs", "", "wait, submit --watch"),
    ("create", GROUP, "trainingjobs", "", "submit"),
    ("patch", GROUP, "trainingjobs", "", "submit"),
    ("delete", GROUP, "trainingjobs", "", "delete"),
    ("list", "", "pods", "", "why, logs, ui"),
    ("get", "", "pods", "", "logs, ui"),
    ("get", "", "pods", "log", "logs"),
    ("list", "", "events", "", "why"),
    ("get", "", "pods", "portforward", "ui"),
    CREATE_FORWARDS,
];
/// From this minor version on forwarding a port creates something.
const CREATES_FORWARDS: u32 = 35;
const CREATE_FORWARDS: Needed = ("create", "", "pods", "portforward", "ui");

/// What was found of a cluster.
pub(crate) struct Found {
    /// Major and minor.
    pub(crate) version: (String, String),
    pub(crate) namespace: String,
    /// Versions of our group; none where there is no such group.
    pub(crate) served: Result<Vec<String>, String>,
    /// None where definitions may not be looked at.
    pub(crate) unknown_fields: Option<Vec<String>>,
    pub(crate) rights: Result<Vec<Right>, String>,
    pub(crate) operators: Result<Vec<Operator>, String>,
}

/// Whether kubectl would find a cluster without being told of one.
pub(crate) fn is_configured() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let home = std::env::var_os("HOME").map(std::path::PathBuf::from);
    is_set("KUBECONFIG")
        || is_set("KUBERNETES_SERVICE_HOST")
        || home.is_some_and(|home| home.join(".kube/config").is_file())
}

/// Asks the cluster.
///
/// # Errors
/// It does not answer, or does not know who asks.
pub(crate) fn ask(choice: &ClusterChoice) -> Result<Found, String> {
    let runtime = shoal_runtime::host::program::runtime().map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let cluster = choice.connect().await.map_err(|error| format!("{error:#}"))?;
        let version = cluster.client.apiserver_version().await.map_err(told)?;
        let (served, rights, operators, unknown_fields) = tokio::join!(
            served(&cluster),
            rights(&cluster, minor(&version.minor)),
            operators(&cluster),
            fields(&cluster)
        );
        let namespace = cluster.namespace;
        let version = (version.major, version.minor);
        Ok(Found { version, namespace, served, unknown_fields, rights, operators })
    })
}

fn told(error: kube::Error) -> String {
    format!("{:#}", explained(error))
}

async fn served(cluster: &Cluster) -> Result<Vec<String>, String> {
    let groups = cluster.client.list_api_groups().await.map_err(told)?;
    let ours = groups.groups.into_iter().find(|group| group.name == GROUP);
    Ok(ours.map_or_else(Vec::new, |group| group.versions.into_iter().map(|one| one.version).collect()))
}

async fn fields(cluster: &Cluster) -> Option<Vec<String>> {
    let all: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    let theirs = all.get(&format!("trainingjobs.{GROUP}")).await.ok()?;
    let theirs = serde_json::to_value(theirs).ok()?;
    Some(unknown_fields(definitions().first()?, &theirs, VERSION))
}

/// Of `20+`, as some say it, 20; what is no number is of a server that is newer than all that are known.
fn minor(said: &str) -> u32 {
    let digits = said.find(|one: char| !one.is_ascii_digit()).unwrap_or(said.len());
    said[..digits].parse().unwrap_or(u32::MAX)
}

/// The rights that a server of that minor version asks for.
fn needed(minor: u32) -> impl Iterator<Item = Needed> {
    let is_asked_for = move |right: &Needed| minor >= CREATES_FORWARDS || *right != CREATE_FORWARDS;
    RIGHTS.into_iter().filter(is_asked_for)
}

async fn rights(cluster: &Cluster, minor: u32) -> Result<Vec<Right>, String> {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(cluster.client.clone());
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let mut rights = Vec::new();
    for (verb, group, resource, subresource, needed_by) in needed(minor) {
        let asked = ResourceAttributes {
            namespace: Some(cluster.namespace.clone()),
            verb: some(verb),
            group: some(group),
            resource: some(resource),
            subresource: some(subresource),
            ..ResourceAttributes::default()
        };
        let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(asked), ..Default::default() };
        let review = SelfSubjectAccessReview { spec, ..Default::default() };
        let answer = reviews.create(&PostParams::default(), &review).await.map_err(told)?;
        let mut what = format!("{verb} {resource}");
        for (between, more) in [("/", subresource), (".", group)] {
            if !more.is_empty() {
                what = format!("{what}{between}{more}");
            }
        }
        rights.push(Right { what, needed_by, is_given: answer.status.is_some_and(|status| status.allowed) });
    }
    Ok(rights)
}

/// Of the whole cluster.
async fn operators(cluster: &Cluster) -> Result<Vec<Operator>, String> {
    let wanted = ListParams::default().labels("app.kubernetes.io/name=shoal-operator");
    let all: Api<Deployment> = Api::all(cluster.client.clone());
    let found = all.list(&wanted).await.map_err(told)?;
    let operator = |one: Deployment| {
        let namespace = one.namespace().unwrap_or_default();
        let ready = one.status.and_then(|status| status.ready_replicas).unwrap_or(0);
        let (wanted, pod) = (one.spec.replicas, one.spec.template.spec);
        let container = pod.and_then(|pod| pod.containers.into_iter().next());
        let image = container.and_then(|container| container.image).unwrap_or_default();
        Operator { namespace, image, ready, wanted: wanted.unwrap_or(1) }
    };
    Ok(found.items.into_iter().map(operator).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_does_not_ask_for_is_not_missed() {
        let creates = |said: &str| needed(minor(said)).any(|right| right == CREATE_FORWARDS);
        assert_eq!(["20+", "34", "35", "36-gke.1", "new"].map(creates), [false, false, true, true, true]);
        assert_eq!(needed(20).count(), RIGHTS.len() - 1);
    }
}
