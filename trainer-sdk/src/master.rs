//! What a trainer asks its master, one attempt at a time or until an answer comes: describe, join, lease, route, leave.
//! What follows from the answers is [`crate::trainer`]'s to decide.

use crate::calls::Caller;
use crate::error::TrainError;
use crate::leaders::Leaders;
use crate::model::Job;
use crate::settings::TrainerSettings;
use shoal_runtime::cluster::refusal::NextMove;
use shoal_runtime::cluster::{
    Declaration, Environment, Exclusions, Incarnation, JobSettings, Refusal, RefusalKind, Routing, Task, Work,
};
use shoal_runtime::host::backoff::Backoff;
use shoal_runtime::host::random::Random;
use shoal_runtime::host::rpc::{Dial, kept_open};
use shoal_runtime::wire::Fault;
use shoal_runtime::wire::proto;
use std::sync::Arc;
use std::time::Duration;

/// Calls are kept open for less time than connections let them last.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The master of a job that is known, and who is asking.
pub(crate) struct Master {
    pub(crate) leaders: Arc<Leaders>,
    pub(crate) job: JobSettings,
    nonce: u64,
    name: String,
    patience: Duration,
    environment: Environment,
}

/// The master's answer to a trainer that joins.
pub(crate) struct JoinAnswer {
    pub(crate) incarnation: Incarnation,
    /// `None` until blocks are placed.
    pub(crate) routing: Option<Routing>,
    /// In what the environment is another than the job's; empty if it is the same, or nobody asks.
    difference: String,
}

/// The master's answer to a call for tasks.
pub(crate) enum LeaseAnswer {
    Tasks(Vec<Task>),
    Done,
    /// This master has yet to learn of the trainer: join again.
    Unknown,
    /// Nobody who leads has answered.
    Silence(String),
}

impl Master {
    /// Finds the master and learns what its job is.
    pub(crate) async fn find(
        settings: &TrainerSettings,
        dial: &dyn Dial,
        mut random: Random,
    ) -> Result<Master, TrainError> {
        let nonce = random.bits();
        let caller = Caller::new(settings.attempt(None), random);
        let mut leaders = Leaders::new(&settings.master, dial, caller)?;
        let describe = |mut client: proto::master_client::MasterClient<_>| async move {
            client.describe(proto::DescribeRequest {}).await
        };
        let described = leaders.until_answered(settings.patience, describe).await?;
        let job = JobSettings::try_from(described.settings.unwrap_or_default());
        let job = job.map_err(|refusal| leaders.callee().refused(refusal))?;
        if !settings.job.is_empty() && settings.job != job.job.0 {
            let detail = format!("the master runs {:?}", job.job.0);
            let refusal = Refusal::new(RefusalKind::WrongJob, format!("job {:?}", settings.job), detail);
            return Err(leaders.callee().refused(refusal));
        }
        leaders.caller.attempt = settings.attempt(Some(Duration::from_millis(job.lease_ttl_millis)));
        let leaders = Arc::new(leaders);
        let (name, patience, environment) =
            (settings.name.clone(), settings.patience, Environment::default());
        Ok(Master { leaders, job, nonce, name, patience, environment })
    }

    /// The same, asked by a trainer of this environment.
    pub(crate) fn in_environment(self, environment: Environment) -> Master {
        Master { environment, ..self }
    }

    /// What a model may know before it declares.
    pub(crate) fn job(&self) -> Job {
        Job::of(&self.job)
    }

