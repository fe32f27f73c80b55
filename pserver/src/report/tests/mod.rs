//! Registering, reporting and watching, with a master of the test's own, in memory and in paused time. This file has
//! that master; it tests nothing.

mod leaving;
mod reports;
mod sizes;
mod watches;

use super::*;
use crate::block::tests::{ME, job};
use crate::hosting::Assignment;
use crate::shard::tests::empty;
use object_store::memory::InMemory;
use shoal_runtime::host::rpc::tls::Role;
use shoal_runtime::host::rpc::{Channel, Dial, answering};
use shoal_runtime::host::storage::Storage;
use shoal_runtime::wire::proto::master_server::{Master, MasterServer};
use shoal_runtime::wire::{WireVersion, status_of};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::timeout;
use tonic::{Request, Response, Status};
use tower::util::BoxCloneSyncService;

/// What the test's master has heard and will say.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) registered: Vec<proto::RegisterRequest>,
    pub(crate) reports: Vec<(Instant, proto::ReportRequest)>,
    pub(crate) watches: Vec<(Instant, proto::WatchRequest)>,
    /// How often it has forgotten what it was told.
    pub(crate) forgotten: u64,
    /// Calls that are still to go unanswered.
    pub(crate) outage: usize,
    /// What everybody is refused with.
    pub(crate) refusal: Option<Refusal>,
    /// Incarnations that are given up, and what they are told.
    pub(crate) given_up: BTreeMap<u64, Refusal>,
    /// Whether it says its assignments to whoever asks, however much they know.
    pub(crate) is_stubborn: bool,
    assignments: BTreeMap<u64, proto::Assignment>,
}

/// Gives out incarnations 77, 78 and so on.
#[derive(Clone, Debug, Default)]
pub(crate) struct FakeMaster {
    heard: Arc<Mutex<Heard>>,
    assigned: Arc<Notify>,
}

impl Dial for FakeMaster {
    fn dial(&self, _: &str, _: Option<Role>) -> Result<Channel, String> {
        let server = answering(MasterServer::new(self.clone()), WireVersion::PRESENT);
        type Call = tonic::codegen::http::Request<tonic::body::Body>;
        Ok(BoxCloneSyncService::new(tower::ServiceExt::<Call>::map_err(server, Into::into)))
    }
}

impl FakeMaster {
    pub(crate) fn masters(&self) -> Masters {
        Masters::new("master:7400", self).unwrap()
    }
    pub(crate) fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap()
    }
    /// What an incarnation is to hold from now on.
    pub(crate) fn assign(&self, to: Incarnation, assignment: &Assignment) {
        self.heard().assignments.insert(to.0, wire(assignment));
        self.assigned.notify_waiters();
    }
    fn answer(&self, incarnation: u64) -> Result<(), Status> {
        let mut heard = self.heard();
        if heard.outage > 0 {
            heard.outage -= 1;
            return Err(Status::unavailable("connection refused"));
        }
        let refusal = heard.refusal.as_ref().or(heard.given_up.get(&incarnation));
        refusal.map_or(Ok(()), |refusal| Err(status_of(refusal)))
    }
    /// The assignment of the caller, if it is newer than what it knows.
    fn newer(&self, than: &proto::WatchRequest) -> Option<proto::Assignment> {
        let heard = self.heard();
        let assignment = heard.assignments.get(&than.incarnation);
        let is_newer = |new: &&proto::Assignment| {
            heard.is_stubborn
                || (new.master_term, new.routing_version) > (than.master_term, than.routing_version)
        };
        assignment.filter(is_newer).cloned()
    }
}

