//! The shell around the master's machine: gives it time, carries its answers, keeps calls open while it has none.
//!
//! The machine sits behind one lock that is never held across an await; no decision is taken here.

mod connected;
mod present;
mod standing_by;

use crate::clock::Clock;
use crate::document::Document;
use crate::machine::{Declared, LeaseOutcome, Machine, TrainerWord};
use crate::signals::Signals;
use crate::standstill::RefusedJoin;
use crate::words;
use connected::Connected;
use present::{Leading, Present};
use shoal_job::spec::{self, Spec};
use shoal_runtime::cluster::{Declaration, Environment, Incarnation, LeaseId, Manifest};
use shoal_runtime::host::waits::Waits;
use shoal_runtime::wire::proto::{self, master_server};
use shoal_runtime::wire::{malformed, status_of, waits};
use standing_by::StandingBy;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

/// The longest that a call for tasks is kept open.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Calls for tasks, kept open, up to which one more looks again when a task will be late.
const LATE_CALLS_MAX: usize = 16;

/// The master's rpc service. Clones share the machine.
#[derive(Clone, Debug)]
pub struct MasterService {
    leading: Arc<Mutex<Option<Leading>>>,
    signals: Arc<Signals>,
    /// Waits of this process.
    waits: Waits,
    /// The newest refusal of a trainer that would join.
    refused: Arc<Mutex<Option<RefusedJoin>>>,
    /// The reason for not leading.
    standing_by: Arc<Mutex<StandingBy>>,
    started: Instant,
}

type Answer<T> = Result<Response<T>, Status>;

impl MasterService {
    /// A master that does not lead yet.
    #[allow(clippy::new_without_default, reason = "its time begins now")]
    pub fn new() -> MasterService {
        MasterService {
            leading: Arc::default(),
            signals: Arc::default(),
            waits: Waits::default(),
            refused: Arc::default(),
            standing_by: Arc::default(),
            started: Instant::now(),
        }
    }

    /// This process leads, and was started with `spec`: `document` is in the store.
    pub fn lead(&self, document: Document, manifest: Manifest, spec: Spec, place: &str) {
        let stride = Duration::from_millis(document.job.lease_ttl_millis) / 4;
        let machine = Machine::new(document, manifest, spec, place.to_owned(), Duration::ZERO);
        let clock = Clock::starting(self.started.elapsed(), stride);
        if let Some(mut leading) = self.lock() {
            *leading = Some(Leading { machine, clock });
        }
        self.signals.adopted();
    }

    /// It does not lead any more.
    pub fn step_down(&self) {
        drop(self.lock().and_then(|mut leading| leading.take()));
        self.signals.adopted();
    }

    /// There is another document, or none.
    pub(crate) fn adopted(&self) {
        self.signals.adopted();
    }

    /// Answers calls that are kept open, and keeps none open any more: this process is to end, and an open call would hold it up.
    pub(crate) fn stop(&self) {
        self.signals.stop();
    }

    /// Whether a call is to be answered, even if there is nothing to say.
    fn is_due(&self, deadline: Instant) -> bool {
        Instant::now() >= deadline || self.signals.is_stopping()
    }

    /// Calls for tasks that are kept open now.
    pub fn calls_waiting(&self) -> usize {
        self.signals.calls_waiting()
    }

    /// Resolves once a panic has ended a change of the machine half-way. Nothing is told of it from then on; this process is to end,
    /// and the next master to begin with what the document says.
    pub(crate) async fn broken(&self) {
        self.signals.broken().await;
    }

