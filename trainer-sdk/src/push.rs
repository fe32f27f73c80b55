//! **Push**: one gradient to every block that lacks it, until each has answered. Idempotent: what is sent twice counts
//! once, at the pserver.

use crate::errand::{Calling, Errand, run};
use crate::error::TrainError;
use crate::origin::{Base, NodeOf, Of};
use crate::pending::Batch;
use crate::reduce::NodeSum;
use crate::session::Session;
use crate::share::{AREA_BYTES, Values, primary_of};
use crate::tables::{BucketRows, by_bucket};
use crate::taken::Taken;
use bytes::Bytes;
use futures_util::future::FutureExt;
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

/// One gradient on its way to the blocks.
pub(crate) struct Push<'a> {
    session: &'a Session,
    of: Of,
    sum: Arc<NodeSum>,
    buckets: BTreeMap<BlockId, BucketRows>,
    /// Of each block, in asynchronous jobs.
    bases: Vec<Base>,
    pub(crate) taken: Taken,
    /// Blocks that have gone back since it was computed, in asynchronous jobs.
    rewound: BTreeSet<BlockId>,
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
pub(crate) enum Pushed {
    /// Every block has it.
    Done,
    /// The gradient, or for some blocks its part, is of a history that is no more: to be computed again.
    Rewound,
}

