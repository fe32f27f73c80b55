//! The secrets with certificates of a job, and what is asked of cert-manager in their place. Talks to nobody.

use super::{metadata, owner};
use crate::api::{Moment, TrainingJob};
use crate::decide::CertificateView;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use serde_json::{Value, json};
use shoal_runtime::host::rpc::tls::{Identity, PemSet, Role};
use std::collections::BTreeMap;
use std::str::FromStr;

/// The annotation with when a certificate was issued.
const ISSUED: &str = "shoal.dev/issued";
/// The annotation with when it ends.
const EXPIRES: &str = "shoal.dev/expires";
/// The annotation with a fingerprint of the authority, and of those that are believed beside it.
const AUTHORITY: &str = "shoal.dev/authority";
/// The type of secrets with a certificate and its key.
pub const SECRET_TYPE: &str = "kubernetes.io/tls";

/// The name of a certificate of a job, and of the secret with it: of `master`, `pserver`, `trainer`, or `client`, who is a person.
pub fn certificate_name(job: &TrainingJob, role: &str) -> String {
    format!("{}-{role}-tls", job.name_any())
}

/// The secret with a certificate, as it is made, or put in the place of another.
pub fn certificate_secret(job: &TrainingJob, role: Role, pem: &PemSet, view: &CertificateView) -> Secret {
    let annotations = [
        (ISSUED, view.issued.to_string()),
        (EXPIRES, view.expires.to_string()),
        (AUTHORITY, view.authority.clone()),
    ];
    let annotations = annotations.map(|(key, value)| (key.to_owned(), value));
    let metadata = ObjectMeta {
        annotations: Some(annotations.into()),
        ..metadata(job, certificate_name(job, role.word()))
    };
    Secret {
        metadata,
        type_: Some(SECRET_TYPE.to_owned()),
        data: Some(secret_data(pem)),
        ..Secret::default()
    }
}

/// A set of credentials as a secret has them.
pub fn secret_data(pem: &PemSet) -> BTreeMap<String, ByteString> {
    let all = [("ca.crt", &pem.authorities), ("tls.crt", &pem.certificate), ("tls.key", &pem.key)];
    all.map(|(key, text)| (key.to_owned(), ByteString(text.clone().into_bytes()))).into()
}

/// A set of credentials out of a secret. One without `ca.crt` is believed by who believes its certificate.
///
/// # Errors
/// What it lacks; nothing of what it has.
pub fn credentials_of(secret: &Secret) -> Result<PemSet, String> {
    let data = secret.data.clone().unwrap_or_default();
    let text = |key: &str| {
        let bytes = data.get(key).filter(|bytes| !bytes.0.is_empty());
        bytes
            .map(|bytes| String::from_utf8(bytes.0.clone()).map_err(|_| format!("{key} is no text")))
            .transpose()
    };
    let named = |key: &str| text(key)?.ok_or_else(|| format!("it has no {key}"));
    let certificate = named("tls.crt")?;
    let authorities = text("ca.crt")?.unwrap_or_else(|| certificate.clone());
    Ok(PemSet { authorities, certificate, key: named("tls.key")? })
}

/// What a secret says of the certificate in it; none where it does not say it.
pub fn certificate_of(object: &ObjectMeta) -> Option<CertificateView> {
    let all = object.annotations.as_ref()?;
    let moment = |key: &str| -> Option<Moment> { serde_json::from_value(json!(all.get(key)?)).ok() };
    Some(CertificateView {
        issued: moment(ISSUED)?,
        expires: moment(EXPIRES)?,
        authority: all.get(AUTHORITY)?.clone(),
    })
}

/// One of cert-manager's: `ClusterIssuer/NAME`, or `Issuer/NAME`, which has to be in each namespace with jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issuer {
    /// `Issuer` or `ClusterIssuer`.
    pub kind: String,
    /// Its name.
    pub name: String,
}

impl FromStr for Issuer {
    type Err = String;

    fn from_str(text: &str) -> Result<Issuer, String> {
        let wrong = || {
            format!(
                "{text:?} names no issuer: give ClusterIssuer/NAME or Issuer/NAME, as cert-manager knows it"
            )
        };
        let (kind, name) = text.split_once('/').ok_or_else(wrong)?;
        let is_known = matches!(kind, "Issuer" | "ClusterIssuer") && !name.is_empty() && !name.contains('/');
        is_known.then(|| Issuer { kind: kind.to_owned(), name: name.to_owned() }).ok_or_else(wrong)
    }
}

impl Issuer {
    fn reference(&self) -> Value {
        json!({ "group": "cert-manager.io", "kind": self.kind, "name": self.name })
    }
}

const USAGES: [&str; 3] = ["digital signature", "server auth", "client auth"];

/// What cert-manager is to make and renew: the same secret with the same names in it, and a key that this operator never sees.
pub fn certificate(job: &TrainingJob, identity: &Identity, issuer: &Issuer, lifetime: u64) -> Value {
    let name = certificate_name(job, identity.role.word());
    json!({
        "apiVersion": "cert-manager.io/v1",
        "kind": "Certificate",
        "metadata": metadata(job, name.clone()),
        "spec": {
            "secretName": name,
            "uris": [identity.uri()],
            "duration": format!("{lifetime}s"),
            "renewBefore": format!("{}s", lifetime / 3),
            "usages": USAGES,
            // A key is as old as its certificate.
            "privateKey": { "algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always" },
            "issuerRef": issuer.reference(),
        },
    })
}

/// A request for a certificate whose key is the operator's own, and stays in its memory.
pub fn certificate_request(job: &TrainingJob, request: &str, issuer: &Issuer, lifetime: u64) -> Value {
    let metadata = ObjectMeta {
        // Each is answered once: another has another name.
        generate_name: Some(format!("{}-operator-", job.name_any())),
        namespace: job.namespace(),
        owner_references: Some(vec![owner(job)]),
        labels: Some(super::labels(job)),
        ..ObjectMeta::default()
    };
    json!({
        "apiVersion": "cert-manager.io/v1",
        "kind": "CertificateRequest",
        "metadata": metadata,
        "spec": {
            "request": ByteString(request.as_bytes().to_vec()),
            "duration": format!("{lifetime}s"),
            "usages": USAGES,
            "issuerRef": issuer.reference(),
        },
    })
}