    /// The machine, locked; none once a panic has left it between two of its writes.
    fn lock(&self) -> Option<MutexGuard<'_, Option<Leading>>> {
        let locked = self.leading.lock();
        if locked.is_err() {
            self.signals.broke();
        }
        locked.ok()
    }

    /// The machine, brought up to the present moment; none while this process does not lead.
    fn present(&self) -> Option<Present<'_>> {
        let mut leading = self.lock()?;
        let Leading { machine, clock } = leading.as_mut()?;
        let now = clock.now(self.started.elapsed());
        machine.tick(now);
        Some(Present { leading, now })
    }

    /// The machine, for callers of this job only.
    fn machine(&self, job: &str) -> Result<(Present<'_>, Duration), Status> {
        let present = self.present().ok_or_else(|| self.not_leading())?;
        present.check_job(job).map_err(|refusal| status_of(&refusal))?;
        let now = present.now;
        Ok((present, now))
    }

    /// Runs `ask` on the machine, if this process leads. For whoever keeps the document.
    pub(crate) fn with<T>(&self, ask: impl FnOnce(&mut Machine, Duration) -> T) -> Option<T> {
        let mut present = self.present()?;
        let now = present.now;
        Some(ask(&mut present, now))
    }

    /// Told of whatever may bring a decision.
    pub(crate) fn changed(&self) -> &Notify {
        self.signals.changed()
    }

    /// A trainer has spoken: most of its words call for no decision, and there are many.
    fn heard(&self, machine: Present<'_>) {
        let calls_for_decision = machine.is_changed();
        drop(machine);
        if calls_for_decision {
            self.signals.heard();
        }
    }

    /// One attempt to lease. Also says when to try again at the latest.
    fn try_lease(&self, request: &proto::LeaseRequest) -> Result<(LeaseOutcome, Duration), Status> {
        let (mut machine, now) = self.machine(&request.job)?;
        let outcome = machine.lease(Incarnation(request.incarnation), request.call, request.want, now);
        let ttl = Duration::from_millis(machine.settings().lease_ttl_millis);
        // A few of those who wait, and not thousands, look again when a task will be late.
        let is_one_of_few = outcome == LeaseOutcome::Wait && self.signals.calls_waiting() < LATE_CALLS_MAX;
        let late = if is_one_of_few { machine.next_late(now) } else { None };
        let again = late.map_or(ttl / 16, |late| (late - now).clamp(ttl / 256, ttl / 16));
        Ok((outcome, again))
    }

    /// The exclusions, if they are newer than those of this number. Asked after tasks were given: they need them.
    fn exclusions_after(&self, number: u64) -> Option<proto::Exclusions> {
        let machine = self.present()?;
        let exclusions = &machine.document().exclusions;
        (exclusions.number > number).then(|| exclusions.into())
    }

    async fn lease_within(&self, request: &proto::LeaseRequest) -> Result<LeaseOutcome, Status> {
        let deadline = Instant::now() + Duration::from_millis(request.wait_millis.into()).min(WAIT_MAX);
        loop {
            let freed = self.signals.free();
            let (outcome, again) = self.try_lease(request)?;
            let until = deadline.min(Instant::now() + again);
            if matches!(outcome, LeaseOutcome::Tasks(_)) {
                self.signals.freed_one();
            }
            if outcome != LeaseOutcome::Wait || self.is_due(deadline) {
                return Ok(outcome);
            }
            // Time alone may bring a task (an expired lease), so the wait is bounded even without a change.
            let _waiting = self.signals.wait();
            let _ = tokio::time::timeout_at(until, freed).await;
        }
    }
}

#[tonic::async_trait]
impl master_server::Master for MasterService {
    async fn describe(&self, _: Request<proto::DescribeRequest>) -> Answer<proto::JobDescription> {
        let machine = self.present().ok_or_else(|| self.not_leading())?;
        Ok(Response::new(proto::JobDescription { settings: Some(machine.settings().into()) }))
    }

    async fn join(&self, request: Request<proto::JoinRequest>) -> Answer<proto::JoinReply> {
        let request = request.into_inner();
        let (mut machine, now) = self.machine(&request.job)?;
        let declaration = request.declaration.ok_or_else(|| malformed("declaration", "the field is missing"));
        let environment =
            Environment::try_from(request.environment).map_err(|refusal| status_of(&refusal))?;
        let joined = declaration.and_then(Declaration::try_from).and_then(|declaration| {
            let previous = Some(Incarnation(request.previous)).filter(|previous| previous.0 > 0);
            let declared = Declared { declaration, environment: environment.clone() };
            machine.join(&request.name, request.nonce, request.process, declared, previous, now)
        });
        self.note_join(&request.name, &joined, now);
        let (incarnation, routing) = joined.map_err(|refusal| status_of(&refusal))?;
        let settings = Some(machine.settings().into());
        let difference = machine.difference(&environment).unwrap_or_default();
        self.heard(machine);
        Ok(Response::new(proto::JoinReply {
            incarnation: incarnation.0,
            routing: routing.map(|routing| routing.as_ref().into()),
            settings,
            difference,
        }))
    }

