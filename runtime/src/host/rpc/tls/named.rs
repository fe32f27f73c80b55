//! TLS with a server that is no role of a job, such as an etcd: known by its host's name and by an authority of its own, and shown a
//! client's certificate. The files may be changed while the process runs.

use super::files::{self, Stamp};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The credentials in a folder: `ca.pem`, `cert.pem` and `key.pem`, or the names that secrets have.
#[derive(Debug)]
pub(in crate::host::rpc) struct NamedCredentials {
    folder: PathBuf,
    present: Mutex<(Stamp, Arc<ClientConfig>)>,
}

impl NamedCredentials {
    /// Reads them.
    ///
    /// # Errors
    /// What is wrong with which file.
    pub(in crate::host::rpc) fn open(folder: &Path) -> Result<NamedCredentials, String> {
        let stamp = files::stamp(folder)?;
        let present = Mutex::new((stamp, Arc::new(read(folder)?)));
        Ok(NamedCredentials { folder: folder.to_owned(), present })
    }

    /// Secures a connection to a host of that name.
    pub(in crate::host::rpc) async fn connect<S>(&self, stream: S, host: &str) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("{host:?} is no name of a host"))
        })?;
        TlsConnector::from(self.config()).connect(name, stream).await
    }

    /// The newest files, if they can be used.
    fn config(&self) -> Arc<ClientConfig> {
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = files::stamp(&self.folder);
        if let Ok(stamp) = stamp
            && stamp != present.0
        {
            match read(&self.folder) {
                Ok(config) => *present = (stamp, Arc::new(config)),
                Err(why) => {
                    tracing::error!(why, "the new credentials cannot be used: the old ones stay in use");
                }
            }
        }
        Arc::clone(&present.1)
    }
}

fn read(folder: &Path) -> Result<ClientConfig, String> {
    let at = |what: String| format!("{}: {what}", folder.display());
    let files = files::read(folder)?;
    let mut roots = RootCertStore::empty();
    for authority in files.authorities {
        roots.add(authority).map_err(|error| at(format!("an authority cannot be used: {error}")))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| at(error.to_string()))?
        .with_root_certificates(roots)
        .with_client_auth_cert(files.chain, files.key);
    let mut config = config.map_err(|_| at("key and certificate are not of one another".to_owned()))?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}
