//! Being reached: a listener, the limits, and a clean end.

use super::Limits;
use crate::host::shutdown::Shutdown;
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tonic::service::Routes;

/// Binds `address`; the error names it. Port 0 lets the system choose.
pub async fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .map_err(|error| std::io::Error::new(error.kind(), format!("cannot listen on {address}: {error}")))
}

/// Serves `routes` on `listener` until `shutdown`. Calls in flight are given a second to finish.
pub async fn serve(
    listener: TcpListener,
    routes: Routes,
    limits: Limits,
    mut shutdown: Shutdown,
) -> Result<(), tonic::transport::Error> {
    let incoming = tonic::transport::server::TcpIncoming::from(listener).with_nodelay(Some(true));
    let mut patience = shutdown.clone();
    let server = tonic::transport::Server::builder()
        .max_frame_size(limits.frame_bytes)
        .initial_stream_window_size(limits.stream_window_bytes)
        .initial_connection_window_size(limits.connection_window_bytes)
        .max_concurrent_streams(limits.calls_per_connection)
        .http2_max_header_list_size(64 << 10)
        .http2_keepalive_interval(Some(limits.keepalive))
        .http2_keepalive_timeout(Some(limits.keepalive))
        .timeout(limits.call)
        .add_routes(routes)
        .serve_with_incoming_shutdown(incoming, async move { shutdown.wait().await });
    tokio::select! {
        biased;
        served = server => served,
        () = async {
            patience.wait().await;
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        } => Ok(()),
    }
}
