//! The authority that signs the certificates of jobs: a secret in the operator's own namespace, made once where there is none, and
//! looked at again now and then, for people may change it. Its key is shown to nobody and written nowhere else. Nobody waits for a look
//! who can go by the one before.

use super::fleet::present;
use super::refusals::Reason;
use crate::api::Moment;
use crate::manifest::{FIELD_MANAGER, SECRET_TYPE, credentials_of, secret_data};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use shoal_runtime::host::authority::Authority;
use shoal_runtime::host::clock::wall_seconds;
use shoal_runtime::host::rpc::tls::{PemSet, Validity};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, timeout};

/// How long an authority is good for that an operator makes: nobody changes it unasked. Ten years.
const LIFE_SECONDS: u64 = 3650 * 86_400;
/// The secret is read again so often, if anybody asks.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// After a failure it is tried again so soon.
const RETRY: Duration = Duration::from_secs(2);
/// A reconcile waits so long for the first look of all, which nothing can stand in for; then it goes on without certificates.
const FIRST_ANSWER: Duration = Duration::from_secs(2);
/// By then every operator that runs has read a secret that was changed, and has issued certificates by it.
const SETTLES: u64 = 60;
/// The log warns so long before the authority ends, in seconds: 30 days, or the last quarter of one that lives for less than 120.
const NOTICE_MAX: u64 = 30 * 86_400;
/// The log warns again so often.
const WARN_EVERY: Duration = Duration::from_secs(86_400);
/// The word for a look that gave no authority.
const MISSING: &str = "AuthorityMissing";

/// The authority, as far as it is known.
pub(super) struct Authorities(Arc<Shared>);

struct Shared {
    secrets: Api<Secret>,
    namespace: String,
    name: String,
    known: watch::Sender<Known>,
    /// Locked while a look is under way.
    looks: Arc<Mutex<Looks>>,
}

/// What the looks so far have come to.
#[derive(Clone, Default)]
struct Known {
    usable: Option<Usable>,
    /// Why the secret could not be read, or not be used, when it was last looked at.
    fault: Option<Reason>,
}

/// An authority that certificates can be made by.
#[derive(Clone)]
pub(super) struct Usable {
    pub(super) authority: Arc<Authority>,
    /// A job that an operator has served since then has no certificates by the one before.
    pub(super) settled: Moment,
}

#[derive(Default)]
struct Looks {
    last: Option<Instant>,
    version: Option<String>,
    /// The secret's texts, to put it back if somebody deletes it: another authority would be believed by no process that runs.
    pem: Option<PemSet>,
    warned: Option<Instant>,
}

impl Usable {
    /// Seconds until it ends, if it is in the last quarter of its life.
    pub(super) fn ends_in(&self, now: Moment) -> Option<u64> {
        let Validity { from, until } = self.authority.validity();
        let left = self.ends().since(now);
        (left < until.saturating_sub(from) / 4).then_some(left)
    }

    pub(super) fn ends(&self) -> Moment {
        Moment(i64::try_from(self.authority.validity().until).unwrap_or(i64::MAX))
    }
}

impl Authorities {
    pub(super) fn new(client: Client, namespace: &str, name: &str) -> Authorities {
        Authorities(Arc::new(Shared {
            secrets: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            known: watch::Sender::default(),
            looks: Arc::default(),
        }))
    }

    /// The authority. One that was usable stays in use while what came after it is not, until it ends itself.
    ///
    /// # Errors
    /// Why there is none, in a word and with the way out.
    pub(super) async fn current(&self) -> Result<Usable, Reason> {
        self.look_beside();
        let mut known = self.0.known.subscribe();
        let is_known = |known: &Known| known.usable.is_some() || known.fault.is_some();
        let Ok(Ok(known)) = timeout(FIRST_ANSWER, known.wait_for(is_known)).await else {
            return Err((MISSING, format!("{}: it is being read", self.place())));
        };
        match (&known.usable, &known.fault) {
            (Some(usable), _) if usable.ends() < present() => Err(self.0.expired(usable.ends())),
            (Some(usable), _) => Ok(usable.clone()),
            (None, fault) => Err(fault.clone().unwrap_or_else(|| (MISSING, "it was not read".to_owned()))),
        }
    }

    /// The secret, for people.
    pub(super) fn place(&self) -> String {
        self.0.place()
    }

    /// Has the secret looked at, if that is due and not under way.
    fn look_beside(&self) {
        let Ok(mut looks) = Arc::clone(&self.0.looks).try_lock_owned() else { return };
        let pause = if self.0.known.borrow().fault.is_some() { RETRY } else { LOOK_EVERY };
        if looks.last.is_some_and(|last| last.elapsed() < pause) {
            return;
        }
        let shared = Arc::clone(&self.0);
        tokio::spawn(async move {
            let fault = shared.look(&mut looks).await.err();
            looks.last = Some(Instant::now());
            shared.note(fault);
        });
    }
}

impl Shared {
    fn place(&self) -> String {
        format!("secret {} in {}", self.name, self.namespace)
    }

    fn expired(&self, at: Moment) -> Reason {
        let why = format!("{}: its certificate has expired at {at}: put another in its place", self.place());
        ("AuthorityExpired", why)
    }

