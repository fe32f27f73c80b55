//! Taking a push message in: refused whole, or answered block by block.
//!
//! Every block of a message is checked, with the locks of all of them held, before any of them changes.

use super::{Kind, Listener, Shard, Since};
use crate::block::shape::{BlockShape, NodeGradient};
use crate::block::sum::Came;
use crate::block::{Block, PositionGradient, PushOutcome};
use crate::device::Area;
use crate::exact::assert_exact_arithmetic;
use crate::hosting::{Changed, Hosted, Hosting, with_all};
use bytes::Bytes;
use shoal_runtime::cluster::{BlockId, Node, Refusal, RefusalKind, Rewind, Stage, Step, Version};
use shoal_runtime::wire::rows;
use std::borrow::Cow;
use std::sync::{Arc, MutexGuard};

/// One push message.
#[derive(Clone, Debug)]
pub struct Push {
    /// What was computed.
    pub what: Pushed,
    /// The number of the exclusions that it was computed with.
    pub exclusions: u64,
    /// Records (or tokens) in the sum.
    pub weight: u64,
    /// Each block at most once.
    pub gradients: Vec<Gradient>,
}

/// What a push brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// A node of a step's tree.
    Node(Step, Node),
    /// A position, in asynchronous jobs.
    Position(u64),
}

/// What a push brings to one block.
#[derive(Clone, Debug)]
pub struct Gradient {
    /// The block.
    pub block: BlockId,
    /// The rewind number under which it was computed.
    pub rewind: Rewind,
    /// The version that it was computed from; in synchronous jobs the step says it.
    pub version: Version,
    /// Little-endian values in the block's precision, or rows of a bucket.
    pub bytes: Bytes,
    /// In place of them, for dense blocks: an area and where in it, in bytes, the values begin.
    pub area: Option<(u64, u64)>,
}

/// What a message brings to one block that is here.
struct Arriving<'a> {
    /// Where in the message.
    at: usize,
    hosted: &'a Hosted,
    rewind: Rewind,
    /// In asynchronous jobs: the version that it was computed from.
    version: Version,
    weight: u64,
    came: Came<'static>,
}

/// Hears of blocks that have published something.
#[derive(Debug)]
pub struct Publications<'a> {
    shard: &'a Shard,
    published: Listener,
}

impl Publications<'_> {
    /// Waits for some, and says of which that may be.
    pub async fn next(&mut self) -> impl Fn(BlockId) -> bool + use<> {
        self.published.changed().await;
        let since = self.published.take(&self.shard.changes);
        move |block| match &since {
            Since::Any => true,
            Since::Blocks(blocks) => blocks.contains(&block),
        }
    }
}

