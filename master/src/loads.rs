//! What lies where, counted once for each document: who asks how a job is must not wait for a walk over all blocks. Pure.

use crate::document::{Mark, PlacedBlock};
use shoal_runtime::cluster::Incarnation;
use std::collections::BTreeMap;

/// What lies on one pserver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Blocks whose primary it has.
    pub(crate) led: u32,
    /// Bytes of their parameters.
    pub(crate) bytes: u64,
    /// Blocks of which it has a copy, the primary's among them.
    pub(crate) held: u32,
}

/// What lies on all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Loads {
    pservers: BTreeMap<Incarnation, Load>,
    /// Copies beside their primaries that may be promoted.
    pub(crate) in_sync: u64,
    /// Copies that are being filled.
    pub(crate) filling: u64,
}

impl Loads {
    /// Counts blocks, of which `sizes` has the bytes.
    pub(crate) fn of_blocks(blocks: &[PlacedBlock], sizes: &[u64]) -> Loads {
        let mut loads = Loads::default();
        for (at, block) in blocks.iter().enumerate() {
            for copy in &block.copies {
                loads.pservers.entry(copy.pserver).or_default().held += 1;
                match copy.mark {
                    _ if copy.pserver == block.primary => {}
                    Mark::InSync => loads.in_sync += 1,
                    Mark::Filling => loads.filling += 1,
                }
            }
            let primary = loads.pservers.entry(block.primary).or_default();
            primary.led += 1;
            primary.bytes += sizes.get(at).copied().unwrap_or(0);
        }
        loads
    }

    /// What lies on one pserver.
    pub(crate) fn of(&self, pserver: Incarnation) -> Load {
        self.pservers.get(&pserver).copied().unwrap_or_default()
    }
}
