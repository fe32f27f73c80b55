//! A job of a Kubernetes cluster for its live page: its master and pservers are reached through the API server, by the rights of who
//! asks.

use crate::cluster::pod_dial::PodDial;
use crate::cluster::text::status_of;
use crate::cluster::{Cluster, ClusterChoice, explained};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use shoal_operator::api::{TlsMode, TrainingJob};
use shoal_operator::manifest::{MASTER_PORT, certificate_name, credentials_of, service_name};
use shoal_runner::exit::Exit;
use shoal_runtime::host::rpc::Security;
use shoal_runtime::host::rpc::tls::{Credentials, PemSet};
use shoal_ui::Source;
use std::sync::Arc;
use std::time::Duration;

/// How often the certificate is looked at again, and how long that may take.
const LOOK: Duration = Duration::from_secs(600);
const ANSWER: Duration = Duration::from_secs(30);

/// The job of that name, if it has a master that can be reached.
pub(crate) async fn source(choice: &ClusterChoice, name: &str) -> anyhow::Result<Source> {
    let cluster = choice.connect().await?;
    let job = cluster.job(name).await?;
    let pod = service_name(&job);
    if cluster.pods().get_opt(&pod).await.map_err(explained)?.is_none() {
        let phase = status_of(&job).phase;
        return Err(Exit::Usage(format!(
            "job {name} is {phase} and has no master that could be looked at: see `shoal why {name}`"
        ))
        .into());
    }
    let security = security(&cluster, &job).await?;
    let dial = PodDial::new(&cluster, name, security);
    dial.check(&pod, MASTER_PORT).await?;
    Ok(Source::dialled(name, Arc::new(dial), &format!("{pod}:{MASTER_PORT}")))
}

/// How the job is spoken with: as its `client`, by a certificate that stays in memory and is changed as its secret is.
async fn security(cluster: &Cluster, job: &TrainingJob) -> anyhow::Result<Security> {
    let given = job.spec.tls.as_ref().and_then(|tls| tls.secrets.get("client")).cloned();
    let secret = match job.tls() {
        TlsMode::Plaintext => return Ok(Security::Loopback),
        TlsMode::Issued => certificate_name(job, "client"),
        TlsMode::Given => given.ok_or_else(|| {
            Exit::Usage(
                "spec.tls.secrets names no secret for client, without which nobody looks at the job"
                    .to_owned(),
            )
        })?,
    };
    let secrets: Api<Secret> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let security = Security::in_memory(&certificate(&secrets, &secret).await?).map_err(Exit::Usage)?;
    if let Security::Tls(credentials) = security.clone() {
        tokio::spawn(renew(credentials, secrets, secret));
    }
    Ok(security)
}

/// Takes what the secret has from then on. Each new reason why it cannot be had is told once: the page goes on until the certificate ends.
async fn renew(credentials: Arc<Credentials>, secrets: Api<Secret>, name: String) {
    let mut told = String::new();
    loop {
        tokio::time::sleep(LOOK).await;
        let renewed = tokio::time::timeout(ANSWER, certificate(&secrets, &name)).await;
        let renewed = renewed.unwrap_or_else(|_| Err(anyhow::anyhow!("the API server does not answer")));
        let renewed = renewed.and_then(|pem| credentials.replace(&pem).map_err(anyhow::Error::msg));
        let complaint = renewed.err().map_or_else(String::new, |why| format!("{why:#}"));
        if !complaint.is_empty() && complaint != told {
            note!("warning: the certificate of secret {name} cannot be renewed: {complaint}");
        }
        told = complaint;
    }
}

async fn certificate(secrets: &Api<Secret>, name: &str) -> anyhow::Result<PemSet> {
    let secret = secrets.get(name).await.map_err(explained)?;
    Ok(credentials_of(&secret).map_err(|why| Exit::Usage(format!("secret {name}: {why}")))?)
}
