//! The blocks that a pull or a push still has to ask, in messages by present primary; what is abandoned when the
//! routing changes. Pure: it never calls anybody.

use shoal_runtime::cluster::routing::PserverAddress;
use shoal_runtime::cluster::{BlockId, Routing, Term};
use shoal_runtime::host::backoff::Backoff;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Bytes of gradients or parameters in one message: the size at which a call is cheapest.
pub(crate) const MESSAGE_BYTES: usize = 1 << 20;

/// One message's worth of blocks of one pserver, until all of them have answered or have moved.
#[derive(Debug)]
pub(crate) struct BlockBatch {
    pub(crate) pserver: PserverAddress,
    /// Each with the term under which it is asked.
    pub(crate) blocks: Vec<(BlockId, Term)>,
    /// Whether the batch's call only asks for room: in the name of its last block, for all batches that wait with it.
    pub(crate) asks: bool,
    /// Whether the pserver has answered that it has no room.
    pub(crate) is_refused: bool,
    /// Since when the pserver and this trainer do not trust one another, as time since the errand began; `None`: they do.
    pub(crate) untrusted_since: Option<Duration>,
    /// Pauses after answers that left something to ask, and after silence.
    pub(crate) answered: Backoff,
    pub(crate) silent: Backoff,
}

/// The batches of one pull or push that lack answers. A number names a batch for its whole life.
#[derive(Debug)]
pub(crate) struct Pending {
    batches: BTreeMap<u64, BlockBatch>,
    next: u64,
    silence_max: Duration,
}

/// The batches that a new routing ends and begins.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct BatchChanges {
    /// Batches that are no more: nobody waits for the answers to their calls.
    pub(crate) abandoned: Vec<u64>,
    /// Batches to call at once.
    pub(crate) begun: Vec<u64>,
}

impl Pending {
    /// Nothing to ask. Pauses after silence never exceed `silence_max`.
    pub(crate) fn new(silence_max: Duration) -> Pending {
        Pending { batches: BTreeMap::new(), next: 0, silence_max }
    }

    /// Follows the routing. A batch with a block whose primary or term has changed, or that is wanted no more, is
    /// abandoned, so that a pserver that stands still holds up nobody whose block lives elsewhere. Wanted blocks that
    /// are in no batch make new ones. `bytes` is what a block adds to a message.
    pub(crate) fn follow(
        &mut self,
        routing: &Routing,
        wanted: &BTreeSet<BlockId>,
        bytes: impl Fn(BlockId) -> usize,
    ) -> BatchChanges {
        let stands = |batch: &BlockBatch, block: BlockId, term: Term| {
            wanted.contains(&block)
                && place(routing, block).is_some_and(|(at, now)| *at == batch.pserver && now == term)
        };
        let is_abandoned =
            |batch: &BlockBatch| !batch.blocks.iter().all(|(block, term)| stands(batch, *block, *term));
        let abandoned: Vec<u64> =
            self.batches.iter().filter(|(_, batch)| is_abandoned(batch)).map(|(id, _)| *id).collect();
        self.batches.retain(|id, _| abandoned.binary_search(id).is_err());
        let asked: BTreeSet<BlockId> =
            self.batches.values().flat_map(|batch| batch.blocks.iter().map(|(block, _)| *block)).collect();
        let begun = self.begin(routing, wanted.difference(&asked).copied(), bytes);
        BatchChanges { abandoned, begun }
    }

    fn begin(
        &mut self,
        routing: &Routing,
        blocks: impl Iterator<Item = BlockId>,
        bytes: impl Fn(BlockId) -> usize,
    ) -> Vec<u64> {
        let first = self.next;
        // By pserver, the batch that is being filled and its room.
        let mut filling: BTreeMap<u64, (u64, usize)> = BTreeMap::new();
        for block in blocks {
            let Some((pserver, term)) = place(routing, block) else { continue };
            let bytes = bytes(block);
            let room = filling.get(&pserver.incarnation.0).filter(|(_, room)| bytes <= *room).copied();
            let (id, room) = room.unwrap_or((self.next, MESSAGE_BYTES));
            self.next = self.next.max(id + 1);
            let silence_max = self.silence_max;
            let batch = self.batches.entry(id).or_insert_with(|| BlockBatch {
                pserver: pserver.clone(),
                blocks: Vec::new(),
                asks: false,
                is_refused: false,
                untrusted_since: None,
                answered: Backoff::new(Duration::from_millis(2), Duration::from_millis(200)),
                silent: Backoff::new(Duration::from_millis(20), silence_max),
            });
            batch.blocks.push((block, term));
            filling.insert(pserver.incarnation.0, (id, room.saturating_sub(bytes)));
        }
        (first..self.next).collect()
    }

    /// A batch; `None` once it is abandoned or done.
    pub(crate) fn batch(&mut self, id: u64) -> Option<&mut BlockBatch> {
        self.batches.get_mut(&id)
    }

    /// All blocks of the batch have answered.
    pub(crate) fn done(&mut self, id: u64) {
        self.batches.remove(&id);
    }

    /// Whether nothing is left to ask.
    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }
}

/// The primary of a block, and its term; `None`: the routing has none.
fn place(routing: &Routing, block: BlockId) -> Option<(&PserverAddress, Term)> {
    let route = routing.blocks.get(block.0 as usize)?;
    Some((routing.pservers.get(route.primary as usize)?, route.term))
}

#[cfg(test)]
pub(crate) mod tests;