impl<'a> Push<'a> {
    /// The sum of one node.
    pub(crate) async fn of_node(
        session: &'a Session,
        of: NodeOf,
        sum: Arc<NodeSum>,
        taken: Taken,
    ) -> Result<Push<'a>, TrainError> {
        Push::new(session, Of::Node(of), sum, Vec::new(), taken).await
    }

    /// The gradient of one microbatch.
    pub(crate) async fn of_microbatch(
        session: &'a Session,
        position: u64,
        sum: NodeSum,
        bases: Vec<Base>,
        taken: Taken,
    ) -> Result<Push<'a>, TrainError> {
        Push::new(session, Of::Microbatch(position), Arc::new(sum), bases, taken).await
    }

    async fn new(
        session: &'a Session,
        of: Of,
        sum: Arc<NodeSum>,
        bases: Vec<Base>,
        taken: Taken,
    ) -> Result<Push<'a>, TrainError> {
        let (names, gradient) = (session.names.clone(), sum.clone());
        let keys = sum.rows.iter().map(|rows| 8 * rows.len()).sum();
        let find = move || by_bucket(&names, gradient.rows.iter().map(Rows::keys));
        let buckets = session.compute.over(keys, find).await?;
        Ok(Push { session, of, sum, buckets, bases, taken, rewound: BTreeSet::new() })
    }

    /// Pushes until every block has it, or that is pointless; `taken` then says who has it.
    pub(crate) async fn run(&mut self) -> Result<Pushed, TrainError> {
        let started = Instant::now();
        let pushed = loop {
            if let Some(values) = self.there() {
                let routing = self.session.routes.present();
                values.put(self.session, &routing, &self.taken.lacking(&routing)).await?;
            }
            if let Some(pushed) = run(self.session, self).await? {
                break pushed;
            }
        };
        if self.taken.is_applied() {
            self.sum.applied();
        }
        self.session.push_log.lasted(started.elapsed())?;
        Ok(pushed)
    }

    /// The values, if some of them are on a device.
    fn there(&self) -> Option<Values<'_>> {
        Some(Values { there: self.sum.there.as_deref()?, here: &self.sum.values })
    }

    /// In which area a pserver finds a block's values.
    fn area(&self, pserver: u64, block: BlockId) -> Option<(u64, u64)> {
        self.sum.there.as_ref()?.place(pserver, block)
    }

    fn base(&self, block: BlockId) -> Base {
        match self.of {
            Of::Node(of) => Base { rewind: of.rewind, version: Version(0) },
            Of::Microbatch(_) => self.bases[block.0 as usize],
        }
    }

    fn gradient(&self, pserver: u64, block: BlockId) -> Result<proto::BlockGradient, TrainError> {
        let Base { rewind, version } = self.base(block);
        let (rewind, version) = (rewind.0, version.0);
        let empty = proto::BlockGradient { block: block.0, rewind, version, ..Default::default() };
        if let Some((area, at)) = self.area(pserver, block) {
            return Ok(proto::BlockGradient { area, at, ..empty });
        }
        let layout = self.session.names.layout.block(block);
        if layout.is_some_and(|layout| layout.bucket.is_some()) {
            let mut gradient = Vec::new();
            if let Some(BucketRows { parameter, places }) = self.buckets.get(&block) {
                rows::encode_places(&self.sum.rows[*parameter], places, &mut gradient);
            }
            return Ok(proto::BlockGradient { gradient: gradient.into(), ..empty });
        }
        // Metrics take no part in training, and nothing else does in evaluations.
        let takes_part = |layout: &&BlockLayout| {
            let is_there = |parameter| self.sum.there.is_some() && self.session.names.is_on_device(parameter);
            let has_values = |at: usize| !self.sum.values[at].is_empty() || is_there(at);
            layout.pieces.iter().all(|piece| has_values(piece.parameter))
        };
        let values = layout.filter(takes_part).map(|layout| self.values(layout)).transpose()?;
        Ok(proto::BlockGradient { gradient: values.unwrap_or_default(), ..empty })
    }

    /// A dense block's values, little-endian. Those of a stretch of one parameter are shared, not copied, unless they travel
    /// as bf16.
    fn values(&self, layout: &BlockLayout) -> Result<Bytes, TrainError> {
        let precision = self.session.names.precision(layout);
        let is_on_device = |piece: &Piece| self.session.names.is_on_device(piece.parameter);
        if let Some(values) = self.there().filter(|_| layout.pieces.iter().any(is_on_device)) {
            let values = values.gather(layout)?;
            return Ok(match precision {
                Precision::F32 => bytemuck::cast_slice::<f32, u8>(&values).to_vec().into(),
                Precision::Bf16 => values.iter().flat_map(|value| bf16_to_bytes(*value)).collect(),
            });
        }
        if precision == Precision::Bf16 {
            return Ok(layout.gather_bf16(&self.sum.values).into());
        }
        if let Some((parameter, range)) = layout.stretch() {
            return Ok(Bytes::from_owner(Part { sum: Arc::clone(&self.sum), parameter, range }));
        }
        let mut values = Vec::with_capacity(layout.elements);
        layout.gather(&self.sum.values, &mut values);
        Ok(bytemuck::cast_slice::<f32, u8>(&values).to_vec().into())
    }

    /// Takes in one block's answer and says whether it must be asked again.
    fn answered(&mut self, block: BlockId, term: Term, answer: PushAnswer) -> Result<bool, TrainError> {
        match (answer, self.of) {
            (PushAnswer::Applied, of) => {
                self.taken.applied(block);
                self.session.push_log.applied(&of, block, self.base(block))?;
            }
            (PushAnswer::AlreadyApplied, _) => self.taken.applied(block),
            (PushAnswer::Held, Of::Node(_)) => self.taken.held(block, term),
            (PushAnswer::Rewound, Of::Microbatch(_)) => {
                self.rewound.insert(block);
            }
            // Held by the primary, but not yet by its copies.
            (PushAnswer::Held, Of::Microbatch(_)) => return Ok(true),
            // Steps go back with all blocks: the routing will say so.
            (PushAnswer::Rewound, Of::Node(_)) => return Ok(true),
            (
                PushAnswer::Busy
                | PushAnswer::Moved
                | PushAnswer::Room
                | PushAnswer::NoArea
                | PushAnswer::Unspecified,
                _,
            ) => return Ok(true),
        }
        Ok(false)
    }
}

