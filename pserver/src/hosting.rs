//! What a pserver holds: copies of blocks as the master has placed them, each behind its own lock. Here is the one place where a
//! copy is locked: whoever changes one is told what has changed.
//!
//! An assignment is the whole of it, at one routing version: what it does not name is dropped. A copy lives on under
//! later assignments for as long as its fill stays the same.

use crate::block::effects::{Effects, Facts};
use crate::block::evaluate::Verdicts;
use crate::block::primary::PlacedCopy;
use crate::block::shape::BlockShape;
use crate::block::{Block, BlockSettings, NamedCheckpoint, Placement};
use crate::device::WORDS_ALIGNMENT;
use shoal_runtime::cluster::layout::BlockLayout;
use shoal_runtime::cluster::routing::PserverAddress;
use shoal_runtime::cluster::{
    BlockId, CheckpointId, Declaration, Fill, Incarnation, Layout, Refusal, RefusalKind, Rewind, Term,
    Version,
};
use shoal_runtime::wire::{malformed, proto};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the master tells a pserver to hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    /// The term of the master that says so.
    pub master_term: u32,
    /// Of the routing it follows from.
    pub routing_version: u64,
    /// The parameters, checked.
    pub declaration: Declaration,
    /// The copies to hold.
    pub blocks: BTreeMap<BlockId, Placement>,
    /// Where the primaries of these blocks are.
    pub pservers: Vec<PserverAddress>,
    /// Nothing is left here, and nothing will come.
    pub may_leave: bool,
    /// The job is done or has failed: nothing will be moved from here.
    pub is_over: bool,
    /// The checkpoint under way.
    pub checkpoint: Option<NamedCheckpoint>,
    /// Where the scalar block's primary is, in jobs that decide over all blocks.
    pub scalars: Option<Incarnation>,
    /// The number of the exclusions: what was computed with an older list is refused.
    pub exclusions: u64,
    /// What follows from evaluations.
    pub verdicts: Verdicts,
    /// After every so many steps hashes of blocks are recorded; 0 for none.
    pub record_hashes: u64,
}

impl Assignment {
    /// What the master says, in a synchronous job or in another.
    ///
    /// # Errors
    /// It cannot be understood.
    pub fn of(wire: proto::Assignment, is_sync: bool) -> Result<Assignment, Refusal> {
        let declaration =
            wire.declaration.ok_or_else(|| malformed("assignment.declaration", "the field is missing"))?;
        let mut blocks = BTreeMap::new();
        for group in wire.blocks {
            let copies = group.copies.iter().map(|copy| PlacedCopy {
                pserver: Incarnation(copy.pserver),
                fill: Fill(copy.fill),
                is_in_sync: copy.is_in_sync,
            });
            let placement = Placement {
                fill: Fill(group.fill),
                term: Term(group.term),
                rewind: Rewind(group.rewind),
                primary: Incarnation(group.primary),
                copies: copies.collect(),
                heir: Some(Incarnation(group.heir)).filter(|heir| heir.0 > 0),
                origin: group.origin.map(Into::into),
            };
            blocks.extend(group.blocks.into_iter().map(|block| (BlockId(block), placement.clone())));
        }
        Ok(Assignment {
            master_term: wire.master_term,
            routing_version: wire.routing_version,
            declaration: Declaration::try_from(declaration)?,
            blocks,
            pservers: wire.pservers.into_iter().map(Into::into).collect(),
            may_leave: wire.may_leave,
            is_over: wire.is_over,
            exclusions: wire.exclusions,
            record_hashes: wire.record_hashes,
            scalars: Some(Incarnation(wire.scalar_primary)).filter(|primary| primary.0 > 0),
            verdicts: Verdicts {
                judged: wire.judged,
                rates: wire.rates.iter().map(|change| (change.evaluation, change.rate)).collect(),
            },
            checkpoint: wire.checkpoint.map(|named| NamedCheckpoint {
                checkpoint: CheckpointId(named.checkpoint),
                version: is_sync.then_some(Version(named.version)),
                since: Some(CheckpointId(named.since)).filter(|since| since.0 > 0),
                named_at: named.named_at,
            }),
        })
    }
}

/// A copy and the facts about its block that need no lock.
#[derive(Debug)]
pub struct Hosted {
    /// The lasting facts.
    pub shape: Arc<BlockShape>,
    block: Mutex<Block>,
}

/// All copies of one assignment.
#[derive(Debug)]
pub struct Hosting {
    /// What the master has said, but for the placements: each copy has its own.
    pub assignment: Assignment,
    /// How many blocks the job has.
    pub layout: Layout,
    /// The copies by block.
    pub blocks: BTreeMap<BlockId, Arc<Hosted>>,
    /// Those of blocks that hold metrics.
    pub metrics: Vec<Arc<Hosted>>,
    /// How many other pservers lead blocks of which a copy is here.
    pub primaries: usize,
    /// How many copies a thread takes at a time.
    pub batch_max: usize,
}

