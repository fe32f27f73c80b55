//! The pserver's rpc service: from messages to the shard and back. No decision is taken here.

use crate::block::PushOutcome;
use crate::credit_queue::{Asked, CreditAnswer};
use crate::shard::{CHANNELS_MAX, DecisionAnswer, Pulled, Pushed, Shard, Undecided};
use shoal_runtime::cluster::{BlockId, Incarnation, Refusal, RefusalKind, Rewind, Step, Version};
use shoal_runtime::host::cuda::{MapWatch, is_this_machine};
use shoal_runtime::host::rpc::{Limits, PserverServer};
use shoal_runtime::wire::proto::{self, pserver_server};
use shoal_runtime::wire::{malformed, status_of};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

/// How long an asynchronous push is kept open until the copies have it; then its trainer asks again.
const COPIES_WAIT: Duration = Duration::from_millis(200);
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
    pub fn server(self, limits: Limits) -> PserverServer<PserverService> {
        PserverServer::new(self, limits.message_bytes)
    }

    fn check_job(&self, job: &str) -> Result<(), Refusal> {
        let ours = &self.shard.job().job;
        if job == ours.0 {
            return Ok(());
        }
        let detail = format!("this pserver serves {:?}: check SHOAL_JOB and the master's address", ours.0);
        Err(Refusal::new(RefusalKind::WrongJob, format!("job {job:?}"), detail))
    }

    /// Takes a push in. In asynchronous jobs, where trainers go on only when their update cannot be lost, waits a
    /// little for the copies to have it.
    async fn take(&self, request: proto::PushRequest) -> Result<proto::PushReply, Refusal> {
        self.check_job(&request.job)?;
        if request.asks {
            return self.ask_for_credit(&request).await;
        }
        let what = Pushed::of(&request)?;
        let mut publications = self.shard.publications();
        let (request, outcomes) = self
            .shard
            .beside(move |shard| {
                let outcomes = shard.push(&request);
                (request, outcomes)
            })
            .await;
        let outcomes = outcomes?;
        let mut answers: Vec<i32> = outcomes.iter().map(|outcome| answer(*outcome, what).into()).collect();
        let Pushed::Position(position) = what else { return Ok(proto::PushReply { answers }) };
        let deadline = Instant::now() + COPIES_WAIT;
        let held = |answers: &[i32]| answers.contains(&proto::PushAnswer::Held.into());
        while held(&answers) && Instant::now() < deadline {
            let Ok(changed) = tokio::time::timeout_at(deadline, publications.next()).await else { break };
            for ((answer, outcome), sent) in answers.iter_mut().zip(&outcomes).zip(&request.blocks) {
                let (block, rewind) = (BlockId(sent.block), Rewind(sent.rewind));
                let may_be = *answer == i32::from(proto::PushAnswer::Held) && changed(block);
                if may_be && self.shard.is_published(block, rewind, position)? {
                    *answer = published(outcome).into();
                }
            }
        }
        Ok(proto::PushReply { answers })
    }

    /// Shares device memory with a trainer of this machine.
    fn share(&self, request: &proto::ShareRequest) -> Result<proto::ShareReply, Refusal> {
        self.check_job(&request.job)?;
        if !is_this_machine(&request.machine) {
            return Ok(proto::ShareReply::default());
        }
        let trainer = Incarnation(request.incarnation);
        let lock = match MapWatch::open(&request.lock) {
            Ok(lock) => lock,
            Err(why) => {
                tracing::warn!(%trainer, lock = request.lock, %why, "a trainer's lock cannot be watched: nothing is shared with it");
                return Ok(proto::ShareReply::default());
            }
        };
        let shared = self.shard.share(trainer, request.bytes, lock)?;
        Ok(shared.map_or_else(proto::ShareReply::default, |(area, memory)| proto::ShareReply {
            area,
            bytes: memory.bytes() as u64,
            handle: memory.handle().to_vec().into(),
        }))
    }

    /// Waits until credit is granted for a node, or the wait is over.
    async fn ask_for_credit(&self, request: &proto::PushRequest) -> Result<proto::PushReply, Refusal> {
        let deadline = Instant::now() + Duration::from_millis(request.wait_millis.into()).min(WAIT_MAX);
        let asked = Asked::of(request)?;
        let what = Pushed::Node(asked.step, asked.node);
        let granted = self.shard.ask(asked)?.answer(deadline).await;
        Ok(proto::PushReply { answers: vec![granted_answer(granted, what).into()] })
    }

    /// Hears a follower until there is something for it, or the wait is over.
    async fn lead(&self, request: proto::FollowRequest) -> Result<proto::FollowReply, Refusal> {
        self.check_job(&request.job)?;
        let deadline = Instant::now() + Duration::from_millis(request.wait_millis.into()).min(WAIT_MAX);
        // Another life of this process was meant: it knows nothing of these copies.
        if self.shard.incarnation().0 != request.primary {
            return Ok(proto::FollowReply { blocks: Vec::new(), is_unknown: true });
        }
        let (channel, session, number) = (request.channel, request.session, request.number);
        if channel >= CHANNELS_MAX {
            let detail = format!("there are {CHANNELS_MAX} at most: build all roles from the same version");
            return Err(malformed("follow.channel", detail));
        }
        let follower = Incarnation(request.incarnation);
        let Some(mut led) = self.shard.lead(follower, channel, session, number, &request.blocks) else {
            return Ok(proto::FollowReply { blocks: Vec::new(), is_unknown: true });
        };
        loop {
            let news = self.shard.beside(move |shard| {
                let news = led.news(shard);
                (led, news)
            });
            let (waiting, news) = news.await;
            led = waiting;
            let answer = news?;
            if !answer.is_empty() || Instant::now() >= deadline {
                let blocks = self.shard.encoded(answer).await;
                return Ok(proto::FollowReply { blocks, is_unknown: false });
            }
            let _ = tokio::time::timeout_at(deadline, led.changed()).await;
        }
    }

    /// Tells the scalar block what others know of a step, until there is a decision or the wait is over.
    async fn tell(&self, request: proto::DecideRequest) -> Result<proto::DecideReply, Refusal> {
        self.check_job(&request.job)?;
        let deadline = Instant::now() + Duration::from_millis(request.wait_millis.into()).min(WAIT_MAX);
        let partials = request.partials.into_iter().map(Into::into).collect();
        let undecided = Undecided { rewind: Rewind(request.rewind), step: Step(request.step), partials };
        let mut decided = self.shard.decided();
        loop {
            match self.shard.tell_partials(&undecided)? {
                DecisionAnswer::Decided(decision) => {
                    return Ok(proto::DecideReply { decision, moved: false });
                }
                DecisionAnswer::NotHere => {
                    return Ok(proto::DecideReply { decision: Default::default(), moved: true });
                }
                DecisionAnswer::NotYet if Instant::now() >= deadline => {
                    return Ok(proto::DecideReply::default());
                }
                DecisionAnswer::NotYet => {
                    let _ = tokio::time::timeout_at(deadline, decided.changed(&self.shard)).await;
                }
            }
        }
    }

    /// Looks until all that was asked is published, or the wait is over. Also says how long it was before the last of it was published.
    async fn look(&self, pull: &proto::PullRequest, wait: Duration) -> Result<(Pulled, Duration), Refusal> {
        let began = Instant::now();
        let (deadline, mut waited) = (began + wait.min(WAIT_MAX), Duration::ZERO);
        loop {
            let mut waiting = self.shard.waiting(pull)?;
            let waits = Instant::now() < deadline;
            let pulled = self.shard.pull(pull, waits)?;
            if pulled.is_final || !waits {
                self.shard.given(&pulled.given).await?;
                self.shard.count_out(&pulled);
                return Ok((pulled, waited));
            }
            let all = async {
                loop {
                    waiting.changed().await?;
                    if waiting.is_over() {
                        return Ok(());
                    }
                }
            };
            tokio::time::timeout_at(deadline, all).await.unwrap_or(Ok(()))?;
            waited = began.elapsed();
        }
    }
}

