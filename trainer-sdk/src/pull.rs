//! **Pull**: the parameters of every block at one exact step, or the latest ones. It changes nothing.

use crate::calls::Callee;
use crate::errand::{Calling, Errand, run};
use crate::error::TrainError;
use crate::origin::Base;
use crate::pending::Batch;
use crate::session::Session;
use futures_util::future::FutureExt;
use shoal_runtime::cluster::{BlockId, Refusal, RefusalKind, Rewind, Routing, Step, Term, Version};
use shoal_runtime::host::rpc::Channel;
use shoal_runtime::wire::proto::{self, pserver_client::PserverClient};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Which parameters are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// Those that a step reads, once every block has published them.
    Step(Step, Rewind),
    /// Of each block the latest published, whatever its version.
    Latest,
}

/// How a pull ended.
pub(crate) enum Pulled {
    Parameters {
        values: Vec<Vec<f32>>,
        /// What each block's values are.
        bases: Vec<Base>,
    },
    /// The step is done everywhere; its parameters are no longer kept.
    Gone,
    /// The job has gone back: nobody needs the step under this rewind number.
    Rewound,
}

/// An answer, and when the last of what it brings was published.
struct Answered {
    reply: proto::PullReply,
    published: Instant,
}

struct Pull<'a> {
    session: &'a Session,
    at: At,
    routing: Arc<Routing>,
    wanted: BTreeSet<BlockId>,
    values: Vec<Vec<f32>>,
    bases: Vec<Base>,
}

/// Pulls until every block, metrics included, has answered.
pub(crate) async fn pull(session: &Session, at: At) -> Result<Pulled, TrainError> {
    let blocks = session.names.layout.len();
    let mut pull = Pull {
        session,
        at,
        routing: session.routes.present(),
        wanted: (0..blocks as u32).map(BlockId).collect(),
        values: session.names.zeros(),
        bases: vec![Base { rewind: Rewind(0), version: Version(0) }; blocks],
    };
    run(session, &mut pull).await
}

impl Pull<'_> {
    fn is_read(&self, block: BlockId) -> bool {
        self.session.names.layout.block(block).is_some_and(|layout| layout.is_read_by_steps)
    }

    fn keep(&mut self, pulled: proto::PulledBlock) -> Result<(), Refusal> {
        let block = BlockId(pulled.block);
        let Some(layout) = self.session.names.layout.block(block) else { return Ok(()) };
        let restored = self.routing.blocks.get(block.0 as usize).map_or(0, |route| route.rewind.0);
        let is_stale = self.at == At::Latest && pulled.rewind < restored;
        if is_stale || !self.wanted.contains(&block) {
            return Ok(());
        }
        let expected = if layout.is_read_by_steps { 4 * layout.elements } else { 0 };
        if pulled.parameters.len() != expected {
            let detail = format!("expected {expected} bytes, got {}", pulled.parameters.len());
            return Err(Refusal::new(RefusalKind::WrongShape, format!("block {block}"), detail));
        }
        if layout.is_read_by_steps {
            let values = bytemuck::pod_collect_to_vec::<u8, f32>(&pulled.parameters);
            layout.scatter(&values, &mut self.values);
        }
        self.bases[block.0 as usize] =
            Base { rewind: Rewind(pulled.rewind), version: Version(pulled.version) };
        self.wanted.remove(&block);
        Ok(())
    }
}

impl Errand for Pull<'_> {
    type Reply = Answered;
    type End = Pulled;

    fn wanted(&mut self, routing: &Arc<Routing>) -> ControlFlow<Pulled, BTreeSet<BlockId>> {
        self.routing = routing.clone();
        match self.at {
            At::Step(_, rewind) if rewind != routing.rewind() => ControlFlow::Break(Pulled::Rewound),
            At::Step(..) | At::Latest => ControlFlow::Continue(self.wanted.clone()),
        }
    }

    fn call(&self, mut client: PserverClient<Channel>, blocks: &[(BlockId, Term)]) -> Calling<Answered> {
        let (read, unread): (Vec<BlockId>, Vec<BlockId>) =
            blocks.iter().map(|(block, _)| *block).partition(|block| self.is_read(*block));
        let (step, rewind) = match self.at {
            At::Step(step, rewind) => (step.0, rewind.0),
            At::Latest => (0, 0),
        };
        let request = proto::PullRequest {
            job: self.session.master.job.job.0.clone(),
            incarnation: self.session.incarnation().0,
            step,
            rewind,
            blocks: read.into_iter().map(|block| block.0).collect(),
            without_data: unread.into_iter().map(|block| block.0).collect(),
            wait_millis: self.open().as_millis() as u32,
        };
        async move {
            let asked = Instant::now();
            let reply = client.pull(request).await?;
            Ok(reply.map(|reply| Answered {
                published: asked + Duration::from_micros(reply.waited_micros),
                reply,
            }))
        }
        .boxed_local()
    }

    fn open(&self) -> Duration {
        self.session.master.wait()
    }

    fn hear(
        &mut self,
        batch: &mut Batch,
        answered: Answered,
        _: Duration,
    ) -> Result<ControlFlow<Pulled>, TrainError> {
        let Answered { reply, published } = answered;
        self.session.meter.answered(published);
        if reply.moved.is_empty() && self.at != At::Latest {
            // The pserver has kept the call open for as long as it may: no long pause on top of that.
            batch.answered.succeed();
        }
        for block in reply.blocks {
            let callee = Callee { role: "pserver", address: &batch.pserver.address };
            self.keep(block).map_err(|refusal| callee.refused(refusal))?;
        }
        batch.blocks.retain(|(block, _)| self.wanted.contains(block));
        Ok(ControlFlow::Continue(()))
    }

    fn gone(&mut self) -> Option<Pulled> {
        Some(Pulled::Gone)
    }

    fn done(&mut self) -> Pulled {
        Pulled::Parameters {
            values: std::mem::take(&mut self.values),
            bases: std::mem::take(&mut self.bases),
        }
    }
}
