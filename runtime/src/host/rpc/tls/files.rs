//! The files of a role's credentials, as they lie on the disk or are held in memory: read as a set, judged by nobody here.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Names of authorities, certificate and key: ours, and those of a Kubernetes secret of type `kubernetes.io/tls`.
const LAYOUTS: [[&str; 3]; 2] = [["ca.pem", "cert.pem", "key.pem"], ["ca.crt", "tls.crt", "tls.key"]];
/// Credentials are some kilobytes; a larger file is none of theirs.
const BYTES_MAX: u64 = 1 << 20;

/// What tells one set of files from another without reading them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    folder: PathBuf,
    files: [(SystemTime, u64); 3],
}

/// A set as text. Whoever holds one holds a key: it is shown to nobody.
#[derive(Clone, PartialEq, Eq)]
pub struct PemSet {
    /// Certificates of the authorities that are believed.
    pub authorities: String,
    /// The certificate, and what leads from it to one of those.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl std::fmt::Debug for PemSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PemSet")
    }
}

/// A set of files, read.
pub(super) struct Files {
    pub(super) authorities: Vec<CertificateDer<'static>>,
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
}

/// The paths of a set in `folder`: authorities, certificate, key.
///
/// They are looked for beside the certificate's real file. Where a set is changed by turning a symbolic link, as
/// `shoal certs issue` and Kubernetes do, all three are of one set.
pub(super) fn paths(folder: &Path) -> Result<[PathBuf; 3], String> {
    let layout = LAYOUTS.into_iter().find(|[_, certificate, _]| folder.join(certificate).exists());
    let Some(layout) = layout else {
        let folder = folder.display();
        return Err(format!(
            "{folder}: no cert.pem in it: name a folder with ca.pem, cert.pem and key.pem (made by `shoal certs issue`)"
        ));
    };
    let [_, certificate, _] = layout.map(|name| folder.join(name));
    let real = std::fs::canonicalize(&certificate).map_err(|error| told(&certificate, error))?;
    let beside = real.parent().unwrap_or(folder);
    let is_whole = layout.iter().all(|name| beside.join(name).exists());
    Ok(layout.map(|name| if is_whole { beside.join(name) } else { folder.join(name) }))
}

/// What tells this set from the next.
pub(super) fn stamp(folder: &Path) -> Result<Stamp, String> {
    let paths = paths(folder)?;
    let mut files = [(SystemTime::UNIX_EPOCH, 0); 3];
    for (path, file) in paths.iter().zip(&mut files) {
        let metadata = std::fs::metadata(path).map_err(|error| told(path, error))?;
        *file = (metadata.modified().map_err(|error| told(path, error))?, metadata.len());
    }
    Ok(Stamp { folder: paths[1].clone(), files })
}

/// Reads a set. The errors name the file, and nothing that is in it.
pub(super) fn read(folder: &Path) -> Result<Files, String> {
    let [authorities, chain, key] = paths(folder)?;
    let told = |path: &Path| path.display().to_string();
    Ok(Files {
        authorities: certificates(&bytes(&authorities)?, &told(&authorities))?,
        chain: certificates(&bytes(&chain)?, &told(&chain))?,
        key: private_key(&bytes(&key)?, &told(&key))?,
    })
}

/// Reads a set that is held in memory.
pub(super) fn parse(pem: &PemSet) -> Result<Files, String> {
    let [_, [authorities, chain, key]] = LAYOUTS;
    Ok(Files {
        authorities: certificates(pem.authorities.as_bytes(), authorities)?,
        chain: certificates(pem.certificate.as_bytes(), chain)?,
        key: private_key(pem.key.as_bytes(), key)?,
    })
}

fn private_key(pem: &[u8], name: &str) -> Result<PrivateKeyDer<'static>, String> {
    // The parser's own words may hold a piece of the file.
    PrivateKeyDer::from_pem_slice(pem)
        .map_err(|_| format!("{name}: no private key in PEM (PKCS #8, SEC1 or PKCS #1)"))
}

/// The link by which kubelets change a set.
const KUBELETS: &str = "..data";

/// Whether others than the owner and its group may read the key. A secret's volume is in the memory of one pod, where there are no others.
pub(super) fn is_key_open(folder: &Path) -> bool {
    if folder.join(KUBELETS).is_symlink() {
        return false;
    }
    let mode = paths(folder).ok().and_then(|[_, _, key]| std::fs::metadata(key).ok());
    mode.is_some_and(|metadata| metadata.permissions().mode() & 0o007 != 0)
}

fn certificates(pem: &[u8], name: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let read = read.map_err(|_| format!("{name}: damaged PEM"))?;
    if read.is_empty() {
        return Err(format!("{name}: no certificate in PEM"));
    }
    Ok(read)
}

fn bytes(path: &Path) -> Result<Vec<u8>, String> {
    let length = std::fs::metadata(path).map_err(|error| told(path, error))?.len();
    if length > BYTES_MAX {
        return Err(format!("{}: {length} bytes are too many for a credential", path.display()));
    }
    std::fs::read(path).map_err(|error| told(path, error))
}

fn told(path: &Path, error: impl std::fmt::Display) -> String {
    format!("{}: {error}", path.display())
}
