//! The parameter server: holds blocks of the model, reduces gradients, applies update rules, publishes versions.
//!
//! The way of a gradient: [`service`] -> [`shard`] -> [`block`] -> [`block::reduce`] -> root -> [`kernel::rules`] ->
//! [`block::state`] -> pull. [`block`] and [`kernel`] are pure. Nothing here decides who computes what.

pub mod block;
pub mod bucket;
pub mod counters;
pub mod credit_queue;
pub mod decider;
pub mod device;
pub mod exact;
pub mod follower;
pub mod hosting;
pub mod kernel;
pub mod life;
pub mod metrics;
pub mod report;
pub mod restore;
pub mod service;
pub mod settings;
pub mod shard;
pub mod writer;

pub use settings::PserverSettings;

use anyhow::{Context, anyhow};
use report::Identity;
use shard::Shard;
use shoal_runtime::host::http;
use shoal_runtime::host::memory::keep_large_buffers;
use shoal_runtime::host::processors::Processors;
use shoal_runtime::host::random::Random;
use shoal_runtime::host::rpc::{self, Limits, Masters, TcpDial};
use shoal_runtime::host::shutdown::Shutdown;
use shoal_runtime::host::storage::Storage;
use shoal_runtime::host::telemetry;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tonic::service::Routes;

/// Runs a pserver until the master has no more use for it, or until `stop`. At `leave` it asks to be left, and waits
/// for that no longer than its grace.
///
/// # Errors
/// An address that cannot be bound or reached by trainers, arithmetic that is not exact, a device that cannot be used or
/// fails, a master that refuses us, blocks that are still here when the grace is over.
pub async fn run(settings: PserverSettings, leave: Shutdown, stop: Shutdown) -> anyhow::Result<()> {
    exact::assert_exact_arithmetic()?;
    keep_large_buffers();
    let mut random = Random::from_os();
    let limits = Limits::default();
    let security = settings.security()?;
    let listener = rpc::listen_secured(settings.listen, &security).await.context("--listen")?;
    let pages = http::listen(settings.http).await?;
    let nonce = random.bits();
    let identity = Identity {
        job: settings.job.clone(),
        name: settings
            .name
            .clone()
            .unwrap_or_else(|| format!("pserver-{}-{:04x}", std::process::id(), nonce >> 48)),
        nonce,
        previous: None,
        address: settings.advertised(listener.local_addr().context("the listener has no address")?)?,
    };
    telemetry::identify(settings.job.as_deref().unwrap_or_default(), &identity.name);
    let dial = TcpDial { limits, security: security.clone() };
    let masters = Masters::new(&settings.master, &dial).map_err(|why| anyhow!("--master: {why}"))?;
    let watched = metrics::Watched::new(&masters, &security);
    let pserver = Pserver { settings, dial, masters: &masters, watched: &watched, identity, random };
    tokio::select! {
        biased;
        ended = pserver.live(listener, leave, stop) => ended,
        never = http::serve(pages, &watched) => match never {},
    }
}

/// A pserver that has what it needs from outside.
struct Pserver<'a> {
    settings: PserverSettings,
    dial: TcpDial,
    masters: &'a Masters,
    watched: &'a metrics::Watched<'a>,
    identity: Identity,
    random: Random,
}

impl Pserver<'_> {
    /// Registers, then serves until its end. Asked to leave, it hears that wherever it is.
    async fn live(
        mut self,
        listener: TcpListener,
        mut leave: Shutdown,
        stop: Shutdown,
    ) -> anyhow::Result<()> {
        let (shard, storage) = tokio::select! {
            biased;
            () = leave.wait() => return Ok(()),
            prepared = self.prepare() => prepared?,
        };
        let Pserver { settings, dial, masters, watched, mut identity, mut random } = self;
        watched.registered(&shard);
        let routes = Routes::new(service::PserverService::new(Arc::clone(&shard)).server(dial.limits));
        tokio::select! {
            biased;
            served = rpc::serve(listener, routes, dial.limits, dial.security.clone(), stop) => served.context("serving failed"),
            lost = shard.device_failure() => Err(lost.into()),
            violated = shard.violated() => Err(anyhow!(violated).context("this pserver cannot be relied upon")),
            left = life::leave(&shard, leave, Duration::from_secs(settings.grace_seconds)) => left,
            fault = life::live(&shard, &dial, masters, &storage, &mut identity, &mut random) => {
                Err(fault).with_context(|| format!("the master at {} refuses this pserver", settings.master))
            }
        }
    }

    /// Registers and opens what it needs. May be dropped at any await.
    async fn prepare(&mut self) -> anyhow::Result<(Arc<Shard>, Storage)> {
        let (settings, identity) = (&self.settings, &self.identity);
        let choice = settings.device;
        // A driver that was never used since the machine has started takes its time.
        let opened = tokio::task::spawn_blocking(move || device::Device::open(choice));
        let device = opened.await.context("--device")?.context("--device")?;
        let registered = report::register(self.masters, identity, &mut self.random).await;
        let (incarnation, job, checkpoints) =
            registered.with_context(|| format!("the master at {} refuses this pserver", settings.master))?;
        self.dial.security.check_job(&job.job.0).map_err(anyhow::Error::msg)?;
        telemetry::identify(&job.job.0, &identity.name);
        let place = settings.checkpoints.clone().unwrap_or(checkpoints);
        let storage = Storage::open(&place).await.context("checkpoints")?;
        tracing::info!(job = %job.job, name = identity.name, address = identity.address, %incarnation, "pserver registered");
        let shard = Shard::new(job, shard::HELD_WINDOW, incarnation);
        let shard = shard.with_checkpoint_memory(settings.checkpoint_memory << 20).with_device(device);
        Ok((Arc::new(shard.with_processors(Processors::all())), storage))
    }
}