impl Shard {
    /// Hears of what is published from now on.
    pub fn publications(&self) -> Publications<'_> {
        Publications { shard: self, published: self.changes.listen(Kind::Published) }
    }

    /// Whether a position is published in a block whose rewind number is `rewind`.
    pub fn is_published(&self, block: BlockId, rewind: Rewind, position: u64) -> Result<bool, Refusal> {
        let hosting = self.hosting();
        let hosted = hosting.as_ref().and_then(|hosting| hosting.block(block));
        hosted.map_or(Ok(false), |hosted| hosted.read(|block| block.has_published(rewind, position)))
    }

    /// Takes a push message in; the outcomes are in the order of its blocks. A refusal changes nothing, nor does what
    /// was computed with fewer exclusions than are known here.
    pub fn push(&self, push: &Push) -> Result<Vec<PushOutcome>, Refusal> {
        self.check_arithmetic()?;
        let mut outcomes = vec![PushOutcome::Moved; push.gradients.len()];
        let hosting = self.hosting();
        if hosting.as_ref().is_some_and(|hosting| push.exclusions < hosting.assignment.exclusions) {
            // It may hold what is left out.
            outcomes.fill(PushOutcome::Rewound);
        } else if let Some(hosting) = hosting {
            let mut arrivals = self.arrivals(&hosting, push, &mut outcomes)?;
            arrivals.sort_unstable_by_key(|arriving| arriving.hosted.shape.id);
            let pair = arrivals.windows(2).find(|pair| pair[0].hosted.shape.id == pair[1].hosted.shape.id);
            if let Some(pair) = pair {
                let detail = "a push message names a block once";
                return Err(Refusal::new(RefusalKind::Malformed, &pair[0].hosted.shape, detail));
            }
            let mut changed = Changed::default();
            let taken = take(arrivals, push.what, &mut changed);
            self.settle(changed);
            let taken = taken.inspect_err(|refusal| {
                if matches!(refusal.kind, RefusalKind::Nondeterministic | RefusalKind::JobFailed) {
                    self.fail(refusal.to_string());
                }
            })?;
            for Taken { at, outcome, staleness } in taken {
                outcomes[at] = outcome;
                if let (PushOutcome::Applied { .. }, Some(staleness)) = (outcome, staleness) {
                    self.count(|counters| counters.staleness.note(staleness));
                }
            }
        }
        self.note(push, &outcomes);
        self.note_room(push.what, push.gradients.iter().map(|gradient| gradient.block));
        Ok(outcomes)
    }

    /// Checked with every message, because a library can change the arithmetic of one thread at any time.
    pub(super) fn check_arithmetic(&self) -> Result<(), Refusal> {
        assert_exact_arithmetic().map_err(|inexact| {
            let refusal = Refusal::new(RefusalKind::JobFailed, "pserver", inexact);
            self.fail(refusal.to_string());
            refusal
        })
    }

    /// What a push message brings to which of the blocks that are here, checked as far as it can be without a lock. `outcomes`
    /// are told of what is in areas that are not here.
    fn arrivals<'a>(
        &self,
        hosting: &'a Hosting,
        push: &Push,
        outcomes: &mut [PushOutcome],
    ) -> Result<Vec<Arriving<'a>>, Refusal> {
        self.check_what(push.what)?;
        let evaluates = self.evaluates(push.what);
        let mut arrivals = Vec::with_capacity(push.gradients.len());
        for (place, gradient) in push.gradients.iter().enumerate() {
            hosting.check(gradient.block)?;
            let Some(hosted) = hosting.block(gradient.block) else { continue };
            let came = match gradient.area {
                None => came(&hosted.shape, gradient, evaluates, push.what)?,
                Some((area, at)) => match self.area(area) {
                    Some(area) => there(&hosted.shape, &area, at, evaluates)?,
                    None => {
                        outcomes[place] = PushOutcome::NoArea;
                        continue;
                    }
                },
            };
            // Who takes no part is given nothing.
            let weight = if hosted.shape.takes_part(evaluates) { push.weight } else { 0 };
            let Gradient { rewind, version, .. } = *gradient;
            arrivals.push(Arriving { at: place, hosted, rewind, version, weight, came });
        }
        Ok(arrivals)
    }

    /// Refuses what the job has not.
    pub(super) fn check_what(&self, what: Pushed) -> Result<(), Refusal> {
        match what {
            Pushed::Node(step, node) if self.job.is_sync() => {
                if step.0 >= self.job.steps() {
                    return Err(self.beyond(step));
                }
                let tree = self.shape.tree(step);
                if tree.contains(node) {
                    return Ok(());
                }
                let (present, root) = (tree.present(), tree.root());
                let detail = format!("no such node: the root is {root}, {present} microbatches");
                Err(Refusal::new(RefusalKind::OutOfRange, what, detail))
            }
            Pushed::Position(position) if !self.job.is_sync() => {
                if position < self.job.positions() {
                    return Ok(());
                }
                let detail = format!("the job has {} positions", self.job.positions());
                Err(Refusal::new(RefusalKind::OutOfRange, what, detail))
            }
            Pushed::Node(..) | Pushed::Position(_) => {
                let detail = "the job is of the other mode: build all roles from the same version";
                Err(Refusal::new(RefusalKind::Malformed, what, detail))
            }
        }
    }

    /// Whether it is part of an evaluation.
    fn evaluates(&self, what: Pushed) -> bool {
        match what {
            Pushed::Node(step, _) => self.shape.evaluates(step),
            Pushed::Position(position) => {
                matches!(self.shape.positions().stage(position), Some(Stage::Evaluation { .. }))
            }
        }
    }

    fn note(&self, push: &Push, outcomes: &[PushOutcome]) {
        let bytes = push.gradients.iter().map(|gradient| gradient.bytes.len() as u64).sum();
        let hosting = self.hosting();
        let lowest = hosting.as_ref().and_then(|hosting| hosting.blocks.keys().next().copied());
        let outcomes: Vec<(BlockId, PushOutcome)> = push
            .gradients
            .iter()
            .zip(outcomes)
            .map(|(gradient, outcome)| (gradient.block, *outcome))
            .collect();
        let level = match push.what {
            Pushed::Node(_, node) => node.level,
            Pushed::Position(_) => 0,
        };
        self.count(|counters| counters.count_push(level, push.weight, bytes, lowest, &outcomes));
    }
}