/// Copies that a thread takes at a time, and more of them where each is small, up to so many bytes: each time costs a change of
/// threads, and wakes whoever waits for any of them.
pub const BATCH_MIN: usize = 64;
const BATCH_MAX: usize = 1 << 12;
const BATCH_BYTES: usize = 16 << 20;

/// What an assignment changes about the copies.
#[derive(Debug, Default)]
pub struct Placing {
    /// Copies that stay, and how they are placed now; of those that are new none.
    pub placed: Vec<(Arc<Hosted>, Option<Placement>)>,
    /// Copies that are held no more.
    pub dropped: Vec<Arc<Hosted>>,
}

/// What transitions have changed, for those who are to hear of it.
#[derive(Debug, Default)]
pub struct Changed {
    /// By block, in the order of the transitions.
    pub blocks: Vec<(BlockId, Effects)>,
    /// An invariant that does not hold: nothing of this process can be relied upon.
    pub violated: Option<String>,
}

impl Hosted {
    /// A copy that holds nothing yet.
    fn new(shape: Arc<BlockShape>, job: Arc<BlockSettings>, placement: Placement, me: Incarnation) -> Hosted {
        let block = Mutex::new(Block::new(Arc::clone(&shape), job, placement, me));
        Hosted { shape, block }
    }

    /// Looks at the copy.
    ///
    /// # Errors
    /// A transition has panicked and left it between two writes: it is refused, not served.
    pub fn read<T>(&self, look: impl FnOnce(&Block) -> T) -> Result<T, Refusal> {
        Ok(look(&*self.lock()?))
    }

    /// Lets one transition happen; what it changes is added to `changed`, whose owner sees to it that it is heard of.
    ///
    /// # Errors
    /// As of [`read`](Self::read).
    pub fn with<T>(&self, changed: &mut Changed, act: impl FnOnce(&mut Block) -> T) -> Result<T, Refusal> {
        let mut block = self.lock()?;
        let before = block.facts();
        let result = act(&mut block);
        changed.note(self.shape.id, &mut block, &before);
        Ok(result)
    }

    fn lock(&self) -> Result<MutexGuard<'_, Block>, Refusal> {
        self.block.lock().map_err(|PoisonError { .. }| {
            let detail =
                "an earlier update of the block panicked: see this pserver's log, then start the job anew";
            Refusal::new(RefusalKind::JobFailed, &self.shape, detail)
        })
    }

    /// The copy, for tests to look into.
    #[cfg(test)]
    pub(crate) fn locked(&self) -> MutexGuard<'_, Block> {
        self.lock().unwrap()
    }
}

