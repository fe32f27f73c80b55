//! An authority: a key that signs the certificates of jobs' roles. For the command, the operator of a cluster and tests; no role
//! has one.

mod request;
mod set;

pub use request::Request;

use super::rpc::tls::{Identity, PemSet, Validity};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use sha2::{Digest, Sha256};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer, X509Certificate};

const CERTIFICATE: &str = "ca.pem";
const KEY: &str = "ca.key";

/// An authority, with its key.
pub struct Authority {
    /// All certificates that those are to believe whom it issues one.
    trusted: String,
    /// Its own, where that is not among them: what leads from those that are believed to it.
    chain: String,
    validity: Validity,
    fingerprint: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key, and the authority's certificate: what a role needs.
pub struct Issued(PemSet);

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
        let made = Authority::generate(validity).map_err(at)?;
        std::fs::create_dir_all(folder).map_err(|error| at(error.to_string()))?;
        write(&folder.join(KEY), &made.key, 0o600)?;
        write(&folder.join(CERTIFICATE), &made.certificate, 0o644)?;
        Authority::of(&made)
    }

    /// Makes the certificate and the key of one, in memory.
    ///
    /// # Errors
    /// A validity that no certificate can have.
    pub fn generate(validity: Validity) -> Result<PemSet, String> {
        let mut parameters = parameters("shoal authority", validity)?;
        parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().map_err(|error| error.to_string())?;
        let certificate = parameters.self_signed(&key).map_err(|error| error.to_string())?.pem();
        Ok(PemSet { authorities: certificate.clone(), certificate, key: key.serialize_pem() })
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
        Authority::of(&PemSet { authorities: certificate.clone(), certificate, key })
            .map_err(|why| format!("{}: {why}", folder.display()))
    }

    /// The authority of this certificate and key, which signs for those who believe `authorities`.
    ///
    /// # Errors
    /// What of it cannot be used; no piece of the key.
    pub fn of(pem: &PemSet) -> Result<Authority, String> {
        // The parser's own words may hold a piece of the key.
        let key = KeyPair::from_pem(&pem.key).map_err(|_| "no private key in PEM (PKCS #8)".to_owned())?;
        let own = pem_blocks(&pem.certificate)?;
        let believed = pem_blocks(&pem.authorities)?;
        let first = own.first().ok_or("no certificate of the authority in PEM")?;
        let (_, read) = X509Certificate::from_der(first).map_err(|error| error.to_string())?;
        if !read.is_ca() {
            return Err("the certificate is none of an authority: it may sign no others".to_owned());
        }
        if read.public_key().subject_public_key.data.as_ref() != key.public_key_raw() {
            return Err("key and certificate are not of one another".to_owned());
        }
        let seconds = |time: x509_parser::time::ASN1Time| time.timestamp().max(0) as u64;
        let validity = read.validity();
        let validity = Validity { from: seconds(validity.not_before), until: seconds(validity.not_after) };
        let chain = if believed.contains(first) { String::new() } else { pem.certificate.clone() };
        let issuer = Issuer::from_ca_cert_pem(&pem.certificate, key).map_err(|error| error.to_string())?;
        let all = format!("{}\n{}", pem.certificate, pem.authorities);
        let fingerprint =
            Sha256::digest(all.as_bytes())[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Authority { trusted: pem.authorities.clone(), chain, validity, fingerprint, issuer })
    }

    /// When its own certificate counts: what it signs counts no longer.
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// What tells it, and those that are believed beside it, from others. It says nothing of the key.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// A certificate for `identity`, with a key of its own.
    ///
    /// # Errors
    /// A validity that no certificate can have.
    pub fn issue(&self, identity: &Identity, validity: Validity) -> Result<Issued, String> {
        let parameters = leaf(identity, validity)?;
        let key = KeyPair::generate().map_err(|error| error.to_string())?;
        let certificate = parameters.signed_by(&key, &self.issuer).map_err(|error| error.to_string())?;
        Ok(Issued(PemSet {
            authorities: self.trusted.clone(),
            certificate: certificate.pem() + &self.chain,
            key: key.serialize_pem(),
        }))
    }
}

/// What the certificate of a role says.
fn leaf(identity: &Identity, validity: Validity) -> Result<CertificateParams, String> {
    let mut parameters = parameters(identity.role.word(), validity)?;
    let uri = identity.uri().try_into().map_err(|error: rcgen::Error| error.to_string())?;
    parameters.subject_alt_names = vec![SanType::URI(uri)];
    parameters.use_authority_key_identifier_extension = true;
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    // A pserver calls its master and is called by trainers: each role is both ends.
    parameters.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    Ok(parameters)
}

/// The certificates in a text, as bytes.
fn pem_blocks(text: &str) -> Result<Vec<Vec<u8>>, String> {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    let read = CertificateDer::pem_slice_iter(text.as_bytes()).map(|one| one.map(|one| one.to_vec()));
    read.collect::<Result<_, _>>().map_err(|_| "damaged PEM".to_owned())
}

/// How long a certificate is to be good for, as people write it.
///
/// # Errors
/// What to write instead.
pub fn lifetime(text: &str) -> Result<Duration, String> {
    let wrong = || "give a number with s, m, h or d, as 90d or 12h, up to 36500d".to_owned();
    let units = [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400)];
    let (number, length) = units
        .into_iter()
        .find_map(|(unit, length)| Some((text.strip_suffix(unit)?, length)))
        .ok_or_else(wrong)?;
    let seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(length));
    let seconds = seconds.filter(|seconds| (1..=36_500 * 86_400).contains(seconds));
    seconds.map(Duration::from_secs).ok_or_else(wrong)
}

impl Issued {
    /// The three texts.
    pub fn pem(&self) -> &PemSet {
        &self.0
    }

    /// Puts it into `folder` as `ca.pem`, `cert.pem` and `key.pem`, in the place of an earlier set if there is one: at
    /// one moment, so that no reader finds a key and a certificate of two sets.
    ///
    /// # Errors
    /// Files that were not issued here are in the way, or a file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), String> {
        let files = [
            ("ca.pem", &self.0.authorities, 0o644),
            ("cert.pem", &self.0.certificate, 0o644),
            ("key.pem", &self.0.key, 0o600),
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
