//! The Kubernetes operator: runs training jobs that are written down as resources, scales, moves and repairs them.
//!
//! It observes, decides, applies. [`api`] is what people write, [`inventory`] is what there is, [`shoal_planner`] says who gets how much of
//! it, [`decide`] what each job needs next; all of these are pure. [`manifest`] makes objects of what was decided, [`cluster`] is
//! the shell around them. It never computes, counts or restores anything of a model: masters and
//! pservers do.

#![forbid(unsafe_code)]

#[cfg(test)]
mod admission_secrets_tests;
#[cfg(test)]
mod admission_tests;
pub mod api;
pub mod cluster;
pub mod decide;
mod images;
pub mod inventory;
pub mod manifest;
mod pages;
pub mod settings;

use anyhow::{Context, bail};
use cluster::Leader;
use shoal_runtime::host::http;
use shoal_runtime::host::random::Random;
use shoal_runtime::host::shutdown::Shutdown;
use shoal_runtime::host::telemetry;
use std::sync::Arc;

/// Runs an operator until `shutdown`: it waits to be elected, then looks after jobs.
///
/// # Errors
/// No cluster to be found, an address that cannot be bound, a lease that was lost: whoever runs it starts it again.
pub async fn run(settings: settings::OperatorSettings, mut shutdown: Shutdown) -> anyhow::Result<()> {
    let calls = Arc::new(cluster::Calls::default());
    let client = client(&calls)
        .await
        .context("no cluster: run it in a pod with a service account, or with a KUBECONFIG")?;
    let identity = settings.identity.clone().unwrap_or_else(|| {
        let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "operator".to_owned());
        format!("{host}-{:08x}", Random::from_os().bits() as u32)
    });
    telemetry::identify("", &identity);
    let keeps_all = settings.namespace.is_none();
    let leader =
        Leader::new(client.clone(), settings.lease_namespace()?, &settings.lease_name, identity, keeps_all);
    let leader = Arc::new(leader);
    let reconciles = Arc::new(cluster::Reconciles::default());
    let jobs = Arc::new(cluster::Jobs::default());
    let plans = Arc::new(cluster::Plans::default());
    let listener = http::listen(settings.http).await?;
    let watched = cluster::Watched { leader: Arc::clone(&leader), reconciles, jobs, plans };
    let pages = pages::Pages { watched: watched.clone(), calls };
    let lead = async {
        let defaults = defaults(&client, &settings).await?;
        leader.elected().await;
        tracing::info!("elected: looking after jobs");
        let planning = shoal_planner::Settings {
            headroom: settings.headroom,
            regrow_seconds: settings.regrow_seconds,
            ..shoal_planner::Settings::default()
        };
        let scope = cluster::Scope {
            namespace: settings.namespace.as_deref(),
            lease_name: &settings.lease_name,
            planning,
        };
        tokio::select! {
            ran = cluster::run(client, scope, defaults, certificates(&settings)?, watched) => {
                ran.context("the API server cannot be asked")?;
                bail!("the watches ended")
            }
            () = leader.keep() => bail!("the lease is another's, or could not be renewed"),
        }
    };
    tokio::select! {
        biased;
        () = shutdown.wait() => {
            leader.resign().await;
            Ok(())
        }
        led = lead => led,
        never = http::serve(listener, &pages) => match never {},
    }
}

/// What all jobs have in common.
async fn defaults(
    client: &kube::Client,
    settings: &settings::OperatorSettings,
) -> anyhow::Result<manifest::Defaults> {
    let images = images::Images::find(client, settings).await?;
    tracing::info!(master = images.master, pserver = images.pserver, "images of jobs that name none");
    Ok(manifest::Defaults {
        master_image: images.master,
        pserver_image: images.pserver,
        elastic_class: Some(settings.elastic_priority_class.clone()).filter(|class| !class.is_empty()),
        namespace: settings.lease_namespace()?.to_owned(),
        store: settings.store.clone(),
        store_secret: settings.store_secret.clone(),
    })
}

/// How certificates of jobs are made.
fn certificates(settings: &settings::OperatorSettings) -> anyhow::Result<cluster::CertificateSettings> {
    Ok(cluster::CertificateSettings {
        default: match settings.tls_default {
            settings::TlsDefault::On => api::TlsMode::Issued,
            settings::TlsDefault::Off => api::TlsMode::Plaintext,
        },
        lifetime: settings.certificate_life,
        authority: (settings.lease_namespace()?.to_owned(), settings.authority.clone()),
        issuer: settings.issuer.clone(),
    })
}

/// A client whose calls have deadlines and are counted.
async fn client(calls: &Arc<cluster::Calls>) -> anyhow::Result<kube::Client> {
    let config = kube::Config::infer().await?;
    let builder = kube::client::ClientBuilder::try_from(config)?;
    Ok(builder.with_layer(&cluster::Watchful(Arc::clone(calls))).build())
}
