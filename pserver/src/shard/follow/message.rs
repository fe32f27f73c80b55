//! What copies say to one another, as messages.

use super::Stand;
use crate::block::reduce::Sum;
use crate::block::shape::BlockShape;
use crate::block::state::Update;
use crate::block::{Cursor, News};
use crate::shard::Shard;
use shoal_runtime::cluster::{BlockCopy, BlockId, Fill, Refusal, Term, Version};
use shoal_runtime::wire::malformed;
use shoal_runtime::wire::proto::{self, followed_block::News as Wire};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of copies and entries after which a follower is answered with what there is: enough for all processors of the follower to
/// work on.
const ANSWER_BYTES: usize = 8 << 20;
/// The most bytes that an answer has, where it has more than one copy or entry: a message may have 20 MiB.
const ANSWER_BYTES_MAX: usize = 18 << 20;
/// What a block costs in a message beside its buffers, at most.
const ENVELOPE_BYTES: usize = 128;

impl Stand {
    pub(super) fn of(wire: &proto::FollowedBlocks) -> Stand {
        let filled = Some(wire.filled).filter(|slot| *slot > 0);
        let cursor = wire.name.map(|name| Cursor { name: name.into(), filled });
        Stand { fill: Fill(wire.fill), term: Term(wire.term), cursor }
    }

    fn of_blocks(self, blocks: Vec<u32>) -> proto::FollowedBlocks {
        let Stand { fill, term, cursor } = self;
        proto::FollowedBlocks {
            blocks,
            term: term.0,
            fill: fill.0,
            name: cursor.map(|cursor| cursor.name.into()),
            filled: cursor.and_then(|cursor| cursor.filled).unwrap_or(0),
        }
    }
}

/// What is said, by how copies stand.
pub(crate) fn grouped(said: &BTreeMap<BlockId, Stand>) -> Vec<proto::FollowedBlocks> {
    let mut groups: BTreeMap<Stand, Vec<u32>> = BTreeMap::new();
    for (block, stand) in said {
        groups.entry(*stand).or_default().push(block.0);
    }
    groups.into_iter().map(|(stand, blocks)| stand.of_blocks(blocks)).collect()
}

impl News {
    pub(in crate::shard) fn decode(shape: &BlockShape, wire: Option<Wire>) -> Result<News, Refusal> {
        let entry = match wire {
            None => return Ok(News::Nothing),
            Some(Wire::IsBroken(_)) => return Ok(News::Broken),
            Some(Wire::Copy(copy)) => return Ok(News::Copy(Box::new(BlockCopy::try_from(copy)?))),
            Some(Wire::Entry(entry)) => entry,
        };
        let follows = entry.follows.ok_or_else(|| malformed("entry.follows", "the field is missing"))?.into();
        let (term, weight, position) = (Term(entry.term), entry.weight, entry.position);
        let proto::LogEntry { staleness, factor, rate, .. } = entry;
        let (sum, plan) = Update::decode_gradient(shape, weight, entry.gradient)?;
        let update = Update { follows, term, weight, sum, plan, position, staleness, factor, rate };
        Ok(News::Entry(Arc::new(update)))
    }

    pub(in crate::shard) fn encode(self) -> Option<Wire> {
        match self {
            News::Nothing | News::Later | News::NotHere => None,
            News::Broken => Some(Wire::IsBroken(true)),
            News::Copy(copy) => Some(Wire::Copy((*copy).into())),
            News::Entry(update) => Some(Wire::Entry(proto::LogEntry {
                follows: Some(update.follows.into()),
                term: update.term.0,
                weight: update.weight,
                gradient: update.encode_gradient(),
                position: update.position,
                staleness: update.staleness,
                factor: update.factor,
                rate: update.rate,
            })),
        }
    }
}

/// What a follower is given.
#[derive(Debug, Default)]
pub struct FollowAnswer {
    given: Vec<GivenNews>,
    bytes: usize,
    /// Of rows, which are written for the message; all else is shared with it.
    row_bytes: usize,
}

/// What one of its copies is given.
#[derive(Debug)]
struct GivenNews {
    block: BlockId,
    fill: Fill,
    term: Term,
    published: Version,
    news: News,
}

impl FollowAnswer {
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.given.is_empty()
    }

    /// As a message. It goes over all of the answer's bytes, where they are rows.
    pub fn encode(self) -> Vec<proto::FollowedBlock> {
        let encode = |GivenNews { block, fill, term, published, news }| proto::FollowedBlock {
            block: block.0,
            term: term.0,
            fill: fill.0,
            published: published.0,
            news: news.encode(),
        };
        self.given.into_iter().map(encode).collect()
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes >= ANSWER_BYTES
    }

    /// Bytes that are left for what is next. The first is given whatever it has: it fits a message.
    pub(super) fn bytes_left(&self) -> usize {
        match self.bytes {
            0 => usize::MAX,
            _ if self.is_full() => 0,
            bytes => ANSWER_BYTES_MAX - bytes - ENVELOPE_BYTES,
        }
    }

    pub(super) fn push(&mut self, block: BlockId, stand: Stand, published: Version, news: News) {
        self.bytes += ENVELOPE_BYTES + news.bytes();
        if let News::Entry(update) = &news
            && matches!(update.sum, Sum::Rows(_))
        {
            self.row_bytes += update.bytes();
        }
        let Stand { fill, term, .. } = stand;
        self.given.push(GivenNews { block, fill, term, published, news });
    }
}

impl Shard {
    /// An answer as a message, made on a processor of its own where it takes long.
    pub async fn encoded(&self, answer: FollowAnswer) -> Vec<proto::FollowedBlock> {
        self.over(answer.row_bytes, || answer.encode()).await
    }
}
