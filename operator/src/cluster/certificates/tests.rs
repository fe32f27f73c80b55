//! Secrets with certificates before a server that keeps them, as operators write them. Tests only.

use super::server::{AUTHORITY, Server, fleet, job, operator, served_job};
use super::*;
use crate::decide::NAME_TAKEN;
use http::Method;
use serde_json::json;
use std::sync::Arc;

/// Has the looks that are under way come to an end.
async fn looked() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// Where a role's secret is.
fn place(role: Role) -> String {
    format!("/api/v1/namespaces/team/secrets/j-{role}-tls")
}

async fn certify(all: &Certificates, certified: &mut Certified) -> Vec<Option<(&'static str, String)>> {
    let authority = all.authorities.current().await.unwrap().authority;
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
        let secret = locked(&server.objects)[&place(role)].clone();
        assert_eq!(secret["metadata"]["ownerReferences"][0]["uid"], "0a1b2c3d-0");
        let secret: Secret = serde_json::from_value(secret).unwrap();
        let pem = credentials_of(&secret).unwrap();
        let security = shoal_runtime::host::rpc::Security::in_memory(&pem).unwrap();
        assert_eq!(security.identity(), Some(Identity { job: "j-0a1b2c3d".to_owned(), role }));
    }
    let read = server.reads();
    assert!(read.iter().all(|path| path == AUTHORITY), "{read:?}");
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
        || Role::ALL.map(|role| locked(&server.objects)[&place(role)]["metadata"]["resourceVersion"].clone());
    let made = versions();
    // Another authority makes all of them due, for both.
    let pem = Authority::generate(Validity::lasting(present().0 as u64, 3600)).unwrap();
    let mut other = locked(&server.objects)[AUTHORITY].clone();
    other["data"] = json!(crate::manifest::secret_data(&pem));
    server.written(AUTHORITY, other);
    let (first, second) = (operator(&server, 3600), operator(&server, 3600));
    certify(&second, &mut of_second).await;
    let changed = versions();
    assert!(made.iter().zip(&changed).all(|(before, now)| before != now));
    let before = server.writes();
    assert_eq!(certify(&first, &mut of_first).await, [None, None, None, None]);
    assert_eq!(versions(), changed, "what the second has issued stays");
    // For each a change that was refused, and a look.
    assert_eq!(server.writes() - before, 8);
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
    assert_eq!(locked(&server.objects)[&place(Role::Master)], theirs);
    assert!(!certified.has("master") && certified.has("pserver"), "its pod is not made");
}

#[tokio::test(start_paused = true)]
async fn an_authority_that_somebody_deletes_is_put_back_as_it_was() {
    let server = Arc::new(Server::default());
    let all = operator(&server, 3600);
    let before = all.authorities.current().await.unwrap().authority.fingerprint().to_owned();
    locked(&server.objects).clear();
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(all.authorities.current().await.unwrap().authority.fingerprint(), before);
    looked().await;
    let there = locked(&server.objects).values().next().cloned().unwrap();
    let pem = credentials_of(&serde_json::from_value(there).unwrap()).unwrap();
    assert_eq!(Authority::of(&pem).unwrap().fingerprint(), before, "also for the next operator");
}

