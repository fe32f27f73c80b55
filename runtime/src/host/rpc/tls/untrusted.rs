//! Why two roles do not speak with one another, in words that name the peer, the reason and the way out.

use super::identity::{Identity, Role};
use crate::wire::Fault;
use rustls::{AlertDescription, CertificateError};

/// A connection that did not come about for want of trust. It carries no key and no certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{peer}: {reason}")]
pub struct Untrusted {
    /// Its address.
    pub peer: String,
    /// What is the matter.
    pub reason: Reason,
}

/// What is the matter with a peer, or with what we have to show to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// It shows no certificate.
    #[error("it shows no certificate: give it one by --tls DIR (made by `shoal certs issue`)")]
    NoCertificate,
    /// Its certificate's time is over.
    #[error("its certificate has expired: issue it a new one (`shoal certs issue`), and compare the clocks")]
    Expired,
    /// Its certificate's time has not come.
    #[error("its certificate is not valid yet: compare the clocks")]
    NotYetValid,
    /// None of the authorities that we believe has signed its certificate.
    #[error(
        "its certificate is of another authority than those in our ca.pem: issue it one by ours, or add the other's"
    )]
    Foreign,
    /// It belongs to another job.
    #[error(
        "its certificate is for {theirs}, ours for job {ours:?}: one job's roles do not speak with another's"
    )]
    OtherJob {
        /// Whom its certificate is for.
        theirs: Identity,
        /// Our job.
        ours: String,
    },
    /// It is none of those who may answer there.
    #[error(
        "its certificate is for {theirs}, and a {expected} was called: check the address, or issue it the right one"
    )]
    OtherRole {
        /// Whom its certificate is for.
        theirs: Identity,
        /// Who should listen there.
        expected: Role,
    },
    /// Its certificate names no identity of ours.
    #[error("its certificate names no job of Shoal ({0}): issue it one by `shoal certs issue`")]
    NoIdentity(String),
    /// It speaks plaintext, or something else.
    #[error("it does not speak TLS: start it with --tls DIR")]
    NoTls,
    /// It speaks TLS, and we do not.
    #[error("it speaks TLS: give --tls DIR here too")]
    SpeaksTls,
    /// It does not believe us.
    #[error("it refuses our certificate: {0}")]
    RefusesUs(&'static str),
    /// What we have to show would be refused.
    #[error("our own certificate cannot be used: {0}")]
    Own(String),
    /// Plaintext would leave this machine.
    #[error(
        "without TLS only loopback addresses are listened on and called: give --tls DIR, or --plaintext to do without"
    )]
    Plaintext,
    /// Anything else that the protocol objects to.
    #[error("no secure connection: {0}")]
    Protocol(String),
}

impl Reason {
    /// Whether time cannot mend it: it is about how this process was started.
    fn is_final(&self) -> bool {
        matches!(self, Reason::Plaintext)
    }

    /// The reason in an error of the TLS library.
    pub(super) fn of(error: &rustls::Error) -> Reason {
        match error {
            rustls::Error::InvalidCertificate(error) => Reason::of_certificate(error),
            rustls::Error::NoCertificatesPresented => Reason::NoCertificate,
            rustls::Error::AlertReceived(alert) => Reason::of_alert(*alert),
            rustls::Error::InvalidMessage(_) => Reason::NoTls,
            other => Reason::Protocol(other.to_string()),
        }
    }

    fn of_certificate(error: &CertificateError) -> Reason {
        use CertificateError as E;
        match error {
            E::Expired | E::ExpiredContext { .. } => Reason::Expired,
            E::NotValidYet | E::NotValidYetContext { .. } => Reason::NotYetValid,
            E::UnknownIssuer | E::BadSignature => Reason::Foreign,
            // Our own check of the identity, as [`super::verify`] packs it.
            E::Other(other) => match other.0.downcast_ref::<Reason>() {
                Some(reason) => reason.clone(),
                None => Reason::Protocol(error.to_string()),
            },
            other => Reason::Protocol(other.to_string()),
        }
    }

    fn of_alert(alert: AlertDescription) -> Reason {
        match alert {
            AlertDescription::CertificateRequired => Reason::RefusesUs("it asks for one: give --tls DIR"),
            AlertDescription::CertificateExpired => {
                Reason::RefusesUs("by its clock it has expired: issue a new one, and compare the clocks")
            }
            AlertDescription::UnknownCA | AlertDescription::DecryptError => {
                Reason::RefusesUs("it is of another authority than those in its ca.pem")
            }
            AlertDescription::CertificateUnknown => {
                Reason::RefusesUs("it is for another job, or for none of Shoal's")
            }
            AlertDescription::BadCertificate => Reason::RefusesUs("it cannot be verified there: see its log"),
            other => Reason::Protocol(format!("the peer ended it with {other:?}: see its log")),
        }
    }

    /// The reason that an error of a TLS stream carries; none for one of the network.
    pub(super) fn of_io(error: &std::io::Error) -> Option<Reason> {
        error.get_ref()?.downcast_ref::<rustls::Error>().map(Reason::of)
    }
}

impl From<&Untrusted> for Fault {
    /// What is for good is no fault of trust, which may pass when certificates are changed.
    fn from(untrusted: &Untrusted) -> Fault {
        let why = untrusted.to_string();
        if untrusted.reason.is_final() { Fault::Impossible(why) } else { Fault::Untrusted(why) }
    }
}
