//! Secrets with certificates before a server that keeps them, as two operators write them. Tests only.

use super::*;
use crate::decide::NAME_TAKEN;
use http::{Method, Request, Response};
use kube::client::Body;
use std::sync::{Arc, Mutex};
use tower::{BoxError, service_fn};

/// Secrets by path, and what was asked for: method and path.
#[derive(Default)]
struct Server {
    secrets: Mutex<BTreeMap<String, Value>>,
    asked: Mutex<Vec<(Method, String)>>,
    version: std::sync::atomic::AtomicU64,
}

fn refusal_of(code: u16) -> (u16, Value) {
    (
        code,
        json!({ "kind": "Status", "status": "Failure", "reason": if code == 404 { "NotFound" } else { "Conflict" }, "message": "no", "code": code }),
    )
}

impl Server {
    fn client(self: &Arc<Server>) -> Client {
        let server = Arc::clone(self);
        Client::new(
            service_fn(move |request: Request<Body>| {
                let server = Arc::clone(&server);
                async move {
                    let (parts, body) = request.into_parts();
                    let sent = body.collect_bytes().await?;
                    let sent: Value = serde_json::from_slice(&sent).unwrap_or_default();
                    let (code, answer) = server.answer(&parts.method, parts.uri.path(), sent);
                    let answer = Body::from(answer.to_string().into_bytes());
                    Ok::<_, BoxError>(Response::builder().status(code).body(answer)?)
                }
            }),
            "n",
        )
    }

    fn written(&self, path: &str, mut object: Value) -> Value {
        let version = 1 + self.version.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        locked(&self.secrets).insert(path.to_owned(), object.clone());
        object
    }

    fn answer(&self, method: &Method, path: &str, sent: Value) -> (u16, Value) {
        locked(&self.asked).push((method.clone(), path.to_owned()));
        if *method == Method::POST {
            let path = format!("{path}/{}", sent["metadata"]["name"].as_str().unwrap());
            if locked(&self.secrets).contains_key(&path) {
                return refusal_of(409);
            }
            let mut made = sent;
            made["metadata"]["uid"] = json!(format!("uid of {path}"));
            return (201, self.written(&path, made));
        }
        let there = locked(&self.secrets).get(path).cloned();
        let Some(mut there) = there else { return refusal_of(404) };
        if *method == Method::PATCH && sent != json!({}) {
            for fence in ["uid", "resourceVersion"] {
                if sent["metadata"][fence] != there["metadata"][fence] {
                    return refusal_of(409);
                }
            }
            there["metadata"]["annotations"] = sent["metadata"]["annotations"].clone();
            there["data"] = sent["data"].clone();
            there = self.written(path, there);
        }
        (200, there)
    }

    fn writes(&self) -> usize {
        let is_write = |(method, _): &&(Method, String)| *method != Method::GET;
        locked(&self.asked).iter().filter(is_write).count()
    }
}

fn job() -> TrainingJob {
    let mut job = TrainingJob::new("j", Default::default());
    job.metadata.uid = Some("0a1b2c3d-0".to_owned());
    job.metadata.namespace = Some("team".to_owned());
    job.status = Some(serde_json::from_value(json!({ "pinned": "{}", "tls": "Issued" })).unwrap());
    job
}

fn operator(server: &Arc<Server>, lifetime: u64) -> Certificates {
    let settings = CertificateSettings {
        default: TlsMode::Issued,
        lifetime: Duration::from_secs(lifetime),
        authority: ("operators".to_owned(), "shoal-authority".to_owned()),
        issuer: None,
    };
    Certificates::new(server.client(), settings, Arc::default())
}

/// Where a role's secret is.
fn place(role: Role) -> String {
    format!("/api/v1/namespaces/team/secrets/j-{role}-tls")
}

async fn certify(all: &Certificates, certified: &mut Certified) -> Vec<Option<(&'static str, String)>> {
    let authority = all.authorities.current().await.unwrap();
    let mut said = Vec::new();
    for role in Role::ALL {
        said.push(all.certify_role(&job(), role, &authority, certified).await.unwrap());
    }
    said
}

#[tokio::test]
async fn four_secrets_are_made_once_and_no_secret_of_a_job_is_ever_asked_for() {
    let server = Arc::new(Server::default());
    let (all, mut certified) = (operator(&server, 3600), Certified::default());
    assert_eq!(certify(&all, &mut certified).await, [None, None, None, None]);
    let writes = server.writes();
    assert_eq!(writes, 5, "four, and the authority");
    certify(&all, &mut certified).await;
    assert_eq!(server.writes(), writes, "with nothing due nothing is written");
    for role in Role::ALL {
        let secret = locked(&server.secrets)[&place(role)].clone();
        assert_eq!(secret["metadata"]["ownerReferences"][0]["uid"], "0a1b2c3d-0");
        let secret: Secret = serde_json::from_value(secret).unwrap();
        let pem = credentials_of(&secret).unwrap();
        let security = shoal_runtime::host::rpc::Security::in_memory(&pem).unwrap();
        assert_eq!(security.identity(), Some(Identity { job: "j-0a1b2c3d".to_owned(), role }));
    }
    let read = locked(&server.asked)
        .iter()
        .filter(|(method, _)| *method == Method::GET)
        .cloned()
        .collect::<Vec<_>>();
    assert!(read.iter().all(|(_, path)| path.ends_with("operators/secrets/shoal-authority")), "{read:?}");
}

