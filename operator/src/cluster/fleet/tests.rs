//! Reconciling against a server that takes its time, refuses or hangs. Tests only.

use super::super::certificates::CertificateSettings;
use super::super::creations::CREATED_AT_A_TIME;
use super::*;
use crate::api::TlsMode;
use crate::decide::{PodPlan, pod_name};
use http::{Method, Request, Response};
use kube::client::Body;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use tower::{BoxError, service_fn};

/// What the server does with whatever concerns no lease.
#[derive(Clone, Copy, Debug, Default)]
enum Server {
    /// It takes 10 ms for a pod, and answers with what it was sent.
    #[default]
    Slow,
    Fails,
    Hangs,
    /// A quota has room for so many pods.
    Full(u64),
    /// A webhook will not have the pod of this name.
    Picky(&'static str),
    /// Every pod is there already, the job's own, with its labels or without.
    There(bool),
}

/// A server of one operator, with how many calls it has under way, and had at most.
#[derive(Default)]
struct Calls {
    server: Mutex<Server>,
    under_way: AtomicU64,
    most: AtomicU64,
    all: AtomicU64,
}

async fn answer(calls: Arc<Calls>, request: Request<Body>) -> Result<Response<Body>, BoxError> {
    let is_lease = request.uri().path().contains("/leases");
    let answered =
        |code: u16, body: Body| Response::builder().status(code).body(body).map_err(BoxError::from);
    let status = |code: u16| {
        let reason = if code == 404 { "NotFound" } else { "InternalError" };
        let status = json!({ "kind": "Status", "status": "Failure", "reason": reason, "code": code });
        Body::from(status.to_string().into_bytes())
    };
    if is_lease && request.method() == Method::GET {
        return answered(404, status(404));
    }
    let server = *calls.server.lock().unwrap();
    match server {
        _ if is_lease => {}
        Server::Fails => {
            calls.all.fetch_add(1, Ordering::Relaxed);
            return answered(500, status(500));
        }
        Server::Hangs => std::future::pending().await,
        Server::There(_) if request.method() == Method::POST => return answered(409, status(409)),
        Server::There(has_labels) => {
            let name = request.uri().path().rsplit('/').next().unwrap_or_default();
            let labels = json!({ "shoal.dev/role": "trainer", "shoal.dev/ordinal": "3" });
            let labels = if has_labels { labels } else { json!({}) };
            let owner =
                json!({ "apiVersion": "shoal.dev/v1alpha1", "kind": "TrainingJob", "name": "j", "uid": "u" });
            let metadata = json!({ "name": name, "uid": "p", "labels": labels, "ownerReferences": [owner] });
            let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata });
            return answered(200, Body::from(pod.to_string().into_bytes()));
        }
        Server::Picky(_) => {
            calls.all.fetch_add(1, Ordering::Relaxed);
        }
        Server::Full(room) => {
            if calls.all.fetch_add(1, Ordering::Relaxed) >= room {
                let message = "exceeded quota: few";
                let full = json!({ "kind": "Status", "status": "Failure", "message": message, "reason": "Forbidden", "code": 403 });
                return answered(403, Body::from(full.to_string().into_bytes()));
            }
        }
        Server::Slow => {
            let now = calls.under_way.fetch_add(1, Ordering::Relaxed) + 1;
            calls.most.fetch_max(now, Ordering::Relaxed);
            calls.all.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(10)).await;
            calls.under_way.fetch_sub(1, Ordering::Relaxed);
        }
    }
    let bytes = request.into_body().collect_bytes().await?;
    if let Server::Picky(name) = server
        && bytes.windows(name.len() + 2).any(|part| part == format!("\"{name}\"").as_bytes())
    {
        let refused =
            json!({ "kind": "Status", "status": "Failure", "message": "denied by a webhook", "code": 400 });
        return answered(400, Body::from(refused.to_string().into_bytes()));
    }
    // What is applied without a version has one afterwards, and what is made a uid.
    let mut object: Value = serde_json::from_slice(&bytes)?;
    if object["metadata"]["uid"].is_null() {
        object["metadata"]["uid"] = object["metadata"]["name"].clone();
    }
    object["metadata"]["resourceVersion"] = json!("2");
    if object["spec"].is_null() {
        object["spec"] = json!({});
    }
    answered(200, Body::from(object.to_string().into_bytes()))
}

/// An operator of one namespace that leads, before such a server.
async fn fleet() -> (Arc<Fleet>, Arc<Calls>) {
    let calls = Arc::new(Calls::default());
    let server = Arc::clone(&calls);
    let client = Client::new(service_fn(move |request| answer(Arc::clone(&server), request)), "n");
    let leader = Leader::new(client.clone(), "n", "l", "me".to_owned(), true);
    leader.elected().await;
    let pods = PodIndex::new();
    pods.note_pod(&Event::InitDone);
    let fleet = fixture::fleet(certificates(&client), leader, pods);
    (Arc::new(fleet), calls)
}

