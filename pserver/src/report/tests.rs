//! Registering and reporting to a master of the test's own, in memory and in paused time.

use super::*;
use crate::block::tests::{declaration, job};
use crate::shard::Push;
use shoal_runtime::cluster::{Node, RefusalKind, Step};
use shoal_runtime::wire::proto::master_server::{Master, MasterServer};
use shoal_runtime::wire::status_of;
use std::sync::{Arc, Mutex};
use tonic::{Request, Response, Status};
use tower::util::BoxCloneSyncService;

/// What the test's master has heard and will say.
#[derive(Debug, Default)]
struct Heard {
    registered: Vec<proto::RegisterRequest>,
    reports: Vec<(Instant, proto::ReportRequest)>,
    /// Calls that are still to go unanswered.
    outage: usize,
    refusal: Option<Refusal>,
    routing_version: u64,
    blocks: Vec<u32>,
}

#[derive(Clone, Debug, Default)]
struct FakeMaster(Arc<Mutex<Heard>>);

impl FakeMaster {
    fn client(&self) -> MasterClient<Channel> {
        let server = MasterServer::new(self.clone());
        type Call = tonic::codegen::http::Request<tonic::body::Body>;
        MasterClient::new(BoxCloneSyncService::new(tower::ServiceExt::<Call>::map_err(server, Into::into)))
    }
    fn heard(&self) -> std::sync::MutexGuard<'_, Heard> {
        self.0.lock().unwrap()
    }
    fn answer(&self) -> Result<(), Status> {
        let mut heard = self.heard();
        if heard.outage > 0 {
            heard.outage -= 1;
            return Err(Status::unavailable("connection refused"));
        }
        heard.refusal.as_ref().map_or(Ok(()), |refusal| Err(status_of(refusal)))
    }
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Master for FakeMaster {
    async fn describe(&self, _: Request<proto::DescribeRequest>) -> Answer<proto::JobDescription> {
        self.answer()?;
        Ok(Response::new(proto::JobDescription { settings: Some((&job(5, 2)).into()) }))
    }
    async fn register(&self, request: Request<proto::RegisterRequest>) -> Answer<proto::RegisterReply> {
        self.heard().registered.push(request.into_inner());
        self.answer()?;
        Ok(Response::new(proto::RegisterReply { incarnation: 77, settings: Some((&job(5, 2)).into()) }))
    }
    async fn report(&self, request: Request<proto::ReportRequest>) -> Answer<proto::ReportReply> {
        let request = request.into_inner();
        self.heard().reports.push((Instant::now(), request.clone()));
        self.answer()?;
        let heard = self.heard();
        let assignment = (heard.routing_version != request.routing_version).then(|| proto::Assignment {
            routing_version: heard.routing_version,
            declaration: Some((&declaration()).into()),
            blocks: heard.blocks.clone(),
        });
        Ok(Response::new(proto::ReportReply { assignment }))
    }
    async fn join(&self, _: Request<proto::JoinRequest>) -> Answer<proto::JoinReply> {
        Err(Status::unimplemented("join"))
    }
    async fn lease(&self, _: Request<proto::LeaseRequest>) -> Answer<proto::LeaseReply> {
        Err(Status::unimplemented("lease"))
    }
    async fn leave(&self, _: Request<proto::LeaveRequest>) -> Answer<proto::LeaveReply> {
        Err(Status::unimplemented("leave"))
    }
    async fn status(&self, _: Request<proto::StatusRequest>) -> Answer<proto::StatusReply> {
        Err(Status::unimplemented("status"))
    }
    async fn scale(&self, _: Request<proto::ScaleRequest>) -> Answer<proto::ScaleReply> {
        Err(Status::unimplemented("scale"))
    }
}

fn identity(job: Option<&str>) -> Identity {
    Identity { job: job.map(str::to_owned), name: "ps-0".into(), nonce: 5, address: "127.0.0.1:1".into() }
}

/// Reports for `millis` while `meanwhile` runs. Returns what ended the reporting, if anything did.
async fn report_for(
    master: &FakeMaster,
    shard: &Shard,
    millis: u64,
    meanwhile: impl Future<Output = ()>,
) -> Option<Fault> {
    let mut random = Random::seeded(1);
    let reporting = report(shard, master.client(), Incarnation(77), &mut random);
    let within = timeout(Duration::from_millis(millis), reporting);
    let (reported, ()) = tokio::join!(within, meanwhile);
    reported.ok()
}

async fn after(millis: u64) {
    sleep(Duration::from_millis(millis)).await;
}

fn push(shard: &Shard, step: u64, node: Node) {
    let gradient = 1.0f32.to_le_bytes();
    let gradients = vec![(BlockId(1), &gradient[..])];
    let weight = u64::from(node.width());
    shard.push(&Push { routing_version: 1, step: Step(step), node, weight, gradients }).unwrap();
}

const ROOT: Node = Node { level: 1, index: 0 };

#[tokio::test(start_paused = true)]
async fn a_registration_is_repeated_under_one_nonce_until_the_master_answers() {
    let master = FakeMaster::default();
    master.heard().outage = 7;
    let mut random = Random::seeded(1);
    let (incarnation, settings) =
        register(master.client(), &identity(Some("test")), &mut random).await.unwrap();
    assert_eq!((incarnation, settings), (Incarnation(77), job(5, 2)));
    let heard = master.heard();
    assert_eq!(heard.registered.len(), 8);
    assert!(heard.registered.iter().all(|request| request.nonce == 5 && request.name == "ps-0"));
}

