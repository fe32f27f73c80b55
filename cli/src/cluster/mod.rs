//! Talking to a Kubernetes cluster as a person: which one, which namespace, and what its answers mean. It writes nothing but
//! what a person asked for: the operator does the rest.

pub(crate) mod follow;
pub(crate) mod mirror;
pub(crate) mod pod_dial;
pub(crate) mod text;

use k8s_openapi::api::core::v1::{Event, Namespace, Pod};
use kube::config::KubeConfigOptions;
use kube::core::Status;
use kube::{Api, Client, Config};
use shoal_operator::api::TrainingJob;
use shoal_runner::exit::Exit;
use std::time::Duration;

/// How long the API server may take to be reached.
const CONNECT: Duration = Duration::from_secs(5);

/// Which cluster is meant, and where in it.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ClusterChoice {
    /// Namespace of the job; by default that of the kubeconfig's context
    #[arg(short, long, env = "SHOAL_NAMESPACE", value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// Context of the kubeconfig, which is found as kubectl finds it (KUBECONFIG, ~/.kube/config); by default its current one
    #[arg(long, value_name = "CONTEXT")]
    pub(crate) context: Option<String>,
}

/// A cluster, and a namespace in it.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) client: Client,
    pub(crate) namespace: String,
}

impl ClusterChoice {
    /// The cluster that is meant. Whether it answers is seen by asking it something.
    ///
    /// # Errors
    /// No kubeconfig, or none with such a context.
    pub(crate) async fn connect(&self) -> anyhow::Result<Cluster> {
        let none = |why: String| Exit::Usage(format!("no cluster: {why}; set KUBECONFIG, or give --context"));
        let mut config = match &self.context {
            None => Config::infer().await.map_err(|why| none(why.to_string()))?,
            Some(context) => {
                let options =
                    KubeConfigOptions { context: Some(context.clone()), ..KubeConfigOptions::default() };
                Config::from_kubeconfig(&options).await.map_err(|why| none(why.to_string()))?
            }
        };
        config.connect_timeout = Some(CONNECT);
        let namespace = self.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let client = Client::try_from(config).map_err(|why| none(why.to_string()))?;
        Ok(Cluster { client, namespace })
    }
}

impl Cluster {
    /// The jobs of the namespace.
    pub(crate) fn jobs(&self) -> Api<TrainingJob> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Its pods.
    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// What was said of its objects.
    pub(crate) fn events(&self) -> Api<Event> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The job of that name.
    ///
    /// # Errors
    /// There is none, or the cluster cannot be asked.
    pub(crate) async fn job(&self, name: &str) -> anyhow::Result<TrainingJob> {
        let found = self.jobs().get_opt(name).await.map_err(explained)?;
        if found.is_none() {
            // Without the resource itself the answer is the same.
            self.jobs().list(&kube::api::ListParams::default().limit(1)).await.map_err(explained)?;
            self.check_namespace().await?;
        }
        found.ok_or_else(|| self.lacks(name).into())
    }

    /// That there is no such job.
    pub(crate) fn lacks(&self, name: &str) -> Exit {
        let namespace = &self.namespace;
        Exit::Usage(format!("no job {name} in namespace {namespace}: `shoal get --all-namespaces` lists all"))
    }

    /// Refuses a namespace that does not exist: the API server lists the jobs of one as none. Whoever may not look at namespaces is
    /// not told.
    ///
    /// # Errors
    /// There is no such namespace.
    pub(crate) async fn check_namespace(&self) -> Result<(), Exit> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        match namespaces.get_opt(&self.namespace).await {
            Ok(None) => Err(no_namespace(&self.namespace)),
            Ok(Some(_)) | Err(_) => Ok(()),
        }
    }
}

fn no_namespace(name: &str) -> Exit {
    Exit::Usage(format!(
        "the cluster has no namespace {name}: name another by --namespace, or make it with kubectl create namespace {name}"
    ))
}

/// What an error of the cluster means to a person, with its exit code.
pub(crate) fn explained(error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) => answered(&status).into(),
        other => {
            let mut causes = vec![other.to_string()];
            let mut cause = std::error::Error::source(&other);
            while let Some(deeper) = cause {
                causes.push(deeper.to_string());
                cause = deeper.source();
            }
            causes.dedup_by(|deeper, upper| upper.contains(deeper.as_str()));
            Exit::Unreachable(format!("the API server does not answer: {}", causes.join(": "))).into()
        }
    }
}

/// Whether the API server cannot be asked, or cannot answer, at the moment.
pub(crate) fn is_away(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => matches!(answered(status), Exit::Unreachable(_)),
        _ => true,
    }
}

/// What an answer means that is none.
fn answered(status: &Status) -> Exit {
    let (kind, name) =
        status.details.as_ref().map_or(("", ""), |details| (details.kind.as_str(), details.name.as_str()));
    match status.code {
        404 if kind == "namespaces" => no_namespace(name),
        // One object is not there, of a kind that is.
        404 if !name.is_empty() => Exit::Usage(status.message.clone()),
        404 => Exit::Usage(
            "the cluster knows no TrainingJobs: install the operator with kubectl apply -k deploy/"
                .to_owned(),
        ),
        400 | 409 | 422 => Exit::Usage(status.message.clone()),
        401 => Exit::Forbidden(format!(
            "the cluster does not know who asks ({}): log in again, or give --context with other credentials",
            status.message
        )),
        // The message names the user, the verb, the resource and the namespace.
        403 => Exit::Forbidden(format!(
            "the cluster does not permit it: {}; whoever administers it can grant that right",
            status.message
        )),
        _ => Exit::Unreachable(format!("the API server cannot answer: {}", status.message)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// As an API server writes it.
    fn answer(code: u16, message: &str, kind: &str, name: &str) -> Exit {
        let details = json!({ "kind": kind, "name": name });
        let status = json!({ "status": "Failure", "message": message, "reason": "", "code": code, "details": details });
        answered(&serde_json::from_value(status).unwrap())
    }

    #[test]
    fn a_namespace_that_is_not_there_is_told_from_an_operator_that_is_not() {
        let said = answer(404, "namespaces \"tema\" not found", "namespaces", "tema").to_string();
        assert!(said.contains("no namespace tema") && !said.contains("install"), "{said}");
        let said = answer(404, "trainingjobs.shoal.dev \"j\" not found", "trainingjobs", "j").to_string();
        assert_eq!(said, "trainingjobs.shoal.dev \"j\" not found");
        let said = answer(404, "the server could not find the requested resource", "", "").to_string();
        assert!(said.contains("install the operator"), "{said}");
    }

    #[test]
    fn whoever_lacks_a_right_is_told_which_and_is_not_asked_to_wait() {
        let message = "trainingjobs.shoal.dev is forbidden: User \"eve\" cannot list resource \"trainingjobs\" in the namespace \"team\"";
        let forbidden = answer(403, message, "trainingjobs", "");
        assert!(
            matches!(&forbidden, Exit::Forbidden(why) if why.contains("\"eve\" cannot list")),
            "{forbidden}"
        );
        assert!(matches!(answer(401, "Unauthorized", "", ""), Exit::Forbidden(_)));
        assert!(!Exit::is_unreachable(&forbidden.into()));
    }
}
