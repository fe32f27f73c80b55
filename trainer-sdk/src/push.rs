//! **Push**: one gradient to every block that lacks it, until each has answered. Idempotent: what is sent twice counts
//! once, at the pserver.

use crate::acks::Acks;
use crate::errand::{Errand, Message, run};
use crate::error::TrainError;
use crate::names::Names;
use crate::origin::{BaseState, Origin, StepNode};
use crate::pending::BlockBatch;
use crate::reduce::NodeSum;
use crate::session::Session;
use crate::share::{AREA_BYTES, Values, primary_of};
use crate::tables::{BucketRows, by_bucket};
use bytes::Bytes;
use shoal_runtime::cluster::layout::{BlockLayout, Piece};
use shoal_runtime::cluster::precision::bf16_to_bytes;
use shoal_runtime::cluster::{BlockId, Precision, Routing, Rows, Term, Version};
use shoal_runtime::host::rpc::PserverClient;
use shoal_runtime::wire::proto::{self, PushAnswer};
use shoal_runtime::wire::rows;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tonic::{Response, Status};

/// One gradient on its way to the blocks.
pub(crate) struct Push<'a> {
    session: &'a Session,
    of: Origin,
    contents: Arc<Contents>,
    /// The state of each block that the gradient was computed from; empty in synchronous jobs.
    bases: Vec<BaseState>,
    pub(crate) acks: Acks,
    /// Blocks that have gone back since the gradient was computed, in asynchronous jobs.
    rewound: BTreeSet<BlockId>,
}

/// The gradient that messages are made of, and which of its rows belong to each bucket.
struct Contents {
    names: Arc<Names>,
    sum: Arc<NodeSum>,
    buckets: BTreeMap<BlockId, BucketRows>,
}

/// A stretch of one parameter's sums, as bytes.
struct Part {
    sum: Arc<NodeSum>,
    parameter: usize,
    range: Range<usize>,
}

#[cfg(target_endian = "big")]
compile_error!("gradients are sent as they lie in memory, which must be little-endian");

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.sum.values[self.parameter][self.range.clone()])
    }
}

/// How a push ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PushEnd {
    /// Every block has acknowledged the gradient.
    Done,
    /// The gradient, or for some blocks its part, is of a history that is no more: to be computed again.
    Rewound,
}

/// How one round of calls of a push ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PushRound {
    Ended(PushEnd),
    /// A pserver does not know an area that has the values: they go into another one, or in messages.
    LostArea,
}

impl<'a> Push<'a> {
    /// The sum of one node.
    pub(crate) async fn of_node(
        session: &'a Session,
        of: StepNode,
        sum: Arc<NodeSum>,
        acks: Acks,
    ) -> Result<Push<'a>, TrainError> {
        Push::new(session, Origin::Node(of), sum, Vec::new(), acks).await
    }

    /// The gradient of one microbatch.
    pub(crate) async fn of_microbatch(
        session: &'a Session,
        position: u64,
        sum: NodeSum,
        bases: Vec<BaseState>,
        acks: Acks,
    ) -> Result<Push<'a>, TrainError> {
        Push::new(session, Origin::Microbatch(position), Arc::new(sum), bases, acks).await
    }

    async fn new(
        session: &'a Session,
        of: Origin,
        sum: Arc<NodeSum>,
        bases: Vec<BaseState>,
        acks: Acks,
    ) -> Result<Push<'a>, TrainError> {
        let (names, gradient) = (session.names.clone(), sum.clone());
        let keys = sum.rows.iter().map(|rows| 8 * rows.len()).sum();
        let find = move || by_bucket(&names, gradient.rows.iter().map(Rows::keys));
        let buckets = session.processors.over(keys, find).await?;
        let contents = Arc::new(Contents { names: session.names.clone(), sum, buckets });
        Ok(Push { session, of, contents, bases, acks, rewound: BTreeSet::new() })
    }

    /// Pushes until every block has acknowledged the gradient, or that is pointless; `acks` then says which blocks have.
    pub(crate) async fn run(&mut self) -> Result<PushEnd, TrainError> {
        let started = Instant::now();
        let pushed = loop {
            if let Some(values) = self.contents.there() {
                let routing = self.session.routes.present();
                values.put(self.session, &routing, &self.acks.lacking(&routing)).await?;
            }
            match run(self.session, self).await? {
                PushRound::Ended(pushed) => break pushed,
                PushRound::LostArea => {}
            }
        };
        if self.acks.is_applied() {
            self.contents.sum.applied();
        }
        self.session.push_log.lasted(started.elapsed())?;
        Ok(pushed)
    }

    /// The area in which a pserver finds a block's values, by its number, and their first byte there; `None`: they go in the
    /// message.
    fn area(&self, pserver: u64, block: BlockId) -> Option<(u64, u64)> {
        self.contents.sum.there.as_ref()?.place(pserver, block)
    }

    fn base(&self, block: BlockId) -> BaseState {
        match self.of {
            Origin::Node(of) => BaseState { rewind: of.rewind, version: Version(0) },
            Origin::Microbatch(_) => self.bases[block.0 as usize],
        }
    }

    /// A block's part of a message to a pserver, without its values.
    fn unfilled(&self, pserver: u64, block: BlockId) -> proto::BlockGradient {
        let BaseState { rewind, version } = self.base(block);
        let (area, at) = self.area(pserver, block).unwrap_or_default();
        let (rewind, version) = (rewind.0, version.0);
        proto::BlockGradient { block: block.0, rewind, version, area, at, ..Default::default() }
    }

    /// Takes in one block's answer and says whether it must be asked again.
    fn answered(&mut self, block: BlockId, term: Term, answer: PushAnswer) -> Result<bool, TrainError> {
        match (answer, self.of) {
            (PushAnswer::Applied, of) => {
                self.acks.applied(block);
                self.session.push_log.applied(&of, block, self.base(block))?;
            }
            (PushAnswer::AlreadyApplied, _) => self.acks.applied(block),
            (PushAnswer::Held, Origin::Node(_)) => self.acks.held(block, term),
            (PushAnswer::Rewound, Origin::Microbatch(_)) => {
                self.rewound.insert(block);
            }
            // Held by the primary, but not yet by its copies.
            (PushAnswer::Held, Origin::Microbatch(_)) => return Ok(true),
            // Steps go back with all blocks: the routing will say so.
            (PushAnswer::Rewound, Origin::Node(_)) => return Ok(true),
            (
                PushAnswer::Busy
                | PushAnswer::Moved
                | PushAnswer::Credit
                | PushAnswer::NoArea
                | PushAnswer::Unspecified,
                _,
            ) => return Ok(true),
        }
        Ok(false)
    }
}