    fn note(&self, fault: Option<Reason>) {
        self.known.send_modify(|known| {
            if let Some((_, why)) = fault.as_ref().filter(|_| fault != known.fault) {
                let is_kept = known.usable.as_ref().is_some_and(|usable| usable.ends() >= present());
                tracing::error!(why, is_kept, "the authority for certificates of jobs cannot be used");
            }
            known.fault = fault;
        });
    }

    async fn look(&self, looks: &mut Looks) -> Result<(), Reason> {
        let missing = |why: String| (MISSING, why);
        let secret = match self.secrets.get_opt(&self.name).await {
            Ok(Some(secret)) => secret,
            Ok(None) => self.make(looks.pem.clone()).await.map_err(missing)?,
            Err(error) => return Err(missing(self.at("it cannot be read", &error))),
        };
        let before = self.known.borrow().usable.clone();
        if let Some(usable) = before.as_ref().filter(|_| looks.version == secret.metadata.resource_version) {
            return self.check_end(usable, looks);
        }
        let read = credentials_of(&secret).and_then(|pem| Ok((Authority::of(&pem)?, pem)));
        let (authority, pem) = read.map_err(|why| missing(format!("{}: {why}", self.place())))?;
        let usable = Usable { authority: Arc::new(authority), settled: settled(&secret.metadata) };
        self.check_end(&usable, looks)?;
        let (fingerprint, valid_until) = (usable.authority.fingerprint(), usable.ends().to_string());
        if before.is_none_or(|before| before.authority.fingerprint() != fingerprint) {
            tracing::info!(
                secret = self.name,
                fingerprint,
                valid_until,
                "the authority for certificates of jobs"
            );
        }
        looks.pem = Some(pem);
        looks.version = secret.metadata.resource_version;
        self.known.send_modify(|known| known.usable = Some(usable));
        Ok(())
    }

    /// At each look, since an authority ends without anybody's doing.
    fn check_end(&self, usable: &Usable, looks: &mut Looks) -> Result<(), Reason> {
        let (now, ends) = (present(), usable.ends());
        if ends < now {
            return Err(self.expired(ends));
        }
        let is_soon = usable.ends_in(now).is_some_and(|left| left < NOTICE_MAX);
        if is_soon && looks.warned.is_none_or(|warned| warned.elapsed() >= WARN_EVERY) {
            looks.warned = Some(Instant::now());
            let (secret, ends) = (self.place(), ends.to_string());
            tracing::warn!(
                secret,
                ends,
                "the authority for certificates of jobs ends soon: put another in its place (docs/security.md)"
            );
        }
        Ok(())
    }

    /// Makes one, or puts back the one that there was. Where another operator was first, or an administrator, theirs is the authority.
    async fn make(&self, before: Option<PemSet>) -> Result<Secret, String> {
        let pem = match before {
            Some(pem) => pem,
            None => Authority::generate(Validity::lasting(wall_seconds(), LIFE_SECONDS))?,
        };
        let labels =
            [("app.kubernetes.io/name", "shoal-operator"), ("app.kubernetes.io/managed-by", FIELD_MANAGER)];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let metadata =
            ObjectMeta { name: Some(self.name.clone()), labels: Some(labels), ..ObjectMeta::default() };
        let secret = Secret {
            metadata,
            type_: Some(SECRET_TYPE.to_owned()),
            data: Some(secret_data(&pem)),
            ..Secret::default()
        };
        let how = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        match self.secrets.create(&how, &secret).await {
            Ok(made) => {
                tracing::info!(
                    secret = self.name,
                    namespace = self.namespace,
                    "made an authority for certificates of jobs"
                );
                Ok(made)
            }
            Err(kube::Error::Api(status)) if status.code == 409 => {
                self.secrets.get(&self.name).await.map_err(|error| self.at("it cannot be read", &error))
            }
            Err(error) => Err(self.at("there is none and it cannot be made", &error)),
        }
    }

    fn at(&self, what: &str, error: &kube::Error) -> String {
        let (why, way_out) = match error {
            kube::Error::Api(status) if status.code == 403 => (
                status.message.clone(),
                ": give the operator the rights of this version (deploy/rbac.yaml), or set --tls-default off",
            ),
            kube::Error::Api(status) => (status.message.clone(), ""),
            other => (other.to_string(), ""),
        };
        format!("{}: {what}: {why}{way_out}", self.place())
    }
}

/// When an authority counts as everybody's that its secret holds: at once as it was made, and after a while as it was changed.
fn settled(secret: &ObjectMeta) -> Moment {
    let made = secret.creation_timestamp.as_ref().map(|time| Moment::from(time.0));
    let writes = secret.managed_fields.iter().flatten().filter_map(|write| write.time.as_ref());
    let changed = writes.map(|time| Moment::from(time.0)).max();
    match (made, changed) {
        (Some(made), Some(changed)) if changed <= made => made,
        (_, Some(changed)) => changed.plus(SETTLES),
        // A server that does not say it: not before somebody has looked.
        (_, None) => Moment(i64::MAX),
    }
}