impl std::fmt::Display for Pushed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Pushed::Node(step, node) => write!(f, "step {step}, node {node}"),
            Pushed::Position(position) => write!(f, "position {position}"),
        }
    }
}

/// What a message brings to one block, checked as far as it can be without a lock.
fn came(
    shape: &BlockShape,
    gradient: &Gradient,
    evaluates: bool,
    what: Pushed,
) -> Result<Came<'static>, Refusal> {
    let wrong_shape = |detail: String| Refusal::new(RefusalKind::WrongShape, shape, detail);
    if let Some(bucket) = &shape.bucket {
        let rows = rows::decode(&gradient.bytes, bucket.dimension).map_err(wrong_shape)?;
        shape.check_rows(bucket, &rows, evaluates, what)?;
        shape.check_rows_bytes(rows.len())?;
        return Ok(Came::Rows(Cow::Owned(rows)));
    }
    shape.check_values(&gradient.bytes, evaluates, what)?;
    Ok(Came::Words(gradient.bytes.clone(), shape.precision))
}

/// The same of what a trainer has put into an area: it has seen to it that all of it is finite, where it must be.
fn there(shape: &BlockShape, area: &Arc<Area>, at: u64, evaluates: bool) -> Result<Came<'static>, Refusal> {
    let refused = |detail: &str| Refusal::new(RefusalKind::Malformed, shape, detail);
    if shape.bucket.is_some() || shape.decisions.is_some() || !shape.takes_part(evaluates) {
        return Err(refused("it takes no gradient from an area: build all roles from the same version"));
    }
    let words = area.words(at, shape.elements);
    let words = words.ok_or_else(|| refused("its gradient does not lie in the area that is named"))?;
    let mut came = Came::There(words, shape.precision);
    if shape.is_decided {
        // Its norm is to be known before it is applied.
        came.bring().map_err(|lost| Refusal::new(RefusalKind::NotReady, shape, lost.to_string()))?;
    }
    Ok(came)
}

/// What became of a gradient.
struct Taken {
    /// Where it was in the message.
    at: usize,
    outcome: PushOutcome,
    /// In asynchronous jobs: how stale it came.
    staleness: Option<u64>,
}

/// Locks all blocks in order, checks all, then changes all.
fn take(arrivals: Vec<Arriving<'_>>, what: Pushed, changed: &mut Changed) -> Result<Vec<Taken>, Refusal> {
    let hosted: Vec<&Hosted> = arrivals.iter().map(|arriving| arriving.hosted).collect();
    with_all(&hosted, changed, |blocks| take_into(blocks, arrivals, what))
}

fn take_into(
    blocks: &mut [MutexGuard<'_, Block>],
    arrivals: Vec<Arriving<'_>>,
    what: Pushed,
) -> Result<Vec<Taken>, Refusal> {
    if let Pushed::Node(step, node) = what {
        for (block, arriving) in blocks.iter().zip(&arrivals) {
            let Arriving { rewind, weight, came, .. } = arriving;
            block.check(*rewind, &NodeGradient { step, node, weight: *weight, came: came.as_ref() })?;
        }
    }
    let taken = blocks.iter_mut().zip(arrivals).map(|(block, arriving)| {
        let Arriving { at, rewind, version, weight, came, .. } = arriving;
        match what {
            Pushed::Node(step, node) => {
                let outcome = block.push(rewind, NodeGradient { step, node, weight, came })?;
                Ok(Taken { at, outcome, staleness: None })
            }
            Pushed::Position(position) => {
                let staleness = Some(block.staleness(version));
                let outcome =
                    block.push_position(rewind, PositionGradient { position, version, weight, came });
                Ok(Taken { at, outcome, staleness })
            }
        }
    });
    taken.collect()
}