pub(crate) fn wire(assignment: &Assignment) -> proto::Assignment {
    let blocks = assignment.blocks.iter().map(|(block, placement)| proto::AssignedBlocks {
        blocks: vec![block.0],
        term: placement.term.0,
        rewind: placement.rewind.0,
        fill: placement.fill.0,
        heir: placement.heir.map_or(0, |heir| heir.0),
        primary: placement.primary.0,
        origin: placement.origin.map(Into::into),
        copies: placement
            .copies
            .iter()
            .map(|copy| proto::AssignedCopy {
                pserver: copy.pserver.0,
                fill: copy.fill.0,
                is_in_sync: copy.is_in_sync,
            })
            .collect(),
    });
    proto::Assignment {
        routing_version: assignment.routing_version,
        declaration: Some((&assignment.declaration).into()),
        master_term: assignment.master_term,
        blocks: blocks.collect(),
        pservers: assignment.pservers.iter().map(Into::into).collect(),
        may_leave: assignment.may_leave,
        record_hashes: assignment.record_hashes,
        is_over: assignment.is_over,
        exclusions: assignment.exclusions,
        judged: assignment.verdicts.judged,
        rates: Vec::new(),
        scalar_primary: assignment.scalars.map_or(0, |primary| primary.0),
        checkpoint: assignment.checkpoint.map(|named| proto::NamedCheckpoint {
            checkpoint: named.checkpoint.0,
            version: named.version.map_or(0, |version| version.0),
            since: named.since.map_or(0, |since| since.0),
            named_at: named.named_at,
        }),
    }
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Master for FakeMaster {
    async fn describe(&self, _: Request<proto::DescribeRequest>) -> Answer<proto::JobDescription> {
        self.answer(0)?;
        Ok(Response::new(proto::JobDescription { settings: Some((&job(5, 2)).into()) }))
    }
    async fn register(&self, request: Request<proto::RegisterRequest>) -> Answer<proto::RegisterReply> {
        let nonces = {
            let mut heard = self.heard();
            heard.registered.push(request.into_inner());
            heard.registered.iter().map(|request| request.nonce).collect::<BTreeSet<_>>().len()
        };
        self.answer(0)?;
        Ok(Response::new(proto::RegisterReply {
            incarnation: 76 + nonces as u64,
            settings: Some((&job(5, 2)).into()),
            checkpoints: String::new(),
        }))
    }
    async fn report(&self, request: Request<proto::ReportRequest>) -> Answer<proto::ReportReply> {
        let request = request.into_inner();
        self.heard().reports.push((Instant::now(), request.clone()));
        self.answer(request.incarnation)?;
        let base = 1 + self.heard().forgotten;
        Ok(Response::new(proto::ReportReply { base, ..Default::default() }))
    }
    async fn watch(&self, request: Request<proto::WatchRequest>) -> Answer<proto::WatchReply> {
        let request = request.into_inner();
        self.heard().watches.push((Instant::now(), request.clone()));
        let deadline = Instant::now() + Duration::from_millis(request.wait_millis.into());
        loop {
            self.answer(request.incarnation)?;
            let assigned = self.assigned.notified();
            let assignment = self.newer(&request);
            if assignment.is_some() || Instant::now() >= deadline {
                return Ok(Response::new(proto::WatchReply { assignment }));
            }
            let _ = timeout_at(deadline, assigned).await;
        }
    }
    async fn join(&self, _: Request<proto::JoinRequest>) -> Answer<proto::JoinReply> {
        Err(Status::unimplemented("join"))
    }
    async fn lease(&self, _: Request<proto::LeaseRequest>) -> Answer<proto::LeaseReply> {
        Err(Status::unimplemented("lease"))
    }
    async fn route(&self, _: Request<proto::RouteRequest>) -> Answer<proto::RouteReply> {
        Err(Status::unimplemented("route"))
    }
    async fn leave(&self, _: Request<proto::LeaveRequest>) -> Answer<proto::LeaveReply> {
        Err(Status::unimplemented("leave"))
    }
    async fn status(&self, _: Request<proto::StatusRequest>) -> Answer<proto::StatusReply> {
        Err(Status::unimplemented("status"))
    }
    async fn checkpoint(&self, _: Request<proto::CheckpointRequest>) -> Answer<proto::CheckpointReply> {
        Err(Status::unimplemented("checkpoint"))
    }
    async fn drain(&self, _: Request<proto::DrainRequest>) -> Answer<proto::DrainReply> {
        Err(Status::unimplemented("drain"))
    }
    async fn scale(&self, _: Request<proto::ScaleRequest>) -> Answer<proto::ScaleReply> {
        Err(Status::unimplemented("scale"))
    }
}

/// A place for checkpoints.
pub(crate) fn memory() -> Storage {
    Storage::over(Arc::new(InMemory::new()), "memory")
}

pub(crate) fn identity(job: Option<&str>) -> Identity {
    let (job, address) = (job.map(str::to_owned), "127.0.0.1:1".into());
    Identity { job, name: "ps-0".into(), nonce: 5, previous: None, address }
}

pub(crate) async fn after(millis: u64) {
    sleep(Duration::from_millis(millis)).await;
}

/// Talks for `millis` while `meanwhile` runs. Returns what ended the talk, if anything did.
async fn talk_for(
    talk: impl Future<Output = Fault>,
    millis: u64,
    meanwhile: impl Future<Output = ()>,
) -> Option<Fault> {
    let (talked, ()) = tokio::join!(timeout(Duration::from_millis(millis), talk), meanwhile);
    talked.ok()
}
