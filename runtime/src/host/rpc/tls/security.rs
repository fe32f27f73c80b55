//! How connections are secured: by credentials, or not at all, and then on this machine only unless asked for by name.

use super::connection::Connection;
use super::credentials::{Credentials, Present};
use super::files::PemSet;
use super::identity::{Identity, Role, Validity};
use super::untrusted::{Reason, Untrusted};
use crate::host::clock::wall_seconds;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

/// How a process speaks with others.
#[derive(Clone, Debug, Default)]
pub enum Security {
    /// In plaintext, with this machine only.
    #[default]
    Loopback,
    /// In plaintext, with everybody: asked for by name.
    Plaintext,
    /// Over TLS, with those who have a certificate of the same job.
    Tls(Arc<Credentials>),
}

/// Why a handshake brought no connection about.
#[derive(Debug)]
pub enum Unsecured {
    /// For want of trust.
    Untrusted(Reason),
    /// The network failed, or the other end went away.
    Io(io::Error),
}

/// How long a peer that was refused may take to hear it.
const LINGER: Duration = Duration::from_millis(250);

#[derive(Debug)]
struct WallClock;

impl TimeProvider for WallClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(wall_seconds())))
    }
}

impl Security {
    /// As the flags `--tls` and `--plaintext` say, for a process that is `role`; none where any will do.
    ///
    /// # Errors
    /// Both flags, files that cannot be used, a certificate for another role.
    pub fn open(tls: Option<&Path>, plaintext: bool, role: Option<Role>) -> Result<Security, String> {
        let folder = match (tls, plaintext) {
            (None, false) => return Ok(Security::Loopback),
            (None, true) => return Ok(Security::Plaintext),
            (Some(_), true) => {
                return Err("--tls and --plaintext contradict one another: give one".to_owned());
            }
            (Some(folder), false) => folder,
        };
        let credentials =
            Credentials::open(folder, Arc::new(WallClock)).map_err(|why| format!("--tls: {why}"))?;
        let identity = credentials.identity();
        if let Some(role) = role.filter(|role| *role != identity.role) {
            let folder = folder.display();
            return Err(format!(
                "--tls: the certificate in {folder} is for {identity}, and this is a {role}: issue one with --role {role}"
            ));
        }
        Ok(Security::Tls(Arc::new(credentials)))
    }

    /// By credentials that are held in memory: of whoever has an authority, or was given them in another way than by a folder.
    ///
    /// # Errors
    /// They cannot be used.
    pub fn in_memory(pem: &PemSet) -> Result<Security, String> {
        Ok(Security::Tls(Arc::new(Credentials::in_memory(pem, Arc::new(WallClock))?)))
    }

    /// Whether a process that is of `job` has the certificate for it.
    ///
    /// # Errors
    /// The certificate names another job.
    pub fn check_job(&self, job: &str) -> Result<(), String> {
        match self.identity() {
            Some(identity) if identity.job != job => Err(format!(
                "--tls: the certificate is for {identity}, and this is job {job:?}: issue one with --job {job:?}"
            )),
            _ => Ok(()),
        }
    }

    /// Whom our certificate is for, if there is one.
    pub fn identity(&self) -> Option<Identity> {
        match self {
            Security::Tls(credentials) => Some(credentials.identity()),
            _ => None,
        }
    }

    /// When our certificate counts, if there is one.
    pub fn validity(&self) -> Option<Validity> {
        match self {
            Security::Tls(credentials) => Some(credentials.validity()),
            _ => None,
        }
    }

    /// Whether what is said to `address` stays on this machine, or is secured, or nobody minds.
    ///
    /// # Errors
    /// It is not.
    pub fn check_address(&self, address: SocketAddr) -> Result<(), Untrusted> {
        match self {
            Security::Loopback if !address.ip().to_canonical().is_loopback() => {
                Err(Untrusted { peer: address.to_string(), reason: Reason::Plaintext })
            }
            _ => Ok(()),
        }
    }

    /// Secures a connection that somebody has made to us.
    pub(super) async fn accept<S>(&self, stream: S) -> Result<Connection<S>, Unsecured>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let Security::Tls(credentials) = self else { return Ok(Connection::plain(stream, None)) };
        let present = credentials.present();
        let accepting = TlsAcceptor::from(Arc::clone(&present.server)).accept(stream);
        let stream = match accepting.into_fallible().await {
            Ok(stream) => stream,
            Err((error, stream)) => {
                let why = unsecured(error);
                if matches!(why, Unsecured::Untrusted(_)) {
                    linger(stream).await;
                }
                return Err(why);
            }
        };
        met(credentials, &present, stream.into())
    }

    /// Secures a connection that we have made to one who should be of `role`, if that is known. Without TLS, `speaks_tls` is set if the
    /// other end does.
    pub(in crate::host::rpc) async fn connect<S>(
        &self,
        stream: S,
        role: Option<Role>,
        speaks_tls: Arc<AtomicBool>,
    ) -> Result<Connection<S>, Unsecured>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let Security::Tls(credentials) = self else { return Ok(Connection::plain(stream, Some(speaks_tls))) };
        let present = credentials.present();
        if present.validity.until < credentials.now() {
            let what = "it has expired: issue a new one into the same folder (`shoal certs issue`)";
            return Err(Unsecured::Untrusted(Reason::Own(what.to_owned())));
        }
        // Nobody looks at this name: neither end is known by it.
        let name = ServerName::from(std::net::IpAddr::from([127, 0, 0, 1]));
        let connector = TlsConnector::from(Arc::clone(&present.client));
        let mut stream = connector.connect(name, stream).await.map_err(unsecured)?;
        // In TLS 1.3 a client is done before the server has looked at its certificate. The server speaks first in
        // HTTP/2, so its first byte, or its refusal, is here before we have sent a call that could get lost with it.
        if stream.fill_buf().await.map_err(unsecured)?.is_empty() {
            return Err(Unsecured::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        let connection = met(credentials, &present, stream.into())?;
        match (&connection.peer().identity, role) {
            (Some(theirs), Some(expected)) if theirs.role != expected => {
                Err(Unsecured::Untrusted(Reason::OtherRole { theirs: theirs.clone(), expected }))
            }
            _ => Ok(connection),
        }
    }
}

/// A connection whose handshake is done: the peer as its certificate names it, and the time that both leave.
fn met<S>(
    credentials: &Credentials,
    present: &Present,
    stream: TlsStream<S>,
) -> Result<Connection<S>, Unsecured> {
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[CertificateDer<'_>]>::first);
    let certificate = certificate.ok_or(Unsecured::Untrusted(Reason::NoCertificate))?;
    let (peer, validity) =
        Identity::of_certificate(certificate).map_err(|why| Unsecured::Untrusted(Reason::NoIdentity(why)))?;
    let until = validity.until.min(present.validity.until);
    // The last second counts.
    let lasts = (until + 1).saturating_sub(credentials.now());
    Ok(Connection::tls(stream, peer, Duration::from_secs(lasts)))
}

/// Lets a peer that was refused hear why: closed with unread bytes, TCP would take the refusal back.
async fn linger(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let draining = async {
        let _ = stream.shutdown().await;
        let mut bytes = [0; 4096];
        for _ in 0..16 {
            if !matches!(stream.read(&mut bytes).await, Ok(1..)) {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(LINGER, draining).await;
}

fn unsecured(error: io::Error) -> Unsecured {
    match Reason::of_io(&error) {
        Some(reason) => Unsecured::Untrusted(reason),
        None => Unsecured::Io(error),
    }
}