impl Contents {
    /// The values; `None`: none of them are on a device.
    fn there(&self) -> Option<Arc<Values>> {
        Values::of(&self.names, &self.sum).map(Arc::new)
    }

    /// Bytes of a block's values that are copied into a message.
    fn copied_bytes(&self, block: BlockId) -> usize {
        let Some(layout) = self.names.layout.block(block) else { return 0 };
        if let Some(BucketRows { parameter, places }) = self.buckets.get(&block) {
            return rows::encoded_bytes(places.len(), self.sum.rows[*parameter].dimension());
        }
        let is_shared = self.names.precision(layout) == Precision::F32 && layout.stretch().is_some();
        if is_shared && !self.is_on_device(layout) { 0 } else { self.names.gradient_bytes(block) }
    }

    fn is_on_device(&self, layout: &BlockLayout) -> bool {
        self.sum.there.is_some() && layout.pieces.iter().any(|piece| self.names.is_on_device(piece.parameter))
    }

    /// A block's values, little-endian.
    fn gradient(&self, block: BlockId) -> Result<Bytes, TrainError> {
        let Some(layout) = self.names.layout.block(block) else { return Ok(Bytes::new()) };
        if layout.bucket.is_some() {
            #[cfg(test)]
            crate::ran::note("gather");
            let mut gradient = Vec::new();
            if let Some(BucketRows { parameter, places }) = self.buckets.get(&block) {
                rows::encode_places(&self.sum.rows[*parameter], places, &mut gradient);
            }
            return Ok(gradient.into());
        }
        // Metrics take no part in training, and nothing else does in evaluations.
        let is_there = |parameter| self.sum.there.is_some() && self.names.is_on_device(parameter);
        let has_values =
            |piece: &Piece| !self.sum.values[piece.parameter].is_empty() || is_there(piece.parameter);
        if layout.pieces.iter().all(has_values) { self.values(layout) } else { Ok(Bytes::new()) }
    }

    /// A dense block's values. Those of a stretch of one parameter are shared, not copied, unless they travel as bf16.
    fn values(&self, layout: &BlockLayout) -> Result<Bytes, TrainError> {
        let precision = self.names.precision(layout);
        if let Some(values) = self.there().filter(|_| self.is_on_device(layout)) {
            let values = values.gather(layout)?;
            return Ok(match precision {
                Precision::F32 => bytemuck::cast_slice::<f32, u8>(&values).to_vec().into(),
                Precision::Bf16 => values.iter().flat_map(|value| bf16_to_bytes(*value)).collect(),
            });
        }
        if precision == Precision::Bf16 {
            return Ok(layout.gather_bf16(&*self.sum.values).into());
        }
        if let Some((parameter, range)) = layout.stretch() {
            return Ok(Bytes::from_owner(Part { sum: Arc::clone(&self.sum), parameter, range }));
        }
        let mut values = Vec::with_capacity(layout.elements);
        layout.gather(&*self.sum.values, &mut values);
        Ok(bytemuck::cast_slice::<f32, u8>(&values).to_vec().into())
    }
}

