//! cert-manager in the place of the operator's own authority: it is asked for the secrets of a job's roles, whose keys it makes, and to sign
//! a certificate for this operator, whose key stays here.

use super::apply::{Outcome, refusal};
use super::certificates::{Certificates, Certified};
use super::fleet::{Fleet, Known, locked, present};
use super::owned;
use crate::api::{Moment, TrainingJob};
use crate::decide::{GOING, IssuerView};
use crate::manifest::{FIELD_MANAGER, Issuer, certificate, certificate_name, certificate_request, identity};
use k8s_openapi::ByteString;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use shoal_runtime::host::authority::Request;
use shoal_runtime::host::rpc::tls::{Identity, Role};
use std::time::Duration;
use tokio::time::Instant;

/// A request that was not answered for so long is given up. After it, and after one that was refused or could not be made, there is none
/// for as long.
const ANSWER: Duration = Duration::from_secs(60);
/// Both times double with each request that came to nothing, up to this: an issuer may need somebody's approval.
const ANSWER_MAX: Duration = Duration::from_secs(900);
/// A certificate is made within so many seconds, or it is told of as of a fault.
const MAKING_SECONDS: u64 = 60;
/// The word for a certificate that is about to be made: what is waited for is told as a name that is about to be free, and is no event.
const BEING_MADE: &str = GOING;

/// This operator's own certificate, as far as it has come.
#[derive(Default)]
pub(super) struct Asked {
    /// The name of what was asked, and the key to it.
    request: Option<(String, Request)>,
    /// When it was, or was tried to be.
    since: Option<Instant>,
    /// Requests since the last answer that came to nothing.
    failures: u32,
    /// Why the last one did.
    fault: Option<String>,
    /// When the one in use is to be followed by another.
    again: Option<Moment>,
}

impl Asked {
    fn is_patient(&self) -> bool {
        let doublings = self.failures.saturating_sub(1).min(4);
        let patience = ANSWER.saturating_mul(1 << doublings).min(ANSWER_MAX);
        self.since.is_some_and(|since| since.elapsed() < patience)
    }

    /// Notes that the last request has come to nothing.
    fn fails(&mut self, why: String) -> String {
        (self.since, self.fault) = (Some(Instant::now()), Some(why.clone()));
        self.failures = self.failures.saturating_add(1);
        why
    }
}

fn api(client: &Client, namespace: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
    let resource =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("cert-manager.io", "v1", kind), plural);
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// The kind and the name of what is asked for, for people.
pub(super) fn certificate_object(job: &TrainingJob, role: Role) -> String {
    format!("Certificate {}", certificate_name(job, role.word()))
}

/// Asks for the secrets of all roles that were not asked for, or not for long.
pub(super) async fn certify(
    fleet: &Fleet,
    job: &TrainingJob,
    issuer: &Issuer,
    known: &mut Known,
    failed: &mut Option<kube::Error>,
) {
    let namespace = job.namespace().unwrap_or_default();
    let certificates = api(&fleet.client, &namespace, "Certificate", "certificates");
    let lifetime = fleet.certificates.lifetime;
    // Whoever signs is cert-manager's affair, and so is what follows from another.
    let view = IssuerView { authority: "", ends: Moment(i64::MAX), lifetime };
    fleet.presume(job, known, &view, Moment(i64::MIN));
    for role in Role::ALL {
        let (object, now) = (certificate_object(job, role), Instant::now());
        if known.certified.secrets.is_fresh(role) || !known.refusals.is_due(&object, now) {
            continue;
        }
        let wanted = certificate(job, &Identity { job: identity(job), role }, issuer, lifetime);
        match ask(&certificates, job, &object, wanted).await {
            Ok(Outcome::Done) => {
                known.certified.secrets.note_there(role);
                known.refusals.forgive(&object);
            }
            Ok(Outcome::Refused(word, why)) => {
                known.certified.secrets.forget(role);
                known.refusals.note(&object, (word, why), now, &mut locked(&fleet.random));
            }
            Err(error) => *failed = Some(error),
        }
    }
}