#[tonic::async_trait]
impl pserver_server::Pserver for PserverService {
    async fn push(&self, request: Request<proto::PushRequest>) -> Answer<proto::PushReply> {
        let reply = self.take(request.into_inner()).await.map_err(|refusal| status_of(&refusal))?;
        Ok(Response::new(reply))
    }

    async fn pull(&self, request: Request<proto::PullRequest>) -> Answer<proto::PullReply> {
        let request = request.into_inner();
        self.check_job(&request.job).map_err(|refusal| status_of(&refusal))?;
        let wait = Duration::from_millis(request.wait_millis.into());
        let (pulled, waited) = self.look(&request, wait).await.map_err(|refusal| status_of(&refusal))?;
        Ok(Response::new(proto::PullReply {
            blocks: pulled.blocks,
            moved: pulled.moved,
            waited_micros: waited.as_micros() as u64,
            has_area: self.shard.has_area(request.area),
        }))
    }

    async fn read_state(&self, request: Request<proto::ReadStateRequest>) -> Answer<proto::ReadStateReply> {
        let request = request.into_inner();
        let ids: Vec<BlockId> = request.blocks.into_iter().map(BlockId).collect();
        let (version, from) = (Version(request.version), request.from);
        self.check_job(&request.job).map_err(|refusal| status_of(&refusal))?;
        let copies = self.shard.beside(move |shard| shard.read_state(version, &ids, from)).await;
        let copies = copies.map_err(|refusal| status_of(&refusal))?;
        Ok(Response::new(proto::ReadStateReply { blocks: copies.into_iter().map(Into::into).collect() }))
    }

