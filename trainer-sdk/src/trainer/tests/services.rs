//! The fake's gRPC faces. They only look up and write down; what is so, tests decide.

use super::fake::{Fake, Pushed, State};
use shoal_runtime::cluster::{Refusal, RefusalKind};
use shoal_runtime::wire::proto::{self, PushAnswer, master_server, pserver_server};
use shoal_runtime::wire::status_of;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tonic::{Request, Response, Status};

type Answer<T> = Result<Response<T>, Status>;

pub(super) struct Master {
    pub(super) fake: Fake,
    pub(super) at: usize,
}

pub(super) struct Pserver {
    pub(super) fake: Fake,
    pub(super) at: usize,
}

fn refused<T>(kind: RefusalKind) -> Answer<T> {
    Err(status_of(&Refusal::new(kind, "a test", "so it says")))
}

impl Master {
    /// Refuses where another one leads, and is silent where nobody does.
    async fn lead(&self) -> Result<(), Status> {
        let leader = self.fake.state().leader;
        let is_dead = self.fake.state().is_dead[self.at];
        match leader {
            Some(leader) if leader == self.at => Ok(()),
            Some(_) if !is_dead => refused(RefusalKind::NotLeader).map(|_: Response<()>| ()),
            _ => std::future::pending().await,
        }
    }

