//! A role's credentials: files that are looked at again when a connection is made, so that they may be changed while it
//! runs. A set that cannot be used never takes the place of one that can.

use super::files::{self, Files, PemSet, Stamp};
use super::identity::{Identity, Validity};
use super::untrusted::Reason;
use super::verify::Verifier;
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::NoServerSessionStorage;
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Files are looked at no more often than this.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// One set of credentials, in use.
#[derive(Clone)]
pub(crate) struct Present {
    pub(super) identity: Identity,
    pub(super) validity: Validity,
    pub(super) server: Arc<ServerConfig>,
    pub(super) client: Arc<ClientConfig>,
}

/// The credentials in a folder, or such as whoever has an authority holds in memory.
pub struct Credentials {
    /// None for those in memory.
    folder: Option<PathBuf>,
    clock: Arc<dyn TimeProvider>,
    state: Mutex<State>,
}

struct State {
    present: Present,
    /// The files that `present` was read from; none for those in memory.
    stamp: Option<Stamp>,
    looked: Instant,
    /// What was complained of last: the same is not said twice.
    complaint: String,
    is_end_told: bool,
}

impl Credentials {
    /// Reads the credentials in `folder`, which must be good at present by `clock`.
    ///
    /// # Errors
    /// What is wrong with which file.
    pub fn open(folder: &Path, clock: Arc<dyn TimeProvider>) -> Result<Credentials, String> {
        let stamp = files::stamp(folder)?;
        let present = Present::read(folder, &clock)?;
        if files::is_key_open(folder) {
            tracing::warn!(folder = %folder.display(), "everybody on this machine may read the private key: chmod 600");
        }
        let Identity { job, role } = &present.identity;
        tracing::info!(job, %role, valid_until = present.validity.until, folder = %folder.display(), "credentials");
        let (looked, complaint) = (Instant::now(), String::new());
        let state = Mutex::new(State { present, stamp: Some(stamp), looked, complaint, is_end_told: false });
        let credentials = Credentials { folder: Some(folder.to_owned()), clock, state };
        credentials.present();
        Ok(credentials)
    }

    /// Those that are held in memory; they must be good at present by `clock`.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn in_memory(pem: &PemSet, clock: Arc<dyn TimeProvider>) -> Result<Credentials, String> {
        let present = Present::of(files::parse(pem)?, &clock, &|what| what)?;
        let (looked, complaint) = (Instant::now(), String::new());
        let state = Mutex::new(State { present, stamp: None, looked, complaint, is_end_told: false });
        Ok(Credentials { folder: None, clock, state })
    }

    /// Takes others in the place of those in memory, for connections that are made from now on.
    ///
    /// # Errors
    /// They cannot be used, or are for somebody else: those before stay in use.
    pub fn replace(&self, pem: &PemSet) -> Result<(), String> {
        let next = Present::of(files::parse(pem)?, &self.clock, &|what| what)?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if next.identity != state.present.identity {
            return Err(format!(
                "they are for {}, and those before for {}",
                next.identity, state.present.identity
            ));
        }
        (state.present, state.is_end_told) = (next, false);
        Ok(())
    }

    /// Whom the certificate is for. It stays, whatever files come: one process is one role of one job.
    pub fn identity(&self) -> Identity {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).present.identity.clone()
    }

    /// When the certificate counts.
    pub fn validity(&self) -> Validity {
        self.present().validity
    }

    /// Seconds since 1970, by the clock that certificates are held against.
    pub(super) fn now(&self) -> u64 {
        self.clock.current_time().map_or(0, |now| now.as_secs())
    }

    /// What a connection that is made now uses: the newest files, if they can be used.
    pub(crate) fn present(&self) -> Present {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(folder) = &self.folder {
            if state.looked.elapsed() >= LOOK_EVERY {
                state.looked = Instant::now();
                self.look(folder, &mut state);
            }
            self.tell_of_the_end(folder, &mut state);
        }
        state.present.clone()
    }

    fn look(&self, folder: &Path, state: &mut State) {
        let stamp = match files::stamp(folder) {
            Ok(stamp) if state.stamp.as_ref() == Some(&stamp) => {
                state.complaint.clear();
                return;
            }
            Ok(stamp) => stamp,
            Err(why) => return complain(folder, state, why),
        };
        let next = Present::read(folder, &self.clock);
        // Who writes while we read will have been heard at the next look.
        if files::stamp(folder).as_ref() != Ok(&stamp) {
            return;
        }
        match next {
            Err(why) => complain(folder, state, why),
            Ok(next) if next.identity != state.present.identity => {
                let (next, ours) = (next.identity, &state.present.identity);
                let why = format!("the new certificate is for {next}, and this process is {ours}");
                complain(folder, state, why);
            }
            Ok(next) => {
                tracing::info!(folder = %folder.display(), valid_until = next.validity.until, "new credentials are in use");
                *state = State {
                    present: next,
                    stamp: Some(stamp),
                    looked: state.looked,
                    complaint: String::new(),
                    is_end_told: false,
                };
            }
        }
    }

    /// Warns once when less than a quarter of the certificate's life is left.
    fn tell_of_the_end(&self, folder: &Path, state: &mut State) {
        let Validity { from, until } = state.present.validity;
        let left = until.saturating_sub(self.now());
        if left < until.saturating_sub(from) / 4 && !std::mem::replace(&mut state.is_end_told, true) {
            tracing::warn!(folder = %folder.display(), seconds_left = left, "the certificate expires soon: issue a new one into the same folder");
        }
    }
}

