//! Granting trainers credit for a node, before they send its gradient.

use super::{Pushed, Shard};
use crate::block::PushOutcome;
use crate::block::reduce::Credit;
use crate::credit_queue::{Asked, CreditAnswer, CreditQueue, Ticket};
use crate::hosting::{Changed, Hosting};
use shoal_runtime::cluster::{BlockId, Refusal};
use std::collections::BTreeSet;
use std::sync::{MutexGuard, PoisonError};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// A question that waits for its answer; dropped, it waits no more.
#[derive(Debug)]
pub struct Asking<'a> {
    shard: &'a Shard,
    ticket: Ticket,
    answer: oneshot::Receiver<CreditAnswer>,
}

impl Shard {
    /// Asks for credit for a node.
    pub fn ask(&self, asked: Asked) -> Result<Asking<'_>, Refusal> {
        self.check_what(Pushed::Node(asked.step, asked.node))?;
        if let Some(hosting) = self.hosting() {
            hosting.check(asked.block)?;
        }
        let mut changed = Changed::default();
        if look(self.hosting().as_deref(), &asked, &mut changed) == Err(PushOutcome::Throttled) {
            self.count(|counters| counters.throttled += 1);
        }
        self.settle(changed);
        let (sender, answer) = oneshot::channel();
        let ticket = self.credits().wait(asked, sender);
        self.grant_credit(Some(&BTreeSet::new()));
        Ok(Asking { shard: self, ticket, answer })
    }

    /// Some blocks were sent something: there may be credit for others.
    pub(super) fn note_sent(&self, what: Pushed, blocks: impl Iterator<Item = BlockId>) {
        let Pushed::Node(step, node) = what else { return };
        {
            let mut queue = self.credits();
            if queue.is_idle() {
                return;
            }
            queue.came(step, node, &blocks.collect::<Vec<_>>(), Instant::now());
        }
        self.grant_credit(Some(&BTreeSet::new()));
    }

    /// Whether somebody asks, or was told and has not come.
    pub(super) fn is_anyone_asking(&self) -> bool {
        !self.credits().is_idle()
    }

    /// Answers whoever can be answered: these blocks may have changed since they were looked at, or any.
    pub(super) fn grant_credit(&self, changed: Option<&BTreeSet<BlockId>>) {
        let mut queue = self.credits();
        if queue.is_idle() {
            return;
        }
        let (hosting, mut seen) = (self.hosting(), Changed::default());
        let mut may_differ = changed;
        while let Some((sender, answer)) = queue.next(
            Instant::now(),
            |block| may_differ.is_none_or(|changed| changed.contains(&block)),
            |asked| look(hosting.as_deref(), asked, &mut seen),
        ) {
            let _ = sender.send(answer);
            // Whoever is left was looked at just now.
            may_differ = Some(const { &BTreeSet::new() });
        }
        drop(queue);
        self.settle(seen);
    }

    /// Whether nobody waits for credit.
    #[cfg(test)]
    pub(crate) fn is_credit_queue_empty(&self) -> bool {
        self.credits().is_idle()
    }

    fn credits(&self) -> MutexGuard<'_, CreditQueue<oneshot::Sender<CreditAnswer>>> {
        self.credits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Asking<'_> {
    /// The answer, as soon as there is one; by `deadline` at the latest.
    pub async fn answer(mut self, deadline: Instant) -> CreditAnswer {
        if let Ok(Ok(answer)) = tokio::time::timeout_at(deadline, &mut self.answer).await {
            return answer;
        }
        let mut changed = Changed::default();
        let answer = self.last(&mut changed);
        self.shard.settle(changed);
        answer
    }

    fn last(&mut self, changed: &mut Changed) -> CreditAnswer {
        let mut queue = self.shard.credits();
        match queue.leave(self.ticket) {
            Some(asked) => {
                let credit = look(self.shard.hosting().as_deref(), &asked, changed);
                queue.last(asked, credit, Instant::now())
            }
            // Told at the last moment.
            None => self.answer.try_recv().unwrap_or(Err(PushOutcome::Busy)),
        }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.shard.credits().leave(self.ticket);
    }
}

/// What credit a block here gives, or what a push would be answered. It may be noted that the block waits for memory.
fn look(hosting: Option<&Hosting>, asked: &Asked, changed: &mut Changed) -> Result<Credit, PushOutcome> {
    let hosting = hosting.ok_or(PushOutcome::Moved)?;
    if asked.exclusions < hosting.assignment.exclusions {
        return Err(PushOutcome::Rewound);
    }
    let hosted = hosting.block(asked.block).ok_or(PushOutcome::Moved)?;
    // A block that panicked says so to whoever sends it something.
    hosted
        .with(changed, |block| block.credit(asked.rewind, asked.step, asked.node))
        .map_err(|_| PushOutcome::Busy)?
}