    async fn lease(&self, request: Request<proto::LeaseRequest>) -> Answer<proto::LeaseReply> {
        let request = request.into_inner();
        let word = TrainerWord { call: request.call, counters: request.counters.unwrap_or_default().into() };
        let refusals = words::refusals(request.complaints.clone()).map_err(|refusal| status_of(&refusal))?;
        let verified = words::verified(request.verified.clone()).map_err(|refusal| status_of(&refusal))?;
        let is_newest = {
            let (mut machine, now) = self.machine(&request.job)?;
            let (progress, trainer) = (words::progress(&request.progress), Incarnation(request.incarnation));
            let is_newest = machine
                .hear_trainer(trainer, word, &progress, &refusals, now)
                .map_err(|refusal| status_of(&refusal))?;
            if is_newest {
                machine.hear_verified(trainer, &progress, &verified, now);
                machine.hear_waits(trainer, waits::from_wire(request.waits.clone()));
            }
            if is_newest && request.careful > 0 {
                machine.hear_announcement(trainer, LeaseId(request.careful), request.record, now);
            }
            self.heard(machine);
            is_newest
        };
        // What it does not know of, or cannot do, is another's to do.
        self.signals.freed_one();
        let outcome = if is_newest { self.lease_within(&request).await? } else { LeaseOutcome::Overtaken };
        let mut reply =
            proto::LeaseReply { exclusions: self.exclusions_after(request.exclusions), ..Default::default() };
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
        let counters = request.counters.unwrap_or_default().into();
        let trainer = Incarnation(request.incarnation);
        let refusals = words::refusals(request.complaints).map_err(|refusal| status_of(&refusal))?;
        let verified = words::verified(request.verified).map_err(|refusal| status_of(&refusal))?;
        let (failure, ended) = (words::bounded(request.failure), words::bounded(request.ended));
        let progress = words::progress(&request.progress);
        // One that cannot go on may have computed on a machine that is not sound: above all its hashes are compared.
        machine.hear_verified(trainer, &progress, &verified, now);
        if ended.is_empty() {
            let left = machine.leave(trainer, &progress, counters, &failure, &refusals, now);
            left.map_err(|refusal| status_of(&refusal))?;
        } else {
            machine.ends(trainer, &ended, now);
        }
        drop(machine);
        self.signals.freed();
        Ok(Response::new(proto::LeaveReply {}))
    }

    async fn register(&self, request: Request<proto::RegisterRequest>) -> Answer<proto::RegisterReply> {
        let request = request.into_inner();
        let (mut machine, now) = self.machine(&request.job)?;
        let previous = Some(Incarnation(request.previous)).filter(|previous| previous.0 > 0);
        let address = words::address(request.address)?;
        let incarnation = machine
            .register(&request.name, &address, request.nonce, request.process, previous, now)
            .map_err(|refusal| status_of(&refusal))?;
        let (settings, checkpoints) = (Some(machine.settings().into()), machine.place.clone());
        drop(machine);
        self.signals.heard();
        Ok(Response::new(proto::RegisterReply { incarnation: incarnation.0, settings, checkpoints }))
    }

    async fn report(&self, request: Request<proto::ReportRequest>) -> Answer<proto::ReportReply> {
        let request = request.into_inner();
        let (pserver, job) = (Incarnation(request.incarnation), request.job.clone());
        let (mut machine, now) = self.machine(&job)?;
        words::report(request)
            .and_then(|word| machine.report(pserver, word, now))
            .map_err(|refusal| status_of(&refusal))?;
        let (base, (rewind, below)) = (machine.reports_base(), machine.recorded());
        drop(machine);
        self.signals.freed();
        let (recorded_rewind, recorded_below) = (rewind.0, below.0);
        Ok(Response::new(proto::ReportReply { base, recorded_rewind, recorded_below }))
    }

