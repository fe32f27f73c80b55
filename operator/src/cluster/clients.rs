//! How this operator speaks with each job's master: in plaintext, or by a certificate of role `client`, whose key is in this process
//! alone. Certificates are changed under channels that are open.

use super::fleet::locked;
use crate::api::Moment;
use shoal_runtime::host::rpc::Security;
use shoal_runtime::host::rpc::tls::PemSet;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// How one master is spoken with.
#[derive(Clone, Debug)]
enum Speech {
    Security(Security),
    /// Not at all: why.
    None(String),
}

/// Of all jobs that were reconciled lately, by the uids of their resources.
#[derive(Default)]
pub(super) struct Clients(Mutex<BTreeMap<String, (Speech, Instant)>>);

impl Clients {
    /// With that job's master in plaintext.
    pub(super) fn in_plaintext(&self, uid: &str) {
        self.note(uid, Speech::Security(Security::Plaintext));
    }

    /// Not with that one.
    pub(super) fn never(&self, uid: &str, why: &str) {
        self.note(uid, Speech::None(why.to_owned()));
    }

    /// With that one, whose processes know it by the name `job`, by these credentials, from the next connection on.
    ///
    /// # Errors
    /// They cannot be used; those before stay in use.
    pub(super) fn believed_by(&self, uid: &str, job: &str, pem: &PemSet) -> Result<(), String> {
        let mut all = locked(&self.0);
        if let Some((Speech::Security(Security::Tls(credentials)), used)) = all.get_mut(uid) {
            *used = Instant::now();
            return credentials.replace(pem);
        }
        let security = Security::in_memory(pem)?;
        security.check_job(job)?;
        all.insert(uid.to_owned(), (Speech::Security(security), Instant::now()));
        Ok(())
    }

    /// Those of a job are still in use. Returns whether there are any.
    pub(super) fn keep(&self, uid: &str) -> bool {
        let mut all = locked(&self.0);
        let kept =
            all.get_mut(uid).filter(|(speech, _)| matches!(speech, Speech::Security(Security::Tls(_))));
        kept.map(|(_, used)| *used = Instant::now()).is_some()
    }

    /// Whether a job's master believes those that are in use.
    pub(super) fn are_good(&self, uid: &str, now: Moment) -> bool {
        let validity = self.of(uid).ok().and_then(|security| security.validity());
        validity.is_some_and(|validity| i64::try_from(validity.until).is_ok_and(|until| now.0 <= until))
    }

    /// How a job's master is spoken with.
    ///
    /// # Errors
    /// Why it is not.
    pub(super) fn of(&self, uid: &str) -> Result<Security, String> {
        match locked(&self.0).get(uid) {
            Some((Speech::Security(security), _)) => Ok(security.clone()),
            Some((Speech::None(why), _)) => Err(why.clone()),
            None => Err("how its master speaks is not known yet".to_owned()),
        }
    }

    /// Forgets jobs that nobody has reconciled for so long.
    pub(super) fn forget_after(&self, idle: Duration) {
        locked(&self.0).retain(|_, (_, used)| used.elapsed() < idle);
    }

    fn note(&self, uid: &str, speech: Speech) {
        locked(&self.0).insert(uid.to_owned(), (speech, Instant::now()));
    }
}
