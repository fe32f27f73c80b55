//! Certificates over streams in memory: who is let in, who is refused, and in which words. The clock is the test's.

mod files;
mod handshakes;

use super::credentials::Credentials;
use super::*;
use crate::host::authority::Authority;
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tempfile::TempDir;

/// The second at which tests begin.
const NOW: u64 = 2_000_000_000;

/// A clock that is set.
#[derive(Debug)]
struct Clock(AtomicU64);

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(self.0.load(Relaxed))))
    }
}

/// An authority, folders for credentials of its making, and the time.
struct Desk {
    folder: TempDir,
    authority: Authority,
    clock: Arc<Clock>,
}

fn validity(seconds: u64) -> Validity {
    Validity { from: NOW - 10, until: NOW + seconds }
}

impl Desk {
    fn new() -> Desk {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::create(&folder.path().join("authority"), validity(1_000_000)).unwrap();
        Desk { folder, authority, clock: Arc::new(Clock(AtomicU64::new(NOW))) }
    }

    fn place(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Issues a set into the folder `name`.
    fn issue(&self, name: &str, job: &str, role: Role, validity: Validity) -> PathBuf {
        let identity = Identity { job: job.to_owned(), role };
        self.authority.issue(&identity, validity).unwrap().write(&self.place(name)).unwrap();
        self.place(name)
    }

    fn open(&self, folder: &Path) -> Result<Credentials, String> {
        Credentials::open(folder, Arc::clone(&self.clock) as _)
    }

    fn secured(&self, folder: &Path) -> Security {
        Security::Tls(Arc::new(self.open(folder).unwrap()))
    }

    /// A role of job "digits" with a certificate for 1000 s.
    fn role(&self, role: Role) -> Security {
        self.secured(&self.issue(role.word(), "digits", role, validity(1000)))
    }
}

/// What comes of a connection: at the caller's end, and at the other.
type Ends = (Result<Option<Identity>, Reason>, Result<Option<Identity>, Reason>);

/// Two ends shake hands; the caller wants somebody of `expected`. Who is let in writes a byte, as HTTP/2 does.
async fn meet(caller: &Security, called: &Security, expected: Role) -> Ends {
    use tokio::io::AsyncWriteExt;
    let (near, far) = tokio::io::duplex(1 << 16);
    let reason = |unsecured| match unsecured {
        Unsecured::Untrusted(reason) => reason,
        Unsecured::Io(error) => Reason::Protocol(error.to_string()),
    };
    let accepting = async {
        let mut connection = called.accept(far).await.map_err(reason)?;
        connection.write_all(b"x").await.map_err(|error| Reason::Protocol(error.to_string()))?;
        connection.flush().await.map_err(|error| Reason::Protocol(error.to_string()))?;
        Ok((connection.peer().identity.clone(), connection))
    };
    let calling = caller.connect(near, Some(expected), Arc::new(AtomicBool::new(false)));
    let (called, caller) = tokio::join!(accepting, calling);
    (
        caller.map_err(reason).map(|connection| connection.peer().identity.clone()),
        called.map(|(peer, _)| peer),
    )
}
