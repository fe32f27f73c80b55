//! The master: pins the data set, plans epochs, leases tasks, keeps membership and routing.
//!
//! The state machine is [`machine::Machine`] and the pure parts below it; [`service`] is the thin shell that gives
//! it time and carries its answers. Nothing here touches a gradient.

#![forbid(unsafe_code)]

pub mod data_set;
pub mod free_nodes;
pub mod lease;
pub mod machine;
pub mod members;
pub mod placement;
pub mod reports;
pub mod service;
pub mod settings;
mod status;

use anyhow::Context;
use shoal_runtime::host::rpc::{self, Limits};
use shoal_runtime::host::shutdown::Shutdown;
use shoal_runtime::wire::proto::master_server::MasterServer;

/// Runs a master until `shutdown`. Prints nothing; `ready` is called once with the address it listens on.
///
/// # Errors
/// An unreadable data set, an address that cannot be bound, settings that make no job.
pub async fn run(
    settings: settings::MasterSettings,
    ready: impl FnOnce(std::net::SocketAddr),
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let manifest = data_set::scan(&settings.data)?;
    let job = settings.job_settings(&manifest)?;
    tracing::info!(
        job = %job.job, records = manifest.record_count(), chunks = manifest.chunk_count(), "data set pinned"
    );
    let machine = machine::Machine::new(job, manifest, settings.wanted(), 1);
    let service = service::MasterService::new(machine);
    let listener = rpc::listen(settings.listen).await?;
    let address = listener.local_addr().context("the listener has no address")?;
    tracing::info!(%address, "master listens");
    ready(address);
    let limits = Limits::default();
    let server = MasterServer::new(service)
        .max_decoding_message_size(limits.message_bytes)
        .max_encoding_message_size(limits.message_bytes);
    rpc::serve(listener, tonic::service::Routes::new(server), limits, shutdown)
        .await
        .context("serving failed")
}
