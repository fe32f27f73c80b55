//! Hashes of blocks as messages.

use crate::cluster::{BlockHashes, BlockId, Rewind, Term, Version};
use crate::wire::proto;

impl From<BlockHashes> for proto::BlockHashes {
    fn from(of: BlockHashes) -> Self {
        let BlockHashes { block, version, rewind, term, hashes } = of;
        proto::BlockHashes { block: block.0, version: version.0, rewind: rewind.0, hashes, term: term.0 }
    }
}

impl From<proto::BlockHashes> for BlockHashes {
    fn from(wire: proto::BlockHashes) -> Self {
        let proto::BlockHashes { block, version, rewind, hashes, term } = wire;
        let (version, rewind, term) = (Version(version), Rewind(rewind), Term(term));
        BlockHashes { block: BlockId(block), version, rewind, term, hashes }
    }
}
