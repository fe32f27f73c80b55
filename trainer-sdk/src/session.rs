//! The five verbs: join, lease, pull, push, leave. Each is idempotent and tried until it is answered.
//!
//! A session holds connections and identity, never a gradient: what to do with the verbs is [`crate::trainer`]'s.

use crate::calls::{Callee, Caller};
use crate::error::TrainError;
use crate::model::{Job, Names};
use crate::reduce::NodeSum;
use crate::settings::TrainerSettings;
use bytes::Bytes;
use futures_util::future::try_join_all;
use shoal_runtime::cluster::refusal::NextMove;
use shoal_runtime::cluster::{
    BlockId, Declaration, Incarnation, JobSettings, Node, Refusal, RefusalKind, Routing, Step, Task,
};
use shoal_runtime::host::backoff::Backoff;
use shoal_runtime::host::random::Random;
use shoal_runtime::host::rpc::{Channel, Dial, master_client, pserver_client};
use shoal_runtime::wire::Fault;
use shoal_runtime::wire::proto::{self, master_client::MasterClient, pserver_client::PserverClient};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Bytes of gradients or parameters in one message: the size at which a call is cheapest.
const MESSAGE_BYTES: usize = 1 << 20;

/// A connection to a master, before and after joining.
pub(crate) struct Master {
    address: String,
    client: MasterClient<Channel>,
    pub(crate) caller: Arc<Caller>,
    nonce: u64,
    name: String,
    pub(crate) job: JobSettings,
}

/// A trainer that has joined.
pub(crate) struct Session {
    pub(crate) master: Master,
    pub(crate) incarnation: Incarnation,
    pub(crate) names: Arc<Names>,
    pservers: Vec<Pserver>,
    routing_version: u64,
}

/// One pserver with the blocks it hosts, in messages' worth.
struct Pserver {
    address: String,
    client: PserverClient<Channel>,
    batches: Vec<Vec<BlockId>>,
}

/// The answer to a call for tasks.
pub(crate) enum Leased {
    Tasks(Vec<Task>),
    Done,
}

/// The answer to a pull.
pub(crate) enum Pulled {
    Parameters(Vec<Vec<f32>>),
    /// The step is done everywhere; its parameters are no longer kept.
    Gone,
}

impl Master {
    /// Finds the master and learns what its job is.
    pub(crate) async fn find(
        settings: &TrainerSettings,
        dial: &dyn Dial,
        mut random: Random,
    ) -> Result<Master, TrainError> {
        let client = master_client(dial, &settings.master).map_err(TrainError::Settings)?;
        let nonce = random.bits();
        let caller = Arc::new(Caller::new(settings.attempt, settings.patience, random));
        let callee = Callee { role: "master", address: &settings.master };
        let described = caller
            .call(callee, Duration::ZERO, || {
                let mut client = client.clone();
                async move { client.describe(proto::DescribeRequest {}).await }
            })
            .await?
            .map_err(|fault| callee.refused(fault))?;
        let job = described.settings.unwrap_or_default();
        let job = JobSettings::try_from(job).map_err(|refusal| callee.refused(refusal.into()))?;
        if !settings.job.is_empty() && settings.job != job.job.0 {
            let detail = format!("the master runs {:?}", job.job.0);
            let refusal = Refusal::new(RefusalKind::WrongJob, format!("job {:?}", settings.job), detail);
            return Err(callee.refused(refusal.into()));
        }
        let (address, name) = (settings.master.clone(), settings.name.clone());
        Ok(Master { address, client, caller, nonce, name, job })
    }

    /// What a model may know before it declares.
    pub(crate) fn job(&self) -> Job {
        Job::of(&self.job)
    }

