//! Reaching another role.

use super::renewing::renewing;
use super::same_host::{self, ByteStream};
use super::tls::{Reason, Role, Security, Unsecured, Untrusted};
use super::{Limits, PserverClient, asking};
use crate::wire::proto::master_client::MasterClient;
use crate::wire::{Fault, WireVersion, causes};
use hyper_util::rt::TokioIo;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_util::either::Either;
use tonic::body::Body;
use tower::util::BoxCloneSyncService;

/// What carries calls to one address. Clones share the connection.
pub type Channel = BoxCloneSyncService<http::Request<Body>, http::Response<Body>, BoxError>;

pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Turns addresses into channels. Must not wait: the connection comes about at the first call, and again after a loss.
pub trait Dial: Send + Sync {
    /// A channel to `address` (`host:port`). With a role, only one who has its certificate may answer; where nobody has
    /// any, a role changes nothing.
    ///
    /// # Errors
    /// What is wrong with the address.
    fn dial(&self, address: &str, role: Option<Role>) -> Result<Channel, String>;

    /// Whether it is certain that nobody listens at `address`. False also where that cannot be told in a short time.
    fn is_gone<'a>(&'a self, _address: &'a str) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>> {
        Box::pin(std::future::ready(false))
    }
}

/// How long a probe may take.
const PROBE: Duration = Duration::from_millis(250);

/// HTTP/2 over TCP, over TLS where there are credentials. Who listens on this host is reached by a Unix socket.
#[derive(Clone, Debug, Default)]
pub struct TcpDial {
    /// Limits of every connection.
    pub limits: Limits,
    /// How connections are secured.
    pub security: Security,
}

impl Dial for TcpDial {
    fn dial(&self, address: &str, role: Option<Role>) -> Result<Channel, String> {
        if let Ok(literal) = address.parse() {
            self.security.check_address(literal).map_err(|untrusted| untrusted.to_string())?;
        }
        let security = self.security.clone();
        let open = move |address: String| connected(address, security.clone());
        dial_on(address, role, self.limits, &self.security, open)
    }

    fn is_gone<'a>(&'a self, address: &'a str) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>> {
        Box::pin(async move {
            let connected = tokio::time::timeout(PROBE, TcpStream::connect(address)).await;
            // The host is there, and nothing listens: the process has ended.
            matches!(connected, Ok(Err(error)) if error.kind() == std::io::ErrorKind::ConnectionRefused)
        })
    }
}

/// A connection to a name or an address, if it may be made. A name is looked up each time: pods move.
async fn connected(address: String, security: Security) -> Result<ByteStream, BoxError> {
    let mut last: BoxError = format!("{address}: the name leads to no address").into();
    for found in tokio::net::lookup_host(&address).await? {
        security
            .check_address(found)
            .map_err(|untrusted| Untrusted { peer: address.clone(), ..untrusted })?;
        if let Some(stream) = same_host::connect(found).await {
            return Ok(Either::Right(stream));
        }
        match TcpStream::connect(found).await {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(Either::Left(stream));
            }
            Err(error) => last = error.into(),
        }
    }
    Err(last)
}

/// A channel to `address` over whatever streams `open` makes, secured as `security` says. With a role, who answers must
/// be of that role; without one nothing is asked of a peer but its job.
///
/// # Errors
/// What is wrong with the address.
pub fn dial_on<S, F>(
    address: &str,
    role: Option<Role>,
    limits: Limits,
    security: &Security,
    open: impl Fn(String) -> F + Clone + Send + Sync + 'static,
) -> Result<Channel, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = Result<S, BoxError>> + Send + 'static,
{
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}"))
        .map_err(|error| format!("{address:?} is no address (host:port): {error}"))?
        .connect_timeout(limits.connect)
        .timeout(limits.call)
        .max_frame_size(limits.frame_bytes)
        .initial_stream_window_size(limits.stream_window_bytes)
        .initial_connection_window_size(limits.connection_window_bytes)
        .http2_max_header_list_size(64 << 10)
        .http2_keep_alive_interval(limits.keepalive)
        .keep_alive_timeout(limits.keepalive);
    let (peer, security) = (address.to_owned(), security.clone());
    Ok(renewing(move || {
        let speaks_tls = Arc::new(AtomicBool::new(false));
        let (security, heard) = (security.clone(), Arc::clone(&speaks_tls));
        let (called, open) = (peer.clone(), open.clone());
        let connector = tower::service_fn(move |_: http::Uri| {
            let (peer, security, heard) = (called.clone(), security.clone(), Arc::clone(&heard));
            let opening = open(peer.clone());
            async move {
                let stream = opening.await?;
                match security.connect(stream, role, heard).await {
                    Ok(connection) => Ok(TokioIo::new(connection)),
                    Err(Unsecured::Untrusted(reason)) => Err(BoxError::from(Untrusted { peer, reason })),
                    Err(Unsecured::Io(error)) => Err(error.into()),
                }
            }
        });
        let lazy = endpoint.connect_with_connector_lazy(connector);
        let peer = peer.clone();
        let typed = move |error: tonic::transport::Error| typed(error.into(), &peer, &speaks_tls);
        BoxCloneSyncService::new(tower::ServiceExt::map_err(lazy, typed))
    }))
}

/// A failure for want of trust as the status that says so; any other as it is.
fn typed(error: BoxError, peer: &str, speaks_tls: &AtomicBool) -> BoxError {
    if speaks_tls.swap(false, Relaxed) {
        let untrusted = Untrusted { peer: peer.to_owned(), reason: Reason::SpeaksTls };
        return tonic::Status::from(Fault::from(&untrusted)).into();
    }
    let untrusted = causes(&*error).find_map(|cause| cause.downcast_ref::<Untrusted>());
    match untrusted.map(Fault::from) {
        Some(fault) => tonic::Status::from(fault).into(),
        None => error,
    }
}

/// A client of the master at `address`.
pub fn master_client(dial: &dyn Dial, address: &str) -> Result<MasterClient<Channel>, String> {
    let bytes = Limits::default().message_bytes;
    Ok(MasterClient::new(asking(dial.dial(address, Some(Role::Master))?, WireVersion::PRESENT))
        .max_decoding_message_size(bytes)
        .max_encoding_message_size(bytes))
}

/// A client of the pserver at `address`.
pub fn pserver_client(dial: &dyn Dial, address: &str) -> Result<PserverClient, String> {
    let channel = asking(dial.dial(address, Some(Role::Pserver))?, WireVersion::PRESENT);
    Ok(PserverClient::new(channel, Limits::default().message_bytes))
}
