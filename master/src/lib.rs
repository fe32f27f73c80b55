//! The master: pins the data set, plans epochs, leases tasks, keeps membership and routing.
//!
//! The state machine is [`machine::Machine`] and the pure parts below it; [`service`] is the thin shell that gives
//! it time and carries its answers. Nothing here touches a gradient.

#![forbid(unsafe_code)]

mod advance;
pub mod assignment;
mod begun;
pub mod clock;
pub mod data_set;
pub mod decide;
pub mod dispatch;
pub mod document;
#[cfg(test)]
mod fixture;
pub mod free_nodes;
pub mod keeper;
mod lanes;
pub mod lease;
mod linger;
mod loads;
pub mod machine;
pub mod members;
pub mod metrics;
mod paces;
pub mod placement;
pub mod rebalance;
pub mod recording;
pub mod reports;
pub mod runs;
pub mod service;
pub mod settings;
mod shunned;
mod signals;
mod standstill;
mod starting;
mod status;
pub mod suspects;
mod tally;
pub mod trouble;
pub mod verification;
mod warm_start;
mod words;
mod work;

use anyhow::{Context, bail};
use shoal_runtime::host::http;
use shoal_runtime::host::random::Random;
use shoal_runtime::host::rpc::{self, Limits, TcpDial};
use shoal_runtime::host::shutdown::Shutdown;
use shoal_runtime::host::telemetry;
use shoal_runtime::wire::proto::master_server::MasterServer;
use std::sync::Arc;

/// Whether another start would end so, too: its settings, or its data, have to be other ones.
pub fn is_hopeless(error: &anyhow::Error) -> bool {
    error.is::<settings::Wrong>() || error.is::<data_set::Refused>()
}

/// Runs a master until `shutdown`, or until its job is over where it is not to stay. Prints nothing; `ready` is called once with the address it listens on.
///
/// # Errors
/// An unreadable data set, an address that cannot be bound, settings that make no job, a store that is damaged or
/// holds another job; with `--linger-seconds`, a job that failed, or that was not over when this master was told to stop.
pub async fn run(
    settings: settings::MasterSettings,
    ready: impl FnOnce(std::net::SocketAddr),
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let security = settings.security()?;
    security.check_address(settings.listen).context("--listen")?;
    settings.spec()?;
    // Before anything slow: who probes this process must not take one that reads for one that hangs.
    let pages = http::listen(settings.http).await?;
    let (service, starting) = (service::MasterService::new(), Arc::new(starting::Starting::default()));
    service.start(Arc::clone(&starting));
    let watched = metrics::Watched { service: &service, starting: &starting, security: &security };
    tokio::select! {
        biased;
        ended = live(&settings, ready, shutdown, &watched) => ended,
        never = http::serve(pages, &watched) => match never {},
    }
}

/// Prepares, then leads or stands by until its end. Told to stop, it hears that wherever it is.
async fn live(
    settings: &settings::MasterSettings,
    ready: impl FnOnce(std::net::SocketAddr),
    mut shutdown: Shutdown,
    watched: &metrics::Watched<'_>,
) -> anyhow::Result<()> {
    let metrics::Watched { service, starting, security } = *watched;
    let prepared = tokio::select! {
        biased;
        () = shutdown.wait() => return linger::stopped(service, settings.linger()),
        prepared = starting.prepare(settings, security) => prepared?,
        never = starting.tell() => match never {},
    };
    let starting::Prepared { manifest, fresh, store, place, storage } = prepared;
    let storage = storage.watched_by(service.waits());
    let mut random = Random::from_os();
    let limits = Limits::default();
    let listener = rpc::listen_secured(settings.listen, security).await?;
    let address = listener.local_addr().context("the listener has no address")?;
    let name = called(address);
    telemetry::identify(&settings.job, &name);
    tracing::info!(%address, "master listens");
    ready(address);
    let keeper = keeper::Keeper {
        store: store.as_ref(),
        dial: &TcpDial { limits, security: security.clone() },
        identity: format!("{name} process {} {:016x}", std::process::id(), random.bits()),
        manifest,
        fresh,
        storage: &storage,
        place,
        store_place: settings.store().to_string(),
        spec: settings.spec()?.clone(),
    };
    let server = MasterServer::new(service.clone())
        .max_decoding_message_size(limits.message_bytes)
        .max_encoding_message_size(limits.message_bytes);
    let routes = tonic::service::Routes::new(server);
    let end = async {
        tokio::select! {
            biased;
            served = rpc::serve(listener, routes, limits, security.clone(), shutdown.clone()) => {
                served.context("serving failed")?;
                linger::stopped(service, settings.linger())
            }
            never = async { shutdown.wait().await; service.stop(); std::future::pending().await } => match never {},
            over = linger::over(service, settings.linger()) => over,
            () = service.broken() => bail!(
                "a panic has left this master's state half-changed: it ends, and the next begins with what the store holds"
            ),
        }
    };
    let kept = keeper.keep_until(service, &mut random, end).await;
    kept.with_context(|| format!("store {}", settings.store()))?
}

/// What a master is called in logs and in its store: where it listens; on all of a host's addresses, by the host's name.
fn called(address: std::net::SocketAddr) -> String {
    let host = || std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match (address.ip().is_unspecified(), host().trim()) {
        (false, _) | (true, "") => address.to_string(),
        (true, host) => format!("{host}:{}", address.port()),
    }
}