/// Makes one of cert-manager's certificates, or has it be as it should. Done once its secret is there.
async fn ask(
    all: &Api<DynamicObject>,
    job: &TrainingJob,
    what: &str,
    mut wanted: Value,
) -> kube::Result<Outcome> {
    let name = wanted["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let written = match all.get_opt(&name).await {
        Err(error) => return absent(what, error),
        Ok(None) => {
            let object = serde_json::from_value(wanted).map_err(kube::Error::SerdeError)?;
            let how = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
            all.create(&how, &object).await
        }
        Ok(Some(there)) => {
            if let Some(refused) = owned::refused(what, &there.metadata, job) {
                return Ok(refused);
            }
            if says(&there.data["spec"], &wanted["spec"]) {
                return Ok(made(what, &there));
            }
            (wanted["metadata"]["uid"], wanted["metadata"]["resourceVersion"]) =
                (there.metadata.uid.into(), there.metadata.resource_version.into());
            all.patch(&name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(wanted)).await
        }
    };
    match written {
        Ok(there) => Ok(made(what, &there)),
        Err(error) => absent(what, error),
    }
}

/// Whether a spec says all that is wanted, and as it is wanted; what the server adds is its own.
fn says(there: &Value, wanted: &Value) -> bool {
    match wanted {
        Value::Object(fields) => fields.iter().all(|(name, wanted)| says(&there[name], wanted)),
        wanted => there == wanted,
    }
}

