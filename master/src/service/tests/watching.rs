//! Watches and wakings: what answers a call that is kept open, and what it says that one broke.

use super::*;
use crate::machine::UNATTENDED_MAX;
use futures_util::FutureExt;

#[tokio::test(start_paused = true)]
async fn a_watch_is_answered_as_soon_as_there_is_a_newer_document() {
    let (office, [p0, _], _) = training().await;
    let call = office.watch(p0, 9000);
    pause(70).await;
    office.change(5);
    let (millis, reply) = answered(call).await;
    let version = office.service.with(|machine, _| machine.document().routing_version).unwrap();
    assert_eq!((millis, reply.assignment.unwrap().routing_version), (70, version));
    let mut behind = office.watch_request(p0, 9000);
    behind.get_mut().routing_version -= 1;
    let asked = Instant::now();
    assert!(office.service.watch(behind).await.unwrap().into_inner().assignment.is_some());
    assert_eq!(asked.elapsed(), Duration::ZERO, "what is newer already is not waited for");
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_news_is_answered_when_its_wait_is_over_and_after_ten_seconds_at_most() {
    let (office, [p0, p1], _) = training().await;
    for (pserver, wait, after) in [(p0, 0, 0), (p0, 300, 300), (p1, 100_000, 10_000)] {
        let (millis, reply) = answered(office.watch(pserver, wait)).await;
        assert_eq!((millis, reply.assignment), (after, None));
    }
}

#[tokio::test(start_paused = true)]
async fn who_was_answered_is_a_suspect_unless_it_asks_again_soon() {
    let (office, [p0, p1], _) = training().await;
    let call = office.watch(p1, 9000);
    for _ in 0..3 {
        answered(office.watch(p0, 100)).await;
        pause(UNATTENDED_MAX.as_millis() as u64 - 1).await;
        assert_eq!(office.suspects(), []);
    }
    office.publish(p0, 2, 0).await;
    pause(1).await;
    assert_eq!(office.suspects(), [p0], "killed now, it would break nothing off");
    let again = office.watch(p0, 9000);
    pause(1).await;
    assert_eq!(office.suspects(), []);
    drop((call, again));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_dropped_makes_a_suspect_until_the_next_one() {
    let (office, [p0, p1], _) = training().await;
    let calls = [p0, p1].map(|pserver| office.watch(pserver, 9000));
    pause(50).await;
    assert_eq!(office.suspects(), [], "a call that is kept open is none");
    calls[0].abort();
    pause(1).await;
    assert_eq!(office.suspects(), [p0]);
    office.publish(p0, 2, 0).await;
    assert_eq!(office.suspects(), [p0], "a word is not a call that is kept open");
    let _again = office.watch(p0, 9000);
    pause(1).await;
    assert_eq!(office.suspects(), []);
    let refused = office.watch_request(Incarnation::new(1, 99), 9000);
    assert_eq!(kind(office.service.watch(refused).await), RefusalKind::StaleIncarnation);
    assert_eq!(office.suspects(), []);
}

#[tokio::test(start_paused = true)]
async fn the_keeper_is_woken_by_a_suspect() {
    let (office, [p0, _], _) = training().await;
    let call = office.watch(p0, 9000);
    pause(10).await;
    let woken = office.service.changed().notified();
    call.abort();
    tokio::time::timeout(Duration::from_millis(1), woken).await.expect("nobody was woken");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_kept_open_is_no_sign_of_life() {
    let (office, [p0, p1], _) = training().await;
    let call = office.watch(p0, 9000);
    for round in 0..TTL_MILLIS / 100 {
        assert_eq!(office.state(p0), State::Live);
        pause(100).await;
        office.publish(p1, 2 + round, 0).await;
    }
    assert_eq!((office.state(p0), office.state(p1)), (State::Lost, State::Live));
    pause(100).await;
    assert!(!call.is_finished());
    assert_eq!(office.state(p0), State::Lost, "nor does it bring anybody back");
}

/// Whether a call wakes the keeper, rather than leave its news until the keeper looks again.
async fn wakes<T>(office: &Office, call: impl Future<Output = Answer<T>>) -> bool {
    let woken = office.service.changed().notified();
    call.await.unwrap();
    woken.now_or_never().is_some()
}

#[tokio::test(start_paused = true)]
async fn whatever_may_bring_a_decision_or_a_task_wakes_who_waits_for_one() {
    let (office, [p0, _], a) = training().await;
    let (service, job) = (&office.service, || JOB.to_owned());
    let register = proto::RegisterRequest {
        job: job(),
        name: "p2".to_owned(),
        address: "p2:1".to_owned(),
        nonce: 1,
        ..Default::default()
    };
    assert!(wakes(&office, service.register(Request::new(register))).await);
    let declaration = Some((&declaration()).into());
    let join =
        proto::JoinRequest { job: job(), name: "b".to_owned(), nonce: 1, declaration, ..Default::default() };
    assert!(wakes(&office, service.join(Request::new(join))).await);
    let scale = proto::ScaleRequest { job: job(), trainers: Some(5), pservers: Some(3), spec: None };
    assert!(wakes(&office, service.scale(Request::new(scale))).await);
    let drain = proto::DrainRequest { job: job(), pserver: "p1".to_owned(), replace: true };
    assert!(wakes(&office, service.drain(Request::new(drain))).await);
    let report = proto::ReportRequest {
        job: job(),
        incarnation: p0.0,
        call: 2,
        is_leaving: true,
        ..Default::default()
    };
    assert!(wakes(&office, service.report(Request::new(report))).await);
    let lease = proto::LeaseRequest { job: job(), incarnation: a.0, call: 1, ..Default::default() };
    assert!(wakes(&office, service.lease(Request::new(lease))).await);
    let leave = proto::LeaveRequest { job: job(), incarnation: a.0, ..Default::default() };
    assert!(wakes(&office, service.leave(Request::new(leave))).await);
    let status = proto::StatusRequest { job: job(), ..Default::default() };
    assert!(!wakes(&office, service.status(Request::new(status))).await, "who only looks wakes nobody");
}

#[tokio::test(start_paused = true)]
async fn a_master_that_is_to_end_answers_every_call_that_it_keeps_open_and_keeps_no_other() {
    let office = Office::new(2);
    let (p0, a) = (office.register("p0", 1).await, office.join("a").await);
    let version = office.service.with(|machine, _| machine.document().routing_version).unwrap();
    let calls =
        |call| (office.watch(p0, 9000), office.route(version, 9000), office.lease(a, call, &[], 9000));
    let (watch, route, lease) = calls(1);
    pause(70).await;
    office.service.stop();
    assert_eq!((answered(watch).await.0, answered(route).await.0, answered(lease).await.0), (70, 70, 70));
    let (watch, route, lease) = calls(2);
    assert_eq!((answered(watch).await.0, answered(route).await.0, answered(lease).await.0), (0, 0, 0));
}