    async fn watch(&self, request: Request<proto::WatchRequest>) -> Answer<proto::WatchReply> {
        let request = request.into_inner();
        let pserver = Incarnation(request.incarnation);
        let deadline = Instant::now() + Duration::from_millis(request.wait_millis.into()).min(WAIT_MAX);
        let mut connected = Connected { service: self.clone(), pserver, is_answered: true };
        // The call is a sign of life when it comes, not for as long as it is kept open.
        let heard =
            self.machine(&request.job).map(|(mut machine, now)| machine.attend_pserver(pserver, now))?;
        heard.map_err(|refusal| status_of(&refusal))?;
        loop {
            let adopted = self.signals.adoption();
            let assignment = {
                let (machine, _) = self.machine(&request.job)?;
                machine.assignment(pserver, request.master_term, request.routing_version)
            };
            if assignment.is_some() || self.is_due(deadline) {
                return Ok(Response::new(proto::WatchReply { assignment }));
            }
            connected.is_answered = false;
            let _ = tokio::time::timeout_at(deadline, adopted).await;
            connected.is_answered = true;
        }
    }

    async fn route(&self, request: Request<proto::RouteRequest>) -> Answer<proto::RouteReply> {
        let request = request.into_inner();
        let deadline = Instant::now() + Duration::from_millis(request.wait_millis.into()).min(WAIT_MAX);
        loop {
            let adopted = self.signals.adoption();
            let routing = {
                let (machine, _) = self.machine(&request.job)?;
                let routing = machine.job.as_ref().map(|job| Arc::clone(&job.routing));
                routing.filter(|routing| routing.version > request.routing_version)
            };
            if routing.is_some() || self.is_due(deadline) {
                let routing = routing.map(|routing| routing.as_ref().into());
                return Ok(Response::new(proto::RouteReply { routing }));
            }
            let _ = tokio::time::timeout_at(deadline, adopted).await;
        }
    }

    async fn status(&self, request: Request<proto::StatusRequest>) -> Answer<proto::StatusReply> {
        let proto::StatusRequest { job, without_model } = request.into_inner();
        let (machine, now) = self.machine(&job)?;
        Ok(Response::new(self.status_reply(&machine, now, !without_model)))
    }

    async fn scale(&self, request: Request<proto::ScaleRequest>) -> Answer<proto::ScaleReply> {
        let request = request.into_inner();
        let (mut machine, _) = self.machine(&request.job)?;
        let mut wanted = machine.wanted();
        wanted.trainers = words::wanted("trainers", request.trainers, wanted.trainers)?;
        wanted.pservers = words::wanted("pservers", request.pservers, wanted.pservers)?.max(1);
        let spec = request.spec.map(|text| words::spec(&text, machine.spec())).transpose()?;
        let before = machine.scale(wanted);
        if let Some(spec) = spec {
            tracing::info!(spec = %spec::Document(spec.live()), "this master was told other settings");
            machine.go_by(spec);
        }
        drop(machine);
        self.signals.heard();
        Ok(Response::new(proto::ScaleReply {
            trainers_before: before.trainers,
            trainers: wanted.trainers,
            pservers_before: before.pservers,
            pservers: wanted.pservers,
        }))
    }

    async fn checkpoint(&self, request: Request<proto::CheckpointRequest>) -> Answer<proto::CheckpointReply> {
        let (mut machine, _) = self.machine(&request.into_inner().job)?;
        let newest = machine.document().newest().map_or(0, |kept| kept.record.checkpoint.0);
        machine.demand_checkpoint();
        drop(machine);
        self.signals.heard();
        Ok(Response::new(proto::CheckpointReply { newest }))
    }

    async fn drain(&self, request: Request<proto::DrainRequest>) -> Answer<proto::DrainReply> {
        let request = request.into_inner();
        let (mut machine, _) = self.machine(&request.job)?;
        let pserver =
            machine.drain(&request.pserver, request.replace).map_err(|refusal| status_of(&refusal))?;
        let pservers = machine.wanted().pservers;
        drop(machine);
        self.signals.heard();
        Ok(Response::new(proto::DrainReply { incarnation: pserver.0, pservers }))
    }
}

#[cfg(test)]
mod tests;
