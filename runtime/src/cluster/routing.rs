//! The routing table: which pserver holds the primary of each block.

use super::{BlockId, Incarnation, Rewind, Term};

/// One pserver in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PserverAddress {
    /// Who it is.
    pub incarnation: Incarnation,
    /// Where it listens, `host:port`.
    pub address: String,
}

/// Where one block's primary is, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRoute {
    /// Index of the primary in the table's pservers.
    pub primary: u32,
    /// Changes with every restore and every change of primary: what was held, but not published, has to be sent again.
    pub term: Term,
    /// Changes with every restore: what was computed before it is worth nothing.
    pub rewind: Rewind,
}

/// Block -> primary, at one routing version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routing {
    /// The persisted counter that fences everything.
    pub version: u64,
    /// The pservers, in the order of their registration.
    pub pservers: Vec<PserverAddress>,
    /// One for each block.
    pub blocks: Vec<BlockRoute>,
}

impl Routing {
    /// The rewind number of the whole job, in synchronous jobs: all blocks go back together.
    pub fn rewind(&self) -> Rewind {
        self.blocks.iter().map(|route| route.rewind).max().unwrap_or(Rewind(0))
    }

    /// The blocks of one pserver (an index into `pservers`), in order.
    pub fn blocks_of(&self, pserver: usize) -> Vec<BlockId> {
        let at = pserver as u32;
        self.blocks
            .iter()
            .enumerate()
            .filter(|(_, route)| route.primary == at)
            .map(|(block, _)| BlockId(block as u32))
            .collect()
    }
}
