//! The shell around the master's machine: gives it time, carries its answers, keeps calls open while it has none.
//!
//! The machine sits behind one lock that is never held across an await; no decision is taken here.

use crate::lease::Progress;
use crate::machine::{LeaseOutcome, Machine, PserverCounters, TrainerCounters, TrainerWord};
use crate::reports::BlockProgress;
use crate::status;
use shoal_runtime::cluster::{BlockId, Declaration, Incarnation, LeaseId, Node, Refusal, Version};
use shoal_runtime::wire::proto::{self, master_server};
use shoal_runtime::wire::{malformed, status_of};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

/// The longest that a call for tasks is kept open.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The master's rpc service. Clones share the machine.
#[derive(Clone, Debug)]
pub struct MasterService {
    machine: Arc<Mutex<Machine>>,
    changed: Arc<Notify>,
    started: Instant,
}

type Answer<T> = Result<Response<T>, Status>;

impl MasterService {
    /// Serves `machine`, whose time begins now.
    pub fn new(machine: Machine) -> MasterService {
        MasterService {
            machine: Arc::new(Mutex::new(machine)),
            changed: Arc::new(Notify::new()),
            started: Instant::now(),
        }
    }

    /// The machine, brought up to the present moment, for callers of this job only.
    fn machine(&self, job: &str) -> Result<(MutexGuard<'_, Machine>, Duration), Status> {
        // A panic inside the machine leaves it as it was between two of its writes: going on beats a dead master.
        let mut machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
        machine.check_job(job).map_err(|refusal| status_of(&refusal))?;
        let now = self.started.elapsed();
        machine.tick(now);
        Ok((machine, now))
    }

    /// One attempt to lease. Also says when to try again at the latest.
    fn try_lease(&self, request: &proto::LeaseRequest) -> Result<(LeaseOutcome, Duration), Status> {
        let (mut machine, now) = self.machine(&request.job)?;
        let outcome = machine.lease(Incarnation(request.incarnation), request.call, request.want, now);
        let ttl = Duration::from_millis(machine.settings().lease_ttl_millis);
        Ok((outcome, ttl / 16))
    }

    async fn lease_within(&self, request: &proto::LeaseRequest) -> Result<LeaseOutcome, Status> {
        let deadline = Instant::now() + Duration::from_millis(request.wait_millis.into()).min(WAIT_MAX);
        loop {
            let changed = self.changed.notified();
            let (outcome, again) = self.try_lease(request)?;
            let until = deadline.min(Instant::now() + again);
            if outcome != LeaseOutcome::Wait || Instant::now() >= deadline {
                return Ok(outcome);
            }
            // Time alone may bring a task (an expired lease), so the wait is bounded even without a change.
            let _ = tokio::time::timeout_at(until, changed).await;
        }
    }
}

