//! What a pserver holds: copies of blocks as the master has placed them, each behind its own lock.
//!
//! An assignment is the whole of it, at one routing version: what it does not name is dropped. A copy lives on under
//! later assignments for as long as its fill stays the same.

use crate::block::shape::BlockShape;
use crate::block::verdicts::Verdicts;
use crate::block::{Block, NamedCheckpoint, Placement, Terms};
use crate::device::WORDS_ALIGNMENT;
use shoal_runtime::cluster::routing::PserverAddress;
use shoal_runtime::cluster::{BlockId, Declaration, Incarnation, Layout, Refusal, RefusalKind};
use std::collections::BTreeMap;
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
    /// The checkpoint under way.
    pub checkpoint: Option<NamedCheckpoint>,
    /// Where the scalar block's primary is, in jobs that decide over all blocks.
    pub scalars: Option<Incarnation>,
    /// The number of the exclusions: what was computed with an older list is refused.
    pub exclusions: u64,
    /// What follows from evaluations.
    pub verdicts: Verdicts,
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
    /// The term of the master that gave it.
    pub master_term: u32,
    /// Of the routing it follows from.
    pub routing_version: u64,
    /// The parameters.
    pub declaration: Declaration,
    /// How many blocks the job has.
    pub layout: Layout,
    /// The copies by block.
    pub blocks: BTreeMap<BlockId, Arc<Hosted>>,
    /// Where the primaries of these blocks are.
    pub pservers: Vec<PserverAddress>,
    /// Nothing is left here, and nothing will come.
    pub may_leave: bool,
    /// Where the scalar block's primary is, in jobs that decide over all blocks.
    pub scalars: Option<Incarnation>,
    /// The number of the exclusions.
    pub exclusions: u64,
}

impl Hosting {
    /// Bytes of one gradient of all dense blocks, in an area.
    pub fn gradient_bytes(&self) -> u64 {
        let dense = self.layout.iter().filter(|(_, block)| block.bucket.is_none());
        dense.map(|(_, block)| (4 * block.elements).next_multiple_of(WORDS_ALIGNMENT) as u64).sum()
    }
}

impl Hosted {
    /// The copy. A panic while it was locked leaves it between two writes: it is then refused, not served.
    pub fn lock(&self) -> Result<MutexGuard<'_, Block>, Refusal> {
        self.block.lock().map_err(|PoisonError { .. }| {
            let detail =
                "an earlier update of the block panicked: see this pserver's log, then start the job anew";
            Refusal::new(RefusalKind::JobFailed, &self.shape, detail)
        })
    }
}

impl Hosting {
    /// What is held after `assignment`, given what was held before. Copies that are gone find nothing any more.
    pub fn after(
        before: Option<&Hosting>,
        assignment: Assignment,
        job: &Arc<Terms>,
        me: Incarnation,
    ) -> Result<Hosting, Refusal> {
        let Assignment { master_term, routing_version, declaration, pservers, may_leave, .. } = assignment;
        let Assignment { scalars, exclusions, .. } = assignment;
        let layout = Layout::new(&declaration);
        // All of it is checked before any of it is done.
        for id in assignment.blocks.keys() {
            layout.block(*id).ok_or_else(|| beyond(*id, &layout))?;
        }
        let mut left = before.map_or_else(BTreeMap::new, |before| before.blocks.clone());
        let mut blocks = BTreeMap::new();
        for (id, placement) in assignment.blocks {
            let kept = left.get(&id).filter(|old| old.has_fill(&placement)).cloned();
            let hosted = match kept {
                Some(kept) => {
                    left.remove(&id);
                    kept.lock()?.place(placement, me);
                    kept
                }
                None => {
                    let block_layout = layout.block(id).ok_or_else(|| beyond(id, &layout))?;
                    let shape = Arc::new(BlockShape::new(
                        id,
                        block_layout,
                        &declaration,
                        job.seed(),
                        job.gradients(),
                    ));
                    let block = Block::new(Arc::clone(&shape), Arc::clone(job), placement, me);
                    Arc::new(Hosted { shape, block: Mutex::new(block) })
                }
            };
            blocks.insert(id, hosted);
        }
        for dropped in left.values() {
            dropped.lock()?.retire();
        }
        Ok(Hosting {
            master_term,
            routing_version,
            declaration,
            layout,
            blocks,
            pservers,
            may_leave,
            scalars,
            exclusions,
        })
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
        let known = self.pservers.iter().find(|known| known.incarnation == pserver);
        known.map(|known| known.address.as_str())
    }
}

impl Hosted {
    fn has_fill(&self, placement: &Placement) -> bool {
        self.lock().is_ok_and(|block| block.placement().fill == placement.fill)
    }
}

fn beyond(id: BlockId, layout: &Layout) -> Refusal {
    let detail = format!("the declaration has {} blocks", layout.len());
    Refusal::new(RefusalKind::OutOfRange, format!("block {id}"), detail)
}