/// Of an operator whose jobs speak plaintext, where they say nothing of it.
fn certificates(client: &Client) -> Certificates {
    let authority = ("n".to_owned(), "a".to_owned());
    let settings = CertificateSettings {
        default: TlsMode::Plaintext,
        lifetime: Duration::from_secs(3600),
        authority,
        issuer: None,
    };
    Certificates::new(client.clone(), settings, Arc::default())
}

/// A suspended job: its status is written, and there is nothing else to do.
fn job() -> Arc<TrainingJob> {
    let template = json!({ "spec": { "containers": [{ "name": "trainer", "image": "i" }] } });
    let spec = json!({ "data": ["/d"], "checkpoint": { "place": "/c" }, "suspend": true, "trainer": { "template": template } });
    let mut job = TrainingJob::new("j", serde_json::from_value(spec).unwrap());
    job.metadata.uid = Some("u".to_owned());
    job.metadata.namespace = Some("n".to_owned());
    job.metadata.resource_version = Some("1".to_owned());
    job.metadata.finalizers = Some(vec![crate::decide::FINALIZER.to_owned()]);
    Arc::new(job)
}

fn pod(role: Role, ordinal: u32) -> Act {
    let is_elastic = role == Role::Trainer && ordinal >= 90;
    Act::CreatePod(PodPlan {
        role,
        ordinal,
        is_elastic,
        resources: None,
        memory: None,
        pservers: 1,
        trainers: 100,
        avoids: Default::default(),
    })
}

#[tokio::test(start_paused = true)]
async fn what_a_quota_refuses_is_waited_for_by_its_first_pod_and_by_none_that_would_take_its_room() {
    let (fleet, calls) = fleet().await;
    let mut there = BTreeSet::new();
    let mut made = |known: &mut Known| {
        there.extend(known.unseen.with_made(Vec::new()).into_iter().map(|pod| pod.name));
        there.clone()
    };
    let all = || calls.all.load(Ordering::Relaxed);
    let mut acts: Vec<Act> = (0..3).map(|ordinal| pod(Role::Pserver, ordinal)).collect();
    acts.extend((0..100).map(|ordinal| pod(Role::Trainer, ordinal)));
    let (mut known, mut failed) = (Known::default(), None);
    known.made[0] = Some((0, Instant::now()));
    *calls.server.lock().unwrap() = Server::Full(2);
    fleet.create(&job(), &acts, &mut known, &mut failed).await;
    assert_eq!((all(), made(&mut known).len()), (3, 2), "no trainer takes the room of a pserver");
    acts.drain(..2);
    fleet.create(&job(), &acts, &mut known, &mut failed).await;
    assert_eq!(all(), 3, "it is not tried again at once");
    // Of 90 trainers that are the least and 10 beyond: how many there is room for, how many are tried, and how many pods there are then.
    for (room, tried, there) in [(1, 2, 3), (2, 3, 5), (91, 95, 96), (1000, 7, 103)] {
        tokio::time::advance(Duration::from_secs(10)).await;
        *calls.server.lock().unwrap() = Server::Full(all() + room);
        let before = all();
        fleet.create(&job(), &acts, &mut known, &mut failed).await;
        let made = made(&mut known);
        assert_eq!((all() - before, made.len()), (tried, there));
        let is_there = |act: &Act| matches!(act, Act::CreatePod(plan) if made.contains(&pod_name(plan.role, "j", plan.ordinal)));
        acts.retain(|act| !is_there(act));
    }
    assert!(failed.is_none(), "{failed:?}");
}

/// A seat with resources of its own, say, or a pod of somebody else that has the name of one.
#[tokio::test(start_paused = true)]
async fn a_pod_that_is_refused_for_itself_keeps_no_other_from_being_made_and_an_error_ends_the_round() {
    let (fleet, calls) = fleet().await;
    let mut acts: Vec<Act> = (0..3).map(|ordinal| pod(Role::Pserver, ordinal)).collect();
    acts.extend((0..7).map(|ordinal| pod(Role::Trainer, ordinal)));
    let (mut known, mut failed) = (Known::default(), None);
    known.made[0] = Some((0, Instant::now()));
    *calls.server.lock().unwrap() = Server::Picky("j-pserver-0");
    let mut there = BTreeSet::new();
    for _ in 0..2 {
        fleet.create(&job(), &acts, &mut known, &mut failed).await;
        there.extend(known.unseen.with_made(Vec::new()).into_iter().map(|pod| pod.name));
        acts.retain(|act| !matches!(act, Act::CreatePod(plan) if there.contains(&pod_name(plan.role, "j", plan.ordinal))));
    }
    assert_eq!((there.len(), acts.len(), failed.is_none()), (9, 1, true), "{there:?}");
    *calls.server.lock().unwrap() = Server::Fails;
    let acts: Vec<Act> = (20..90).map(|ordinal| pod(Role::Trainer, ordinal)).collect();
    let before = calls.all.load(Ordering::Relaxed);
    fleet.create(&job(), &acts, &mut known, &mut failed).await;
    assert_eq!((calls.all.load(Ordering::Relaxed) - before, failed.is_some()), (1, true));
}

