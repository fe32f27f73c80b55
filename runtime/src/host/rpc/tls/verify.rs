//! Whether a peer's certificate is believed: its chain leads to one of our authorities, now, and it is for our job.
//! Hosts' names are not looked at: the job is what is proven, and pods move.

use super::identity::Identity;
use super::untrusted::Reason;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, OtherError, RootCertStore, SignatureScheme,
};
use std::sync::Arc;

/// Whom we believe.
#[derive(Debug)]
pub(super) struct Verifier {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
    job: String,
    /// The standard one, for those who call us.
    callers: Arc<dyn ClientCertVerifier>,
}

impl Verifier {
    /// Believes certificates of `job` that lead to `roots`.
    pub(super) fn new(
        roots: RootCertStore,
        provider: Arc<CryptoProvider>,
        job: &str,
    ) -> Result<Verifier, String> {
        let roots = Arc::new(roots);
        let callers = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
        let callers = callers.build().map_err(|error| error.to_string())?;
        Ok(Verifier { roots, provider, job: job.to_owned(), callers })
    }

    /// Whether those who are called believe `certificate` too.
    pub(super) fn check_chain(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        let certificate = ParsedCertificate::try_from(certificate)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&certificate, &self.roots, intermediates, now, algorithms)
    }

    fn check_job(&self, certificate: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        let refused = |reason| {
            Err(rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(reason)))))
        };
        match Identity::of_certificate(certificate) {
            Err(why) => refused(Reason::NoIdentity(why)),
            Ok((theirs, _)) if theirs.job != self.job => {
                refused(Reason::OtherJob { theirs, ours: self.job.clone() })
            }
            Ok(_) => Ok(()),
        }
    }
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // Names of authorities would tell every stranger who we are, and our callers have one certificate.
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.callers.verify_client_cert(certificate, intermediates, now)?;
        self.check_job(certificate)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.callers.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.callers.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.callers.supported_verify_schemes()
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.check_chain(certificate, intermediates, now)?;
        self.check_job(certificate)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