    fn callee(&self) -> Callee<'_> {
        Callee { role: "master", address: &self.address }
    }

    /// One attempt to join; the routing may still be absent.
    async fn join_once(&self, declaration: &Declaration) -> Result<proto::JoinReply, TrainError> {
        let request = proto::JoinRequest {
            job: self.job.job.0.clone(),
            name: self.name.clone(),
            nonce: self.nonce,
            declaration: Some(declaration.into()),
            process: std::process::id(),
        };
        let joined = self
            .caller
            .call(self.callee(), Duration::ZERO, || {
                let (mut client, request) = (self.client.clone(), request.clone());
                async move { client.join(request).await }
            })
            .await?;
        joined.map_err(|fault| self.callee().refused(fault))
    }

    async fn routing(&self, declaration: &Declaration) -> Result<(Incarnation, Routing), TrainError> {
        let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));
        loop {
            let reply = self.join_once(declaration).await?;
            if let Some(routing) = reply.routing {
                let routing =
                    Routing::try_from(routing).map_err(|refusal| self.callee().refused(refusal.into()))?;
                return Ok((Incarnation(reply.incarnation), routing));
            }
            if backoff.attempts() == 8 {
                tracing::info!("waiting for pservers");
            }
            tokio::time::sleep(self.caller.pause(&mut backoff)).await;
        }
    }

    /// **Join**: declares the parameters, waits until blocks are placed, connects to their pservers.
    pub(crate) async fn join(self, declaration: Declaration, dial: &dyn Dial) -> Result<Session, TrainError> {
        declaration.check().map_err(|fault| TrainError::Settings(fault.to_string()))?;
        let (incarnation, routing) = self.routing(&declaration).await?;
        let names = Arc::new(Names::new(declaration));
        let pservers = connect(&routing, &names, dial)?;
        Ok(Session { master: self, incarnation, names, pservers, routing_version: routing.version })
    }
}

fn connect(routing: &Routing, names: &Names, dial: &dyn Dial) -> Result<Vec<Pserver>, TrainError> {
    if routing.primary.len() != names.layout.len() {
        let what = format!(
            "the master routes {} blocks, this program has {}",
            routing.primary.len(),
            names.layout.len()
        );
        return Err(TrainError::Settings(format!("{what}: build all trainers from the same version")));
    }
    let connect = |(at, pserver): (usize, &shoal_runtime::cluster::routing::PserverAddress)| {
        let client = pserver_client(dial, &pserver.address).map_err(TrainError::Settings)?;
        let batches = batches(&routing.blocks_of(at), names);
        Ok(Pserver { address: pserver.address.clone(), client, batches })
    };
    routing.pservers.iter().enumerate().map(connect).collect()
}

/// Cuts a pserver's blocks into messages of about [`MESSAGE_BYTES`].
fn batches(blocks: &[BlockId], names: &Names) -> Vec<Vec<BlockId>> {
    let mut batches: Vec<Vec<BlockId>> = Vec::new();
    let mut room = 0;
    for block in blocks {
        let bytes = 4 * names.layout.block(*block).map_or(0, |block| block.elements);
        match batches.last_mut() {
            Some(batch) if bytes <= room => batch.push(*block),
            _ => {
                batches.push(vec![*block]);
                room = MESSAGE_BYTES;
            }
        }
        room = room.saturating_sub(bytes);
    }
    batches
}

impl Session {
    /// **Lease**: says how far the trainer is and asks for tasks.
    pub(crate) async fn lease(&self, request: proto::LeaseRequest) -> Result<Leased, TrainError> {
        let master = &self.master;
        let wait = Duration::from_millis(request.wait_millis.into());
        // Tried once: the next call carries newer words, so an unanswered one is not sent again but overtaken.
        let called =
            tokio::time::timeout(wait + Duration::from_secs(5), master.client.clone().lease(request)).await;
        let fault = match called {
            Ok(Ok(reply)) => return self.leased(reply.into_inner()),
            Ok(Err(status)) => Fault::from(status),
            Err(_) => Fault::Unreachable("no answer in time".to_owned()),
        };
        Err(match fault {
            Fault::Unreachable(last) => {
                TrainError::Unreachable { role: "master", address: master.address.clone(), seconds: 0, last }
            }
            fault => master.callee().refused(fault),
        })
    }

