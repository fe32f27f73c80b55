//! A local authority: a key that signs the certificates of jobs' roles. For the command and for tests; no role has one.

mod set;

use super::rpc::tls::{Identity, Validity};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use time::OffsetDateTime;

const CERTIFICATE: &str = "ca.pem";
const KEY: &str = "ca.key";

/// An authority, with its key.
pub struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key, and the authority's certificate: what a role needs.
pub struct Issued {
    authority: String,
    certificate: String,
    key: String,
}

impl Authority {
    /// Makes an authority in `folder`: `ca.pem` is for everybody, `ca.key` for nobody else.
    ///
    /// # Errors
    /// There is one already; a file cannot be written.
    pub fn create(folder: &Path, validity: Validity) -> Result<Authority, String> {
        let at = |what: String| format!("{}: {what}", folder.display());
        for name in [CERTIFICATE, KEY] {
            if folder.join(name).exists() {
                return Err(at(format!(
                    "{name} is there already: an authority is made once, or name another folder"
                )));
            }
        }
        let mut parameters = parameters("shoal authority", validity)?;
        parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().map_err(|error| at(error.to_string()))?;
        let certificate = parameters.self_signed(&key).map_err(|error| at(error.to_string()))?.pem();
        std::fs::create_dir_all(folder).map_err(|error| at(error.to_string()))?;
        write(&folder.join(KEY), &key.serialize_pem(), 0o600)?;
        write(&folder.join(CERTIFICATE), &certificate, 0o644)?;
        let issuer = Issuer::new(parameters, key);
        Ok(Authority { certificate, issuer })
    }

    /// The authority in `folder`.
    ///
    /// # Errors
    /// There is none, or its files cannot be used.
    pub fn open(folder: &Path) -> Result<Authority, String> {
        let read = |name: &str| {
            let path = folder.join(name);
            std::fs::read_to_string(&path).map_err(|error| {
                format!("{}: {error}: make an authority by `shoal certs init`", path.display())
            })
        };
        let (certificate, key) = (read(CERTIFICATE)?, read(KEY)?);
        // The parser's own words may hold a piece of the key.
        let key = KeyPair::from_pem(&key)
            .map_err(|_| format!("{}: no private key in PEM (PKCS #8)", folder.join(KEY).display()))?;
        let issuer = Issuer::from_ca_cert_pem(&certificate, key)
            .map_err(|error| format!("{}: {error}", folder.join(CERTIFICATE).display()))?;
        Ok(Authority { certificate, issuer })
    }

    /// A certificate for `identity`, with a key of its own.
    ///
    /// # Errors
    /// A validity that no certificate can have.
    pub fn issue(&self, identity: &Identity, validity: Validity) -> Result<Issued, String> {
        let mut parameters = parameters(identity.role.word(), validity)?;
        let uri = identity.uri().try_into().map_err(|error: rcgen::Error| error.to_string())?;
        parameters.subject_alt_names = vec![SanType::URI(uri)];
        parameters.use_authority_key_identifier_extension = true;
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // A pserver calls its master and is called by trainers: each role is both ends.
        parameters.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().map_err(|error| error.to_string())?;
        let certificate = parameters.signed_by(&key, &self.issuer).map_err(|error| error.to_string())?;
        Ok(Issued {
            authority: self.certificate.clone(),
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }
}

impl Issued {
    /// Puts it into `folder` as `ca.pem`, `cert.pem` and `key.pem`, in the place of an earlier set if there is one: at
    /// one moment, so that no reader finds a key and a certificate of two sets.
    ///
    /// # Errors
    /// Files that were not issued here are in the way, or a file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), String> {
        let files = [
            ("ca.pem", &self.authority, 0o644),
            ("cert.pem", &self.certificate, 0o644),
            ("key.pem", &self.key, 0o600),
        ];
        set::replace(folder, &files.map(|(name, text, mode)| (name, text.as_str(), mode)))
    }
}

fn parameters(name: &str, validity: Validity) -> Result<CertificateParams, String> {
    let time = |seconds: u64| {
        OffsetDateTime::from_unix_timestamp(seconds as i64).map_err(|error| format!("no such time: {error}"))
    };
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, name);
    (parameters.not_before, parameters.not_after) = (time(validity.from)?, time(validity.until)?);
    Ok(parameters)
}

/// Writes a new file; its mode is that from its first moment on.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), String> {
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let written =
        file.and_then(|mut file: File| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
    written.map_err(|error| format!("{}: {error}", path.display()))
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority")
    }
}

impl std::fmt::Debug for Issued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Issued")
    }
}

#[cfg(test)]
mod tests;