/// Lets one transition happen over several copies, in the order of their blocks: all of them are locked before it and until its
/// end, so that none changes where one refuses.
///
/// # Errors
/// What `act` refuses, and as of [`Hosted::read`].
pub fn with_all<T>(
    hosted: &[&Hosted],
    changed: &mut Changed,
    act: impl FnOnce(&mut [MutexGuard<'_, Block>]) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let mut blocks = hosted.iter().map(|hosted| hosted.lock()).collect::<Result<Vec<_>, _>>()?;
    let before: Vec<Facts> = blocks.iter().map(|block| block.facts()).collect();
    let result = act(&mut blocks);
    for ((hosted, block), before) in hosted.iter().zip(&mut blocks).zip(&before) {
        changed.note(hosted.shape.id, block, before);
    }
    result
}

impl Changed {
    /// What a transition has changed. A copy about which something does not hold that must is never served again.
    fn note(&mut self, id: BlockId, block: &mut Block, before: &Facts) {
        let mut now = block.facts();
        if let Some(violated) = block.violated(before, &now) {
            self.violated.get_or_insert(format!("block {id}: {violated}"));
            block.retire();
            now = block.facts();
        }
        let effects = block.effects(before, &now);
        if !effects.is_nothing() {
            self.blocks.push((id, effects));
        }
    }
}

impl Hosting {
    /// What is held after `assignment`, given what was held before, and what is to be done with the copies before that is
    /// believed.
    ///
    /// # Errors
    /// A block that the declaration has not: nothing is done then.
    pub fn after(
        before: Option<&Hosting>,
        mut assignment: Assignment,
        job: &Arc<BlockSettings>,
        me: Incarnation,
    ) -> Result<(Hosting, Placing), Refusal> {
        let layout = Layout::new(&assignment.declaration);
        let placements = std::mem::take(&mut assignment.blocks);
        for id in placements.keys() {
            layout.block(*id).ok_or_else(|| beyond(*id, &layout))?;
        }
        let primaries: BTreeSet<Incarnation> =
            placements.values().map(|placement| placement.primary).filter(|primary| *primary != me).collect();
        let mut left = before.map_or_else(BTreeMap::new, |before| before.blocks.clone());
        let mut placed = Vec::with_capacity(placements.len());
        for (id, placement) in placements {
            let fill = placement.fill;
            let kept =
                left.get(&id).filter(|old| old.read(|block| block.placement().fill == fill) == Ok(true));
            if let Some(kept) = kept.cloned() {
                left.remove(&id);
                placed.push((kept, Some(placement)));
                continue;
            }
            let block = layout.block(id).ok_or_else(|| beyond(id, &layout))?;
            let shape = BlockShape::new(id, block, &assignment.declaration, job.seed(), job.gradients());
            placed.push((Arc::new(Hosted::new(Arc::new(shape), Arc::clone(job), placement, me)), None));
        }
        let blocks: BTreeMap<_, _> =
            placed.iter().map(|(hosted, _)| (hosted.shape.id, Arc::clone(hosted))).collect();
        let metrics = blocks.values().filter(|hosted| hosted.shape.is_metric).cloned().collect();
        let dropped = left.into_values().collect();
        let (primaries, batch_max) = (primaries.len(), batch_max(&layout));
        let hosting = Hosting { assignment, layout, blocks, metrics, primaries, batch_max };
        Ok((hosting, Placing { placed, dropped }))
    }

    /// The copy of a block, if it is here.
    pub fn block(&self, id: BlockId) -> Option<&Arc<Hosted>> {
        self.blocks.get(&id)
    }

    /// Refuses a block that the job does not have.
    pub fn check(&self, id: BlockId) -> Result<(), Refusal> {
        self.layout.block(id).map(|_| ()).ok_or_else(|| beyond(id, &self.layout))
    }

    /// Where a pserver is.
    pub fn address(&self, pserver: Incarnation) -> Option<&str> {
        let known = self.assignment.pservers.iter().find(|known| known.incarnation == pserver);
        known.map(|known| known.address.as_str())
    }

    /// Bytes of one gradient of all dense blocks, in an area.
    pub fn gradient_bytes(&self) -> u64 {
        let dense = self.layout.iter().filter(|(_, block)| block.bucket.is_none());
        dense.map(|(_, block)| (4 * block.elements).next_multiple_of(WORDS_ALIGNMENT) as u64).sum()
    }
}

/// See [`BATCH_BYTES`]. How large a bucket becomes is not known.
fn batch_max(layout: &Layout) -> usize {
    let bytes = |block: &BlockLayout| if block.bucket.is_some() { BATCH_BYTES } else { 4 * block.elements };
    let largest = layout.iter().map(|(_, block)| bytes(block)).max().unwrap_or(0);
    (BATCH_BYTES / largest.max(1)).clamp(BATCH_MIN, BATCH_MAX)
}

fn beyond(id: BlockId, layout: &Layout) -> Refusal {
    let detail = format!("the declaration has {} blocks", layout.len());
    Refusal::new(RefusalKind::OutOfRange, format!("block {id}"), detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::tests::alone;
    use crate::report::tests::wire;
    use crate::shard::tests::assigned;
    use shoal_runtime::cluster::initial::Initial;
    use shoal_runtime::cluster::{Parameter, Rule, Schedule, Table};

    #[test]
    fn assignments_arrive_as_they_were_given() {
        let copy =
            |pserver, is_in_sync| PlacedCopy { pserver: Incarnation(pserver), fill: Fill(6), is_in_sync };
        let led = Placement {
            term: Term(8),
            rewind: Rewind(2),
            copies: vec![copy(4, true), copy(5, false)],
            heir: Some(Incarnation(4)),
            ..alone(3)
        };
        let mut given = assigned(7, 9, [(0, led), (1, Placement { primary: Incarnation(5), ..alone(4) })]);
        given.pservers = vec![PserverAddress { incarnation: Incarnation(5), address: "ps-5:1".into() }];
        (given.may_leave, given.is_over) = (true, true);
        assert_eq!(Assignment::of(wire(&given), true), Ok(given.clone()));
        let without = proto::Assignment { declaration: None, ..wire(&given) };
        let refusal = Assignment::of(without, true).unwrap_err();
        assert_eq!(
            (refusal.kind, refusal.subject.as_str()),
            (RefusalKind::Malformed, "assignment.declaration")
        );
    }

    #[test]
    fn a_thread_takes_more_blocks_at_a_time_where_all_are_small() {
        let batch = |block_elements, table: Option<Table>| {
            let row = Parameter::new("w", &[1 << 10], Rule::Sgd, Schedule::constant(0.1), Initial::Zeros);
            let parameters = vec![
                Parameter { shape: vec![1 << 20], ..row.clone() },
                Parameter { name: "t".to_owned(), table, ..row },
            ];
            batch_max(&Layout::new(&Declaration { parameters, block_elements }))
        };
        assert_eq!(
            [1 << 18, 1 << 14, 1 << 10, 1].map(|elements| batch(elements, None)),
            [64, 256, 4096, 4096]
        );
        assert_eq!(batch(1 << 10, Some(Table::default())), 64, "a bucket may be large");
    }
}
