//! The master's calls in paused time: what is answered at once, what is kept open, what a broken call means.

use super::*;
use crate::document::Wanted;
use crate::fixture::*;
use crate::members::State;
use master_server::Master;
use shoal_runtime::cluster::{Fill, RefusalKind};
use shoal_runtime::wire::Fault;
use tokio::task::JoinHandle;
use tokio::time::sleep;

mod live_settings;
mod verifying;
mod watching;

const JOB: &str = "digits-1";

/// A service that leads, a keeper that adopts at once, and who called.
#[derive(Clone)]
struct Office {
    service: MasterService,
}

impl Office {
    fn new(pservers: u32) -> Office {
        let office = Office { service: MasterService::new() };
        let wanted = Wanted { pservers, trainers: 1, replicas: 0, exclude_max: 0 };
        let document = Document::new(settings(64, 2, 8, 2), wanted).elected("m1");
        office.service.lead(document, manifest(64), at_the_end(), "memory");
        office
    }

    /// As the keeper does, with a store that takes no time.
    fn settle(&self) {
        while let Some(document) = self.service.with(Machine::decide).flatten() {
            self.service.with(|machine, now| machine.adopt(document, now));
            self.service.adopted();
        }
    }

    /// As pservers and the keeper do.
    fn write_checkpoint(&self) {
        self.service.with(crate::machine::tests::fixture::write_checkpoint);
        self.settle();
    }

    async fn register(&self, name: &str, nonce: u64) -> Incarnation {
        let (name, address, job) = (name.to_owned(), format!("{name}:7000"), JOB.to_owned());
        let request = proto::RegisterRequest { job, name, address, nonce, process: 1, ..Default::default() };
        let registered = self.service.register(Request::new(request)).await.unwrap().into_inner();
        self.settle();
        Incarnation(registered.incarnation)
    }
    async fn join(&self, name: &str) -> Incarnation {
        let (job, name, declaration) = (JOB.to_owned(), name.to_owned(), Some((&declaration()).into()));
        let request =
            proto::JoinRequest { job, name, nonce: 1, declaration, process: 1, ..Default::default() };
        let joined = self.service.join(Request::new(request)).await.unwrap().into_inner();
        self.settle();
        Incarnation(joined.incarnation)
    }
    /// Every block that a pserver leads stands at `version`.
    async fn publish(&self, pserver: Incarnation, call: u64, version: u64) {
        let blocks = self.service.with(|machine, _| machine.document().blocks.clone()).unwrap();
        let led = (0..).zip(blocks).filter(|(_, block)| block.primary == pserver);
        let word = |(id, term): (u32, u64)| proto::BlockProgress {
            blocks: vec![id],
            term,
            version,
            ..Default::default()
        };
        let progress = led.map(|(id, block)| word((id, block.term.0))).collect();
        let request = proto::ReportRequest {
            job: JOB.to_owned(),
            incarnation: pserver.0,
            call,
            progress,
            ..Default::default()
        };
        self.service.report(Request::new(request)).await.unwrap();
        self.settle();
    }

    fn watch_request(&self, pserver: Incarnation, wait_millis: u32) -> Request<proto::WatchRequest> {
        let known = self.service.with(|machine, _| machine.document().clone()).unwrap();
        Request::new(proto::WatchRequest {
            job: JOB.to_owned(),
            incarnation: pserver.0,
            routing_version: known.routing_version,
            master_term: known.master_term,
            wait_millis,
        })
    }
    /// A call for what is newer than all there is, kept open. Answers with how long it took.
    fn watch(&self, pserver: Incarnation, wait_millis: u32) -> Open<proto::WatchReply> {
        let (service, request) = (self.service.clone(), self.watch_request(pserver, wait_millis));
        open(async move { service.watch(request).await })
    }
    fn route(&self, routing_version: u64, wait_millis: u32) -> Open<proto::RouteReply> {
        let service = self.service.clone();
        let request = proto::RouteRequest { job: JOB.to_owned(), routing_version, wait_millis };
        open(async move { service.route(Request::new(request)).await })
    }
    fn lease(
        &self,
        trainer: Incarnation,
        call: u64,
        known: &[u64],
        wait_millis: u32,
    ) -> Open<proto::LeaseReply> {
        let service = self.service.clone();
        let progress = known.iter().map(|lease| proto::Progress {
            lease: *lease,
            microbatches: 0,
            pushed: false,
            waits: false,
        });
        let request = proto::LeaseRequest {
            job: JOB.to_owned(),
            incarnation: trainer.0,
            progress: progress.collect(),
            want: 1,
            call,
            wait_millis,
            ..Default::default()
        };
        open(async move { service.lease(Request::new(request)).await })
    }

