//! How a job speaks, as it is noted when it begins, and when certificates are issued for it. Tests only.

use super::{Act, Decision, Memory, View, decide, fixture};
use crate::api::{TlsMode, TrainingJob};
use serde_json::json;

fn decided(job: &TrainingJob, default: TlsMode) -> Decision {
    let view = View { tls: default, ..fixture::view(job, &[], 1_800_000_000) };
    decide(&view, &mut Memory::default()).unwrap()
}

fn issues(decision: &Decision) -> bool {
    decision.acts.contains(&Act::IssueCertificates)
}

#[test]
fn a_job_begins_as_the_operator_is_set_unless_it_says_otherwise_and_stays_so() {
    let mut job = fixture::job(json!({}), json!({}));
    let begun = decided(&job, TlsMode::Issued);
    assert_eq!(begun.status.tls, Some(TlsMode::Issued));
    let at = |act: fn(&Act) -> bool| begun.acts.iter().position(act).unwrap();
    let (issued, made) =
        (at(|act| *act == Act::IssueCertificates), at(|act| matches!(act, Act::CreatePod(_))));
    assert!(issued < made, "before the pods that mount them");
    job.status = Some(begun.status);
    let later = decided(&job, TlsMode::Plaintext);
    assert!(later.status.tls == Some(TlsMode::Issued) && issues(&later));
    let mut plain = fixture::job(json!({}), json!({}));
    plain.spec.tls = serde_json::from_value(json!({ "mode": "Plaintext" })).unwrap();
    let begun = decided(&plain, TlsMode::Issued);
    assert!(begun.status.tls == Some(TlsMode::Plaintext) && !issues(&begun));
}

#[test]
fn a_job_that_began_under_an_operator_that_noted_nothing_goes_on_in_plaintext() {
    let mut job = fixture::job(json!({}), json!({}));
    let mut status = decided(&job, TlsMode::Plaintext).status;
    status.tls = None;
    job.status = Some(status);
    let now = decided(&job, TlsMode::Issued);
    assert!(now.status.tls == Some(TlsMode::Plaintext) && !issues(&now));
}

#[test]
fn certificates_of_a_job_that_trains_are_changed_whatever_its_spec_is_edited_into() {
    let mut job = fixture::job(json!({}), json!({}));
    job.status = Some(decided(&job, TlsMode::Issued).status);
    job.spec.training.epochs = Some(77);
    let edited = decided(&job, TlsMode::Issued);
    assert!(edited.status.message.contains("spec.epochs"), "{}", edited.status.message);
    assert!(issues(&edited));
    let mut waits = fixture::job(json!({}), json!({}));
    waits.spec.training.checkpoint.place.clear();
    assert!(!issues(&decided(&waits, TlsMode::Issued)), "one that has not begun needs none");
    job.spec.suspend = true;
    job.spec.training.epochs = None;
    assert!(!issues(&decided(&job, TlsMode::Issued)), "nor one without pods");
}