    fn leased(&self, reply: proto::LeaseReply) -> Result<Leased, TrainError> {
        if !reply.failed.is_empty() {
            return Err(TrainError::JobFailed(reply.failed));
        }
        if reply.done {
            return Ok(Leased::Done);
        }
        let tasks: Result<Vec<Task>, Refusal> = reply.tasks.into_iter().map(Task::try_from).collect();
        let shape = self.master.job.shape();
        let tasks = tasks.map_err(|refusal| self.master.callee().refused(refusal.into()))?;
        match tasks.iter().find(|task| !shape.tree(task.step).contains(task.node)) {
            Some(task) => {
                let refusal = Refusal::new(RefusalKind::Malformed, task.node, "no node of its step");
                Err(self.master.callee().refused(refusal.into()))
            }
            None => Ok(Leased::Tasks(tasks)),
        }
    }

    /// **Pull**: the parameters at the version that `step` reads. Resolves once every block has published it.
    pub(crate) async fn pull(&self, step: Step) -> Result<Pulled, TrainError> {
        let answers = try_join_all(self.pservers.iter().flat_map(|pserver| {
            pserver.batches.iter().map(move |batch| self.pull_batch(pserver, step, batch))
        }))
        .await?;
        let mut values = self.names.zeros();
        for answer in answers {
            let Some(blocks) = answer else { return Ok(Pulled::Gone) };
            for (block, bytes) in blocks {
                if let Some(layout) = self.names.layout.block(block) {
                    layout.scatter(&bytemuck::pod_collect_to_vec::<u8, f32>(&bytes), &mut values);
                }
            }
        }
        Ok(Pulled::Parameters(values))
    }

    /// Blocks of one message with their parameters; none when the step is gone.
    async fn pull_batch(
        &self,
        pserver: &Pserver,
        step: Step,
        batch: &[BlockId],
    ) -> Result<Option<Vec<(BlockId, Bytes)>>, TrainError> {
        let is_read =
            |block: &BlockId| self.names.layout.block(*block).is_some_and(|layout| layout.is_read_by_steps);
        let mut asked: BTreeSet<BlockId> = batch.iter().copied().collect();
        let mut pulled = Vec::new();
        let mut backoff = Backoff::new(Duration::from_millis(2), Duration::from_millis(100));
        let wait = Duration::from_millis(self.master.job.lease_ttl_millis / 4);
        while !asked.is_empty() {
            let (read, unread): (Vec<BlockId>, Vec<BlockId>) = asked.iter().partition(|block| is_read(block));
            let request = proto::PullRequest {
                job: self.master.job.job.0.clone(),
                incarnation: self.incarnation.0,
                routing_version: self.routing_version,
                step: step.0,
                blocks: read.into_iter().map(|block| block.0).collect(),
                without_data: unread.into_iter().map(|block| block.0).collect(),
                wait_millis: wait.as_millis() as u32,
            };
            let callee = Callee { role: "pserver", address: &pserver.address };
            let call = || {
                let (mut client, request) = (pserver.client.clone(), request.clone());
                async move { client.pull(request).await }
            };
            match self.master.caller.call(callee, wait, call).await? {
                Ok(reply) => self.keep(callee, reply, &mut asked, &mut pulled)?,
                Err(fault) => match fault.next_move() {
                    NextMove::Drop => return Ok(None),
                    // The pserver has not yet heard of the routing that this trainer has: it will.
                    NextMove::Reroute => tokio::time::sleep(self.master.caller.pause(&mut backoff)).await,
                    NextMove::Retry | NextMove::GiveUp => return Err(callee.refused(fault)),
                },
            }
        }
        Ok(Some(pulled))
    }

    fn keep(
        &self,
        callee: Callee<'_>,
        reply: proto::PullReply,
        asked: &mut BTreeSet<BlockId>,
        pulled: &mut Vec<(BlockId, Bytes)>,
    ) -> Result<(), TrainError> {
        for block in reply.blocks {
            let id = BlockId(block.block);
            let Some(layout) = self.names.layout.block(id).filter(|_| asked.remove(&id)) else { continue };
            let expected = if layout.is_read_by_steps { 4 * layout.elements } else { 0 };
            if block.parameters.len() != expected {
                let detail = format!("expected {expected} bytes, got {}", block.parameters.len());
                let refusal = Refusal::new(RefusalKind::WrongShape, format!("block {id}"), detail);
                return Err(callee.refused(refusal.into()));
            }
            if layout.is_read_by_steps {
                pulled.push((id, block.parameters));
            }
        }
        Ok(())
    }