impl Errand for Push<'_> {
    type Request = proto::PushRequest;
    type Reply = proto::PushReply;
    type End = PushRound;

    fn wanted(&mut self, routing: &Arc<Routing>) -> ControlFlow<PushRound, BTreeSet<BlockId>> {
        let mut lacking = self.acks.lacking(routing);
        match self.of {
            Origin::Node(of) if of.rewind != routing.rewind() => {
                return ControlFlow::Break(PushRound::Ended(PushEnd::Rewound));
            }
            Origin::Node(_) => {}
            Origin::Microbatch(_) => {
                let is_restored = |block: &BlockId| {
                    routing
                        .blocks
                        .get(block.0 as usize)
                        .is_some_and(|at| at.rewind > self.base(*block).rewind)
                };
                self.rewound.extend(lacking.iter().copied().filter(is_restored).collect::<Vec<_>>());
                lacking.retain(|block| !self.rewound.contains(block));
            }
        }
        ControlFlow::Continue(lacking)
    }

    fn message(&self, batch: &BlockBatch) -> Message<proto::PushRequest> {
        let pserver = batch.pserver.incarnation.0;
        // A question for credit names one block, the last of the batch.
        let first = if batch.asks { batch.blocks.len().saturating_sub(1) } else { 0 };
        let blocks = batch.blocks[first..].iter().map(|(block, _)| self.unfilled(pserver, *block));
        let mut request = proto::PushRequest {
            job: self.session.master.job.job.0.clone(),
            incarnation: self.session.incarnation().0,
            weight: self.contents.sum.weight,
            exclusions: self.contents.sum.exclusions,
            blocks: blocks.collect(),
            asks: batch.asks,
            wait_millis: self.open(batch).as_millis() as u32,
            ..Default::default()
        };
        match self.of {
            Origin::Node(of) => (request.step, request.node) = (of.step.0, Some(of.node.into())),
            Origin::Microbatch(position) => request.position = position,
        }
        let contents = self.contents.clone();
        let is_filled = |block: &proto::BlockGradient| !batch.asks && block.area == 0;
        let filled = request.blocks.iter().filter(|block| is_filled(block));
        let bytes = filled.map(|block| contents.copied_bytes(BlockId(block.block))).sum();
        Message::new(bytes, move || {
            let asks = request.asks;
            for block in request.blocks.iter_mut().filter(|block| !asks && block.area == 0) {
                block.gradient = contents.gradient(BlockId(block.block))?;
            }
            Ok(request)
        })
    }

    async fn send(
        mut client: PserverClient,
        request: proto::PushRequest,
    ) -> Result<Response<proto::PushReply>, Status> {
        client.push(request).await
    }

    fn bytes(&self, block: BlockId) -> usize {
        let primary = primary_of(&self.session.routes.present(), block);
        if primary.is_some_and(|pserver| self.area(pserver, block).is_some()) {
            return AREA_BYTES;
        }
        let rows = self.contents.buckets.get(&block).map_or(0, |BucketRows { parameter, places }| {
            rows::encoded_bytes(places.len(), self.contents.sum.rows[*parameter].dimension())
        });
        self.session.names.gradient_bytes(block) + rows
    }

    fn open(&self, batch: &BlockBatch) -> Duration {
        if batch.asks { self.session.master.wait() } else { Duration::ZERO }
    }

    fn asks_for_credit(&self) -> bool {
        matches!(self.of, Origin::Node(_))
    }

    async fn hear(
        &mut self,
        batch: &mut BlockBatch,
        reply: proto::PushReply,
    ) -> Result<ControlFlow<PushRound>, TrainError> {
        let mut answers = reply.answers();
        // Positions apply in any order, so that no other microbatch makes room for one.
        let may_ask = self.asks_for_credit();
        let (mut is_refused, mut is_rewound) = (false, false);
        let kept = if batch.asks { batch.blocks.len().saturating_sub(1) } else { 0 };
        let asked = batch.blocks.split_off(kept);
        for (block, term) in asked {
            let answer = answers.next().unwrap_or(PushAnswer::Busy);
            if answer == PushAnswer::NoArea
                && let Some(there) = &self.contents.sum.there
            {
                there.is_unknown_to(batch.pserver.incarnation.0);
                return Ok(ControlFlow::Break(PushRound::LostArea));
            }
            is_refused |= answer == PushAnswer::Busy && may_ask;
            is_rewound |= answer == PushAnswer::Rewound;
            if self.answered(block, term, answer)? {
                batch.blocks.push((block, term));
            }
        }
        batch.is_refused = is_refused;
        let is_outdated = self.session.exclusions.present().number > self.contents.sum.exclusions;
        if may_ask && is_rewound && is_outdated {
            // Records were excluded since, and this trainer knows: it is to be computed without them.
            return Ok(ControlFlow::Break(PushRound::Ended(PushEnd::Rewound)));
        }
        Ok(ControlFlow::Continue(()))
    }

    fn gone(&mut self) -> Option<PushRound> {
        None
    }

    fn done(&mut self) -> PushRound {
        PushRound::Ended(if self.rewound.is_empty() { PushEnd::Done } else { PushEnd::Rewound })
    }
}
