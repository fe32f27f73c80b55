//! Certificates of jobs, issued and changed in time: what was decided by [`certificate_due`] becomes secrets, and credentials of this
//! operator as each job's client.

mod calls;
mod held;

use super::apply::{self, Outcome};
use super::authority::{Authorities, Usable};
use super::cert_manager::{self, Asked};
use super::clients::Clients;
use super::fleet::{Fleet, Known, locked, present};
use crate::api::{Moment, TlsMode, TrainingJob};
use crate::decide::{CertificateView, IssuerView, certificate_due, certificate_end};
use crate::manifest::{Issuer, certificate_name, certificate_secret, credentials_of, identity};
use calls::Found;
use held::{Secrets, Source, served};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt};
use shoal_runtime::host::authority::{Authority, Issued};
use shoal_runtime::host::rpc::tls::{Identity, Role, Validity};
use std::time::Duration;
use tokio::time::Instant;

/// A client's certificate that the operator was given is read again so often.
const GIVEN_EVERY: Duration = Duration::from_secs(60);
/// Whether a job's secrets are still there is looked at so often.
const LOOK_EVERY: Duration = Duration::from_secs(600);
/// What of secrets is not looked at yet is looked at within this part of a certificate's life.
const PRESUMED_PART: u64 = 24;
/// The object of refusals that concern the authority.
pub(super) const AUTHORITY: &str = "Authority";
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
    began: Moment,
    pub(super) clients: std::sync::Arc<Clients>,
}

/// What is known of one job's certificates. Lost with its process, whose successor goes by the job's status and pods, and by its secrets.
#[derive(Default)]
pub(super) struct Certified {
    pub(super) secrets: Secrets,
    /// When another operator has last served the job; none before anybody has asked.
    served: Option<Option<Moment>>,
    has_presumed: bool,
    /// This operator's own certificate as the job's client.
    own: Option<CertificateView>,
    /// The same from cert-manager, as far as it has come.
    pub(super) asked: Asked,
    given: Option<Instant>,
    /// Why the newest credentials cannot be had, though those before may still be good.
    fault: Option<String>,
    /// What was told of a master that cannot be asked.
    told: Option<String>,
    /// Whether it was told that the authority ends soon.
    is_end_told: bool,
}

impl Certified {
    /// Whether pods of that role find the secret that they mount.
    pub(super) fn has(&self, role: &str) -> bool {
        self.secrets.has(role)
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
            began: present(),
            client,
            default: settings.default,
            lifetime: settings.lifetime.as_secs().max(1),
            issuer: settings.issuer,
            clients,
        }
    }

    fn issuer_view<'a>(&self, authority: &'a Authority) -> IssuerView<'a> {
        let ends = i64::try_from(authority.validity().until).unwrap_or(i64::MAX);
        IssuerView { authority: authority.fingerprint(), ends: Moment(ends), lifetime: self.lifetime }
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

    /// Sees that the job's master can be spoken with. Returns why it cannot, if that has not been told: not while credentials of
    /// before are good.
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
        let fault = spoken.err();
        if let Some(why) = &fault
            && !self.clients.keep(&uid)
        {
            self.clients.never(&uid, why);
        }
        let is_seen = fault.is_none() || self.clients.are_good(&uid, present());
        if is_seen && fault.is_some() && fault != certified.fault {
            let (job, why) = (job.name_any(), fault.as_deref());
            tracing::info!(job, why, "the operator's certificate is not renewed yet: the one before is good");
        }
        let unseen = fault.clone().filter(|_| !is_seen);
        certified.fault = fault;
        let is_news = unseen.is_some() && unseen != certified.told;
        certified.told = unseen;
        certified.told.clone().filter(|_| is_news)
    }

    async fn believe_own(
        &self,
        job: &TrainingJob,
        uid: &str,
        certified: &mut Certified,
    ) -> Result<(), String> {
        let authority = self.authorities.current().await.map_err(|(_, why)| why)?.authority;
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
            return match &certified.fault {
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
        let usable = match self.certificates.authorities.current().await {
            Ok(usable) => usable,
            Err(reason) => {
                known.refusals.note(AUTHORITY, reason, Instant::now(), &mut locked(&self.random));
                return;
            }
        };
        known.refusals.forgive(AUTHORITY);
        self.tell_of_the_end(job, &usable, known).await;
        let authority = &usable.authority;
        self.presume(job, known, &self.certificates.issuer_view(authority), usable.settled);
        for role in Role::ALL {
            let (object, now) = (secret_object(job, role), Instant::now());
            if !known.refusals.is_due(&object, now) {
                continue;
            }
            match self.certificates.certify_role(job, role, authority, &mut known.certified).await {
                Ok(None) => known.refusals.forgive(&object),
                Ok(Some((word, why))) => {
                    known.refusals.note(&object, (word, why), now, &mut locked(&self.random));
                }
                Err(error) => *failed = Some(error),
            }
        }
    }

    /// Tells people once that the authority ends before a certificate would that is issued now.
    async fn tell_of_the_end(&self, job: &TrainingJob, usable: &Usable, known: &mut Known) {
        let is_soon = usable.ends_in(present()).is_some_and(|left| left < self.certificates.lifetime);
        if is_soon && !std::mem::replace(&mut known.certified.is_end_told, true) {
            let (place, ends) = (self.certificates.authorities.place(), usable.ends());
            let why = format!(
                "{place}: the authority ends at {ends}, and the job's certificates with it: put another in its place before"
            );
            apply::event(self, job, true, "AuthorityEnds", &why).await;
        }
        known.certified.is_end_told = is_soon;
    }

    /// Once for each job: takes secrets for granted that another operator has seen to lately, so that an operator that begins does not
    /// ask for those of all jobs at once. They are looked at later, each job's at a moment of its own.
    pub(super) fn presume(
        &self,
        job: &TrainingJob,
        known: &mut Known,
        issuer: &IssuerView<'_>,
        settled: Moment,
    ) {
        let certified = &mut known.certified;
        let is_first = !std::mem::replace(&mut certified.has_presumed, true);
        if !is_first || !issuer.presumes(certified.served.flatten(), settled, present()) {
            return;
        }
        let longest = LOOK_EVERY.min(Duration::from_secs(issuer.lifetime / PRESUMED_PART));
        let half = u64::try_from(longest.as_millis() / 2).unwrap_or(0);
        let after = Duration::from_millis(half + locked(&self.random).below(half.max(1)));
        certified.secrets.presume(&self.pods.of(job), issuer.authority, after);
    }
}

