//! Reaching another role.

use super::Limits;
use crate::wire::proto::{master_client::MasterClient, pserver_client::PserverClient};
use std::pin::Pin;
use std::time::Duration;
use tonic::body::Body;
use tower::util::BoxCloneSyncService;

/// What carries calls to one address. Clones share the connection.
pub type Channel =
    BoxCloneSyncService<http::Request<Body>, http::Response<Body>, Box<dyn std::error::Error + Send + Sync>>;

/// Turns addresses into channels. Must not wait: the connection comes about at the first call, and again after a loss.
pub trait Dial: Send + Sync {
    /// A channel to `address` (`host:port`); an error names what is wrong with the address.
    fn dial(&self, address: &str) -> Result<Channel, String>;

    /// Whether it is certain that nobody listens at `address`. False also where that cannot be told in a short time.
    fn is_gone<'a>(&'a self, _address: &'a str) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>> {
        Box::pin(std::future::ready(false))
    }
}

/// How long a probe may take.
const PROBE: Duration = Duration::from_millis(250);

/// HTTP/2 over TCP.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpDial {
    /// Limits of every connection.
    pub limits: Limits,
}

impl Dial for TcpDial {
    fn dial(&self, address: &str) -> Result<Channel, String> {
        let limits = self.limits;
        let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}"))
            .map_err(|error| format!("{address:?} is no address (host:port): {error}"))?
            .connect_timeout(limits.connect)
            .timeout(limits.call)
            .tcp_nodelay(true)
            .initial_stream_window_size(limits.stream_window_bytes)
            .initial_connection_window_size(limits.connection_window_bytes)
            .http2_max_header_list_size(64 << 10)
            .http2_keep_alive_interval(limits.keepalive)
            .keep_alive_timeout(limits.keepalive);
        let lazy = endpoint.connect_lazy();
        Ok(BoxCloneSyncService::new(tower::ServiceExt::map_err(lazy, Into::into)))
    }

    fn is_gone<'a>(&'a self, address: &'a str) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>> {
        Box::pin(async move {
            let connected = tokio::time::timeout(PROBE, tokio::net::TcpStream::connect(address)).await;
            // The host is there, and nothing listens: the process has ended.
            matches!(connected, Ok(Err(error)) if error.kind() == std::io::ErrorKind::ConnectionRefused)
        })
    }
}

/// A client of the master at `address`.
pub fn master_client(dial: &dyn Dial, address: &str) -> Result<MasterClient<Channel>, String> {
    let bytes = Limits::default().message_bytes;
    Ok(MasterClient::new(dial.dial(address)?)
        .max_decoding_message_size(bytes)
        .max_encoding_message_size(bytes))
}

/// A client of the pserver at `address`.
pub fn pserver_client(dial: &dyn Dial, address: &str) -> Result<PserverClient<Channel>, String> {
    let bytes = Limits::default().message_bytes;
    Ok(PserverClient::new(dial.dial(address)?)
        .max_decoding_message_size(bytes)
        .max_encoding_message_size(bytes))
}