/// A call that was cut off may have made its pod, which the caches do not show yet.
#[tokio::test(start_paused = true)]
async fn a_pod_that_is_there_is_known_from_then_on_and_one_without_its_labels_is_told_of() {
    let (fleet, calls) = fleet().await;
    let acts = [pod(Role::Trainer, 3)];
    let (mut known, mut failed) = (Known::default(), None);
    known.made[0] = Some((0, Instant::now()));
    *calls.server.lock().unwrap() = Server::There(false);
    fleet.create(&job(), &acts, &mut known, &mut failed).await;
    assert_eq!(known.unseen.with_made(Vec::new()), Vec::new());
    let (word, why) = known.refusals.told(|_| false).unwrap();
    assert!(word == NAME_TAKEN && why.contains("j-trainer-3 has lost the labels"), "{word}: {why}");
    tokio::time::advance(Duration::from_secs(10)).await;
    *calls.server.lock().unwrap() = Server::There(true);
    fleet.create(&job(), &acts, &mut known, &mut failed).await;
    let made = known.unseen.with_made(Vec::new());
    assert_eq!(made.iter().map(|pod| pod.name.as_str()).collect::<Vec<_>>(), ["j-trainer-3"]);
    assert!(known.refusals.told(|_| false).is_none() && failed.is_none());
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_job_are_made_side_by_side_but_not_all_at_once() {
    let (fleet, calls) = fleet().await;
    let acts: Vec<Act> = (0..100).map(|ordinal| pod(Role::Trainer, ordinal)).collect();
    let (mut known, mut failed) = (Known::default(), None);
    fleet.create(&job(), &acts, &mut known, &mut failed).await;
    assert_eq!(calls.all.load(Ordering::Relaxed), 0, "without a service nobody finds the master");
    known.made[0] = Some((0, Instant::now()));
    let began = Instant::now();
    fleet.create(&job(), &acts, &mut known, &mut failed).await;
    assert!(failed.is_none(), "{failed:?}");
    let most = calls.most.load(Ordering::Relaxed);
    assert_eq!((calls.all.load(Ordering::Relaxed), most), (100, CREATED_AT_A_TIME as u64));
    assert!(began.elapsed() < Duration::from_millis(200), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_calls_hang_is_given_up_and_its_place_is_free() {
    let (fleet, calls) = fleet().await;
    *calls.server.lock().unwrap() = Server::Hangs;
    let began = Instant::now();
    let error = reconcile(job(), Arc::clone(&fleet)).await.unwrap_err();
    assert!(
        matches!(error, ReconcileError::Deadline)
            && began.elapsed() <= RECONCILE_MAX + Duration::from_secs(1)
    );
    assert_eq!(fleet.reconciles.under_way(), 0);
    assert_eq!(fleet.reconciles.errors(), BTreeMap::from([("deadline", 1)]));
}

#[tokio::test(start_paused = true)]
async fn pauses_after_errors_grow_and_are_forgiven_by_one_that_goes_well() {
    let (fleet, calls) = fleet().await;
    *calls.server.lock().unwrap() = Server::Fails;
    let mut pauses = Vec::new();
    for _ in 0..8 {
        assert!(reconcile(job(), Arc::clone(&fleet)).await.is_err());
        again(&job(), &fleet);
        pauses.push(locked(&fleet.pauses)["u"].attempts());
    }
    assert_eq!(pauses, (1..=8).collect::<Vec<u32>>());
    *calls.server.lock().unwrap() = Server::Slow;
    fleet.leader.elected().await;
    reconcile(job(), Arc::clone(&fleet)).await.unwrap();
    assert!(locked(&fleet.pauses).is_empty());
}

#[tokio::test(start_paused = true)]
async fn jobs_that_have_vanished_are_forgotten_unless_they_are_being_reconciled() {
    let (fleet, _) = fleet().await;
    reconcile(job(), Arc::clone(&fleet)).await.unwrap();
    again(&job(), &fleet);
    locked(&fleet.surrounded).add("u");
    let held = Arc::clone(&locked(&fleet.jobs)["u"]);
    fleet.forget_all_but(&BTreeSet::new());
    assert_eq!(locked(&fleet.jobs).len(), 1, "somebody is at it");
    drop(held);
    fleet.forget_all_but(&BTreeSet::from(["u".to_owned()]));
    assert_eq!(locked(&fleet.jobs).len(), 1, "it is there");
    fleet.forget_all_but(&BTreeSet::new());
    assert!(locked(&fleet.jobs).is_empty() && locked(&fleet.pauses).is_empty());
    assert_eq!(locked(&fleet.surrounded).of("u"), None);
}
