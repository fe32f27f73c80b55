//! The admission policies for secrets and certificates: what this operator writes is let through, and nothing else. Tests only.

use crate::admission_tests::{NONE, Request, job, with};
use crate::api::{Moment, TrainingJob};
use crate::decide::CertificateView;
use crate::manifest::{Issuer, certificate, certificate_request, certificate_secret};
use serde_json::{Value, json};
use shoal_runtime::host::rpc::tls::{Identity, PemSet, Role};

/// What the operator makes for a role.
fn secret(job: &TrainingJob, role: Role) -> Value {
    let text = |name: &str| name.to_owned();
    let pem = PemSet { authorities: text("ca"), certificate: text("crt"), key: text("key") };
    let view = CertificateView { issued: Moment(1), expires: Moment(2), authority: text("a") };
    json!(certificate_secret(job, role, &pem, &view))
}

fn authority(name: &str) -> Value {
    json!({ "metadata": { "name": name }, "type": "kubernetes.io/tls" })
}

fn own() -> Value {
    json!({ "metadata": { "name": "shoal-system" } })
}

#[test]
fn the_secrets_of_jobs_and_the_authority_are_made_and_a_jobs_own_are_changed() {
    for role in Role::ALL {
        let secret = secret(&job(json!({})), role);
        assert_eq!(Request::creates("Secret", secret.clone()).refused(), NONE);
        assert_eq!(Request::of("Secret", secret.clone(), secret).refused(), NONE);
    }
    assert_eq!(Request::creates("Secret", authority("shoal-authority")).within(own()).refused(), NONE);
}

#[test]
fn each_secret_that_is_none_of_a_jobs_is_refused_by_its_own_message_alone() {
    let made = secret(&job(json!({})), Role::Master);
    for (at, value, said) in [
        ("/metadata/ownerReferences", Value::Null, "makes and changes secrets"),
        ("/metadata/ownerReferences/0/kind", json!("Job"), "makes and changes secrets"),
        ("/metadata/ownerReferences/0/controller", json!(false), "makes and changes secrets"),
        ("/metadata/name", json!("database"), "called JOB-ROLE-tls"),
        ("/metadata/name", json!("other-master-tls"), "called JOB-ROLE-tls"),
        ("/type", json!("Opaque"), "kubernetes.io/tls"),
        ("/type", json!("kubernetes.io/service-account-token"), "kubernetes.io/tls"),
    ] {
        let refused = Request::creates("Secret", with(&made, at, value.clone())).refused();
        assert!(refused.len() == 1 && refused[0].contains(said), "{at} {value}: {refused:?}");
    }
    let system = json!({ "metadata": { "name": "kube-system" } });
    assert_eq!(Request::creates("Secret", made).within(system).refused().len(), 1);
}

/// A patch that changes nothing is answered with the secret: it is as good as a get.
#[test]
fn a_secret_of_somebody_else_can_neither_be_read_by_a_patch_nor_taken_nor_deleted() {
    let (made, database) = (
        secret(&job(json!({})), Role::Master),
        json!({ "metadata": { "name": "database" }, "type": "Opaque" }),
    );
    let foreign = with(&made, "/metadata/ownerReferences", Value::Null);
    for secret in [&foreign, &database, &authority("shoal-authority")] {
        for within in [own(), json!({ "metadata": { "name": "team" } })] {
            let request = Request::of("Secret", secret.clone(), secret.clone()).within(within);
            assert!(
                request.refused().iter().any(|one| one.contains("changes and deletes secrets")),
                "{secret}"
            );
        }
    }
    let refused =
        |now: &Value, before: &Value| Request::of("Secret", now.clone(), before.clone()).refused().join("; ");
    assert!(refused(&made, &foreign).contains("changes and deletes"));
    let others = with(&made, "/metadata/ownerReferences/0/uid", json!("other"));
    assert!(refused(&others, &made).contains("to another TrainingJob"));
    assert!(refused(&Value::Null, &foreign).contains("changes and deletes"));
    assert!(refused(&Value::Null, &made).is_empty());
}

#[test]
fn the_authority_is_made_in_the_operators_namespace_alone_under_its_name() {
    let made =
        |name: &str, within: Value| Request::creates("Secret", authority(name)).within(within).refused();
    assert!(made("shoal-authority", own()).is_empty());
    assert_eq!(made("other", own()).len(), 1);
    assert_eq!(made("shoal-authority", json!({ "metadata": { "name": "team" } })).len(), 1);
}

#[test]
fn what_cert_manager_is_asked_for_is_a_jobs_own_and_goes_into_its_own_secret() {
    let (job, issuer) = (job(json!({})), "ClusterIssuer/ca".parse::<Issuer>().unwrap());
    let asked = certificate(&job, &Identity { job: "j".to_owned(), role: Role::Trainer }, &issuer, 3600);
    assert_eq!(Request::creates("Certificate", asked.clone()).refused(), NONE);
    assert_eq!(Request::of("Certificate", asked.clone(), asked.clone()).refused(), NONE);
    for (at, value) in [("/spec/secretName", json!("database")), ("/metadata/name", json!("digits-king-tls"))]
    {
        let refused = Request::creates("Certificate", with(&asked, at, value)).refused();
        assert!(refused.len() == 1 && refused[0].contains("JOB-ROLE-tls"), "{at}: {refused:?}");
    }
    let request = certificate_request(&job, "request", &issuer, 3600);
    assert_eq!(Request::creates("CertificateRequest", request.clone()).refused(), NONE);
    let bare = with(&request, "/metadata/ownerReferences", Value::Null);
    assert_eq!(Request::creates("CertificateRequest", bare).refused().len(), 1);
}
