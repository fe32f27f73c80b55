//! **Pull**: the parameters of every block at one exact step, or the latest ones. It changes nothing.

use crate::calls::Callee;
use crate::errand::{Errand, Message, run};
use crate::error::TrainError;
use crate::flat::Flat;
use crate::names::Names;
use crate::origin::BaseState;
use crate::pending::BlockBatch;
use crate::session::Session;
use crate::share::{AREA_BYTES, InAreas, areas_for_parameters, primary_of};
use crate::tables::{BucketRows, Keys, TableRows, read_by_bucket};
use shoal_runtime::cluster::layout::BlockLayout;
use shoal_runtime::cluster::{BlockId, Refusal, RefusalKind, Rewind, Routing, Step, Version};
use shoal_runtime::host::rpc::PserverClient;
use shoal_runtime::wire::proto;
use shoal_runtime::wire::rows;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tonic::{Response, Status};

/// Which parameters are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PullVersion {
    /// The parameters that a step reads, once every block has published them.
    Step(Step, Rewind),
    /// Of each block the latest published, whatever its version.
    Latest,
}

/// How a pull ended.
pub(crate) enum PullEnd {
    Parameters {
        values: Flat,
        /// Of tables the rows that were wanted, indexed as declared.
        rows: Vec<TableRows>,
        /// The state of each block that its values are of.
        bases: Vec<BaseState>,
        /// Values that are in device memory instead.
        areas: InAreas,
    },
    /// The step is done everywhere; its parameters are no longer kept.
    Gone,
    /// The job has gone back: nobody needs the step under this rewind number.
    Rewound,
}

/// An answer, and when the last of what it brings was published.
struct PullAnswer {
    reply: proto::PullReply,
    published: Instant,
    /// Whether the call named an area.
    named: bool,
}

struct Pull<'a> {
    session: &'a Session,
    areas: InAreas,
    at: PullVersion,
    routing: Arc<Routing>,
    wanted: BTreeSet<BlockId>,
    /// The keys whose rows are wanted, indexed as declared, and where each bucket's are among them.
    keys: Vec<Arc<Vec<u64>>>,
    buckets: Arc<BTreeMap<BlockId, BucketRows>>,
    /// Values and rows that have come; empty while [`put`](Self::put) has them on another thread.
    arrived: Arrived,
    bases: Vec<BaseState>,
    /// Whether the values of frozen blocks are there already.
    has_frozen: bool,
}

/// Values and rows, as far as they have come.
#[derive(Default)]
struct Arrived {
    values: Flat,
    rows: Vec<TableRows>,
}

/// Pulls until every block, metrics included, has answered; of tables the rows of these keys. `earlier` are the values of an
/// earlier pull: if nobody reads them any more, the memory of a large model is not asked for again at every step; what never
/// changes in them is not pulled again.
pub(crate) async fn pull(
    session: &Session,
    at: PullVersion,
    keys: Keys,
    earlier: Option<Arc<Flat>>,
) -> Result<PullEnd, TrainError> {
    let blocks = 0..session.names.layout.len() as u32;
    let mut pull = Pull::new(session, at, keys).await?;
    pull.wanted = blocks.map(BlockId).collect();
    pull.has_frozen = earlier.is_some();
    let names = session.names.clone();
    let bytes = if earlier.as_ref().is_some_and(|values| Arc::strong_count(values) == 1) {
        0
    } else {
        names.dense_bytes()
    };
    let memory = move || earlier.map_or_else(|| names.zeros(), |earlier| names.values_after(earlier));
    pull.arrived.values = session.processors.over(bytes, memory).await;
    if let PullVersion::Step(..) = at {
        pull.areas = areas_for_parameters(session).await;
    }
    run(session, &mut pull).await
}

/// Pulls rows alone, of a version that every block has published: of these keys.
pub(crate) async fn pull_rows(session: &Session, at: PullVersion, keys: Keys) -> Result<PullEnd, TrainError> {
    let mut pull = Pull::new(session, at, keys).await?;
    pull.wanted = pull.buckets.keys().copied().collect();
    run(session, &mut pull).await
}

