//! Taking a push message in: refused whole, or answered block by block.
//!
//! Every block of a message is checked, with the locks of all of them held, before any of them changes.

use super::{Kind, Listener, Shard, Since};
use crate::block::reduce::Gradient;
use crate::block::shape::BlockShape;
use crate::block::{Block, NodeGradient, PositionGradient, PushOutcome};
use crate::counters::count_push;
use crate::device::Area;
use crate::exact::assert_exact_arithmetic;
use crate::hosting::{Changed, Hosted, Hosting, with_all};
use bytes::Bytes;
use shoal_runtime::cluster::{BlockId, Node, Refusal, RefusalKind, Rewind, Stage, Step, Version};
use shoal_runtime::wire::{proto, rows};
use std::sync::{Arc, MutexGuard, PoisonError};

/// What a push brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// A node of a step's tree.
    Node(Step, Node),
    /// A position, in asynchronous jobs.
    Position(u64),
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
    gradient: Gradient,
}

/// Hears of blocks that have published something.
#[derive(Debug)]
pub struct Publications<'a> {
    shard: &'a Shard,
    published: Listener,
}

impl Pushed {
    /// What a message brings.
    ///
    /// # Errors
    /// It names no node that there is.
    pub fn of(push: &proto::PushRequest) -> Result<Pushed, Refusal> {
        Ok(match push.node {
            Some(node) => Pushed::Node(Step(push.step), Node::try_from(node)?),
            None => Pushed::Position(push.position),
        })
    }
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
    pub fn push(&self, push: &proto::PushRequest) -> Result<Vec<PushOutcome>, Refusal> {
        self.check_arithmetic()?;
        let what = Pushed::of(push)?;
        let mut outcomes = vec![PushOutcome::Moved; push.blocks.len()];
        let hosting = self.hosting();
        if hosting.as_ref().is_some_and(|hosting| push.exclusions < hosting.assignment.exclusions) {
            // It may hold what is left out.
            outcomes.fill(PushOutcome::Rewound);
        } else if let Some(hosting) = hosting {
            let mut arrivals = self.arrivals(&hosting, push, what, &mut outcomes)?;
            arrivals.sort_unstable_by_key(|arriving| arriving.hosted.shape.id);
            let pair = arrivals.windows(2).find(|pair| pair[0].hosted.shape.id == pair[1].hosted.shape.id);
            if let Some(pair) = pair {
                let detail = "a push message names a block once";
                return Err(Refusal::new(RefusalKind::Malformed, &pair[0].hosted.shape, detail));
            }
            let mut changed = Changed::default();
            let taken = take(arrivals, what, &mut changed);
            self.settle(changed);
            let taken = taken.inspect_err(|refusal| {
                if matches!(refusal.kind, RefusalKind::Nondeterministic | RefusalKind::JobFailed) {
                    self.fail(refusal.to_string());
                }
            })?;
            for BlockOutcome { at, outcome, staleness } in taken {
                outcomes[at] = outcome;
                if let (PushOutcome::Applied { .. }, Some(staleness)) = (outcome, staleness) {
                    self.staleness.lock().unwrap_or_else(PoisonError::into_inner).note(staleness);
                }
            }
        }
        self.note(push, what, &outcomes);
        self.note_sent(what, push.blocks.iter().map(|sent| BlockId(sent.block)));
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
        push: &proto::PushRequest,
        what: Pushed,
        outcomes: &mut [PushOutcome],
    ) -> Result<Vec<Arriving<'a>>, Refusal> {
        self.check_what(what)?;
        let evaluates = self.evaluates(what);
        let mut arrivals = Vec::with_capacity(push.blocks.len());
        for (place, sent) in push.blocks.iter().enumerate() {
            let id = BlockId(sent.block);
            hosting.check(id)?;
            let Some(hosted) = hosting.block(id) else { continue };
            let gradient = match sent.area {
                0 => in_message(&hosted.shape, &sent.gradient, evaluates, what)?,
                area => match self.area(area) {
                    Some(area) => in_area(&hosted.shape, &area, sent.at, evaluates)?,
                    None => {
                        outcomes[place] = PushOutcome::NoArea;
                        continue;
                    }
                },
            };
            // Who takes no part is given nothing.
            let weight = if hosted.shape.takes_part(evaluates) { push.weight } else { 0 };
            let (rewind, version) = (Rewind(sent.rewind), Version(sent.version));
            arrivals.push(Arriving { at: place, hosted, rewind, version, weight, gradient });
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

    fn note(&self, push: &proto::PushRequest, what: Pushed, outcomes: &[PushOutcome]) {
        let bytes = push.blocks.iter().map(|sent| sent.gradient.len() as u64).sum();
        let hosting = self.hosting();
        let lowest = hosting.as_ref().and_then(|hosting| hosting.blocks.keys().next().copied());
        let blocks = push.blocks.iter().map(|sent| BlockId(sent.block));
        let outcomes: Vec<(BlockId, PushOutcome)> = blocks.zip(outcomes.iter().copied()).collect();
        let level = match what {
            Pushed::Node(_, node) => node.level,
            Pushed::Position(_) => 0,
        };
        self.count(|counters| count_push(counters, level, push.weight, bytes, lowest, &outcomes));
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

/// A gradient that a message has for one block, checked as far as it can be without a lock.
fn in_message(shape: &BlockShape, bytes: &Bytes, evaluates: bool, what: Pushed) -> Result<Gradient, Refusal> {
    if let Some(bucket) = &shape.bucket {
        let rows = rows::decode(bytes, bucket.dimension)
            .map_err(|detail| Refusal::new(RefusalKind::WrongShape, shape, detail))?;
        shape.check_rows(bucket, &rows, evaluates, what)?;
        shape.check_rows_bytes(rows.len())?;
        return Ok(Gradient::Rows(rows));
    }
    shape.check_values(bytes, evaluates, what)?;
    Ok(Gradient::Words(bytes.clone(), shape.precision))
}

/// The same of one that a trainer has put into an area: it has seen to it that all of it is finite, where it must be.
fn in_area(shape: &BlockShape, area: &Arc<Area>, at: u64, evaluates: bool) -> Result<Gradient, Refusal> {
    let refused = |detail: &str| Refusal::new(RefusalKind::Malformed, shape, detail);
    if shape.bucket.is_some() || shape.decisions.is_some() || !shape.takes_part(evaluates) {
        return Err(refused("it takes no gradient from an area: build all roles from the same version"));
    }
    let words = area.words(at, shape.elements);
    let words = words.ok_or_else(|| refused("its gradient does not lie in the area that is named"))?;
    let mut gradient = Gradient::OnDevice(words, shape.precision);
    if shape.is_decided {
        // Its norm is to be known before it is applied.
        gradient.fetch().map_err(|lost| Refusal::new(RefusalKind::NotReady, shape, lost.to_string()))?;
    }
    Ok(gradient)
}

/// What became of a gradient.
struct BlockOutcome {
    /// Where it was in the message.
    at: usize,
    outcome: PushOutcome,
    /// In asynchronous jobs: how stale it came.
    staleness: Option<u64>,
}

/// Locks all blocks in order, checks all, then changes all.
fn take(
    arrivals: Vec<Arriving<'_>>,
    what: Pushed,
    changed: &mut Changed,
) -> Result<Vec<BlockOutcome>, Refusal> {
    let hosted: Vec<&Hosted> = arrivals.iter().map(|arriving| arriving.hosted).collect();
    with_all(&hosted, changed, |blocks| match what {
        Pushed::Node(step, node) => take_node(blocks, arrivals, step, node),
        Pushed::Position(position) => Ok(take_position(blocks, arrivals, position)),
    })
}

fn take_node(
    blocks: &mut [MutexGuard<'_, Block>],
    arrivals: Vec<Arriving<'_>>,
    step: Step,
    node: Node,
) -> Result<Vec<BlockOutcome>, Refusal> {
    let arrivals = arrivals.into_iter().map(|Arriving { at, rewind, weight, gradient, .. }| {
        (at, rewind, NodeGradient { step, node, weight, gradient })
    });
    let arrivals: Vec<_> = arrivals.collect();
    let checked =
        blocks.iter().zip(&arrivals).map(|(block, (_, rewind, gradient))| block.check(*rewind, gradient));
    let checked = checked.collect::<Result<Vec<_>, _>>()?;
    let taken = blocks.iter_mut().zip(arrivals).zip(checked).map(|((block, (at, _, gradient)), checked)| {
        let outcome = checked.unwrap_or_else(|| block.take(gradient));
        BlockOutcome { at, outcome, staleness: None }
    });
    Ok(taken.collect())
}

fn take_position(
    blocks: &mut [MutexGuard<'_, Block>],
    arrivals: Vec<Arriving<'_>>,
    position: u64,
) -> Vec<BlockOutcome> {
    let taken = blocks.iter_mut().zip(arrivals).map(|(block, arriving)| {
        let Arriving { at, rewind, version, weight, gradient, .. } = arriving;
        let staleness = Some(block.staleness(version));
        let outcome = block.push_position(rewind, PositionGradient { position, version, weight, gradient });
        BlockOutcome { at, outcome, staleness }
    });
    taken.collect()
}
