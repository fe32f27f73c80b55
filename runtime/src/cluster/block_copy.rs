//! A copy of one block, whole: what a follower starts from, what a checkpoint keeps, what is read for export.
//! There is no second way of writing a block down.

use super::{BlockId, Ledger, Rewind, StateName, Version};
use bytes::Bytes;

/// The state of one block after some update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockCopy {
    /// Which block.
    pub block: BlockId,
    /// The history it belongs to: the routing version of the block's last restore.
    pub rewind: Rewind,
    /// Which state of the block.
    pub name: StateName,
    /// The highest version known to be published when the copy was made.
    pub published: Version,
    /// The parameters, little-endian f32.
    pub parameters: Bytes,
    /// The parameters of earlier versions that somebody may still ask for, oldest first; the last is one version
    /// earlier.
    pub earlier: Vec<Bytes>,
    /// The rule's state, slot by slot, each as long as the parameters.
    pub slots: Vec<Bytes>,
    /// The positions applied; empty in synchronous jobs, where the version says it all.
    pub ledger: Ledger,
}
