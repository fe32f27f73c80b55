//! Copies of blocks on the wire and on disk.

use super::{proto, required};
use crate::cluster::block_copy::{BlockCopy, Segment};
use crate::cluster::{BlockId, Refusal, Rewind, StateName, Term, Version};

impl From<StateName> for proto::StateName {
    fn from(name: StateName) -> Self {
        proto::StateName { term: name.term.0, version: name.version.0 }
    }
}

impl From<proto::StateName> for StateName {
    fn from(wire: proto::StateName) -> Self {
        StateName { term: Term(wire.term), version: Version(wire.version) }
    }
}

impl From<BlockCopy> for proto::BlockCopy {
    fn from(copy: BlockCopy) -> Self {
        proto::BlockCopy {
            block: copy.block.0,
            rewind: copy.rewind.0,
            name: Some(copy.name.into()),
            published: copy.published.0,
            parameters: copy.parameters,
            earlier: copy.earlier,
            slots: copy.slots,
            ledger: Some((&copy.ledger).into()),
            segment: copy.segment.map(|Segment { slots, candidates, freed }| proto::Segment {
                first: slots.start,
                end: slots.end,
                candidates,
                delta: freed.map(|freed| proto::Delta { freed }),
            }),
        }
    }
}

impl TryFrom<proto::BlockCopy> for BlockCopy {
    type Error = Refusal;

    fn try_from(wire: proto::BlockCopy) -> Result<Self, Refusal> {
        Ok(BlockCopy {
            block: BlockId(wire.block),
            rewind: Rewind(wire.rewind),
            name: required(wire.name, "block_copy.name")?.into(),
            published: Version(wire.published),
            parameters: wire.parameters,
            earlier: wire.earlier,
            slots: wire.slots,
            ledger: wire.ledger.unwrap_or_default().try_into()?,
            segment: wire.segment.map(|proto::Segment { first, end, candidates, delta }| Segment {
                slots: first..end,
                candidates,
                freed: delta.map(|delta| delta.freed),
            }),
        })
    }
}
