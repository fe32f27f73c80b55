//! cert-manager in the place of the operator's own authority: it is asked for the secrets of a job's roles, whose keys it makes, and to sign
//! a certificate for this operator, whose key stays here.

use super::apply::{Outcome, refusal};
use super::certificates::{Certificates, Certified};
use super::fleet::{Fleet, Known, locked};
use super::owned;
use crate::api::{Moment, TrainingJob};
use crate::manifest::{FIELD_MANAGER, Issuer, certificate, certificate_name, certificate_request, identity};
use k8s_openapi::ByteString;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use shoal_runtime::host::authority::Request;
use shoal_runtime::host::rpc::tls::{Identity, Role};
use std::time::Duration;
use tokio::time::Instant;

/// Whether what was asked for is still so is looked at so often.
const LOOK_EVERY: Duration = Duration::from_secs(600);
/// A request that was not answered for so long is made again, and so is one that was refused.
const ANSWER: Duration = Duration::from_secs(60);

/// This operator's own certificate, as far as it has come.
#[derive(Default)]
pub(super) struct Asked {
    /// The name of what was asked, the key to it, and when.
    request: Option<(String, Request)>,
    since: Option<Instant>,
    /// When the one in use is to be followed by another.
    again: Option<Moment>,
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
    for role in Role::ALL {
        let (object, now) = (certificate_object(job, role), Instant::now());
        let is_fresh = known.certified.looked(role).is_some_and(|looked| looked.elapsed() < LOOK_EVERY);
        if is_fresh || !known.refusals.is_due(&object, now) {
            continue;
        }
        let whom = Identity { job: identity(job), role };
        let wanted = certificate(job, &whom, issuer, fleet.certificates.lifetime);
        match ask(&certificates, job, &object, wanted).await {
            Ok(Outcome::Done) => {
                known.certified.note_there(role);
                known.refusals.forgive(&object);
            }
            Ok(Outcome::Refused(word, why)) => {
                known.refusals.note(&object, (word, why), now, &mut locked(&fleet.random));
            }
            Err(error) => *failed = Some(error),
        }
    }
}

/// Makes one of cert-manager's certificates, or has it be as it should.
async fn ask(
    all: &Api<DynamicObject>,
    job: &TrainingJob,
    what: &str,
    mut wanted: Value,
) -> kube::Result<Outcome> {
    let name = wanted["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let there = match all.get_metadata_opt(&name).await {
        Ok(there) => there,
        Err(error) => return absent(what, error),
    };
    let Some(there) = there else {
        let object = serde_json::from_value(wanted).map_err(kube::Error::SerdeError)?;
        let how = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        return match all.create(&how, &object).await {
            Ok(_) => Ok(Outcome::Done),
            Err(error) => absent(what, error),
        };
    };
    if let Some(refused) = owned::refused(what, &there.metadata, job) {
        return Ok(refused);
    }
    (wanted["metadata"]["uid"], wanted["metadata"]["resourceVersion"]) =
        (there.metadata.uid.into(), there.metadata.resource_version.into());
    match all.patch(&name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(wanted)).await {
        Ok(_) => Ok(Outcome::Done),
        Err(error) => absent(what, error),
    }
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
    let (name, uid) = (identity(job), job.uid().unwrap_or_default());
    let now = super::fleet::present();
    let asked = &mut certified.asked;
    if asked.again.is_some_and(|again| now < again) && all.clients.keep(&uid) {
        return Ok(());
    }
    let namespace = job.namespace().unwrap_or_default();
    let requests = api(&all.client, &namespace, "CertificateRequest", "certificaterequests");
    let waits = "cert-manager has not signed the operator's certificate yet".to_owned();
    let Some((request, _)) = &asked.request else {
        if asked.since.is_some_and(|since| since.elapsed() < ANSWER) && asked.again.is_none() {
            return Err(waits);
        }
        asked.since = Some(Instant::now());
        let made = Request::of(&Identity { job: name, role: Role::Client })?;
        let wanted = certificate_request(job, &made.pem, issuer, all.lifetime);
        let object = serde_json::from_value(wanted).map_err(|error| error.to_string())?;
        let created =
            requests.create(&PostParams::default(), &object).await.map_err(|error| error.to_string())?;
        asked.request = Some((created.name_any(), made));
        return Err(waits);
    };
    let answer = requests.get_opt(request).await.map_err(|error| error.to_string())?;
    let is_late = asked.since.is_none_or(|since| since.elapsed() >= ANSWER);
    match answer.as_ref().map(answered) {
        Some(Answer::Signed { certificate, authorities }) => {
            let Some((request, key)) = asked.request.take() else { return Err(waits) };
            let pem = key.answered(authorities, certificate);
            all.clients.believed_by(&uid, &name, &pem)?;
            let until = all.clients.of(&uid)?.validity().map_or(0, |validity| validity.until);
            let ends = Moment(i64::try_from(until).unwrap_or(i64::MAX));
            asked.again = Some(now.plus(ends.since(now) * 2 / 3));
            // It has said all that it has to say.
            let _ = requests.delete(&request, &DeleteParams::default()).await;
            Ok(())
        }
        Some(Answer::Refused(why)) => {
            asked.request = None;
            Err(format!("cert-manager does not sign the operator's certificate: {why}"))
        }
        Some(Answer::None) if !is_late => Err(waits),
        Some(Answer::None) | None => {
            asked.request = None;
            Err(waits)
        }
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
