//! The routing table: which pserver holds the primary of each block.

use super::{BlockId, Incarnation};

/// One pserver in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PserverAddress {
    /// Who it is.
    pub incarnation: Incarnation,
    /// Where it listens, `host:port`.
    pub address: String,
}

/// Block -> primary, at one routing version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routing {
    /// The persisted counter that fences everything.
    pub version: u64,
    /// The pservers, in the order of their registration.
    pub pservers: Vec<PserverAddress>,
    /// For each block the index of its primary in `pservers`.
    pub primary: Vec<u32>,
}

impl Routing {
    /// The blocks of one pserver (an index into `pservers`), in order.
    pub fn blocks_of(&self, pserver: usize) -> Vec<BlockId> {
        let at = pserver as u32;
        self.primary
            .iter()
            .enumerate()
            .filter(|(_, p)| **p == at)
            .map(|(block, _)| BlockId(block as u32))
            .collect()
    }
}
