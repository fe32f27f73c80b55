//! Reaching a server that is no role of a job, over TLS: by its host's name.

use super::renewing::renewing;
use super::tls::{NamedCredentials, Role};
use super::{BoxError, Channel, Dial, Limits};
use hyper_util::rt::TokioIo;
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpStream;
use tower::util::BoxCloneSyncService;

/// HTTP/2 over TLS, with credentials from a folder.
#[derive(Clone, Debug)]
pub struct NamedDial(Arc<NamedCredentials>);

impl NamedDial {
    /// By the credentials in `folder`: authorities, a client's certificate and its key.
    ///
    /// # Errors
    /// What is wrong with which file.
    pub fn open(folder: &Path) -> Result<NamedDial, String> {
        NamedCredentials::open(folder).map(|credentials| NamedDial(Arc::new(credentials)))
    }
}

impl Dial for NamedDial {
    fn dial(&self, address: &str, _: Option<Role>) -> Result<Channel, String> {
        let wrong = || format!("{address:?} is no address (host:port)");
        let (host, _) = address.rsplit_once(':').ok_or_else(wrong)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let limits = Limits::default();
        // The scheme names what tonic itself would do: here the connector does it.
        let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}"))
            .map_err(|error| format!("{}: {error}", wrong()))?
            .connect_timeout(limits.connect)
            .timeout(limits.call)
            .http2_keep_alive_interval(limits.keepalive)
            .keep_alive_timeout(limits.keepalive);
        let (credentials, peer) = (Arc::clone(&self.0), address.to_owned());
        Ok(renewing(move || {
            let (credentials, host, peer) = (Arc::clone(&credentials), host.clone(), peer.clone());
            let connector = tower::service_fn(move |_: http::Uri| {
                let (credentials, host, peer) = (Arc::clone(&credentials), host.clone(), peer.clone());
                async move {
                    let stream = TcpStream::connect(&peer).await?;
                    stream.set_nodelay(true)?;
                    Ok::<_, BoxError>(TokioIo::new(credentials.connect(stream, &host).await?))
                }
            });
            let lazy = endpoint.connect_with_connector_lazy(connector);
            BoxCloneSyncService::new(tower::ServiceExt::map_err(lazy, BoxError::from))
        }))
    }
}