    /// For how long what does not answer is tried again.
    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// How long a lease lives without progress.
    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_millis(self.job.lease_ttl_millis)
    }

    /// How long another role is asked to keep a call open when it has nothing to say.
    pub(crate) fn wait(&self) -> Duration {
        (self.ttl() / 4).min(WAIT_MAX)
    }

    fn join_request(&self, declaration: &Declaration, previous: Option<Incarnation>) -> proto::JoinRequest {
        proto::JoinRequest {
            job: self.job.job.0.clone(),
            name: self.name.clone(),
            nonce: self.nonce,
            declaration: Some(declaration.into()),
            process: std::process::id(),
            previous: previous.map_or(0, |incarnation| incarnation.0),
            environment: (&self.environment).into(),
        }
    }

    fn joined(&self, reply: proto::JoinReply) -> Result<JoinAnswer, TrainError> {
        let routing = reply.routing.map(Routing::try_from).transpose();
        let routing = routing.map_err(|refusal| self.leaders.callee().refused(refusal))?;
        let incarnation = Incarnation(reply.incarnation);
        Ok(JoinAnswer { incarnation, routing, difference: reply.difference })
    }

    /// Joins, and waits until blocks are placed.
    pub(crate) async fn join(&self, declaration: &Declaration) -> Result<(Incarnation, Routing), TrainError> {
        let request = self.join_request(declaration, None);
        let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));
        loop {
            let join = |mut client: proto::master_client::MasterClient<_>| {
                let request = request.clone();
                async move { client.join(request).await }
            };
            let joined = self.joined(self.leaders.until_answered(self.patience, join).await?)?;
            if let Some(routing) = joined.routing {
                if !joined.difference.is_empty() {
                    tracing::warn!(
                        joined.difference,
                        "this trainer's environment is not the job's: bits may differ"
                    );
                }
                return Ok((joined.incarnation, routing));
            }
            if backoff.attempts() == 8 {
                tracing::info!("waiting for pservers");
            }
            tokio::time::sleep(self.leaders.caller.pause(&mut backoff)).await;
        }
    }

    /// Joins again, a trainer that a master of an earlier term knew as `previous`. The answer may have no routing.
    pub(crate) async fn rejoin(
        &self,
        declaration: &Declaration,
        previous: Incarnation,
    ) -> Result<JoinAnswer, TrainError> {
        let request = self.join_request(declaration, Some(previous));
        let join = |mut client: proto::master_client::MasterClient<_>| {
            let request = request.clone();
            async move { client.join(request).await }
        };
        self.joined(self.leaders.until_answered(self.patience, join).await?)
    }

    /// **Lease**: says how far the trainer is and asks for tasks. Tried once: the next call carries newer words, so an
    /// unanswered one is not sent again but overtaken.
    pub(crate) async fn lease(
        &self,
        request: proto::LeaseRequest,
    ) -> Result<(LeaseAnswer, Option<Exclusions>), TrainError> {
        let wait = Duration::from_millis(request.wait_millis.into());
        let lease = |mut client: proto::master_client::MasterClient<_>| async move {
            client.lease(kept_open(request, wait)).await
        };
        let fault = match self.leaders.once(wait, lease).await {
            Ok(reply) => return self.leased(reply),
            Err(fault) => fault,
        };
        match fault.next_move() {
            NextMove::Retry => Ok((LeaseAnswer::Silence(fault.to_string()), None)),
            NextMove::Rejoin => Ok((LeaseAnswer::Unknown, None)),
            _ => Err(self.leaders.callee().refused(fault)),
        }
    }

    /// Tasks, and the exclusions if they are newer than those known: tasks never come without the list they need.
    fn leased(&self, reply: proto::LeaseReply) -> Result<(LeaseAnswer, Option<Exclusions>), TrainError> {
        if !reply.failed.is_empty() {
            return Err(TrainError::JobFailed(reply.failed));
        }
        if reply.done {
            return Ok((LeaseAnswer::Done, None));
        }
        let exclusions = reply.exclusions.map(Exclusions::try_from).transpose();
        let exclusions = exclusions.map_err(|refusal| self.leaders.callee().refused(refusal))?;
        let tasks: Result<Vec<Task>, Refusal> = reply.tasks.into_iter().map(Task::try_from).collect();
        let tasks = tasks.map_err(|refusal| self.leaders.callee().refused(refusal))?;
        match tasks.iter().find(|task| !self.is_of_the_job(task)) {
            Some(task) => {
                let refusal = Refusal::new(RefusalKind::Malformed, task.work, "no work of this job");
                Err(self.leaders.callee().refused(refusal))
            }
            None => Ok((LeaseAnswer::Tasks(tasks), exclusions)),
        }
    }

    fn is_of_the_job(&self, task: &Task) -> bool {
        match task.work {
            Work::Node { step, node, .. } => {
                let is_there = self.job.is_sync() && step.0 < self.job.steps();
                is_there && self.job.shape().tree(step).contains(node)
            }
            Work::Run { first } => {
                let end = first.checked_add(task.microbatches.len() as u64);
                !self.job.is_sync() && end.is_some_and(|end| end <= self.job.positions())
            }
        }
    }

    /// **Route**: the routing, as soon as it is newer than `known`. `None`: there is none newer yet.
    pub(crate) async fn route(&self, known: u64) -> Result<Option<Routing>, Fault> {
        let wait = self.wait();
        let request = proto::RouteRequest {
            job: self.job.job.0.clone(),
            routing_version: known,
            wait_millis: wait.as_millis() as u32,
        };
        let route = |mut client: proto::master_client::MasterClient<_>| async move {
            client.route(kept_open(request, wait)).await
        };
        let reply = self.leaders.once(wait, route).await?;
        Ok(reply.routing.map(Routing::try_from).transpose()?)
    }

    /// **Leave**: one attempt to hand back what is not finished.
    pub(crate) async fn leave(&self, request: proto::LeaveRequest) -> Result<(), Fault> {
        let leave =
            |mut client: proto::master_client::MasterClient<_>| async move { client.leave(request).await };
        self.leaders.once(Duration::ZERO, leave).await.map(|proto::LeaveReply {}| ())
    }
}
