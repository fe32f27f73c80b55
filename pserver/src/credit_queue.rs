//! Who is granted credit next, to send a block the gradient of a node: the lowest first, and no more at a time than a block takes.
//! Pure: time and what blocks say come in as arguments.
//!
//! A gradient may be the size of the model, a question never is: so trainers ask before they send more than a message, and
//! what a pserver holds and what is on its way to it stay within a block's window together. Invariants:
//! - what is granted is taken, in whatever order it comes: nodes on their way and nodes held are no more than the window, but for
//!   the one that covers the lowest missing slot. That is always granted, or the step could never go on;
//! - of those that wait the lowest is granted first, for the window moves with what is lowest;
//! - who was told and does not come is forgotten after a while.

use crate::block::PushOutcome;
use crate::block::reduce::Credit;
use shoal_runtime::cluster::{BlockId, Node, Refusal, Rewind, Step};
use shoal_runtime::wire::{malformed, proto};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// How long after its last message a node counts as on its way.
const ON_ITS_WAY: Duration = Duration::from_secs(4);

/// A question: whether a block would take a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The step.
    pub step: Step,
    /// Of its tree.
    pub node: Node,
    /// The block that would be sent last: the others are ahead of it.
    pub block: BlockId,
    /// The rewind number under which the gradient was computed.
    pub rewind: Rewind,
    /// The number of the exclusions that it was computed with.
    pub exclusions: u64,
}

impl Asked {
    /// What a message asks.
    ///
    /// # Errors
    /// It names no node, or not one block.
    pub fn of(request: &proto::PushRequest) -> Result<Asked, Refusal> {
        let (Some(node), [block]) = (request.node, &request.blocks[..]) else {
            return Err(malformed("push.asks", "a question for credit names a node and one block"));
        };
        Ok(Asked {
            step: Step(request.step),
            node: Node::try_from(node)?,
            block: BlockId(block.block),
            rewind: Rewind(block.rewind),
            exclusions: request.exclusions,
        })
    }
}

/// Whether a question is granted credit, for as long as it takes to send what was asked for; or what a push would be answered
/// instead: no credit is needed, or none will be given.
pub type CreditAnswer = Result<(), PushOutcome>;

/// Names one who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(Step, u32, u64);

/// Who waits, each with what to tell it by, and who was told.
#[derive(Debug)]
pub struct CreditQueue<T> {
    window: usize,
    waiting: BTreeMap<Ticket, Waiting<T>>,
    /// Since when.
    told: Vec<(Asked, Instant)>,
    next: u64,
}

#[derive(Debug)]
struct Waiting<T> {
    asked: Asked,
    by: T,
    /// What its block had for it when it was looked at last; none before that.
    seen: Option<Result<Credit, PushOutcome>>,
}

impl<T> CreditQueue<T> {
    /// Nobody waits. Blocks hold at most `window` nodes beyond the lowest missing slot.
    pub fn new(window: usize) -> CreditQueue<T> {
        CreditQueue { window, waiting: BTreeMap::new(), told: Vec::new(), next: 0 }
    }

    /// Whether nobody waits and nothing is on its way.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.told.is_empty()
    }

    /// Somebody asks, and waits for [`next`](Self::next).
    pub fn wait(&mut self, asked: Asked, by: T) -> Ticket {
        let ticket = Ticket(asked.step, asked.node.first(), self.next);
        self.next += 1;
        self.waiting.insert(ticket, Waiting { asked, by, seen: None });
        ticket
    }

    /// Somebody waits no more. Returns what it had asked, if it was not told yet.
    pub fn leave(&mut self, ticket: Ticket) -> Option<Asked> {
        self.waiting.remove(&ticket).map(|waiting| waiting.asked)
    }

    /// Some blocks were sent a node.
    pub fn came(&mut self, step: Step, node: Node, blocks: &[BlockId], now: Instant) {
        let is_it = |asked: &Asked| (asked.step, asked.node) == (step, node);
        self.told.retain(|(asked, _)| !is_it(asked) || !blocks.contains(&asked.block));
        self.told.iter_mut().filter(|(asked, _)| is_it(asked)).for_each(|(_, since)| *since = now);
    }

    /// The next to be told something, and what. `look` says what credit a block gives, or what a push would be answered; it is asked
    /// of blocks that `may_differ` since they were looked at last.
    pub fn next(
        &mut self,
        now: Instant,
        may_differ: impl Fn(BlockId) -> bool,
        mut look: impl FnMut(&Asked) -> Result<Credit, PushOutcome>,
    ) -> Option<(T, CreditAnswer)> {
        for waiting in self.waiting.values_mut().filter(|waiting| may_differ(waiting.asked.block)) {
            waiting.seen = None;
        }
        let mut found = None;
        let mut waiting = std::mem::take(&mut self.waiting);
        for (ticket, Waiting { asked, seen, .. }) in &mut waiting {
            let credit = *seen.get_or_insert_with(|| look(asked));
            let answer = self.answer(asked, credit, now);
            if let Some(answer) = answer {
                found = Some((*ticket, answer));
                break;
            }
            // One that waits for its version, a new primary or a checkpoint's memory holds up nobody.
            if credit.is_ok() {
                break;
            }
        }
        self.waiting = waiting;
        let (ticket, answer) = found?;
        let Waiting { asked, by, .. } = self.waiting.remove(&ticket)?;
        self.tell(asked, answer, now);
        Some((by, answer))
    }

    /// Answers one out of turn: it can wait no longer.
    pub fn last(&mut self, asked: Asked, credit: Result<Credit, PushOutcome>, now: Instant) -> CreditAnswer {
        let answer = self.answer(&asked, credit, now).unwrap_or(Err(PushOutcome::Busy));
        self.tell(asked, answer, now);
        answer
    }

    fn answer(
        &self,
        asked: &Asked,
        credit: Result<Credit, PushOutcome>,
        now: Instant,
    ) -> Option<CreditAnswer> {
        match credit {
            Ok(Credit::Lowest) => Some(Ok(())),
            Ok(Credit::Beyond(held)) => {
                let comes = self.told.iter().filter(|(told, since)| {
                    told.step == asked.step && told.node != asked.node && now < *since + ON_ITS_WAY
                });
                (held + comes.count() <= self.window).then_some(Ok(()))
            }
            Ok(Credit::Covered) => Some(Err(PushOutcome::Covered)),
            Err(PushOutcome::Busy | PushOutcome::Throttled) => None,
            Err(outcome) => Some(Err(outcome)),
        }
    }

    fn tell(&mut self, asked: Asked, answer: CreditAnswer, now: Instant) {
        self.told.retain(|(told, since)| now < *since + ON_ITS_WAY && *told != asked);
        if answer == Ok(()) {
            self.told.push((asked, now));
        }
    }
}

#[cfg(test)]
mod tests;
