//! The parameter server: holds blocks of the model, reduces gradients, applies update rules, publishes versions.
//!
//! The way of a gradient: [`service`] -> [`shard`] -> [`block`] -> [`block::held`] -> root -> [`kernel::rules`] ->
//! [`block::published`] -> pull. [`block`] and [`kernel`] are pure. Nothing here decides who computes what.

#![forbid(unsafe_code)]

pub mod block;
pub mod counters;
pub mod exact;
pub mod hosting;
pub mod kernel;
pub mod report;
pub mod service;
pub mod settings;
pub mod shard;

pub use settings::PserverSettings;

use anyhow::{Context, anyhow};
use report::Identity;
use shoal_runtime::host::random::Random;
use shoal_runtime::host::rpc::{self, Limits, TcpDial};
use shoal_runtime::host::shutdown::Shutdown;
use std::sync::Arc;
use tonic::service::Routes;

/// Runs a pserver until `shutdown`.
///
/// # Errors
/// An address that cannot be bound or reached by trainers, arithmetic that is not exact, a master that refuses us.
pub async fn run(settings: PserverSettings, mut shutdown: Shutdown) -> anyhow::Result<()> {
    exact::assert_exact_arithmetic()?;
    let mut random = Random::from_os();
    let limits = Limits::default();
    let listener = rpc::listen(settings.listen).await?;
    let nonce = random.bits();
    let identity = Identity {
        job: settings.job.clone(),
        name: settings
            .name
            .clone()
            .unwrap_or_else(|| format!("pserver-{}-{:04x}", std::process::id(), nonce >> 48)),
        nonce,
        address: settings.advertised(listener.local_addr().context("the listener has no address")?)?,
    };
    let master = rpc::master_client(&TcpDial { limits }, &settings.master)
        .map_err(|why| anyhow!("--master: {why}"))?;
    let (incarnation, job) = tokio::select! {
        biased;
        () = shutdown.wait() => return Ok(()),
        registered = report::register(master.clone(), &identity, &mut random) => {
            registered.with_context(|| format!("the master at {} refuses this pserver", settings.master))?
        }
    };
    tracing::info!(job = %job.job, name = identity.name, address = identity.address, %incarnation, "pserver registered");
    let shard = Arc::new(shard::Shard::new(job, shard::HELD_WINDOW));
    let routes = Routes::new(service::PserverService::new(Arc::clone(&shard)).server(limits));
    tokio::select! {
        biased;
        served = rpc::serve(listener, routes, limits, shutdown) => served.context("serving failed"),
        fault = report::report(&shard, master, incarnation, &mut random) => {
            Err(fault).with_context(|| format!("the master at {} refuses this pserver's reports", settings.master))
        }
    }
}
