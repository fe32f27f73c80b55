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

/// What commands need in the job's namespace: verb, group, resource, subresource, and which commands need it. `ui` needs the secret of the
/// job's client, too, which may be granted by its name alone; `collect` looks at the whole cluster.
const RIGHTS: [(&str, &str, &str, &str, &str); 12] = [
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
    ("create", "", "pods", "portforward", "ui"),
];

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
        let (served, rights, operators, unknown_fields) =
            tokio::join!(served(&cluster), rights(&cluster), operators(&cluster), fields(&cluster));
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

async fn rights(cluster: &Cluster) -> Result<Vec<Right>, String> {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(cluster.client.clone());
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let mut rights = Vec::new();
    for (verb, group, resource, subresource, needed_by) in RIGHTS {
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
