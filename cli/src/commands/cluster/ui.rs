//! A job of a Kubernetes cluster for its live page: its master and pservers are reached through the API server, by the rights of who
//! asks.

use crate::cluster::relays::Relays;
use crate::cluster::text::status_of;
use crate::cluster::{Cluster, ClusterChoice, explained};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use shoal_operator::api::{TlsMode, TrainingJob};
use shoal_operator::manifest::{MASTER_PORT, PSERVER_PORT, certificate_name, credentials_of, service_name};
use shoal_runner::exit::Exit;
use shoal_runtime::host::rpc::Security;
use shoal_runtime::host::rpc::tls::PemSet;
use shoal_ui::{Relayed, Source};
use std::time::Duration;

/// How often the certificate is looked at again.
const LOOK: Duration = Duration::from_secs(600);

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
    let relays = Relays::new(cluster.pods());
    relays.check(&pod, MASTER_PORT).await?;
    let master = relays.address(&pod, MASTER_PORT)?.to_string();
    let pserver = move |pod: &str| Ok(relays.address(pod, PSERVER_PORT)?.to_string());
    Ok(Source::relayed(Relayed { name: name.to_owned(), master, security, pserver: Box::new(pserver) }))
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
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(LOOK).await;
                let renewed = certificate(&secrets, &secret).await;
                let renewed = renewed.and_then(|pem| credentials.replace(&pem).map_err(anyhow::Error::msg));
                if let Err(why) = renewed {
                    tracing::warn!(secret, "the certificate is kept as it was: {why:#}");
                }
            }
        });
    }
    Ok(security)
}

async fn certificate(secrets: &Api<Secret>, name: &str) -> anyhow::Result<PemSet> {
    let secret = secrets.get(name).await.map_err(explained)?;
    Ok(credentials_of(&secret).map_err(|why| Exit::Usage(format!("secret {name}: {why}")))?)
}