    fn suspects(&self) -> Vec<Incarnation> {
        let suspects = self.service.with(|machine, now| machine.suspects(now)).unwrap();
        suspects.into_iter().map(|(who, _)| who).collect()
    }
    fn state(&self, pserver: Incarnation) -> State {
        self.service.with(|machine, _| machine.pservers.get(pserver).unwrap().state).unwrap()
    }
    /// Anything that makes the document change.
    fn change(&self, trainers: u32) {
        self.service.with(|machine, _| {
            let wanted = Wanted { trainers, ..machine.wanted() };
            machine.scale(wanted)
        });
        self.settle();
    }
}

/// A call under way, and after how many milliseconds it is answered.
type Open<T> = JoinHandle<(u64, Answer<T>)>;

fn open<T: Send + 'static>(call: impl Future<Output = Answer<T>> + Send + 'static) -> Open<T> {
    let asked = Instant::now();
    tokio::spawn(async move {
        let answer = call.await;
        (asked.elapsed().as_millis() as u64, answer)
    })
}

async fn answered<T>(call: Open<T>) -> (u64, T) {
    let (millis, answer) = call.await.unwrap();
    (millis, answer.unwrap().into_inner())
}
fn kind<T>(answer: Answer<T>) -> RefusalKind {
    match answer.map(|_| ()).map_err(Fault::from) {
        Err(fault) => fault.refusal().unwrap_or_else(|| panic!("{fault}")).kind,
        Ok(()) => panic!("not refused"),
    }
}
async fn pause(millis: u64) {
    sleep(Duration::from_millis(millis)).await;
}

/// A job in training on two pservers, with one trainer.
async fn training() -> (Office, [Incarnation; 2], Incarnation) {
    let office = Office::new(2);
    let pservers = [office.register("p0", 1).await, office.register("p1", 1).await];
    let trainer = office.join("a").await;
    for pserver in pservers {
        office.publish(pserver, 1, 0).await;
    }
    (office, pservers, trainer)
}