/// Whether a certificate's secret is there, with what it asks for: by cert-manager's word `Ready`, if that is of this spec.
fn made(what: &str, there: &DynamicObject) -> Outcome {
    let conditions = there.data["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let condition = |kind: &str| conditions.iter().find(|one| one["type"] == kind);
    let ready = condition("Ready");
    let is_of_this = |one: &Value| {
        let generation = one["observedGeneration"].as_i64();
        generation.is_none() || there.metadata.generation.is_none() || generation >= there.metadata.generation
    };
    if ready.is_some_and(|ready| ready["status"] == "True" && is_of_this(ready)) {
        return Outcome::Done;
    }
    // What went wrong is said beside it.
    let failed = condition("Issuing").filter(|issuing| issuing["status"] == "False");
    let said = failed.or(ready).and_then(|one| one["message"].as_str()).filter(|said| !said.is_empty());
    let changed = ready.and_then(|ready| serde_json::from_value(ready["lastTransitionTime"].clone()).ok());
    let since = changed.or(there.metadata.creation_timestamp.as_ref().map(|time| Moment::from(time.0)));
    let is_late = since.is_some_and(|since| present().since(since) > MAKING_SECONDS);
    let said = said.unwrap_or("it says nothing of it: does it run?");
    let why = format!("{what}: cert-manager has not made its secret yet: {said}");
    Outcome::Refused(if is_late { "CertificateRefused" } else { BEING_MADE }, why)
}

/// What the server will not have. One without cert-manager knows no such resource.
fn absent(what: &str, error: kube::Error) -> kube::Result<Outcome> {
    match error {
        kube::Error::Api(status) if status.code == 404 => {
            let why = format!(
                "{what}: this cluster has no certificates of cert-manager.io/v1: install it, or leave out --issuer"
            );
            Ok(Outcome::Refused("CertificateRefused", why))
        }
        kube::Error::Api(status) if status.code == 403 && status.message.contains("cert-manager.io") => {
            let way_out = "give the operator the rights of deploy/cert-manager.yaml, or leave out --issuer";
            Ok(Outcome::Refused("CertificateRefused", format!("{what}: {}: {way_out}", status.message)))
        }
        error => refusal(what, error),
    }
}

/// Sees that this operator has a certificate as the job's client: it asks for one, and takes the answer once it is there.
pub(super) async fn believe(
    all: &Certificates,
    job: &TrainingJob,
    issuer: &Issuer,
    certified: &mut Certified,
) -> Result<(), String> {
    let uid = job.uid().unwrap_or_default();
    let asked = &mut certified.asked;
    if asked.again.is_some_and(|again| present() < again) && all.clients.keep(&uid) {
        return Ok(());
    }
    let namespace = job.namespace().unwrap_or_default();
    let requests = api(&all.client, &namespace, "CertificateRequest", "certificaterequests");
    let waits = "cert-manager has not signed the operator's certificate yet";
    let told = |asked: &Asked| asked.fault.clone().unwrap_or_else(|| waits.to_owned());
    let Some(request) = asked.request.as_ref().map(|(request, _)| request.clone()) else {
        if asked.is_patient() {
            return Err(told(asked));
        }
        return match request_one(&requests, all, job, issuer).await {
            Ok(made) => {
                (asked.request, asked.since) = (Some(made), Some(Instant::now()));
                Err(told(asked))
            }
            Err(why) => {
                Err(asked
                    .fails(format!("cert-manager cannot be asked for the operator's certificate: {why}")))
            }
        };
    };
    let answer = requests.get_opt(&request).await.map_err(|error| error.to_string())?;
    let answer = answer.as_ref().map(answered);
    if matches!(answer, Some(Answer::None)) && asked.is_patient() {
        return Err(told(asked));
    }
    let Some((_, key)) = asked.request.take() else { return Err(told(asked)) };
    let done = match answer {
        Some(Answer::Signed { certificate, authorities }) => {
            let pem = key.answered(authorities, certificate);
            all.clients.believed_by(&uid, &identity(job), &pem)
        }
        Some(Answer::Refused(why)) => {
            Err(format!("cert-manager does not sign the operator's certificate: {why}"))
        }
        Some(Answer::None) => Err(format!("{waits}: nothing was said of CertificateRequest {request}")),
        None => Err(format!("CertificateRequest {request} was deleted before it was answered")),
    };
    let done = match done {
        Ok(()) => {
            let until = all.clients.of(&uid)?.validity().map_or(0, |validity| validity.until);
            let (now, ends) = (present(), Moment(i64::try_from(until).unwrap_or(i64::MAX)));
            *asked = Asked { again: Some(now.plus(ends.since(now) * 2 / 3)), ..Asked::default() };
            Ok(())
        }
        Err(why) => Err(asked.fails(why)),
    };
    // It has said all that it has to say, or is given up.
    let _ = requests.delete(&request, &DeleteParams::default()).await;
    done
}

/// Asks for a certificate. Returns the name of what was asked, and the key to it.
async fn request_one(
    requests: &Api<DynamicObject>,
    all: &Certificates,
    job: &TrainingJob,
    issuer: &Issuer,
) -> Result<(String, Request), String> {
    let made = Request::of(&Identity { job: identity(job), role: Role::Client })?;
    let wanted = certificate_request(job, &made.pem, issuer, all.lifetime);
    let object = serde_json::from_value(wanted).map_err(|error| error.to_string())?;
    match requests.create(&PostParams::default(), &object).await {
        Ok(created) => Ok((created.name_any(), made)),
        Err(kube::Error::Api(status)) => Err(status.message),
        Err(error) => Err(error.to_string()),
    }
}

enum Answer {
    Signed { certificate: String, authorities: String },
    Refused(String),
    None,
}

fn answered(request: &DynamicObject) -> Answer {
    let status = &request.data["status"];
    let text = |key: &str| {
        let bytes: ByteString = serde_json::from_value(status.get(key)?.clone()).ok()?;
        String::from_utf8(bytes.0).ok().filter(|text| !text.is_empty())
    };
    if let Some(certificate) = text("certificate") {
        // Some issuers do not say who they are; then the chain ends with it.
        let authorities = text("ca").unwrap_or_else(|| certificate.clone());
        return Answer::Signed { certificate, authorities };
    }
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let refused = |one: &&Value| {
        let is = |key: &str, value: &str| one[key] == value;
        (is("type", "Denied") && is("status", "True"))
            || (is("type", "InvalidRequest") && is("status", "True"))
            || (is("type", "Ready")
                && is("status", "False")
                && (is("reason", "Failed") || is("reason", "Denied")))
    };
    match conditions.iter().find(refused) {
        Some(one) => Answer::Refused(one["message"].as_str().unwrap_or_default().to_owned()),
        None => Answer::None,
    }
}

#[cfg(test)]
mod tests;