    /// Waits until there is an answer, for so many milliseconds.
    async fn when<T>(&self, wait_millis: u32, find: impl Fn(&mut State) -> Option<T>) -> Option<T> {
        let until = Instant::now() + Duration::from_millis(wait_millis.into());
        loop {
            let found = find(&mut self.fake.state());
            if found.is_some() || Instant::now() >= until {
                return found;
            }
            sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tonic::async_trait]
impl master_server::Master for Master {
    async fn describe(&self, _: Request<proto::DescribeRequest>) -> Answer<proto::JobDescription> {
        self.lead().await?;
        Ok(Response::new(proto::JobDescription { settings: Some((&self.fake.state().job).into()) }))
    }

    async fn join(&self, request: Request<proto::JoinRequest>) -> Answer<proto::JoinReply> {
        self.lead().await?;
        if self.fake.state().hear_join(request.into_inner()) {
            return std::future::pending().await;
        }
        let mut state = self.fake.state();
        state.knows += 10;
        Ok(Response::new(proto::JoinReply {
            incarnation: state.knows,
            routing: Some((&state.routing).into()),
            ..Default::default()
        }))
    }

    async fn lease(&self, request: Request<proto::LeaseRequest>) -> Answer<proto::LeaseReply> {
        self.lead().await?;
        let request = request.into_inner();
        self.fake.state().leases.push((Instant::now(), request.clone()));
        if self.fake.state().is_superseded {
            return refused(RefusalKind::StaleIncarnation);
        }
        if self.fake.state().knows != request.incarnation {
            return refused(RefusalKind::UnknownIncarnation);
        }
        let tasks = self.when(request.wait_millis, |state| {
            let leads = state.leader == Some(self.at);
            let want = state.tasks.len().min(request.want as usize) * usize::from(leads);
            (want > 0 || state.is_done).then(|| state.tasks.drain(..want).collect::<Vec<_>>())
        });
        let tasks = tasks.await.unwrap_or_default().into_iter().map(Into::into).collect();
        let done = self.fake.state().is_done;
        self.lead().await?;
        Ok(Response::new(proto::LeaseReply { tasks, done, ..Default::default() }))
    }

    async fn route(&self, request: Request<proto::RouteRequest>) -> Answer<proto::RouteReply> {
        self.lead().await?;
        let request = request.into_inner();
        let newer = |state: &mut State| {
            (state.routing.version > request.routing_version).then(|| (&state.routing).into())
        };
        let routing = self.when(request.wait_millis, newer).await;
        Ok(Response::new(proto::RouteReply { routing }))
    }

    async fn leave(&self, request: Request<proto::LeaveRequest>) -> Answer<proto::LeaveReply> {
        self.lead().await?;
        let mut state = self.fake.state();
        let is_known = request.get_ref().incarnation == state.knows;
        state.leaves.push(request.into_inner());
        if is_known {
            Ok(Response::new(proto::LeaveReply {}))
        } else {
            refused(RefusalKind::UnknownIncarnation)
        }
    }

    async fn register(&self, _: Request<proto::RegisterRequest>) -> Answer<proto::RegisterReply> {
        refused(RefusalKind::Malformed)
    }
    async fn report(&self, _: Request<proto::ReportRequest>) -> Answer<proto::ReportReply> {
        refused(RefusalKind::Malformed)
    }
    async fn watch(&self, _: Request<proto::WatchRequest>) -> Answer<proto::WatchReply> {
        refused(RefusalKind::Malformed)
    }
    async fn status(&self, _: Request<proto::StatusRequest>) -> Answer<proto::StatusReply> {
        refused(RefusalKind::Malformed)
    }
    async fn drain(&self, _: Request<proto::DrainRequest>) -> Answer<proto::DrainReply> {
        refused(RefusalKind::Malformed)
    }
    async fn checkpoint(&self, _: Request<proto::CheckpointRequest>) -> Answer<proto::CheckpointReply> {
        refused(RefusalKind::Malformed)
    }
    async fn scale(&self, _: Request<proto::ScaleRequest>) -> Answer<proto::ScaleReply> {
        refused(RefusalKind::Malformed)
    }
}

impl Pserver {
    fn pushed(&self, request: &proto::PushRequest, block: &proto::BlockGradient, value: f32) -> Pushed {
        Pushed {
            pserver: self.at,
            block: block.block,
            step: request.step,
            index: request.node.map_or(0, |node| node.index),
            position: request.position,
            rewind: block.rewind,
            version: block.version,
            value,
            bytes: block.gradient.len(),
            area: (block.area, block.at),
        }
    }

    /// There is room for what would not be answered `Busy`.
    async fn find_room(&self, request: &proto::PushRequest) -> proto::PushReply {
        let asked = self.pushed(request, &request.blocks[0], 0.0);
        self.fake.state().questions.push((Instant::now(), asked.clone()));
        let until = Instant::now() + Duration::from_millis(request.wait_millis.into());
        while !(self.fake.state().has_room)(&asked) {
            if Instant::now() >= until {
                return proto::PushReply { answers: vec![PushAnswer::Busy.into()] };
            }
            sleep(Duration::from_millis(5)).await;
        }
        proto::PushReply { answers: vec![PushAnswer::Credit.into()] }
    }

    fn is_primary(&self, state: &State, block: u32) -> bool {
        state.routing.blocks[block as usize].primary as usize == self.at
    }
}

#[tonic::async_trait]
impl pserver_server::Pserver for Pserver {
    async fn push(&self, request: Request<proto::PushRequest>) -> Answer<proto::PushReply> {
        let request = request.into_inner();
        if request.asks {
            return Ok(Response::new(self.find_room(&request).await));
        }
        let mut answers = Vec::new();
        for block in &request.blocks {
            let value = match block.gradient.as_ref() {
                [] => 0.0,
                [low, high] => f32::from_le_bytes([0, 0, *low, *high]),
                words => f32::from_le_bytes(words[..4].try_into().unwrap()),
            };
            let pushed = self.pushed(&request, block, value);
            let mut state = self.fake.state();
            let is_primary = self.is_primary(&state, block.block);
            let answer = if is_primary { (state.answer)(&pushed) } else { PushAnswer::Moved };
            answers.push(answer.into());
            state.pushes.push((Instant::now(), pushed));
        }
        if self.fake.state().no_pushes[self.at] {
            std::future::pending::<()>().await;
        }
        Ok(Response::new(proto::PushReply { answers }))
    }

    async fn pull(&self, request: Request<proto::PullRequest>) -> Answer<proto::PullReply> {
        let request = request.into_inner();
        self.fake.state().pulls.push((Instant::now(), self.at, request.clone()));
        if self.fake.state().no_pulls[self.at] {
            std::future::pending::<()>().await;
        }
        let mut state = self.fake.state();
        if state.is_gone {
            return refused(RefusalKind::StepGone);
        }
        let is_sync = state.job.is_sync();
        let mut give = state.give.take();
        let mut reply = proto::PullReply::default();
        let asked = request.blocks.iter().map(|block| (*block, true));
        for (block, with_data) in asked.chain(request.without_data.iter().map(|block| (*block, false))) {
            let (version, rewind) = state.latest[block as usize];
            let version = if is_sync { request.step } else { version };
            if !self.is_primary(&state, block) {
                reply.moved.push(block);
            } else if state.unpublished != Some(block) && (!is_sync || request.step <= state.published) {
                let parameters = if with_data {
                    (version as f32 + 0.5).to_le_bytes().repeat(state.elements)
                } else {
                    Vec::new()
                };
                let place = request.blocks.iter().zip(&request.places).find(|(placed, _)| **placed == block);
                let is_in_area = match (place, &mut give) {
                    (Some((_, at)), Some(give)) => give(request.area, *at, &parameters),
                    _ => false,
                };
                let parameters = if is_in_area { Vec::new() } else { parameters }.into();
                reply.blocks.push(proto::PulledBlock { block, parameters, version, rewind, is_in_area });
            }
        }
        // Nobody has a row yet.
        reply.blocks.extend(request.rows.iter().map(|wanted| {
            let parameters = vec![0; (wanted.keys.len() / 8).div_ceil(8)].into();
            let version = request.step;
            proto::PulledBlock { block: wanted.block, parameters, version, rewind: 1, is_in_area: false }
        }));
        state.give = give;
        reply.has_area = request.area > 0 && !state.gone_areas.contains(&request.area);
        Ok(Response::new(reply))
    }

    async fn read_state(&self, _: Request<proto::ReadStateRequest>) -> Answer<proto::ReadStateReply> {
        refused(RefusalKind::Malformed)
    }
    async fn share(&self, request: Request<proto::ShareRequest>) -> Answer<proto::ShareReply> {
        let (reply, takes) = {
            let mut state = self.fake.state();
            let reply = (state.share)(request.get_ref());
            state.shares.push(request.into_inner());
            (reply, state.share_takes)
        };
        if !takes.is_zero() {
            sleep(takes).await;
        }
        Ok(Response::new(reply))
    }
    async fn decide(&self, _: Request<proto::DecideRequest>) -> Answer<proto::DecideReply> {
        refused(RefusalKind::Malformed)
    }
    async fn follow(&self, _: Request<proto::FollowRequest>) -> Answer<proto::FollowReply> {
        refused(RefusalKind::Malformed)
    }
}
