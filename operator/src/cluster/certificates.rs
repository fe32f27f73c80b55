//! Certificates of jobs, issued and changed in time: what was decided by [`certificate_due`] becomes secrets. A secret is never read: its metadata
//! says what it holds, and what is not owned by the job is never touched.

use super::apply::{Outcome, refusal};
use super::authority::Authorities;
use super::cert_manager::{self, Asked};
use super::clients::Clients;
use super::fleet::{Fleet, Known, locked, present};
use super::owned;
use crate::api::{TlsMode, TrainingJob};
use crate::decide::{CertificateView, IssuerView, certificate_due, certificate_end};
use crate::manifest::{
    FIELD_MANAGER, Issuer, certificate_name, certificate_of, certificate_secret, credentials_of, identity,
};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use shoal_runtime::host::authority::{Authority, Issued};
use shoal_runtime::host::rpc::tls::{Identity, Role, Validity};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// A client's certificate that the operator was given is read again so often.
const GIVEN_EVERY: Duration = Duration::from_secs(60);
/// Whether a job's secrets are still there is looked at so often.
const LOOK_EVERY: Duration = Duration::from_secs(600);
/// The word for a certificate that cannot be made.
const REFUSED: &str = "CertificateRefused";

/// How an operator makes certificates.
#[derive(Clone, Debug)]
pub struct CertificateSettings {
    /// How jobs speak that say nothing of it: [`TlsMode::Issued`] or [`TlsMode::Plaintext`].
    pub default: TlsMode,
    /// How long a certificate is good for.
    pub lifetime: Duration,
    /// Where the secret with the authority is, and its name.
    pub authority: (String, String),
    /// cert-manager's issuer, by which certificates are made instead; none for the operator's own authority.
    pub issuer: Option<Issuer>,
}

/// What the certificates of all jobs have in common.
pub(super) struct Certificates {
    pub(super) client: Client,
    pub(super) default: TlsMode,
    pub(super) lifetime: u64,
    pub(super) issuer: Option<Issuer>,
    authorities: Authorities,
    pub(super) clients: std::sync::Arc<Clients>,
}

/// What is known of one job's certificates. Lost with its process, whose successor looks at the secrets.
#[derive(Default)]
pub(super) struct Certified {
    /// By role, the secrets that are there.
    held: BTreeMap<Role, Held>,
    /// This operator's own certificate as the job's client.
    own: Option<CertificateView>,
    /// The same from cert-manager, as far as it has come.
    pub(super) asked: Asked,
    given: Option<Instant>,
    /// What was told of a master that cannot be asked.
    told: Option<String>,
}

/// A secret that is the job's.
struct Held {
    /// What it says of its certificate.
    view: Option<CertificateView>,
    uid: Option<String>,
    version: Option<String>,
    looked: Instant,
}

/// What came of a look, or of a change.
enum Found {
    /// It is there, and the job's own.
    There(Held),
    /// It is not there, or another than was looked at.
    Not,
    Refused(Outcome),
}

impl Certified {
    /// Whether pods of that role find the secret that they mount.
    pub(super) fn has(&self, role: &str) -> bool {
        self.held.keys().any(|held| held.word() == role)
    }

    pub(super) fn note_there(&mut self, role: Role) {
        let held = Held { view: None, uid: None, version: None, looked: Instant::now() };
        self.held.insert(role, held);
    }

    pub(super) fn looked(&self, role: Role) -> Option<Instant> {
        self.held.get(&role).map(|held| held.looked)
    }
}

/// The kind and the name of a certificate's secret, for people.
pub(super) fn secret_object(job: &TrainingJob, role: Role) -> String {
    format!("Secret {}", certificate_name(job, role.word()))
}

impl Certificates {
    pub(super) fn new(
        client: Client,
        settings: CertificateSettings,
        clients: std::sync::Arc<Clients>,
    ) -> Certificates {
        let (namespace, name) = &settings.authority;
        Certificates {
            authorities: Authorities::new(client.clone(), namespace, name),
            client,
            default: settings.default,
            lifetime: settings.lifetime.as_secs().max(1),
            issuer: settings.issuer,
            clients,
        }
    }