    async fn share(&self, request: Request<proto::ShareRequest>) -> Answer<proto::ShareReply> {
        let reply = self.share(request.get_ref()).map_err(|refusal| status_of(&refusal))?;
        Ok(Response::new(reply))
    }

    async fn decide(&self, request: Request<proto::DecideRequest>) -> Answer<proto::DecideReply> {
        let reply = self.tell(request.into_inner()).await.map_err(|refusal| status_of(&refusal))?;
        Ok(Response::new(reply))
    }

    async fn follow(&self, request: Request<proto::FollowRequest>) -> Answer<proto::FollowReply> {
        let reply = self.lead(request.into_inner()).await.map_err(|refusal| status_of(&refusal))?;
        Ok(Response::new(reply))
    }
}

/// What a question for credit is answered.
fn granted_answer(granted: CreditAnswer, what: Pushed) -> proto::PushAnswer {
    granted.map_or_else(|outcome| answer(outcome, what), |()| proto::PushAnswer::Credit)
}

/// What a push of one block is answered.
fn answer(outcome: PushOutcome, what: Pushed) -> proto::PushAnswer {
    match outcome {
        PushOutcome::Applied { is_published: true, .. } => proto::PushAnswer::Applied,
        PushOutcome::Held { .. }
        | PushOutcome::Whole { .. }
        | PushOutcome::Covered
        | PushOutcome::Applied { .. } => proto::PushAnswer::Held,
        PushOutcome::Late if matches!(what, Pushed::Position(_)) => proto::PushAnswer::AlreadyApplied,
        PushOutcome::Late => proto::PushAnswer::Applied,
        PushOutcome::Busy | PushOutcome::Throttled => proto::PushAnswer::Busy,
        PushOutcome::NoArea => proto::PushAnswer::NoArea,
        PushOutcome::Moved => proto::PushAnswer::Moved,
        PushOutcome::Rewound => proto::PushAnswer::Rewound,
    }
}

/// The answer to a push of a position that has become published: of several, only the one that was applied hears so.
fn published(outcome: &PushOutcome) -> proto::PushAnswer {
    match outcome {
        PushOutcome::Applied { .. } => proto::PushAnswer::Applied,
        _ => proto::PushAnswer::AlreadyApplied,
    }
}

#[cfg(test)]
mod tests;
