//! Messages of the protocol as the shard's types and back. A message that cannot be understood is refused by name.

use crate::block::entry::Entry;
use crate::block::primary::PlacedCopy;
use crate::block::verdicts::{EvaluatedBlock, Verdicts};
use crate::block::{Cursor, NamedCheckpoint, News, Placement, PushOutcome};
use crate::hosting::Assignment;
use crate::room_queue::{Asked, RoomAnswer};
use crate::shard::{
    Admission, CopyProgress, Followed, Following, Gradient, Progress, Pull, PulledBlock, Push, Pushed, Stand,
};
use shoal_runtime::cluster::{
    BlockCopy, BlockId, CheckpointId, Declaration, Fill, Incarnation, Node, Refusal, Rewind, Step, Term,
    Version,
};
use shoal_runtime::wire::{malformed, proto};
use std::collections::BTreeMap;

pub(crate) fn push(request: &proto::PushRequest) -> Result<Push, Refusal> {
    let what = match request.node {
        Some(node) => Pushed::Node(Step(request.step), Node::try_from(node)?),
        None => Pushed::Position(request.position),
    };
    let gradients = request.blocks.iter().map(|block| Gradient {
        block: BlockId(block.block),
        rewind: Rewind(block.rewind),
        version: Version(block.version),
        bytes: block.gradient.clone(),
        area: (block.area > 0).then_some((block.area, block.at)),
    });
    let gradients = gradients.collect();
    Ok(Push { what, exclusions: request.exclusions, weight: request.weight, gradients })
}

pub(crate) fn asked(request: &proto::PushRequest) -> Result<Asked, Refusal> {
    let (Some(node), [block]) = (request.node, &request.blocks[..]) else {
        return Err(malformed("push.asks", "a question for room names a node and one block"));
    };
    Ok(Asked {
        step: Step(request.step),
        node: Node::try_from(node)?,
        block: BlockId(block.block),
        rewind: Rewind(block.rewind),
        exclusions: request.exclusions,
    })
}

pub(crate) fn room(told: RoomAnswer, what: Pushed) -> proto::PushAnswer {
    match told {
        RoomAnswer::Room => proto::PushAnswer::Room,
        RoomAnswer::Instead(outcome) => answer(outcome, what),
    }
}

pub(crate) fn answer(outcome: PushOutcome, what: Pushed) -> proto::PushAnswer {
    match outcome {
        PushOutcome::Applied { is_published: true, .. } => proto::PushAnswer::Applied,
        PushOutcome::Held { .. }
        | PushOutcome::Whole { .. }
        | PushOutcome::Covered
        | PushOutcome::Applied { .. } => proto::PushAnswer::Held,
        PushOutcome::Late if matches!(what, Pushed::Position(_)) => proto::PushAnswer::AlreadyApplied,
        PushOutcome::Late => proto::PushAnswer::Applied,
        PushOutcome::Busy | PushOutcome::Throttled => proto::PushAnswer::Busy,
        PushOutcome::NoArea => proto::PushAnswer::NoArea,
        PushOutcome::Moved => proto::PushAnswer::Moved,
        PushOutcome::Rewound => proto::PushAnswer::Rewound,
    }
}

/// The answer to a push of a position that has become published: of several, only the one that was applied hears so.
pub(crate) fn published(outcome: &PushOutcome) -> proto::PushAnswer {
    match outcome {
        PushOutcome::Applied { .. } => proto::PushAnswer::Applied,
        _ => proto::PushAnswer::AlreadyApplied,
    }
}

pub(crate) fn pull(request: proto::PullRequest, is_sync: bool) -> Pull {
    Pull {
        step: is_sync.then_some((Step(request.step), Rewind(request.rewind))),
        blocks: request.blocks.into_iter().map(BlockId).collect(),
        area: (request.area > 0).then_some((request.area, request.places)),
        without_data: request.without_data.into_iter().map(BlockId).collect(),
        rows: request.rows.into_iter().map(|rows| (BlockId(rows.block), rows.keys)).collect(),
    }
}

pub(crate) fn pulled(block: PulledBlock) -> proto::PulledBlock {
    let PulledBlock { block, parameters, is_in_area, version, rewind } = block;
    proto::PulledBlock { block: block.0, parameters, version: version.0, rewind: rewind.0, is_in_area }
}

