//! Who a certificate is for: a job and a role in it, as one URI among its names. Hosts' addresses are no part of it:
//! pods move.
//!
//! The URI is `urn:shoal:job:NAME:role:ROLE`; bytes of NAME other than letters, digits, `-`, `.` and `_` are written
//! `%XX`. A job's name need not be a DNS name, so it is not put into one.

use std::fmt::Write;
use std::str::FromStr;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// What the holder of a certificate may speak as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Leads the job, or stands by.
    Master,
    /// Holds blocks.
    Pserver,
    /// Computes gradients.
    Trainer,
    /// A person, or a program, that asks and scales.
    Client,
}

impl Role {
    /// All of them.
    pub const ALL: [Role; 4] = [Role::Master, Role::Pserver, Role::Trainer, Role::Client];

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Role::Master => "master",
            Role::Pserver => "pserver",
            Role::Trainer => "trainer",
            Role::Client => "client",
        }
    }
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(word: &str) -> Result<Role, String> {
        let role = Role::ALL.into_iter().find(|role| role.word() == word);
        role.ok_or_else(|| format!("{word:?} is no role: give master, pserver, trainer or client"))
    }
}

/// The job and the role that a certificate names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The job's name.
    pub job: String,
    /// The role in it.
    pub role: Role,
}

/// When a certificate counts, in seconds since 1970: from the first to the last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub from: u64,
    /// The last second.
    pub until: u64,
}

/// A certificate counts from a little before it was issued, for clocks that are behind: a tenth of its time, this at most, in seconds.
const BEFORE_MAX: u64 = 300;

impl Validity {
    /// A validity of so many seconds from `now` on, or from a little before.
    pub fn lasting(now: u64, seconds: u64) -> Validity {
        Validity {
            from: now.saturating_sub((seconds / 10).min(BEFORE_MAX)),
            until: now.saturating_add(seconds),
        }
    }
}

const PREFIX: &str = "urn:shoal:job:";
const MIDDLE: &str = ":role:";

impl Identity {
    /// The name that a certificate carries.
    pub fn uri(&self) -> String {
        let mut uri = PREFIX.to_owned();
        for byte in self.job.bytes() {
            if is_plain(byte) {
                uri.push(char::from(byte));
            } else {
                // Writing to a string cannot fail.
                let _ = write!(uri, "%{byte:02X}");
            }
        }
        uri + MIDDLE + self.role.word()
    }

    /// The identity that a URI names; none where it is no such name, or not written as [`uri`](Self::uri) writes it.
    pub fn of_uri(uri: &str) -> Option<Identity> {
        let (job, role) = uri.strip_prefix(PREFIX)?.split_once(MIDDLE)?;
        let identity = Identity { job: decoded(job)?, role: role.parse().ok()? };
        // One identity has one name: two spellings would be two things to compare.
        (!identity.job.is_empty() && identity.uri() == uri).then_some(identity)
    }

    /// Whom a certificate (DER) is for, and when.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn of_certificate(der: &[u8]) -> Result<(Identity, Validity), String> {
        let (_, certificate) =
            X509Certificate::from_der(der).map_err(|error| format!("no certificate: {error}"))?;
        let names = certificate.subject_alternative_name().map_err(|error| error.to_string())?;
        let uris = names.iter().flat_map(|names| &names.value.general_names).filter_map(|name| match name {
            GeneralName::URI(uri) => Identity::of_uri(uri),
            _ => None,
        });
        let [identity] = <[Identity; 1]>::try_from(uris.collect::<Vec<_>>()).map_err(|found| {
            let found = found.len();
            format!("among its names {found} are {PREFIX}NAME{MIDDLE}ROLE, and it must be one")
        })?;
        let seconds = |time: x509_parser::time::ASN1Time| time.timestamp().max(0) as u64;
        let validity = certificate.validity();
        Ok((identity, Validity { from: seconds(validity.not_before), until: seconds(validity.not_after) }))
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of job {:?}", self.role, self.job)
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_')
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn identity(job: &str, role: Role) -> Identity {
        Identity { job: job.to_owned(), role }
    }

    #[test]
    fn a_plain_name_stays_readable_and_others_are_escaped() {
        assert_eq!(identity("digits-7", Role::Master).uri(), "urn:shoal:job:digits-7:role:master");
        assert_eq!(identity("a b:ä", Role::Client).uri(), "urn:shoal:job:a%20b%3A%C3%A4:role:client");
    }

    #[test]
    fn what_is_not_written_as_it_must_be_names_nobody() {
        for uri in [
            "",
            "urn:shoal:job:digits",
            "urn:shoal:job::role:master",
            "urn:shoal:job:digits:role:king",
            "urn:shoal:job:digits:role:master:role:client",
            "urn:shoal:job:digits:role:Master",
            "urn:shoal:job:%64igits:role:master",
            "urn:shoal:job:a%2",
            "urn:shoal:job:a%2:role:master",
            "urn:shoal:job:a%+1:role:master",
            "urn:shoal:job:a%3a:role:master",
            "urn:shoal:job:%FF:role:master",
            "spiffe://cluster/ns/digits/sa/master",
        ] {
            assert_eq!(Identity::of_uri(uri), None, "{uri}");
        }
    }

    #[test]
    fn a_certificate_is_for_one_identity_and_other_names_do_not_matter() {
        let certificate = |uris: &[&str]| {
            let mut parameters = rcgen::CertificateParams::new(["host.example".to_owned()]).unwrap();
            let names = uris.iter().map(|uri| rcgen::SanType::URI((*uri).try_into().unwrap()));
            parameters.subject_alt_names.extend(names);
            parameters.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().der().to_vec()
        };
        let (one, other) = ("urn:shoal:job:a:role:client", "urn:shoal:job:b:role:client");
        let found = Identity::of_certificate(&certificate(&[one, "spiffe://cluster/a"]));
        assert_eq!(found.unwrap().0, identity("a", Role::Client));
        for uris in [&[][..], &["spiffe://cluster/a"], &[one, other], &[one, one]] {
            assert!(Identity::of_certificate(&certificate(uris)).unwrap_err().contains("it must be one"));
        }
    }

    proptest! {
        #[test]
        fn every_job_has_one_name_that_leads_back_to_it(job in ".{1,60}", role in 0usize..4) {
            let whom = identity(&job, Role::ALL[role]);
            let uri = whom.uri();
            prop_assert!(uri.is_ascii() && !uri.contains(' '));
            prop_assert_eq!(Identity::of_uri(&uri), Some(whom));
        }

        #[test]
        fn no_bytes_make_a_certificate_by_accident_or_bring_the_reader_down(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Identity::of_certificate(&bytes).is_err());
        }
    }
}
