//! What a pserver hosts: the blocks of one assignment, each behind its own lock, made one at a time.
//!
//! Making a block takes milliseconds and a model has many, so the caller decides how many to make before it
//! speaks to the master again. Blocks are made at version 0 and never made twice.

use crate::block::Block;
use crate::block::shape::BlockShape;
use shoal_runtime::cluster::{BlockId, Declaration, JobSettings, Layout, Refusal, RefusalKind};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the master tells a pserver to host.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    /// Of the routing it follows from.
    pub routing_version: u64,
    /// The parameters, checked.
    pub declaration: Declaration,
    /// The blocks.
    pub blocks: Vec<BlockId>,
}

/// A block and the facts about it that need no lock.
#[derive(Debug)]
pub struct Hosted {
    /// The lasting facts.
    pub shape: Arc<BlockShape>,
    block: Mutex<Block>,
}

/// All blocks of one assignment.
#[derive(Debug)]
pub struct Hosting {
    /// What was assigned.
    pub assignment: Assignment,
    /// The blocks by id.
    pub blocks: BTreeMap<BlockId, Arc<Hosted>>,
}

/// An assignment of which some blocks are still to be made.
#[derive(Debug)]
pub struct Construction {
    layout: Layout,
    made: usize,
    hosting: Hosting,
}

impl Hosted {
    /// The block. A panic while it was locked leaves it between two writes: it is then refused, not served.
    pub fn lock(&self) -> Result<MutexGuard<'_, Block>, Refusal> {
        self.block.lock().map_err(|PoisonError { .. }| {
            let detail =
                "an earlier update of the block panicked: see this pserver's log, then start the job anew";
            Refusal::new(RefusalKind::JobFailed, &self.shape, detail)
        })
    }
}

impl Hosting {
    /// The block, or the refusal that it is not here.
    pub fn block(&self, id: BlockId) -> Result<&Arc<Hosted>, Refusal> {
        self.blocks.get(&id).ok_or_else(|| {
            let version = self.assignment.routing_version;
            let detail = format!("not hosted here at routing version {version}: learn the present routing");
            Refusal::new(RefusalKind::UnknownBlock, format!("block {id}"), detail)
        })
    }
}

impl Construction {
    /// Nothing made yet. Refuses blocks that the declaration does not have.
    pub fn new(assignment: Assignment) -> Result<Construction, Refusal> {
        let layout = Layout::new(&assignment.declaration);
        if let Some(beyond) = assignment.blocks.iter().find(|id| layout.block(**id).is_none()) {
            let detail = format!("the declaration has {} blocks", layout.len());
            return Err(Refusal::new(RefusalKind::OutOfRange, format!("assigned block {beyond}"), detail));
        }
        Ok(Construction { layout, made: 0, hosting: Hosting { assignment, blocks: BTreeMap::new() } })
    }

    /// Of which routing.
    pub fn routing_version(&self) -> u64 {
        self.hosting.assignment.routing_version
    }

    /// Makes the next block; false when there was none left to make.
    pub fn make_next(&mut self, job: &JobSettings, window: usize) -> bool {
        let Hosting { assignment, blocks } = &mut self.hosting;
        let next = assignment.blocks.get(self.made).and_then(|id| Some((*id, self.layout.block(*id)?)));
        let Some((id, layout)) = next else { return false };
        self.made += 1;
        let shape = Arc::new(BlockShape::new(id, layout, &assignment.declaration));
        let block = Mutex::new(Block::new(Arc::clone(&shape), job, window));
        blocks.entry(id).or_insert_with(|| Arc::new(Hosted { shape, block }));
        true
    }

    /// The finished hosting.
    pub fn finish(mut self, job: &JobSettings, window: usize) -> Hosting {
        while self.make_next(job, window) {}
        self.hosting
    }
}