#[tokio::test]
async fn of_two_operators_that_change_one_certificate_one_is_refused_and_takes_the_others() {
    let server = Arc::new(Server::default());
    let (first, second) = (operator(&server, 3600), operator(&server, 3600));
    let (mut of_first, mut of_second) = (Certified::default(), Certified::default());
    certify(&first, &mut of_first).await;
    // The second begins later, and finds them.
    certify(&second, &mut of_second).await;
    let versions =
        || Role::ALL.map(|role| locked(&server.secrets)[&place(role)]["metadata"]["resourceVersion"].clone());
    let made = versions();
    // Another authority makes all of them due, for both.
    let pem = Authority::generate(Validity::lasting(present().0 as u64, 3600)).unwrap();
    let path = "/api/v1/namespaces/operators/secrets/shoal-authority".to_owned();
    let mut other = locked(&server.secrets)[&path].clone();
    other["data"] = json!(crate::manifest::secret_data(&pem));
    server.written(&path, other);
    let (first, second) = (operator(&server, 3600), operator(&server, 3600));
    certify(&second, &mut of_second).await;
    let changed = versions();
    assert!(made.iter().zip(&changed).all(|(before, now)| before != now));
    let before = server.writes();
    assert_eq!(certify(&first, &mut of_first).await, [None, None, None, None]);
    assert_eq!(versions(), changed, "what the second has issued stays");
    // For each a change that was refused, a secret that was there, and a look.
    assert_eq!(server.writes() - before, 12);
}

#[tokio::test]
async fn a_secret_of_somebody_else_under_a_jobs_name_is_left_as_it_is_and_named() {
    let server = Arc::new(Server::default());
    let theirs = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "j-master-tls", "uid": "x" }, "data": {} });
    let theirs = server.written(&place(Role::Master), theirs);
    let (all, mut certified) = (operator(&server, 3600), Certified::default());
    let said = certify(&all, &mut certified).await;
    let Some((word, why)) = &said[0] else { panic!("{said:?}") };
    assert!(*word == NAME_TAKEN && why.contains("Secret j-master-tls is not this job's"), "{why}");
    assert_eq!(locked(&server.secrets)[&place(Role::Master)], theirs);
    assert!(!certified.has("master") && certified.has("pserver"), "its pod is not made");
}

#[tokio::test(start_paused = true)]
async fn an_authority_that_somebody_deletes_is_put_back_as_it_was() {
    let server = Arc::new(Server::default());
    let all = operator(&server, 3600);
    let before = all.authorities.current().await.unwrap().fingerprint().to_owned();
    locked(&server.secrets).clear();
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(all.authorities.current().await.unwrap().fingerprint(), before);
    let there = locked(&server.secrets).values().next().cloned().unwrap();
    let pem = credentials_of(&serde_json::from_value(there).unwrap()).unwrap();
    assert_eq!(Authority::of(&pem).unwrap().fingerprint(), before, "also for the next operator");
}

#[tokio::test(start_paused = true)]
async fn an_authority_that_cannot_be_used_is_told_of_and_the_one_before_goes_on() {
    let server = Arc::new(Server::default());
    let path = "/api/v1/namespaces/operators/secrets/shoal-authority";
    let broken = json!({ "metadata": { "name": "shoal-authority", "uid": "x" }, "data": { "tls.crt": "eA==", "tls.key": "eA==" } });
    server.written(path, broken.clone());
    let all = operator(&server, 3600);
    let why = all.authorities.current().await.unwrap_err();
    assert!(why.starts_with("secret shoal-authority in operators: "), "{why}");
    locked(&server.secrets).clear();
    tokio::time::advance(Duration::from_secs(60)).await;
    let good = all.authorities.current().await.unwrap();
    server.written(path, broken);
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(all.authorities.current().await.unwrap().fingerprint(), good.fingerprint());
}

#[tokio::test]
async fn the_operators_own_certificate_is_for_the_client_and_changes_under_the_same_credentials() {
    let server = Arc::new(Server::default());
    let (all, mut certified) = (operator(&server, 3600), Certified::default());
    assert!(all.clients.of("0a1b2c3d-0").is_err(), "before it is known no master is called");
    assert_eq!(all.speak(&job(), &mut certified).await, None);
    let security = all.clients.of("0a1b2c3d-0").unwrap();
    let whom = Identity { job: "j-0a1b2c3d".to_owned(), role: Role::Client };
    assert_eq!(security.identity(), Some(whom));
    let authority = all.authorities.current().await.unwrap();
    let (issued, _) = all.issue(&authority, &job(), Role::Client).unwrap();
    let why = all.clients.believed_by("other", "another-job", issued.pem()).unwrap_err();
    assert!(why.contains("another-job") && all.clients.of("other").is_err(), "{why}");
    let short = operator(&server, 60);
    let short = Certificates { clients: Arc::clone(&all.clients), ..short };
    certified.own = None;
    let before = security.validity().unwrap();
    assert_eq!(short.speak(&job(), &mut certified).await, None);
    assert_ne!(security.validity().unwrap(), before, "channels that are open take it");
    let mut plain = job();
    plain.status.as_mut().unwrap().tls = Some(TlsMode::Plaintext);
    plain.metadata.uid = Some("other".to_owned());
    assert_eq!(all.speak(&plain, &mut Certified::default()).await, None);
    assert!(matches!(all.clients.of("other"), Ok(shoal_runtime::host::rpc::Security::Plaintext)));
}
