//! Being reached: a listener, the handshakes, the limits, and a clean end.

use super::capacity::{Capacity, Metered};
use super::same_host::Listeners;
use super::tls::{Admission, Security, secured};
use super::{Limits, answering};
use crate::host::shutdown::Shutdown;
use crate::wire::WireVersion;
use futures_util::stream::Stream;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tonic::service::Routes;
use tower::layer::layer_fn;

/// After a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Binds `address`; the error names it. Port 0 lets the system choose.
pub async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .map_err(|error| io::Error::new(error.kind(), format!("cannot listen on {address}: {error}")))
}

/// Binds `address` if what is said there is secured, or stays on this machine, or nobody minds.
///
/// # Errors
/// It is not; or as [`listen`].
pub async fn listen_secured(address: SocketAddr, security: &Security) -> io::Result<TcpListener> {
    security.check_address(address).map_err(io::Error::other)?;
    listen(address).await
}

/// Serves `routes` on `listener`, and to processes of this host beside it, until `shutdown`. Calls in flight are given a second to finish.
pub async fn serve(
    listener: TcpListener,
    routes: Routes,
    limits: Limits,
    security: Security,
    shutdown: Shutdown,
) -> Result<(), tonic::transport::Error> {
    let incoming = futures_util::stream::unfold(Listeners::beside(listener), |listeners| async move {
        let accepted = listeners.accept().await;
        if let Err(error) = &accepted {
            // Most likely no file handle is free; asking at once would take a whole core.
            tracing::warn!(%error, "a connection could not be accepted");
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
        Some((accepted, listeners))
    });
    serve_on(incoming, routes, limits, security, shutdown).await
}

/// The same over any streams of bytes, each with the address it comes from.
pub async fn serve_on<S>(
    incoming: impl Stream<Item = io::Result<(S, SocketAddr)>> + Send,
    routes: Routes,
    limits: Limits,
    security: Security,
    mut shutdown: Shutdown,
) -> Result<(), tonic::transport::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut patience = shutdown.clone();
    // Without certificates there is nobody to be asked anew.
    let age = matches!(security, Security::Tls(_)).then_some(limits.connection_age);
    let incoming = secured(Box::pin(incoming), security, Capacity::new(limits));
    let builder = tonic::transport::Server::builder();
    let builder = match age {
        Some(age) => builder.max_connection_age(age),
        None => builder,
    };
    let server = builder
        .max_frame_size(limits.frame_bytes)
        .initial_stream_window_size(limits.stream_window_bytes)
        .initial_connection_window_size(limits.connection_window_bytes)
        .max_concurrent_streams(limits.calls_per_connection)
        .http2_max_header_list_size(64 << 10)
        .http2_keepalive_interval(Some(limits.keepalive))
        .http2_keepalive_timeout(Some(limits.keepalive))
        .timeout(limits.call)
        .layer(layer_fn(Metered))
        // Outside of admission: who is refused for want of trust learns the version too.
        .layer(layer_fn(|service| answering(service, WireVersion::PRESENT)))
        .layer(layer_fn(Admission))
        .add_routes(routes)
        .serve_with_incoming_shutdown(incoming, async move { shutdown.wait().await });
    tokio::select! {
        biased;
        served = server => served,
        () = async {
            patience.wait().await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        } => Ok(()),
    }
}