fn complain(folder: &Path, state: &mut State, why: String) {
    if state.complaint != why {
        tracing::error!(folder = %folder.display(), why, "the new credentials cannot be used: the old ones stay in use");
        state.complaint = why;
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl Present {
    /// Reads a set of files. It must be whole: the key the certificate's, the certificate good by its own authorities
    /// and by the clock.
    fn read(folder: &Path, clock: &Arc<dyn TimeProvider>) -> Result<Present, String> {
        Present::of(files::read(folder)?, clock, &|what| format!("{}: {what}", folder.display()))
    }

    /// The same of a set that was read; `at` says of what a fault is.
    fn of(
        files: Files,
        clock: &Arc<dyn TimeProvider>,
        at: &dyn Fn(String) -> String,
    ) -> Result<Present, String> {
        let [certificate, intermediates @ ..] = files.chain.as_slice() else {
            return Err(at("no certificate".to_owned()));
        };
        let (identity, validity) =
            Identity::of_certificate(certificate).map_err(|why| at(Reason::NoIdentity(why).to_string()))?;
        let mut roots = RootCertStore::empty();
        for authority in files.authorities {
            roots.add(authority).map_err(|error| at(format!("an authority cannot be used: {error}")))?;
        }
        let provider = Arc::new(ring::default_provider());
        let verifier = Arc::new(Verifier::new(roots, Arc::clone(&provider), &identity.job).map_err(at)?);
        let now = clock.current_time().ok_or_else(|| at("there is no clock".to_owned()))?;
        verifier.check_chain(certificate, intermediates, now).map_err(|error| at(own(&error)))?;
        let key = CertifiedKey::from_der(files.chain.clone(), files.key, &provider)
            .map_err(|_| at("key and certificate are not of one another".to_owned()))?;
        let resolver = Arc::new(rustls::sign::SingleCertAndKey::from(key));
        let (server, client) =
            configured(&provider, clock, verifier, resolver).map_err(|error| at(error.to_string()))?;
        Ok(Present { identity, validity, server: Arc::new(server), client: Arc::new(client) })
    }
}

fn configured(
    provider: &Arc<CryptoProvider>,
    clock: &Arc<dyn TimeProvider>,
    verifier: Arc<Verifier>,
    resolver: Arc<rustls::sign::SingleCertAndKey>,
) -> Result<(ServerConfig, ClientConfig), rustls::Error> {
    let versions = &[&rustls::version::TLS13];
    let mut server = ServerConfig::builder_with_details(Arc::clone(provider), Arc::clone(clock))
        .with_protocol_versions(versions)?
        .with_client_cert_verifier(Arc::clone(&verifier) as _)
        .with_cert_resolver(Arc::clone(&resolver) as _);
    // A resumed session would not look at the certificate again: every connection shows it anew.
    server.send_tls13_tickets = 0;
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.alpn_protocols = vec![b"h2".to_vec()];
    let mut client = ClientConfig::builder_with_details(Arc::clone(provider), Arc::clone(clock))
        .with_protocol_versions(versions)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_cert_resolver(resolver);
    client.resumption = Resumption::disabled();
    client.enable_sni = false;
    client.alpn_protocols = vec![b"h2".to_vec()];
    Ok((server, client))
}

/// Whom the certificate in `folder` is for, and when it counts, whether or not it can be used.
///
/// # Errors
/// What is wrong with which file.
pub fn described(folder: &Path) -> Result<(Identity, Validity), String> {
    let files = files::read(folder)?;
    let certificate = files.chain.first().map(AsRef::as_ref).unwrap_or_default();
    Identity::of_certificate(certificate)
        .map_err(|why| format!("{}: {}", folder.display(), Reason::NoIdentity(why)))
}

/// What is wrong with a certificate of our own.
fn own(error: &rustls::Error) -> String {
    match Reason::of(error) {
        Reason::Expired => "the certificate has expired: issue a new one (`shoal certs issue`)".to_owned(),
        Reason::NotYetValid => "the certificate is not valid yet: compare the clocks".to_owned(),
        Reason::Foreign => "none of the authorities in ca.pem has signed cert.pem".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
impl Credentials {
    /// Shows and believes what a test wants.
    pub(super) fn use_for_tests(&self, present: Present) {
        self.state.lock().unwrap().present = present;
    }

    /// Still shows its own certificate, and believes those of another job and authority.
    pub(super) fn believe_job_for_tests(&self, job: &str, authority: &Path) {
        use rustls::pki_types::{CertificateDer, pem::PemObject};
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
        let verifier = Verifier::new(roots, Arc::new(ring::default_provider()), job).unwrap();
        let mut state = self.state.lock().unwrap();
        let mut client = (*state.present.client).clone();
        client.dangerous().set_certificate_verifier(Arc::new(verifier));
        state.present.client = Arc::new(client);
    }
}
