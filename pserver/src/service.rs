//! The pserver's rpc service: from messages to the shard and back. No decision is taken here.

use crate::block::{BlockState, PushOutcome};
use crate::shard::{Pull, Pulled, Push, Shard};
use bytes::Bytes;
use shoal_runtime::cluster::{BlockId, Node, Refusal, RefusalKind, Step, Version};
use shoal_runtime::host::rpc::Limits;
use shoal_runtime::wire::proto::{self, pserver_server};
use shoal_runtime::wire::{malformed, status_of};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

/// The longest that a pull is kept open.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Answers trainers. Clones share the shard.
#[derive(Clone, Debug)]
pub struct PserverService {
    shard: Arc<Shard>,
}

type Answer<T> = Result<Response<T>, Status>;

impl PserverService {
    /// Serves `shard`.
    pub fn new(shard: Arc<Shard>) -> PserverService {
        PserverService { shard }
    }

    /// The service with its message limits, ready to be served.
    pub fn server(self, limits: Limits) -> pserver_server::PserverServer<PserverService> {
        pserver_server::PserverServer::new(self)
            .max_decoding_message_size(limits.message_bytes)
            .max_encoding_message_size(limits.message_bytes)
    }

    fn check_job(&self, job: &str) -> Result<(), Refusal> {
        let ours = &self.shard.job().job;
        if job == ours.0 {
            return Ok(());
        }
        let detail = format!("this pserver serves {:?}: check SHOAL_JOB and the master's address", ours.0);
        Err(Refusal::new(RefusalKind::WrongJob, format!("job {job:?}"), detail))
    }

    fn take(&self, request: &proto::PushRequest) -> Result<proto::PushReply, Refusal> {
        self.check_job(&request.job)?;
        let node = request.node.ok_or_else(|| malformed("push.node", "the field is missing"))?;
        let outcomes = self.shard.push(&Push {
            routing_version: request.routing_version,
            step: Step(request.step),
            node: Node::try_from(node)?,
            weight: request.weight,
            gradients: request
                .blocks
                .iter()
                .map(|block| (BlockId(block.block), &block.gradient[..]))
                .collect(),
        })?;
        Ok(proto::PushReply { answers: outcomes.into_iter().map(|outcome| answer(outcome).into()).collect() })
    }

    /// Looks until all that was asked is published, or the wait is over.
    async fn look(&self, pull: Pull, wait: Duration) -> Result<Pulled, Refusal> {
        let deadline = Instant::now() + wait.min(WAIT_MAX);
        let mut published = self.shard.published();
        loop {
            let pulled = self.shard.pull(&pull)?;
            if pulled.is_final || Instant::now() >= deadline {
                self.shard.count_out(&pulled);
                return Ok(pulled);
            }
            tokio::select! {
                biased;
                _ = published.changed() => {}
                () = tokio::time::sleep_until(deadline) => {}
            }
        }
    }
}

#[tonic::async_trait]
impl pserver_server::Pserver for PserverService {
    async fn push(&self, request: Request<proto::PushRequest>) -> Answer<proto::PushReply> {
        let reply = self.take(request.get_ref()).map_err(|refusal| status_of(&refusal))?;
        Ok(Response::new(reply))
    }

    async fn pull(&self, request: Request<proto::PullRequest>) -> Answer<proto::PullReply> {
        let request = request.into_inner();
        self.check_job(&request.job).map_err(|refusal| status_of(&refusal))?;
        let pull = Pull {
            routing_version: request.routing_version,
            step: Step(request.step),
            blocks: request.blocks.into_iter().map(BlockId).collect(),
            without_data: request.without_data.into_iter().map(BlockId).collect(),
        };
        let wait = Duration::from_millis(request.wait_millis.into());
        let pulled = self.look(pull, wait).await.map_err(|refusal| status_of(&refusal))?;
        let block = |(id, parameters): (BlockId, Bytes)| proto::PulledBlock { block: id.0, parameters };
        Ok(Response::new(proto::PullReply { blocks: pulled.blocks.into_iter().map(block).collect() }))
    }

    async fn read_state(&self, request: Request<proto::ReadStateRequest>) -> Answer<proto::ReadStateReply> {
        let request = request.into_inner();
        let ids: Vec<BlockId> = request.blocks.into_iter().map(BlockId).collect();
        let states = self
            .check_job(&request.job)
            .and_then(|()| self.shard.read_state(Version(request.version), &ids))
            .map_err(|refusal| status_of(&refusal))?;
        let block = |(id, BlockState { parameters, slots })| {
            let BlockId(block) = id;
            proto::BlockState { block, parameters, slots }
        };
        Ok(Response::new(proto::ReadStateReply { blocks: states.into_iter().map(block).collect() }))
    }
}

fn answer(outcome: PushOutcome) -> proto::PushAnswer {
    match outcome {
        PushOutcome::Held { .. } | PushOutcome::Covered => proto::PushAnswer::Held,
        PushOutcome::Published { .. } | PushOutcome::Late => proto::PushAnswer::Applied,
        PushOutcome::Busy => proto::PushAnswer::Busy,
    }
}

#[cfg(test)]
mod tests;