impl Errand for Push<'_> {
    type Reply = proto::PushReply;
    /// None: an area is gone, and values have to go another way.
    type End = Option<Pushed>;

    fn wanted(&mut self, routing: &Arc<Routing>) -> ControlFlow<Option<Pushed>, BTreeSet<BlockId>> {
        let mut lacking = self.taken.lacking(routing);
        match self.of {
            Of::Node(of) if of.rewind != routing.rewind() => {
                return ControlFlow::Break(Some(Pushed::Rewound));
            }
            Of::Node(_) => {}
            Of::Microbatch(_) => {
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

    fn call(
        &self,
        mut client: PserverClient,
        batch: &Batch,
    ) -> Result<Calling<proto::PushReply>, TrainError> {
        let pserver = batch.pserver.incarnation.0;
        let blocks = match batch.blocks.last() {
            Some((block, _)) if batch.asks => {
                let rewind = self.base(*block).rewind.0;
                vec![proto::BlockGradient { block: block.0, rewind, ..Default::default() }]
            }
            _ => {
                let blocks = batch.blocks.iter();
                blocks.map(|(block, _)| self.gradient(pserver, *block)).collect::<Result<_, _>>()?
            }
        };
        let mut request = proto::PushRequest {
            job: self.session.master.job.job.0.clone(),
            incarnation: self.session.incarnation().0,
            weight: self.sum.weight,
            exclusions: self.sum.exclusions,
            blocks,
            asks: batch.asks,
            wait_millis: self.open(batch).as_millis() as u32,
            ..Default::default()
        };
        match self.of {
            Of::Node(of) => (request.step, request.node) = (of.step.0, Some(of.node.into())),
            Of::Microbatch(position) => request.position = position,
        }
        Ok(async move { client.push(request).await }.boxed_local())
    }

    fn bytes(&self, block: BlockId) -> usize {
        let primary = primary_of(&self.session.routes.present(), block);
        if primary.is_some_and(|pserver| self.area(pserver, block).is_some()) {
            return AREA_BYTES;
        }
        let rows = self.buckets.get(&block).map_or(0, |BucketRows { parameter, places }| {
            rows::encoded_bytes(places.len(), self.sum.rows[*parameter].dimension())
        });
        self.session.names.gradient_bytes(block) + rows
    }

    fn open(&self, batch: &Batch) -> Duration {
        if batch.asks { self.session.master.wait() } else { Duration::ZERO }
    }

    fn asks_for_room(&self) -> bool {
        matches!(self.of, Of::Node(_))
    }

    async fn hear(
        &mut self,
        batch: &mut Batch,
        reply: proto::PushReply,
    ) -> Result<ControlFlow<Option<Pushed>>, TrainError> {
        let mut answers = reply.answers();
        // Positions apply in any order, so that no other microbatch makes room for one.
        let may_ask = self.asks_for_room();
        let (mut is_refused, mut is_rewound) = (false, false);
        let kept = if batch.asks { batch.blocks.len().saturating_sub(1) } else { 0 };
        let asked = batch.blocks.split_off(kept);
        for (block, term) in asked {
            let answer = answers.next().unwrap_or(PushAnswer::Busy);
            if answer == PushAnswer::NoArea
                && let Some(there) = &self.sum.there
            {
                there.is_unknown_to(batch.pserver.incarnation.0);
                return Ok(ControlFlow::Break(None));
            }
            is_refused |= answer == PushAnswer::Busy && may_ask;
            is_rewound |= answer == PushAnswer::Rewound;
            if self.answered(block, term, answer)? {
                batch.blocks.push((block, term));
            }
        }
        batch.is_refused = is_refused;
        let is_outdated = self.session.exclusions.present().number > self.sum.exclusions;
        if may_ask && is_rewound && is_outdated {
            // Records were excluded since, and this trainer knows: it is to be computed without them.
            return Ok(ControlFlow::Break(Some(Pushed::Rewound)));
        }
        Ok(ControlFlow::Continue(()))
    }

    fn gone(&mut self) -> Option<Option<Pushed>> {
        None
    }

    fn done(&mut self) -> Option<Pushed> {
        Some(if self.rewound.is_empty() { Pushed::Done } else { Pushed::Rewound })
    }
}
