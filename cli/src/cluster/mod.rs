//! Talking to a Kubernetes cluster as a person: which one, which namespace, and what its answers mean. It writes nothing but
//! what a person asked for: the operator does the rest.

pub(crate) mod follow;
pub(crate) mod mirror;
pub(crate) mod text;

use crate::exit::Exit;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::config::KubeConfigOptions;
use kube::{Api, Client, Config};
use shoal_operator::api::TrainingJob;
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
        }
        found.ok_or_else(|| self.lacks(name).into())
    }

    /// That there is no such job.
    pub(crate) fn lacks(&self, name: &str) -> Exit {
        let namespace = &self.namespace;
        Exit::Usage(format!("no job {name} in namespace {namespace}: `shoal get --all-namespaces` lists all"))
    }
}

/// What an error of the cluster means to a person, with its exit code.
pub(crate) fn explained(error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) => match status.code {
            404 => Exit::Usage(
                "the cluster knows no TrainingJobs: install the operator with kubectl apply -k deploy/"
                    .to_owned(),
            )
            .into(),
            400 | 409 | 422 => Exit::Usage(status.message.clone()).into(),
            401 | 403 => anyhow::anyhow!("the cluster refuses: {}", status.message),
            _ => Exit::Unreachable(format!("the API server cannot answer: {}", status.message)).into(),
        },
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