impl Pull<'_> {
    async fn new(session: &Session, at: PullVersion, keys: Keys) -> Result<Pull<'_>, TrainError> {
        let (names, bytes) = (session.names.clone(), keys.bytes());
        let find = move || {
            let rows = keys.rows().into_iter().map(|rows| {
                let (keys, values) = rows.into_parts();
                TableRows { keys: keys.into(), values }
            });
            let rows: Vec<TableRows> = rows.collect();
            read_by_bucket(&names, &rows).map(|buckets| (Arc::new(buckets), rows))
        };
        let (buckets, rows) = session.processors.over(bytes, find).await?;
        let bases = vec![BaseState { rewind: Rewind(0), version: Version(0) }; session.names.layout.len()];
        let (routing, wanted) = (session.routes.present(), BTreeSet::new());
        let keys = rows.iter().map(|rows| rows.keys.clone()).collect();
        let (areas, arrived) = (InAreas::default(), Arrived { values: Flat::default(), rows });
        Ok(Pull { session, areas, at, routing, wanted, keys, buckets, arrived, bases, has_frozen: false })
    }

    /// Whether a block's values are to come, beside what it is of.
    fn is_read(&self, block: BlockId) -> bool {
        let names = &self.session.names;
        let is_read = |layout: &BlockLayout| layout.is_read_by_steps && layout.bucket.is_none();
        names.layout.block(block).is_some_and(is_read) && !(self.has_frozen && names.is_frozen(block))
    }

    /// Whether a pulled block is still wanted, and of the history that the routing is of.
    fn is_news(&self, pulled: &proto::PulledBlock) -> bool {
        let block = BlockId(pulled.block);
        let restored = self.routing.blocks.get(block.0 as usize).map_or(0, |route| route.rewind.0);
        let is_stale = self.at == PullVersion::Latest && pulled.rewind < restored;
        !is_stale && self.wanted.contains(&block)
    }

    /// Notes that a block has come: where its values are, and of which state.
    fn note(&mut self, pserver: u64, pulled: &proto::PulledBlock) {
        let block = BlockId(pulled.block);
        if pulled.is_in_area {
            self.areas.has(pserver, block);
        }
        self.bases[block.0 as usize] =
            BaseState { rewind: Rewind(pulled.rewind), version: Version(pulled.version) };
        self.wanted.remove(&block);
    }

    /// Puts blocks where they belong.
    async fn put(&mut self, blocks: Vec<proto::PulledBlock>) -> Result<(), Refusal> {
        let bytes = blocks.iter().map(|block| self.bytes(BlockId(block.block))).sum();
        let mut arrived = std::mem::take(&mut self.arrived);
        let (names, buckets) = (self.session.names.clone(), self.buckets.clone());
        let blocks: Vec<_> =
            blocks.into_iter().map(|block| (self.is_read(BlockId(block.block)), block)).collect();
        let put_all = move || {
            let put = blocks
                .into_iter()
                .try_for_each(|(is_read, block)| arrived.put(&names, &buckets, is_read, block));
            (arrived, put)
        };
        let (arrived, put) = self.session.processors.over(bytes, put_all).await;
        self.arrived = arrived;
        put
    }
}

impl Arrived {
    /// Puts a block where it belongs.
    fn put(
        &mut self,
        names: &Names,
        buckets: &BTreeMap<BlockId, BucketRows>,
        is_read: bool,
        pulled: proto::PulledBlock,
    ) -> Result<(), Refusal> {
        #[cfg(test)]
        crate::ran::note("put");
        let block = BlockId(pulled.block);
        let Some(layout) = names.layout.block(block) else { return Ok(()) };
        if layout.bucket.is_some() {
            let Some(bucket) = buckets.get(&block) else { return Ok(()) };
            return self.put_rows(names, bucket, block, &pulled.parameters);
        }
        let expected = if is_read && !pulled.is_in_area { 4 * layout.elements } else { 0 };
        if pulled.parameters.len() != expected {
            let detail = format!("expected {expected} bytes, got {}", pulled.parameters.len());
            return Err(Refusal::new(RefusalKind::WrongShape, format!("block {block}"), detail));
        }
        if expected > 0 {
            layout.scatter_words(&pulled.parameters, &mut self.values);
        }
        Ok(())
    }

    /// Takes in the rows of a bucket's keys. Keys without a row are at their initial values.
    fn put_rows(
        &mut self,
        names: &Names,
        BucketRows { parameter, places }: &BucketRows,
        block: BlockId,
        bytes: &[u8],
    ) -> Result<(), Refusal> {
        let dimension = names.declaration.parameters[*parameter].elements() as usize;
        let Some(pulled) = rows::pulled(bytes, places.len(), dimension) else {
            let detail = format!("rows of {} keys came in {} bytes", places.len(), bytes.len());
            return Err(Refusal::new(RefusalKind::WrongShape, format!("block {block}"), detail));
        };
        let TableRows { keys, values } = &mut self.rows[*parameter];
        for (place, words) in places.iter().zip(pulled) {
            let place = *place as usize;
            let row = &mut values[place * dimension..][..dimension];
            match words {
                Some(words) => {
                    let values = words.iter().map(|word| f32::from_le_bytes(*word));
                    row.iter_mut().zip(values).for_each(|(value, of)| *value = of);
                }
                None => names.unborn(*parameter, keys[place], row),
            }
        }
        Ok(())
    }
}

/// The keys of some buckets' rows.
fn wanted_rows(
    buckets: &BTreeMap<BlockId, BucketRows>,
    keys: &[Arc<Vec<u64>>],
    blocks: &[BlockId],
) -> Vec<proto::WantedRows> {
    let rows = blocks.iter().filter_map(|block| {
        let BucketRows { parameter, places } = buckets.get(block)?;
        let mut bytes = Vec::new();
        rows::encode_keys_at(&keys[*parameter], places, &mut bytes);
        Some(proto::WantedRows { block: block.0, keys: bytes.into() })
    });
    rows.collect()
}

