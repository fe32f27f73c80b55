//! What is asked of cert-manager, before a server in whose place it does not answer, refuses, or is ready. Tests only.

use super::super::certificates::server::{MADE, Server, fleet, job, operator, served_job};
use super::*;
use http::Method;
use serde_json::json;
use std::sync::Arc;

fn issuer() -> Issuer {
    "ClusterIssuer/internal".parse().unwrap()
}

fn by_issuer(server: &Arc<Server>) -> Certificates {
    let mut all = operator(server, 86_400);
    all.issuer = Some(issuer());
    all
}

async fn reconciled(fleet: &Fleet, job: &TrainingJob, known: &mut Known) {
    let mut failed = None;
    known.certified.see_served(job);
    fleet.certify(job, known, &mut failed).await;
    assert!(failed.is_none(), "{failed:?}");
}

const REQUESTS: &str = "/certificaterequests";
const CERTIFICATES: &str = "/certificates";

fn requests(server: &Server) -> usize {
    locked(&server.objects).keys().filter(|path| path.contains(REQUESTS)).count()
}

/// Has a certificate say that it is ready, or why not, for a generation.
fn say(server: &Server, status: &str, generation: i64) {
    for (path, object) in locked(&server.objects).iter_mut().filter(|(path, _)| path.contains(CERTIFICATES)) {
        let ready = json!({ "type": "Ready", "status": status, "message": "no issuer", "observedGeneration": generation, "lastTransitionTime": MADE });
        object["metadata"]["generation"] = json!(2);
        object["status"] = json!({ "conditions": [ready] });
        assert!(path.ends_with("-tls"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_refused_is_tried_ever_less_often_and_leaves_nothing_behind() {
    let server = Arc::new(Server::default());
    let (all, mut certified) = (by_issuer(&server), Certified::default());
    let refused = json!({ "type": "Ready", "status": "False", "reason": "Failed", "message": "not by me" });
    *locked(&server.answer) = json!({ "conditions": [refused] });
    // As of one whose certificate was signed before.
    certified.asked.again = Some(Moment(0));
    let mut said = Vec::new();
    for _ in 0..200 {
        said.push(believe(&all, &job(), &issuer(), &mut certified).await.unwrap_err());
        tokio::time::advance(Duration::from_secs(3)).await;
    }
    // At 0, 1, 3 and 7 minutes, as the pauses grow.
    assert_eq!(server.count(Method::POST, REQUESTS), 4);
    assert!(requests(&server) <= 1, "what is refused is deleted");
    assert_eq!(
        said.iter().filter(|said| said.contains("not by me")).count(),
        199,
        "it is said in between as well"
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_that_nobody_answers_is_given_up_and_deleted() {
    let server = Arc::new(Server::default());
    let (all, mut certified) = (by_issuer(&server), Certified::default());
    for _ in 0..19 {
        let why = believe(&all, &job(), &issuer(), &mut certified).await.unwrap_err();
        assert_eq!(why, "cert-manager has not signed the operator's certificate yet");
        tokio::time::advance(Duration::from_secs(3)).await;
    }
    assert_eq!((server.count(Method::POST, REQUESTS), requests(&server)), (1, 1));
    tokio::time::advance(Duration::from_secs(10)).await;
    let why = believe(&all, &job(), &issuer(), &mut certified).await.unwrap_err();
    assert!(why.contains("nothing was said of CertificateRequest j-operator-"), "{why}");
    assert_eq!((server.count(Method::POST, REQUESTS), requests(&server)), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn why_no_request_can_be_made_and_an_answer_that_is_none_are_remembered() {
    let server = Arc::new(Server::default());
    let (all, mut certified) = (by_issuer(&server), Certified::default());
    *locked(&server.refusing) = Some(REQUESTS);
    for _ in 0..10 {
        let why = believe(&all, &job(), &issuer(), &mut certified).await.unwrap_err();
        assert!(why.ends_with("the server says Forbidden"), "{why}");
    }
    assert_eq!(server.count(Method::POST, REQUESTS), 1, "it is not tried at each reconcile");
    *locked(&server.refusing) = None;
    *locked(&server.answer) = json!({ "certificate": ByteString(b"no certificate".to_vec()) });
    tokio::time::advance(ANSWER).await;
    let mut said = Vec::new();
    for _ in 0..4 {
        said.push(believe(&all, &job(), &issuer(), &mut certified).await.unwrap_err());
    }
    assert!(said[0].ends_with("Forbidden") && !said[1].ends_with("Forbidden"), "{said:?}");
    assert!(said[1] == said[2] && said[2] == said[3], "{said:?}");
    assert_eq!((server.count(Method::POST, REQUESTS), requests(&server)), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn pods_wait_until_cert_manager_says_that_their_secret_is_ready() {
    let server = Arc::new(Server::default());
    let (fleet, mut known) = (fleet(by_issuer(&server), &[]), Known::default());
    let has = |known: &Known| Role::ALL.map(|role| known.certified.has(role.word()));
    reconciled(&fleet, &job(), &mut known).await;
    assert_eq!(server.count(Method::POST, CERTIFICATES), 4);
    assert_eq!(has(&known), [false; 4], "it was asked for, and is not there");
    say(&server, "False", 2);
    tokio::time::advance(Duration::from_secs(10)).await;
    reconciled(&fleet, &job(), &mut known).await;
    let (word, why) = known.refusals.told(|_| false).unwrap();
    assert!(
        word == "CertificateRefused" && why.contains("has not made its secret yet: no issuer"),
        "{word} {why}"
    );
    say(&server, "True", 1);
    tokio::time::advance(Duration::from_secs(60)).await;
    reconciled(&fleet, &job(), &mut known).await;
    assert_eq!(has(&known), [false; 4], "ready is what was asked for before");
    say(&server, "True", 2);
    tokio::time::advance(Duration::from_secs(60)).await;
    server.forget();
    reconciled(&fleet, &job(), &mut known).await;
    assert_eq!((has(&known), known.refusals.told(|_| false)), ([true; 4], None));
    assert_eq!(
        (server.count(Method::GET, CERTIFICATES), server.writes()),
        (4, 0),
        "what is right is not written"
    );
}

#[test]
fn what_is_not_ready_yet_is_waited_for_before_it_is_a_fault() {
    let certificate = |since: i64| {
        let made = json!({ "name": "j-master-tls", "creationTimestamp": Moment(present().0 - since) });
        serde_json::from_value::<DynamicObject>(json!({ "metadata": made })).unwrap()
    };
    let word = |since| match made("Certificate j-master-tls", &certificate(since)) {
        Outcome::Refused(word, _) => word,
        Outcome::Done => "",
    };
    assert_eq!([word(5), word(MAKING_SECONDS as i64 + 5)], [GOING, "CertificateRefused"]);
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_begins_asks_cert_manager_nothing_for_a_job_that_another_has_served_lately() {
    let server = Arc::new(Server::default());
    reconciled(&fleet(by_issuer(&server), &[]), &job(), &mut Known::default()).await;
    say(&server, "True", 2);
    server.forget();
    let roles = [Role::Master, Role::Pserver, Role::Trainer];
    let (second, mut known) = (fleet(by_issuer(&server), &roles), Known::default());
    reconciled(&second, &served_job(10), &mut known).await;
    assert_eq!(server.count(Method::GET, CERTIFICATES) + server.writes(), 0);
    assert!(known.certified.has("master") && known.certified.has("trainer"));
    tokio::time::advance(Duration::from_secs(600)).await;
    reconciled(&second, &served_job(10), &mut known).await;
    assert_eq!((server.count(Method::GET, CERTIFICATES), server.writes()), (4, 0));
}