    /// **Push**: one node's sum to every block. Resolves to true once every block holds or has applied it, to false
    /// when some block has had no room for an eighth of a lease's time to live: then a lower node must come first.
    pub(crate) async fn push(&self, step: Step, node: Node, sum: &NodeSum) -> Result<bool, TrainError> {
        let pushed = try_join_all(self.pservers.iter().flat_map(|pserver| {
            pserver.batches.iter().map(move |batch| self.push_batch(pserver, step, node, sum, batch))
        }))
        .await?;
        Ok(pushed.into_iter().all(|is_taken| is_taken))
    }

    async fn push_batch(
        &self,
        pserver: &Pserver,
        step: Step,
        node: Node,
        sum: &NodeSum,
        batch: &[BlockId],
    ) -> Result<bool, TrainError> {
        let (began, patience) = (Instant::now(), Duration::from_millis(self.master.job.lease_ttl_millis) / 8);
        let callee = Callee { role: "pserver", address: &pserver.address };
        let mut backoff = Backoff::new(Duration::from_millis(2), Duration::from_millis(200));
        let mut left: Vec<BlockId> = batch.to_vec();
        while !left.is_empty() {
            let request = proto::PushRequest {
                job: self.master.job.job.0.clone(),
                incarnation: self.incarnation.0,
                routing_version: self.routing_version,
                step: step.0,
                node: Some(node.into()),
                weight: sum.weight,
                blocks: left.iter().map(|block| self.gradient_of(*block, sum)).collect(),
            };
            let call = || {
                let (mut client, request) = (pserver.client.clone(), request.clone());
                async move { client.push(request).await }
            };
            match self.master.caller.call(callee, Duration::ZERO, call).await? {
                Ok(reply) => {
                    let busy = i32::from(proto::PushAnswer::Busy);
                    let answers = reply.answers.iter().copied().chain(std::iter::repeat(busy));
                    left = left
                        .into_iter()
                        .zip(answers)
                        .filter(|(_, answer)| *answer == busy)
                        .map(|(b, _)| b)
                        .collect();
                    if !left.is_empty() && began.elapsed() >= patience {
                        return Ok(false);
                    }
                }
                Err(fault) if fault.next_move() == NextMove::Reroute => {}
                Err(fault) => return Err(callee.refused(fault)),
            }
            if !left.is_empty() {
                tokio::time::sleep(self.master.caller.pause(&mut backoff)).await;
            }
        }
        Ok(true)
    }

    fn gradient_of(&self, block: BlockId, sum: &NodeSum) -> proto::BlockGradient {
        let mut values = Vec::new();
        if let Some(layout) = self.names.layout.block(block) {
            values.reserve_exact(layout.elements);
            layout.gather(&sum.values, &mut values);
        }
        let gradient = Bytes::from(bytemuck::cast_slice::<f32, u8>(&values).to_vec());
        proto::BlockGradient { block: block.0, gradient }
    }

    /// **Leave**: hands back what is not finished. Tried for a short while only: a master that does not hear of it
    /// takes the trainer for lost, which costs time and nothing else.
    pub(crate) async fn leave(&self, mut request: proto::LeaveRequest) {
        request.job = self.master.job.job.0.clone();
        request.incarnation = self.incarnation.0;
        let callee = self.master.callee();
        let call = || {
            let (mut client, request) = (self.master.client.clone(), request.clone());
            async move { client.leave(request).await }
        };
        let left = self.master.caller.call(callee, Duration::ZERO, call);
        match tokio::time::timeout(Duration::from_secs(3), left).await {
            Ok(Ok(Ok(_))) => {}
            Ok(Ok(Err(fault))) => tracing::warn!(%fault, "the master did not take the goodbye"),
            Ok(Err(_)) | Err(_) => {
                tracing::warn!("the master did not hear the goodbye: it will take this trainer for lost");
            }
        }
    }
}
