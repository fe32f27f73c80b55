//! What a peer may show: certificates of two authorities, for two jobs, good and expired.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use shoal_runtime::host::authority::Authority;
use shoal_runtime::host::clock::wall_seconds;
use shoal_runtime::host::rpc::Security;
use shoal_runtime::host::rpc::tls::{Identity, Role, Validity};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The job that is defended.
pub(crate) const JOB: &str = "the-job.1";

/// Two authorities, of which the job believes the first.
pub(crate) struct Issuers {
    pub(crate) folder: TempDir,
    ours: Authority,
    theirs: Authority,
}

/// From well before now until so many seconds from now on.
pub(crate) fn lasting(seconds: i64) -> Validity {
    let now = wall_seconds();
    Validity { from: now - 1000, until: now.saturating_add_signed(seconds) }
}

impl Issuers {
    pub(crate) fn new() -> Issuers {
        let folder = tempfile::tempdir().unwrap();
        let authority = |name: &str| Authority::create(&folder.path().join(name), lasting(3600)).unwrap();
        Issuers { ours: authority("ours"), theirs: authority("theirs"), folder }
    }

    pub(crate) fn issue(&self, name: &str, job: &str, role: Role, validity: Validity) -> PathBuf {
        let identity = Identity { job: job.to_owned(), role };
        self.ours.issue(&identity, validity).unwrap().write(&self.place(name)).unwrap();
        self.place(name)
    }

    /// The same, signed by the authority that nobody believes.
    pub(crate) fn issue_foreign(&self, name: &str, job: &str, role: Role) -> PathBuf {
        let identity = Identity { job: job.to_owned(), role };
        self.theirs.issue(&identity, lasting(3600)).unwrap().write(&self.place(name)).unwrap();
        self.place(name)
    }

    pub(crate) fn place(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A folder with that certificate and key, whose owner believes both authorities.
    pub(crate) fn believing_both(&self, name: &str, of: &Path) -> PathBuf {
        let place = self.place(name);
        std::fs::create_dir_all(&place).unwrap();
        for name in ["cert.pem", "key.pem"] {
            std::fs::copy(of.join(name), place.join(name)).unwrap();
        }
        let authorities =
            ["ours/ca.pem", "theirs/ca.pem"].map(|name| std::fs::read(self.place(name)).unwrap());
        std::fs::write(place.join("ca.pem"), authorities.concat()).unwrap();
        place
    }

    /// What a role that is as it should be has.
    pub(crate) fn good(&self, role: Role) -> PathBuf {
        let place = self.place(role.word());
        if place.is_dir() { place } else { self.issue(role.word(), JOB, role, lasting(3600)) }
    }

    pub(crate) fn secured(&self, role: Role) -> Security {
        Security::open(Some(&self.good(role)), false, Some(role)).unwrap()
    }
}

/// The certificate and key in a folder.
pub(crate) fn pair(folder: &Path) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let certificate = CertificateDer::from_pem_file(folder.join("cert.pem")).unwrap();
    (vec![certificate], PrivateKeyDer::from_pem_file(folder.join("key.pem")).unwrap())
}