impl Errand for Pull<'_> {
    type Request = proto::PullRequest;
    type Reply = PullAnswer;
    type End = PullEnd;

    fn wanted(&mut self, routing: &Arc<Routing>) -> ControlFlow<PullEnd, BTreeSet<BlockId>> {
        self.routing = routing.clone();
        match self.at {
            PullVersion::Step(_, rewind) if rewind != routing.rewind() => {
                ControlFlow::Break(PullEnd::Rewound)
            }
            PullVersion::Step(..) | PullVersion::Latest => ControlFlow::Continue(self.wanted.clone()),
        }
    }

    fn message(&self, batch: &BlockBatch) -> Message<proto::PullRequest> {
        let blocks = &batch.blocks;
        let (with_rows, others): (Vec<BlockId>, Vec<BlockId>) =
            blocks.iter().map(|(block, _)| *block).partition(|block| self.buckets.contains_key(block));
        let (read, unread): (Vec<BlockId>, Vec<BlockId>) =
            others.into_iter().partition(|block| self.is_read(*block));
        let pserver = batch.pserver.incarnation.0;
        let (mut read, elsewhere): (Vec<BlockId>, Vec<BlockId>) =
            read.into_iter().partition(|block| self.areas.place(pserver, *block).is_some());
        let places: Vec<u64> =
            read.iter().filter_map(|block| self.areas.place(pserver, *block)).map(|at| at as u64).collect();
        let area = if places.is_empty() { 0 } else { self.areas.name(pserver) };
        read.extend(elsewhere);
        let (step, rewind) = match self.at {
            PullVersion::Step(step, rewind) => (step.0, rewind.0),
            PullVersion::Latest => (0, 0),
        };
        let mut request = proto::PullRequest {
            job: self.session.master.job.job.0.clone(),
            incarnation: self.session.incarnation().0,
            step,
            rewind,
            blocks: read.into_iter().map(|block| block.0).collect(),
            without_data: unread.into_iter().map(|block| block.0).collect(),
            wait_millis: self.open(batch).as_millis() as u32,
            rows: Vec::new(),
            area,
            places,
        };
        let keys = |block| 8 * self.buckets.get(block).map_or(0, |bucket| bucket.places.len());
        let bytes = with_rows.iter().map(keys).sum();
        let (buckets, tables) = (self.buckets.clone(), self.keys.clone());
        Message::new(bytes, move || {
            request.rows = wanted_rows(&buckets, &tables, &with_rows);
            Ok(request)
        })
    }

    async fn send(
        mut client: PserverClient,
        request: proto::PullRequest,
    ) -> Result<Response<PullAnswer>, Status> {
        let (asked, named) = (Instant::now(), request.area > 0);
        let reply = client.pull(request).await?;
        Ok(reply.map(|reply| PullAnswer {
            published: asked + Duration::from_micros(reply.waited_micros),
            reply,
            named,
        }))
    }

    fn bytes(&self, block: BlockId) -> usize {
        let Some(BucketRows { parameter, places }) = self.buckets.get(&block) else {
            let pserver = primary_of(&self.routing, block);
            let is_placed = pserver.is_some_and(|pserver| self.areas.place(pserver, block).is_some());
            return if is_placed { AREA_BYTES } else { self.session.names.bytes(block) };
        };
        let dimension = self.session.names.declaration.parameters[*parameter].elements() as usize;
        places.len() * (8 + 4 * dimension)
    }

    fn open(&self, _: &BlockBatch) -> Duration {
        self.session.master.wait()
    }

    async fn hear(
        &mut self,
        batch: &mut BlockBatch,
        answered: PullAnswer,
    ) -> Result<ControlFlow<PullEnd>, TrainError> {
        let PullAnswer { mut reply, published, named } = answered;
        let pserver = batch.pserver.incarnation.0;
        if named {
            self.areas.answered(pserver, reply.has_area);
        }
        self.session.meter.answered(published);
        if reply.moved.is_empty() && self.at != PullVersion::Latest {
            // The pserver has kept the call open for as long as it may: no long pause on top of that.
            batch.answered.succeed();
        }
        reply.blocks.retain(|block| {
            let is_news = self.is_news(block);
            if is_news {
                self.note(pserver, block);
            }
            is_news
        });
        let callee = Callee { role: "pserver", address: &batch.pserver.address };
        self.put(reply.blocks).await.map_err(|refusal| callee.refused(refusal))?;
        batch.blocks.retain(|(block, _)| self.wanted.contains(block));
        Ok(ControlFlow::Continue(()))
    }

    fn gone(&mut self) -> Option<PullEnd> {
        Some(PullEnd::Gone)
    }

    fn done(&mut self) -> PullEnd {
        PullEnd::Parameters {
            values: std::mem::take(&mut self.arrived.values),
            rows: std::mem::take(&mut self.arrived.rows),
            bases: std::mem::take(&mut self.bases),
            areas: std::mem::take(&mut self.areas),
        }
    }
}