#[tonic::async_trait]
impl master_server::Master for MasterService {
    async fn describe(&self, _: Request<proto::DescribeRequest>) -> Answer<proto::JobDescription> {
        let machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Response::new(proto::JobDescription { settings: Some(machine.settings().into()) }))
    }

    async fn join(&self, request: Request<proto::JoinRequest>) -> Answer<proto::JoinReply> {
        let request = request.into_inner();
        let (mut machine, now) = self.machine(&request.job)?;
        let declaration = request.declaration.ok_or_else(|| malformed("declaration", "the field is missing"));
        let joined = declaration.and_then(Declaration::try_from).and_then(|declaration| {
            machine.join(&request.name, request.nonce, request.process, declaration, now)
        });
        let (incarnation, routing) = joined.map_err(|refusal| status_of(&refusal))?;
        let settings = Some(machine.settings().into());
        drop(machine);
        self.changed.notify_waiters();
        Ok(Response::new(proto::JoinReply {
            incarnation: incarnation.0,
            routing: routing.as_ref().map(Into::into),
            settings,
        }))
    }

    async fn lease(&self, request: Request<proto::LeaseRequest>) -> Answer<proto::LeaseReply> {
        let request = request.into_inner();
        let word = TrainerWord { call: request.call, counters: trainer_counters(request.counters.as_ref()) };
        let is_newest = {
            let (mut machine, now) = self.machine(&request.job)?;
            machine
                .hear_trainer(Incarnation(request.incarnation), word, &progress(&request.progress), now)
                .map_err(|refusal| status_of(&refusal))?
        };
        self.changed.notify_waiters();
        let outcome = if is_newest { self.lease_within(&request).await? } else { LeaseOutcome::Overtaken };
        let mut reply = proto::LeaseReply::default();
        match outcome {
            LeaseOutcome::Tasks(tasks) => reply.tasks = tasks.into_iter().map(Into::into).collect(),
            LeaseOutcome::Done => reply.done = true,
            LeaseOutcome::Failed(why) => reply.failed = why,
            LeaseOutcome::Wait | LeaseOutcome::Overtaken => {}
        }
        Ok(Response::new(reply))
    }

    async fn leave(&self, request: Request<proto::LeaveRequest>) -> Answer<proto::LeaveReply> {
        let request = request.into_inner();
        let (mut machine, now) = self.machine(&request.job)?;
        let counters = trainer_counters(request.counters.as_ref());
        let trainer = Incarnation(request.incarnation);
        machine
            .leave(trainer, &progress(&request.progress), counters, &request.failure, now)
            .map_err(|refusal| status_of(&refusal))?;
        drop(machine);
        self.changed.notify_waiters();
        Ok(Response::new(proto::LeaveReply {}))
    }

    async fn register(&self, request: Request<proto::RegisterRequest>) -> Answer<proto::RegisterReply> {
        let request = request.into_inner();
        let (mut machine, now) = self.machine(&request.job)?;
        let incarnation = machine
            .register(&request.name, &request.address, request.nonce, request.process, now)
            .map_err(|refusal| status_of(&refusal))?;
        Ok(Response::new(proto::RegisterReply {
            incarnation: incarnation.0,
            settings: Some(machine.settings().into()),
        }))
    }

    async fn report(&self, request: Request<proto::ReportRequest>) -> Answer<proto::ReportReply> {
        let request = request.into_inner();
        let pserver = Incarnation(request.incarnation);
        let counters = pserver_counters(request.counters.as_ref());
        let (mut machine, now) = self.machine(&request.job)?;
        let assignment = block_progress(request.progress)
            .and_then(|said| {
                machine.report(pserver, request.routing_version, said, counters, &request.failure, now)
            })
            .map_err(|refusal| status_of(&refusal))?;
        drop(machine);
        self.changed.notify_waiters();
        let assignment = assignment.map(|assignment| proto::Assignment {
            routing_version: assignment.routing_version,
            declaration: Some((&assignment.declaration).into()),
            blocks: assignment.blocks.into_iter().map(|block| block.0).collect(),
        });
        Ok(Response::new(proto::ReportReply { assignment }))
    }

    async fn status(&self, request: Request<proto::StatusRequest>) -> Answer<proto::StatusReply> {
        let (machine, _) = self.machine(&request.into_inner().job)?;
        Ok(Response::new(status::reply(&machine)))
    }

    async fn scale(&self, request: Request<proto::ScaleRequest>) -> Answer<proto::ScaleReply> {
        let request = request.into_inner();
        let (mut machine, _) = self.machine(&request.job)?;
        let trainers_before = machine.scale(request.trainers);
        Ok(Response::new(proto::ScaleReply { trainers_before, trainers: request.trainers }))
    }
}

fn progress(words: &[proto::Progress]) -> Vec<Progress> {
    let word = |word: &proto::Progress| Progress {
        lease: LeaseId(word.lease),
        microbatches: word.microbatches,
        pushed: word.pushed,
    };
    words.iter().map(word).collect()
}

fn block_progress(groups: Vec<proto::BlockProgress>) -> Result<Vec<BlockProgress>, Refusal> {
    let group = |group: proto::BlockProgress| {
        let mut held = group.held.into_iter().map(Node::try_from).collect::<Result<Vec<_>, _>>()?;
        held.sort_by_key(|node| node.first());
        if held.windows(2).any(|pair| pair[0].end() > pair[1].first()) {
            return Err(malformed("report.held", "held nodes cover one another"));
        }
        let blocks = group.blocks.into_iter().map(BlockId).collect();
        Ok(BlockProgress { blocks, version: Version(group.version), held })
    };
    groups.into_iter().map(group).collect()
}

fn trainer_counters(wire: Option<&proto::TrainerCounters>) -> TrainerCounters {
    let wire = wire.copied().unwrap_or_default();
    TrainerCounters {
        microbatches: wire.microbatches,
        records: wire.records,
        bytes_read: wire.bytes_read,
        negative_zeros: wire.negative_zeros,
        tasks: wire.tasks,
        retries: wire.retries,
        compute_micros: wire.compute_micros,
        pull_micros: wire.pull_micros,
        push_micros: wire.push_micros,
    }
}

fn pserver_counters(wire: Option<&proto::PserverCounters>) -> PserverCounters {
    let wire = wire.copied().unwrap_or_default();
    PserverCounters {
        pushes: wire.pushes,
        duplicates_refused: wire.duplicates_refused,
        late_pushes: wire.late_pushes,
        records_refused: wire.records_refused,
        replaced_by_ancestor: wire.replaced_by_ancestor,
        busy: wire.busy,
        short_steps: wire.short_steps,
        bytes_in: wire.bytes_in,
        bytes_out: wire.bytes_out,
        levels: wire.levels,
    }
}