pub(crate) fn progress(progress: Progress) -> proto::BlockProgress {
    proto::BlockProgress {
        blocks: numbers(progress.blocks),
        version: progress.version.0,
        held: progress.held.into_iter().map(held_step).collect(),
        term: progress.term.0,
        ledger: Some((&progress.ledger).into()),
    }
}

fn held_step((step, nodes): (Step, Vec<Node>)) -> proto::HeldStep {
    proto::HeldStep { step: step.0, nodes: nodes.into_iter().map(Into::into).collect() }
}

pub(crate) fn copy_progress(copies: CopyProgress) -> proto::CopyProgress {
    proto::CopyProgress {
        blocks: numbers(copies.blocks),
        fill: copies.fill.0,
        name: copies.name.map(Into::into),
        is_broken: copies.is_broken,
    }
}

pub(crate) fn admission(admission: Admission) -> proto::Admission {
    let Admission { block, pserver, fill, term, is_heir } = admission;
    proto::Admission { block: block.0, pserver: pserver.0, fill: fill.0, term: term.0, is_heir }
}

pub(crate) fn evaluated((block, evaluated): (BlockId, EvaluatedBlock)) -> proto::EvaluatedBlock {
    let EvaluatedBlock { term, number, sums } = evaluated;
    proto::EvaluatedBlock { block: block.0, term: term.0, number, sums }
}

pub(crate) fn assignment(wire: proto::Assignment, is_sync: bool) -> Result<Assignment, Refusal> {
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
        exclusions: wire.exclusions,
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

pub(crate) fn following(wire: proto::FollowedBlocks) -> Following {
    let filled = Some(wire.filled).filter(|slot| *slot > 0);
    let stand = Stand {
        fill: Fill(wire.fill),
        term: Term(wire.term),
        cursor: wire.name.map(|name| Cursor { name: name.into(), filled }),
    };
    Following { blocks: wire.blocks.into_iter().map(BlockId).collect(), stand }
}

pub(crate) fn followed_blocks(following: Following) -> proto::FollowedBlocks {
    let Following { blocks, stand: Stand { fill, term, cursor } } = following;
    proto::FollowedBlocks {
        blocks: numbers(blocks),
        term: term.0,
        fill: fill.0,
        name: cursor.map(|cursor| cursor.name.into()),
        filled: cursor.and_then(|cursor| cursor.filled).unwrap_or(0),
    }
}

pub(crate) fn followed(followed: Followed) -> proto::FollowedBlock {
    use proto::followed_block::News as Wire;
    let Followed { block, term, fill, published, news } = followed;
    let news = match news {
        News::Nothing | News::Later | News::NotHere => None,
        News::Broken => Some(Wire::IsBroken(true)),
        News::Copy(copy) => Some(Wire::Copy((*copy).into())),
        News::Entry(entry) => Some(Wire::Entry(proto::LogEntry {
            follows: Some(entry.follows.into()),
            term: entry.term.0,
            weight: entry.weight,
            gradient: entry.gradient,
            position: entry.position,
            staleness: entry.staleness,
            factor: entry.factor,
            rate: entry.rate,
        })),
    };
    proto::FollowedBlock { block: block.0, term: term.0, fill: fill.0, published: published.0, news }
}

pub(crate) fn news(wire: proto::FollowedBlock) -> Result<Followed, Refusal> {
    use proto::followed_block::News as Wire;
    let news = match wire.news {
        None => News::Nothing,
        Some(Wire::IsBroken(_)) => News::Broken,
        Some(Wire::Copy(copy)) => News::Copy(Box::new(BlockCopy::try_from(copy)?)),
        Some(Wire::Entry(entry)) => News::Entry(Entry {
            follows: entry.follows.ok_or_else(|| malformed("entry.follows", "the field is missing"))?.into(),
            term: Term(entry.term),
            weight: entry.weight,
            gradient: entry.gradient,
            position: entry.position,
            staleness: entry.staleness,
            factor: entry.factor,
            rate: entry.rate,
        }),
    };
    let (block, term, fill) = (BlockId(wire.block), Term(wire.term), Fill(wire.fill));
    Ok(Followed { block, term, fill, published: Version(wire.published), news })
}

fn numbers(blocks: Vec<BlockId>) -> Vec<u32> {
    blocks.into_iter().map(|block| block.0).collect()
}

#[cfg(test)]
mod tests;