    fn issuer_view<'a>(&self, authority: &'a Authority) -> IssuerView<'a> {
        let ends = i64::try_from(authority.validity().until).unwrap_or(i64::MAX);
        IssuerView {
            authority: authority.fingerprint(),
            ends: crate::api::Moment(ends),
            lifetime: self.lifetime,
        }
    }

    /// A certificate from now on.
    fn issue(
        &self,
        authority: &Authority,
        job: &TrainingJob,
        role: Role,
    ) -> Result<(Issued, CertificateView), String> {
        let now = present();
        let issuer = self.issuer_view(authority);
        let expires = certificate_end(&issuer, now);
        let seconds = u64::try_from(now.0).unwrap_or(0);
        let validity = Validity::lasting(seconds, expires.since(now));
        let issued = authority.issue(&Identity { job: identity(job), role }, validity)?;
        Ok((issued, CertificateView { issued: now, expires, authority: issuer.authority.to_owned() }))
    }

    /// Sees that the job's master can be spoken with. Returns why it cannot, if that has not been told.
    pub(super) async fn speak(&self, job: &TrainingJob, certified: &mut Certified) -> Option<String> {
        let uid = job.uid().unwrap_or_default();
        let spoken = match (job.tls(), &self.issuer) {
            (TlsMode::Plaintext, _) => {
                self.clients.in_plaintext(&uid);
                Ok(())
            }
            (TlsMode::Issued, None) => self.believe_own(job, &uid, certified).await,
            (TlsMode::Issued, Some(issuer)) => cert_manager::believe(self, job, issuer, certified).await,
            (TlsMode::Given, _) => self.believe_given(job, &uid, certified).await,
        };
        let why = spoken.err();
        if let Some(why) = &why
            && !self.clients.keep(&uid)
        {
            self.clients.never(&uid, why);
        }
        let is_news = why.is_some() && why != certified.told;
        certified.told = why;
        certified.told.clone().filter(|_| is_news)
    }

    async fn believe_own(
        &self,
        job: &TrainingJob,
        uid: &str,
        certified: &mut Certified,
    ) -> Result<(), String> {
        let authority = self.authorities.current().await?;
        if !self.clients.keep(uid) {
            certified.own = None;
        }
        if certificate_due(certified.own.as_ref(), &self.issuer_view(&authority), present()).is_none() {
            return Ok(());
        }
        let (issued, view) = self.issue(&authority, job, Role::Client)?;
        self.clients.believed_by(uid, &identity(job), issued.pem())?;
        certified.own = Some(view);
        Ok(())
    }

    /// The author's own certificate for the operator, if there is one and it may be read.
    async fn believe_given(
        &self,
        job: &TrainingJob,
        uid: &str,
        certified: &mut Certified,
    ) -> Result<(), String> {
        let secret = job.spec.tls.as_ref().and_then(|tls| tls.secrets.get("client"));
        let secret = secret.ok_or(
            "spec.tls.secrets.client names no certificate for the operator: it sees of the job what its pods show",
        )?;
        let is_fresh = certified.given.is_some_and(|read| read.elapsed() < GIVEN_EVERY);
        if is_fresh {
            return match &certified.told {
                Some(why) => Err(why.clone()),
                None if self.clients.keep(uid) => Ok(()),
                None => Err("it was not read".to_owned()),
            };
        }
        certified.given = Some(Instant::now());
        let namespace = job.namespace().unwrap_or_default();
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &namespace);
        let read = secrets.get(secret).await.map_err(|error| match error {
            kube::Error::Api(status) if status.code == 403 => format!(
                "spec.tls.secrets.client: the operator may not read secret {secret}: let it, by a role with get of that name"
            ),
            kube::Error::Api(status) => format!("spec.tls.secrets.client: {}", status.message),
            other => format!("spec.tls.secrets.client: {other}"),
        })?;
        let at = |why: String| format!("spec.tls.secrets.client: secret {secret}: {why}");
        let pem = credentials_of(&read).map_err(at)?;
        self.clients.believed_by(uid, &identity(job), &pem).map_err(at)
    }
}

impl Fleet {
    /// Issues the certificates of a job that are due.
    pub(super) async fn certify(
        &self,
        job: &TrainingJob,
        known: &mut Known,
        failed: &mut Option<kube::Error>,
    ) {
        if job.tls() != TlsMode::Issued {
            return;
        }
        if let Some(issuer) = self.certificates.issuer.clone() {
            return cert_manager::certify(self, job, &issuer, known, failed).await;
        }
        let authority = match self.certificates.authorities.current().await {
            Ok(authority) => authority,
            Err(why) => {
                let object = secret_object(job, Role::Master);
                known.refusals.note(
                    &object,
                    ("AuthorityMissing", why),
                    Instant::now(),
                    &mut locked(&self.random),
                );
                return;
            }
        };
        for role in Role::ALL {
            let (object, now) = (secret_object(job, role), Instant::now());
            if !known.refusals.is_due(&object, now) {
                continue;
            }
            match self.certificates.certify_role(job, role, &authority, &mut known.certified).await {
                Ok(None) => known.refusals.forgive(&object),
                Ok(Some((word, why))) => {
                    known.refusals.note(&object, (word, why), now, &mut locked(&self.random));
                }
                Err(error) => *failed = Some(error),
            }
        }
    }
}