async fn kinds_of_all_calls(service: &MasterService, job: &str) -> Vec<RefusalKind> {
    let job = || job.to_owned();
    vec![
        kind(service.join(Request::new(proto::JoinRequest { job: job(), ..Default::default() })).await),
        kind(service.lease(Request::new(proto::LeaseRequest { job: job(), ..Default::default() })).await),
        kind(service.leave(Request::new(proto::LeaveRequest { job: job(), ..Default::default() })).await),
        kind(
            service.register(Request::new(proto::RegisterRequest { job: job(), ..Default::default() })).await,
        ),
        kind(service.report(Request::new(proto::ReportRequest { job: job(), ..Default::default() })).await),
        kind(service.watch(Request::new(proto::WatchRequest { job: job(), ..Default::default() })).await),
        kind(service.route(Request::new(proto::RouteRequest { job: job(), ..Default::default() })).await),
        kind(service.status(Request::new(proto::StatusRequest { job: job(), ..Default::default() })).await),
        kind(service.scale(Request::new(proto::ScaleRequest { job: job(), ..Default::default() })).await),
        kind(service.drain(Request::new(proto::DrainRequest { job: job(), ..Default::default() })).await),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_standby_answers_every_call_that_another_leads() {
    let service = MasterService::new();
    assert_eq!(kinds_of_all_calls(&service, JOB).await, [RefusalKind::NotLeader; 10]);
    assert_eq!(kind(service.describe(Request::new(proto::DescribeRequest {})).await), RefusalKind::NotLeader);
    let (office, ..) = training().await;
    assert_eq!(kinds_of_all_calls(&office.service, "digits-2").await, [RefusalKind::WrongJob; 10]);
    let described = office.service.describe(Request::new(proto::DescribeRequest {})).await.unwrap();
    assert_eq!(described.into_inner().settings.unwrap().job, JOB);
    office.service.step_down();
    assert_eq!(kinds_of_all_calls(&office.service, JOB).await, [RefusalKind::NotLeader; 10]);
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_kept_open_end_with_the_leadership() {
    let (office, [p0, _], a) = training().await;
    let version = office.service.with(|machine, _| machine.document().routing_version).unwrap();
    let (_, reply) = answered(office.lease(a, 1, &[], 0)).await;
    let (_, next) = answered(office.lease(a, 2, &[reply.tasks[0].lease], 0)).await;
    let known = [reply.tasks[0].lease, next.tasks[0].lease];
    let calls = (office.watch(p0, 9000), office.route(version, 9000), office.lease(a, 3, &known, 9000));
    pause(50).await;
    office.service.step_down();
    for (millis, kind) in [
        calls.0.await.map(|(millis, answer)| (millis, kind(answer))).unwrap(),
        calls.1.await.map(|(millis, answer)| (millis, kind(answer))).unwrap(),
        calls.2.await.map(|(millis, answer)| (millis, kind(answer))).unwrap(),
    ] {
        assert_eq!((millis, kind), (50, RefusalKind::NotLeader));
    }
}

#[tokio::test(start_paused = true)]
async fn a_master_that_nobody_asked_for_long_takes_nobody_for_dead() {
    let (office, [p0, p1], a) = training().await;
    pause(3_600_000).await;
    assert_eq!([office.state(p0), office.state(p1)], [State::Live; 2]);
    assert_eq!(answered(office.lease(a, 1, &[], 0)).await.1.tasks.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn routing_is_answered_as_soon_as_it_is_newer_and_not_before_anything_is_placed() {
    let office = Office::new(1);
    let (millis, reply) = answered(office.route(0, 200)).await;
    assert_eq!((millis, reply.routing), (200, None));
    let call = office.route(0, 9000);
    office.join("a").await;
    pause(30).await;
    office.register("p0", 1).await;
    let (millis, reply) = answered(call).await;
    let routing = reply.routing.unwrap();
    assert_eq!((millis, routing.pservers[0].address.as_str()), (30, "p0:7000"));
    assert_eq!(answered(office.route(routing.version - 1, 9000)).await.0, 0);
    let call = office.route(routing.version, 9000);
    pause(40).await;
    office.change(7);
    let (millis, reply) = answered(call).await;
    assert!(millis == 40 && reply.routing.unwrap().version > routing.version);
}

#[tokio::test(start_paused = true)]
async fn a_call_for_tasks_is_answered_when_a_report_or_time_brings_one() {
    let (office, pservers, a) = training().await;
    let (_, first) = answered(office.lease(a, 1, &[], 0)).await;
    let (_, second) = answered(office.lease(a, 2, &[first.tasks[0].lease], 0)).await;
    let known = [first.tasks[0].lease, second.tasks[0].lease];
    let (millis, none) = answered(office.lease(a, 3, &known, 300)).await;
    assert_eq!((millis, none), (300, proto::LeaseReply::default()));
    let call = office.lease(a, 4, &known, 9000);
    pause(60).await;
    for pserver in pservers {
        office.publish(pserver, 2, 1).await;
    }
    let (millis, third) = answered(call).await;
    assert_eq!((millis, third.tasks[0].step), (60, 2));
    // It makes no progress: the lease of the front runs out, and it may have that again.
    let known = [known[1], third.tasks[0].lease];
    for call in [5, 6] {
        assert_eq!(answered(office.lease(a, call, &known, 700)).await.1.tasks, []);
    }
    let (millis, again) = answered(office.lease(a, 7, &known, 700)).await;
    let step = TTL_MILLIS / 16;
    assert!((TTL_MILLIS - 1400..=TTL_MILLIS - 1400 + step).contains(&millis), "{millis}");
    assert_eq!(again.tasks[0].step, 1);
}

#[tokio::test(start_paused = true)]
async fn ends_are_told_with_every_call_for_tasks() {
    let (office, [p0, p1], a) = training().await;
    let call = office.lease(a, 1, &[], 0);
    answered(call).await;
    office.publish(p0, 2, 8).await;
    office.publish(p1, 2, 8).await;
    office.write_checkpoint();
    let (_, done) = answered(office.lease(a, 2, &[], 9000)).await;
    assert!(done.done && done.tasks.is_empty());

    let (office, [p0, _], a) = training().await;
    let request = proto::ReportRequest {
        job: JOB.to_owned(),
        incarnation: p0.0,
        call: 2,
        failure: "block 3: no".to_owned(),
        ..Default::default()
    };
    office.service.report(Request::new(request)).await.unwrap();
    office.settle();
    assert_eq!(answered(office.lease(a, 1, &[], 9000)).await.1.failed, "block 3: no");
}

#[tokio::test(start_paused = true)]
async fn a_pserver_less_than_one_is_not_wanted() {
    let (office, ..) = training().await;
    let request = proto::ScaleRequest { job: JOB.to_owned(), trainers: None, pservers: Some(0), spec: None };
    let reply = office.service.scale(Request::new(request)).await.unwrap().into_inner();
    assert_eq!((reply.pservers_before, reply.pservers), (2, 1));
    assert_eq!((reply.trainers_before, reply.trainers), (1, 1), "what is not named stays");
}

#[tokio::test(start_paused = true)]
async fn who_asks_for_an_admission_is_who_reports() {
    let (office, [p0, p1], _) = training().await;
    office.service.with(|machine, _| machine.scale(Wanted { replicas: 1, ..machine.wanted() }));
    office.settle();
    let block = office.service.with(|machine, _| machine.document().blocks[0].clone()).unwrap();
    let follower = if block.primary == p0 { p1 } else { p0 };
    let (fill, term) = (block.copy_on(follower).unwrap().fill, block.term);
    assert_ne!(fill, Fill(0));
    let asked =
        proto::Admission { block: 0, pserver: follower.0, fill: fill.0, term: term.0, is_heir: false };
    for (call, (asks, in_sync)) in (2..).zip([(follower, 1), (block.primary, 2)]) {
        let request = proto::ReportRequest {
            job: JOB.to_owned(),
            incarnation: asks.0,
            call,
            admissions: vec![asked],
            ..Default::default()
        };
        office.service.report(Request::new(request)).await.unwrap();
        office.settle();
        let copies = office.service.with(|machine, _| machine.document().blocks[0].in_sync().count());
        assert_eq!(copies, Some(in_sync));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_stored_has_bounds_and_beyond_them_a_call_changes_nothing() {
    let office = Office::new(1);
    office.register("p0", 1).await;
    let stored =
        |office: &Office| office.service.with(|machine, _| format!("{:?}", machine.document())).unwrap();
    let (before, job) = (stored(&office), || JOB.to_owned());
    for address in [String::new(), "h".repeat(261), "a host:1".to_owned(), "host:1\n".to_owned()] {
        let request =
            proto::RegisterRequest { job: job(), name: "p1".into(), nonce: 1, address, ..Default::default() };
        let refused = office.service.register(Request::new(request)).await.unwrap_err();
        assert!(refused.message().contains("host:port"), "{refused}");
    }
    for (trainers, pservers) in [(Some(20_001), None), (None, Some(u32::MAX)), (Some(3), Some(20_001))] {
        let request = proto::ScaleRequest { job: job(), trainers, pservers, spec: None };
        let refused = office.service.scale(Request::new(request)).await.unwrap_err();
        assert!(refused.message().contains("20000") && refused.message().contains("fewer"), "{refused}");
    }
    office.settle();
    assert_eq!(stored(&office), before);
    let request = proto::ScaleRequest { job: job(), trainers: Some(20_000), pservers: None, spec: None };
    office.service.scale(Request::new(request)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_panic_within_the_machine_ends_what_this_master_says_and_calls_for_its_end() {
    let office = Office::new(1);
    let broken = office.service.broken();
    tokio::pin!(broken);
    assert!(futures_util::poll!(broken.as_mut()).is_pending());
    let service = office.service.clone();
    let changing = tokio::spawn(async move { service.with(|_, _| panic!("between two writes")) });
    assert!(changing.await.unwrap_err().is_panic());
    let described = office.service.describe(Request::new(proto::DescribeRequest::default())).await;
    assert!(described.unwrap_err().message().contains("another master leads"));
    broken.await;
    assert_eq!(office.service.standing(), None);
}