impl Certified {
    /// Notes when the job was served last, as its status says when this operator sees it first: before it has written any.
    pub(super) fn see_served(&mut self, job: &TrainingJob) {
        self.served.get_or_insert_with(|| served(job));
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
        let issuer = self.issuer_view(authority);
        // A job that is younger than this operator has none: it is made without a look.
        let mut may_be_there = !self.has_seen_begin(job);
        // Who was looked at, and is another by now, is looked at once more.
        for _ in 0..3 {
            let (is_fresh, held) = (certified.secrets.is_fresh(role), certified.secrets.of(role).cloned());
            let found = match held.map(|held| held.source) {
                Some(Source::Pods(fingerprint)) if is_fresh && fingerprint == issuer.authority => {
                    return Ok(None);
                }
                Some(Source::Look(seen)) if is_fresh => Found::There(seen),
                None if !may_be_there => Found::Not,
                _ => {
                    let found = calls::look(&secrets, job, role).await?;
                    certified.note(role, &found);
                    found
                }
            };
            let seen = match found {
                Found::Refused(outcome) => return Ok(refused(outcome)),
                Found::There(seen) => Some(seen),
                Found::Not => None,
            };
            let view = seen.as_ref().and_then(|seen| seen.view.as_ref());
            let Some(why) = certificate_due(view, &issuer, present()) else { return Ok(None) };
            let (issued, view) = match self.issue(authority, job, role) {
                Ok(issued) => issued,
                Err(why) => return Ok(Some((REFUSED, why))),
            };
            let secret = certificate_secret(job, role, issued.pem(), &view);
            let written = match &seen {
                None => calls::create(&secrets, job, role, &secret, &view).await?,
                Some(seen) => calls::replace(&secrets, job, role, &secret, seen).await?,
            };
            certified.note(role, &written);
            may_be_there = true;
            match written {
                Found::There(seen) if seen.view.as_ref() == Some(&view) => {
                    let (job, expires) = (job.name_any(), view.expires.to_string());
                    tracing::info!(job, %role, expires, %why, "a certificate is issued");
                    return Ok(None);
                }
                Found::There(_) | Found::Not => {}
                Found::Refused(outcome) => return Ok(refused(outcome)),
            }
        }
        Ok(None)
    }

    /// Whether a job was made since this operator began.
    fn has_seen_begin(&self, job: &TrainingJob) -> bool {
        let made = job.metadata.creation_timestamp.as_ref();
        made.is_some_and(|made| Moment::from(made.0) >= self.began)
    }
}

impl Certified {
    fn note(&mut self, role: Role, found: &Found) {
        match found {
            Found::There(seen) => self.secrets.note(role, seen.clone()),
            Found::Not | Found::Refused(_) => self.secrets.forget(role),
        }
    }
}

fn refused(outcome: Outcome) -> Option<(&'static str, String)> {
    match outcome {
        Outcome::Done => None,
        Outcome::Refused(word, why) => Some((word, why)),
    }
}

#[cfg(test)]
pub(super) mod server;
#[cfg(test)]
mod tests;
