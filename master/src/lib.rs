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
pub mod machine;
pub mod members;
pub mod metrics;
mod paces;
pub mod placement;
pub mod rebalance;
pub mod reports;
pub mod runs;
pub mod service;
pub mod settings;
mod shunned;
mod signals;
mod status;
pub mod suspects;
mod tally;
pub mod trouble;
pub mod verification;
mod warm_start;
mod words;
mod work;

use anyhow::Context;
use shoal_runtime::host::http;
use shoal_runtime::host::random::Random;
use shoal_runtime::host::rpc::{self, Limits, TcpDial};
use shoal_runtime::host::shutdown::Shutdown;
use shoal_runtime::host::storage::Storage;
use shoal_runtime::host::store;
use shoal_runtime::host::telemetry;
use shoal_runtime::wire::proto::master_server::MasterServer;

/// Runs a master until `shutdown`, or until its job is over where it is not to stay. Prints nothing; `ready` is called once with the address it listens on.
///
/// # Errors
/// An unreadable data set, an address that cannot be bound, settings that make no job, a store that is damaged or
/// holds another job; with `--linger-seconds`, a job that failed.
pub async fn run(
    settings: settings::MasterSettings,
    ready: impl FnOnce(std::net::SocketAddr),
    mut shutdown: Shutdown,
) -> anyhow::Result<()> {
    let security = settings.security()?;
    security.check_address(settings.listen).context("--listen")?;
    let (trained, evaluated) = settings.spec()?.trained_and_evaluated();
    let (manifest, trained) = tokio::select! {
        biased;
        () = shutdown.wait() => return Ok(()),
        scanned = data_set::scan(trained, evaluated) => scanned?,
    };
    let settings::Fresh { document: mut fresh, policy } = settings.fresh(&manifest, trained)?;
    let records = manifest.record_count();
    let (files, bytes) = manifest.files_of(&(0..records));
    tracing::info!(job = %fresh.job.job, files, records, chunks = manifest.chunk_count(), bytes, "data set pinned");
    let store = store::open(&settings.store(), &security)?;
    let file = settings.spec()?.warm_start.as_deref().map(warm_start::located).transpose()?;
    fresh.job.warm_start = warm_start::pinned(file, store.as_ref()).await?;
    let mut random = Random::from_os();
    let limits = Limits::default();
    let listener = rpc::listen_secured(settings.listen, &security).await?;
    let pages = http::listen(settings.http).await?;
    let address = listener.local_addr().context("the listener has no address")?;
    telemetry::identify(&settings.job, &address.to_string());
    tracing::info!(%address, "master listens");
    ready(address);
    let place = settings.checkpoints()?;
    let storage = Storage::open(&place).await.context("--checkpoints")?;
    let service = service::MasterService::new();
    let keeper = keeper::Keeper {
        store: store.as_ref(),
        dial: &TcpDial { limits, security: security.clone() },
        identity: format!("{address} process {} {:016x}", std::process::id(), random.bits()),
        manifest,
        fresh,
        storage: &storage,
        place,
        policy,
    };
    let server = MasterServer::new(service.clone())
        .max_decoding_message_size(limits.message_bytes)
        .max_encoding_message_size(limits.message_bytes);
    let watched = metrics::Watched { service: &service, store: store.as_ref(), security: &security };
    tokio::select! {
        biased;
        served = rpc::serve(listener, tonic::service::Routes::new(server), limits, security.clone(), shutdown) => {
            served.context("serving failed")?;
            linger::stopped(&service, settings.linger())
        }
        error = keeper.keep(&service, &mut random) => Err(error).with_context(|| format!("store {}", settings.store())),
        over = linger::over(&service, settings.linger()) => over,
        never = http::serve(pages, &watched) => match never {},
    }
}