#[tokio::test(start_paused = true)]
async fn an_authority_that_cannot_be_used_is_told_of_and_the_one_before_goes_on() {
    let server = Arc::new(Server::default());
    let broken = json!({ "metadata": { "name": "shoal-authority", "uid": "x" }, "data": { "tls.crt": "eA==", "tls.key": "eA==" } });
    server.written(AUTHORITY, broken.clone());
    let all = operator(&server, 3600);
    let (word, why) = all.authorities.current().await.err().unwrap();
    assert!(word == "AuthorityMissing" && why.starts_with("secret shoal-authority in operators: "), "{why}");
    locked(&server.objects).clear();
    tokio::time::advance(Duration::from_secs(60)).await;
    assert!(
        all.authorities.current().await.is_err(),
        "what was told stands until the next look has come to an end"
    );
    looked().await;
    let good = all.authorities.current().await.unwrap().authority;
    server.written(AUTHORITY, broken);
    tokio::time::advance(Duration::from_secs(60)).await;
    for _ in 0..2 {
        assert_eq!(all.authorities.current().await.unwrap().authority.fingerprint(), good.fingerprint());
        looked().await;
    }
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
    let authority = all.authorities.current().await.unwrap().authority;
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

/// What an operator does at each reconcile of a job.
async fn reconciled(fleet: &Fleet, job: &TrainingJob, known: &mut Known) {
    let mut failed = None;
    known.certified.see_served(job);
    fleet.certify(job, known, &mut failed).await;
    assert!(failed.is_none(), "{failed:?}");
}

/// A server with the secrets of a job, made by an operator that is gone.
async fn left() -> Arc<Server> {
    let server = Arc::new(Server::default());
    let first = fleet(operator(&server, 86_400), &[]);
    reconciled(&first, &job(), &mut Known::default()).await;
    assert_eq!(server.asked_of_jobs(), [0, 4, 0], "a job that begins costs a call a role");
    server.forget();
    server
}

fn has_all(known: &Known) -> bool {
    Role::ALL.iter().all(|role| known.certified.has(role.word()))
}

const PODS: [Role; 3] = [Role::Master, Role::Pserver, Role::Trainer];

#[tokio::test(start_paused = true)]
async fn an_operator_that_begins_asks_nothing_for_a_job_that_another_has_served_lately_and_looks_later() {
    let server = left().await;
    let (second, mut known) = (fleet(operator(&server, 86_400), &PODS), Known::default());
    let job = served_job(7000);
    reconciled(&second, &job, &mut known).await;
    assert!(has_all(&known) && server.asked_of_jobs() == [0, 0, 0], "{:?}", server.asked_of_jobs());
    tokio::time::advance(LOOK_EVERY / 2 - Duration::from_secs(1)).await;
    reconciled(&second, &job, &mut known).await;
    assert_eq!(server.asked_of_jobs(), [0, 0, 0]);
    // One was deleted meanwhile, which nobody has seen.
    locked(&server.objects).remove(&place(Role::Pserver)).unwrap();
    tokio::time::advance(LOOK_EVERY / 2 + Duration::from_secs(1)).await;
    reconciled(&second, &job, &mut known).await;
    assert_eq!(server.asked_of_jobs(), [0, 1, 4], "a look for each, and one that is made anew");
    assert!(has_all(&known) && locked(&server.objects).contains_key(&place(Role::Pserver)));
}

#[tokio::test(start_paused = true)]
async fn what_nobody_has_served_lately_or_runs_no_pods_costs_one_look_for_each_and_no_key() {
    let server = left().await;
    // Two hours are a twelfth of a day.
    let away = fleet(operator(&server, 86_400), &PODS);
    reconciled(&away, &served_job(7300), &mut Known::default()).await;
    assert_eq!(server.asked_of_jobs(), [0, 0, 4]);
    server.forget();
    let (few, mut known) = (fleet(operator(&server, 86_400), &[Role::Master]), Known::default());
    reconciled(&few, &served_job(10), &mut known).await;
    assert_eq!(
        server.asked_of_jobs(),
        [0, 0, 2],
        "of pservers and trainers; the client's is as old as the master's"
    );
    assert!(has_all(&known));
    server.forget();
    let mut other = served_job(10);
    other.metadata.name = Some("waiting".to_owned());
    let mut known = Known::default();
    reconciled(&few, &other, &mut known).await;
    assert_eq!(server.asked_of_jobs(), [0, 4, 4], "an old job that has none yet");
    assert!(has_all(&known));
}

#[tokio::test(start_paused = true)]
async fn an_authority_that_was_changed_has_all_looked_at_at_once_by_who_begins_and_by_who_is_there() {
    let server = left().await;
    let (there, mut known) = (fleet(operator(&server, 86_400), &PODS), Known::default());
    reconciled(&there, &served_job(10), &mut known).await;
    assert_eq!(server.asked_of_jobs(), [0, 0, 0]);
    let pem = Authority::generate(Validity::lasting(present().0 as u64, 864_000)).unwrap();
    let mut other = locked(&server.objects)[AUTHORITY].clone();
    other["data"] = json!(crate::manifest::secret_data(&pem));
    other["metadata"]["managedFields"] = json!([{ "manager": "kubectl", "time": present() }]);
    server.written(AUTHORITY, other);
    tokio::time::advance(Duration::from_secs(15)).await;
    // The first has the look made, beside.
    reconciled(&there, &served_job(10), &mut known).await;
    looked().await;
    reconciled(&there, &served_job(10), &mut known).await;
    assert_eq!(server.asked_of_jobs(), [0, 0, 8], "a look and a change for each");
    server.forget();
    let begins = fleet(operator(&server, 86_400), &PODS);
    reconciled(&begins, &served_job(10), &mut Known::default()).await;
    assert_eq!(server.asked_of_jobs(), [0, 0, 4], "whether the other has issued by it nobody knows");
}

#[tokio::test(start_paused = true)]
async fn a_look_that_fails_takes_no_secret_away() {
    let server = left().await;
    let (all, mut certified) = (operator(&server, 86_400), Certified::default());
    certify(&all, &mut certified).await;
    tokio::time::advance(LOOK_EVERY).await;
    *locked(&server.hanging) = Some("j-master-tls");
    let authority = all.authorities.current().await.unwrap().authority;
    let job = served_job(10);
    let look = all.certify_role(&job, Role::Master, &authority, &mut certified);
    assert!(tokio::time::timeout(Duration::from_secs(30), look).await.is_err());
    assert!(certified.has("master"), "its pod may be made");
}

#[tokio::test(start_paused = true)]
async fn a_read_of_the_authority_that_hangs_holds_up_nobody_who_knows_one() {
    let server = Arc::new(Server::default());
    let all = operator(&server, 3600);
    *locked(&server.hanging) = Some("shoal-authority");
    let began = Instant::now();
    let (_, why) = all.authorities.current().await.err().unwrap();
    assert!(why.ends_with("it is being read") && began.elapsed() <= Duration::from_secs(2), "{why}");
    let all = operator(&server, 3600);
    *locked(&server.hanging) = None;
    let known = all.authorities.current().await.unwrap().authority;
    *locked(&server.hanging) = Some("shoal-authority");
    tokio::time::advance(Duration::from_secs(60)).await;
    let began = Instant::now();
    for _ in 0..3 {
        let now = tokio::time::timeout(Duration::from_secs(1), all.authorities.current());
        let now = now.await.expect("the look is made beside").unwrap().authority;
        assert_eq!(now.fingerprint(), known.fingerprint());
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
}

/// The seconds of the clock on the wall, which no test turns.
async fn pass(seconds: u64) {
    tokio::time::resume();
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    tokio::time::pause();
}

#[tokio::test(start_paused = true)]
async fn an_authority_is_told_of_before_it_ends_and_once_it_has_though_nobody_has_changed_it() {
    let server = Arc::new(Server::default());
    let now = present().0 as u64;
    let pem = Authority::generate(Validity { from: now - 1000, until: now + 2 }).unwrap();
    let data = crate::manifest::secret_data(&pem);
    server.written(AUTHORITY, json!({ "metadata": { "name": "shoal-authority", "uid": "x" }, "data": data }));
    let (fleet, mut known) = (fleet(operator(&server, 60), &[]), Known::default());
    let events = || server.count(Method::POST, "events");
    reconciled(&fleet, &job(), &mut known).await;
    reconciled(&fleet, &job(), &mut known).await;
    assert_eq!((events(), known.refusals.told(|_| false)), (1, None), "once, and of nothing that is refused");
    pass(4).await;
    reconciled(&fleet, &job(), &mut known).await;
    let (word, why) = known.refusals.told(|_| false).unwrap();
    let said = "secret shoal-authority in operators: its certificate has expired at ";
    assert!(word == "AuthorityExpired" && why.starts_with(said), "{word} {why}");
    // Another in its place.
    let pem = Authority::generate(Validity::lasting(now, 3600)).unwrap();
    let data = crate::manifest::secret_data(&pem);
    server.written(AUTHORITY, json!({ "metadata": { "name": "shoal-authority", "uid": "x" }, "data": data }));
    tokio::time::advance(Duration::from_secs(15)).await;
    reconciled(&fleet, &job(), &mut known).await;
    looked().await;
    reconciled(&fleet, &job(), &mut known).await;
    assert_eq!(known.refusals.told(|_| false), None);
}

/// A job with a client's certificate of its author's, which is good for so many seconds.
fn given(server: &Server, seconds: u64) -> TrainingJob {
    let now = present().0 as u64;
    let authority = Authority::of(&Authority::generate(Validity::lasting(now, 3600)).unwrap()).unwrap();
    let whom = Identity { job: "mine".to_owned(), role: Role::Client };
    let issued = authority.issue(&whom, Validity { from: now - 10, until: now + seconds }).unwrap();
    let data = crate::manifest::secret_data(issued.pem());
    server.written(
        "/api/v1/namespaces/team/secrets/own",
        json!({ "metadata": { "name": "own" }, "data": data }),
    );
    let mut job = job();
    job.spec.tls =
        serde_json::from_value(json!({ "mode": "Given", "job": "mine", "secrets": { "client": "own" } }))
            .unwrap();
    job.status =
        serde_json::from_value(json!({ "pinned": "{}", "tls": "Given", "identity": "mine" })).unwrap();
    job
}

#[tokio::test(start_paused = true)]
async fn why_new_credentials_cannot_be_had_is_told_only_once_those_before_are_not_good_any_more() {
    let server = Arc::new(Server::default());
    let (all, mut certified, job) = (operator(&server, 3600), Certified::default(), given(&server, 2));
    assert_eq!(all.speak(&job, &mut certified).await, None);
    locked(&server.objects).clear();
    tokio::time::advance(GIVEN_EVERY).await;
    for _ in 0..2 {
        assert_eq!(all.speak(&job, &mut certified).await, None, "the master is seen by those before");
    }
    pass(4).await;
    let why = all.speak(&job, &mut certified).await.unwrap();
    assert!(why.starts_with("spec.tls.secrets.client: "), "{why}");
    assert_eq!(all.speak(&job, &mut certified).await, None, "once");
}