#[tokio::test(start_paused = true)]
async fn the_job_is_asked_for_when_it_was_not_named() {
    let master = FakeMaster::default();
    register(master.client(), &identity(None), &mut Random::seeded(1)).await.unwrap();
    assert_eq!(master.heard().registered[0].job, "test");
}

#[tokio::test(start_paused = true)]
async fn a_registration_that_is_refused_is_not_repeated() {
    let master = FakeMaster::default();
    master.heard().refusal = Some(Refusal::new(RefusalKind::WrongJob, "job", "another"));
    let fault =
        register(master.client(), &identity(Some("other")), &mut Random::seeded(1)).await.unwrap_err();
    assert_eq!(fault.refusal().unwrap().kind, RefusalKind::WrongJob);
    assert_eq!(master.heard().registered.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_assignment_is_done_once_and_reported_under_its_routing_version() {
    let (master, shard) = (FakeMaster::default(), Shard::new(job(5, 2), 16));
    let assign = async {
        after(300).await;
        (master.heard().routing_version, master.heard().blocks) = (1, vec![0, 1]);
    };
    assert!(report_for(&master, &shard, 2000, assign).await.is_none());
    let heard = master.heard();
    let hosted: Vec<_> = heard.reports.iter().filter(|(_, report)| report.routing_version == 1).collect();
    assert_eq!(hosted[0].1.progress[0].blocks, [0, 1]);
    // Asked every 200 ms at least, and the blocks are reported as soon as they are made.
    assert!(hosted[0].0 - heard.reports[0].0 <= Duration::from_millis(300 + 200 + 10));
    let silences = heard.reports.windows(2).map(|pair| pair[1].0 - pair[0].0);
    assert!(silences.max().unwrap() <= Duration::from_millis(251));
}

fn hosting_shard() -> Shard {
    let shard = Shard::new(job(5, 2), 16);
    let assignment = Assignment { routing_version: 1, declaration: declaration(), blocks: vec![BlockId(1)] };
    let mut construction = shard.assign(assignment).unwrap();
    while let Some(under_way) = construction {
        construction = shard.make_next(under_way);
    }
    shard
}

fn hosting_master() -> FakeMaster {
    let master = FakeMaster::default();
    master.heard().routing_version = 1;
    master
}

#[tokio::test(start_paused = true)]
async fn a_version_is_reported_at_once_and_held_nodes_a_little_later() {
    let (master, shard) = (hosting_master(), hosting_shard());
    let started = Instant::now();
    let pushes = async {
        after(100).await;
        push(&shard, 0, ROOT);
        after(50).await;
        push(&shard, 1, Node::leaf(0));
        after(50).await;
        push(&shard, 1, ROOT);
    };
    report_for(&master, &shard, 240, pushes).await;
    let heard = master.heard();
    let told: Vec<(u128, u64, usize)> = heard
        .reports
        .iter()
        .map(|(at, report)| (at.duration_since(started).as_millis(), &report.progress[0]))
        .map(|(at, progress)| (at, progress.version, progress.held.len()))
        .collect();
    assert_eq!(
        told.iter().map(|told| (told.1, told.2)).collect::<Vec<_>>(),
        [(0, 0), (1, 0), (1, 1), (2, 0)]
    );
    assert!(told[1].0 <= 103 && told[2].0 <= 178 && told[3].0 <= 203, "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn many_changes_make_few_reports() {
    let (master, shard) = (hosting_master(), hosting_shard());
    let pushes = async {
        for step in 0..9 {
            push(&shard, step, ROOT);
        }
    };
    report_for(&master, &shard, 50, pushes).await;
    assert!(master.heard().reports.len() <= 3, "{:?}", master.heard().reports);
    assert_eq!(master.heard().reports.last().unwrap().1.progress[0].version, 9);
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_master_is_waited_out() {
    let (master, shard) = (hosting_master(), hosting_shard());
    master.heard().outage = 20;
    let pushes = async {
        after(500).await;
        push(&shard, 0, ROOT);
    };
    assert!(report_for(&master, &shard, 60_000, pushes).await.is_none());
    let heard = master.heard();
    assert_eq!(heard.outage, 0);
    assert_eq!(heard.reports.last().unwrap().1.progress[0].version, 1);
}

#[tokio::test(start_paused = true)]
async fn a_later_life_under_the_same_name_ends_the_reporting() {
    let (master, shard) = (hosting_master(), hosting_shard());
    master.heard().refusal = Some(Refusal::new(RefusalKind::StaleIncarnation, "ps-0", "superseded"));
    let fault = report_for(&master, &shard, 1000, async {}).await.unwrap();
    assert_eq!(fault.refusal().unwrap().kind, RefusalKind::StaleIncarnation);
}

#[tokio::test(start_paused = true)]
async fn what_makes_the_job_impossible_is_told_at_once() {
    let (master, shard) = (hosting_master(), hosting_shard());
    let failing = async {
        after(30).await;
        shard.fail("two results differ".into());
    };
    report_for(&master, &shard, 40, failing).await;
    assert_eq!(master.heard().reports.last().unwrap().1.failure, "two results differ");
}

#[tokio::test(start_paused = true)]
async fn an_assignment_that_cannot_be_done_is_told_as_a_failure() {
    let (master, shard) = (hosting_master(), hosting_shard());
    (master.heard().routing_version, master.heard().blocks) = (2, vec![0]);
    report_for(&master, &shard, 100, async {}).await;
    assert!(master.heard().reports.last().unwrap().1.failure.contains("no copy"));
}