impl Certificates {
    /// Issues the certificate of one role, if it is due. Returns why it is refused.
    async fn certify_role(
        &self,
        job: &TrainingJob,
        role: Role,
        authority: &Authority,
        certified: &mut Certified,
    ) -> kube::Result<Option<(&'static str, String)>> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &job.namespace().unwrap_or_default());
        // Who was looked at, and is another by now, is looked at once more.
        for _ in 0..3 {
            let held = match certified.held.remove(&role) {
                Some(held) if held.looked.elapsed() >= LOOK_EVERY => look(&secrets, job, role).await?,
                Some(held) => Found::There(held),
                None => Found::Not,
            };
            let held = match held {
                Found::Refused(outcome) => return Ok(refused(outcome)),
                Found::There(held) => Some(held),
                Found::Not => None,
            };
            let view = held.as_ref().and_then(|held| held.view.as_ref());
            let Some(why) = certificate_due(view, &self.issuer_view(authority), present()) else {
                certified.held.extend(held.map(|held| (role, held)));
                return Ok(None);
            };
            let (issued, view) = match self.issue(authority, job, role) {
                Ok(issued) => issued,
                Err(why) => return Ok(Some((REFUSED, why))),
            };
            let secret = certificate_secret(job, role, issued.pem(), &view);
            let written = match &held {
                None => create(&secrets, job, role, &secret, &view).await?,
                Some(held) => replace(&secrets, job, role, &secret, held).await?,
            };
            match written {
                Found::There(held) => {
                    let is_issued = held.view.as_ref() == Some(&view);
                    certified.held.insert(role, held);
                    if is_issued {
                        let (job, expires) = (job.name_any(), view.expires.to_string());
                        tracing::info!(job, %role, expires, %why, "a certificate is issued");
                        return Ok(None);
                    }
                }
                Found::Not => {}
                Found::Refused(outcome) => return Ok(refused(outcome)),
            }
        }
        Ok(None)
    }
}

fn refused(outcome: Outcome) -> Option<(&'static str, String)> {
    match outcome {
        Outcome::Done => None,
        Outcome::Refused(word, why) => Some((word, why)),
    }
}

/// Looks at a secret's metadata by a change that changes nothing: whoever may do that to the job's own secrets need not be allowed to read
/// all of a namespace.
async fn look(secrets: &Api<Secret>, job: &TrainingJob, role: Role) -> kube::Result<Found> {
    patched(secrets, job, role, &json!({})).await
}

async fn create(
    secrets: &Api<Secret>,
    job: &TrainingJob,
    role: Role,
    secret: &Secret,
    view: &CertificateView,
) -> kube::Result<Found> {
    let how = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    match secrets.create(&how, secret).await {
        Ok(made) => Ok(Found::There(Held {
            view: Some(view.clone()),
            uid: made.uid(),
            version: made.resource_version(),
            looked: Instant::now(),
        })),
        // Of an operator before, or somebody has its name.
        Err(kube::Error::Api(status)) if status.code == 409 => look(secrets, job, role).await,
        Err(error) => Ok(Found::Refused(refusal(&secret_object(job, role), error)?)),
    }
}

/// Puts another set in the place of one, over exactly the secret that was looked at: of two operators that do so one is refused.
async fn replace(
    secrets: &Api<Secret>,
    job: &TrainingJob,
    role: Role,
    secret: &Secret,
    held: &Held,
) -> kube::Result<Found> {
    let mut patch =
        json!({ "metadata": { "annotations": secret.metadata.annotations }, "data": secret.data });
    (patch["metadata"]["uid"], patch["metadata"]["resourceVersion"]) = (json!(held.uid), json!(held.version));
    patched(secrets, job, role, &patch).await
}

async fn patched(secrets: &Api<Secret>, job: &TrainingJob, role: Role, patch: &Value) -> kube::Result<Found> {
    let (name, what) = (certificate_name(job, role.word()), secret_object(job, role));
    match secrets.patch_metadata(&name, &PatchParams::apply(FIELD_MANAGER), &Patch::Merge(patch)).await {
        Ok(there) => Ok(match owned::refused(&what, &there.metadata, job) {
            Some(refused) => Found::Refused(refused),
            None => Found::There(Held {
                view: certificate_of(&there.metadata),
                uid: there.metadata.uid,
                version: there.metadata.resource_version,
                looked: Instant::now(),
            }),
        }),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(Found::Not),
        Err(error) => Ok(Found::Refused(refusal(&what, error)?)),
    }
}

#[cfg(test)]
mod tests;
