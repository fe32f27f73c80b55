//! Telling trainers whether there is room for a node, before they send it.

use super::{Pushed, Shard};
use crate::block::PushOutcome;
use crate::block::held::Room;
use crate::hosting::{Changed, Hosting};
use crate::room_queue::{Asked, RoomAnswer, RoomQueue, Ticket};
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
    answer: oneshot::Receiver<RoomAnswer>,
}

impl Shard {
    /// Asks whether there is room for a node.
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
        let ticket = self.room().wait(asked, sender);
        self.tell_of_room(Some(&BTreeSet::new()));
        Ok(Asking { shard: self, ticket, answer })
    }

    /// Some blocks were sent something: there may be room for others.
    pub(super) fn note_room(&self, what: Pushed, blocks: impl Iterator<Item = BlockId>) {
        let Pushed::Node(step, node) = what else { return };
        {
            let mut queue = self.room();
            if queue.is_idle() {
                return;
            }
            queue.came(step, node, &blocks.collect::<Vec<_>>(), Instant::now());
        }
        self.tell_of_room(Some(&BTreeSet::new()));
    }

    /// Whether somebody asks, or was told and has not come.
    pub(super) fn is_anyone_asking(&self) -> bool {
        !self.room().is_idle()
    }

    /// Answers whoever can be answered: these blocks may have changed since they were looked at, or any.
    pub(super) fn tell_of_room(&self, changed: Option<&BTreeSet<BlockId>>) {
        let mut queue = self.room();
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

    /// Whether nobody waits for room.
    #[cfg(test)]
    pub(crate) fn is_room_queue_empty(&self) -> bool {
        self.room().is_idle()
    }

    fn room(&self) -> MutexGuard<'_, RoomQueue<oneshot::Sender<RoomAnswer>>> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Asking<'_> {
    /// The answer, as soon as there is one; by `deadline` at the latest.
    pub async fn answer(mut self, deadline: Instant) -> RoomAnswer {
        if let Ok(Ok(answer)) = tokio::time::timeout_at(deadline, &mut self.answer).await {
            return answer;
        }
        let mut changed = Changed::default();
        let answer = self.last(&mut changed);
        self.shard.settle(changed);
        answer
    }

    fn last(&mut self, changed: &mut Changed) -> RoomAnswer {
        let mut queue = self.shard.room();
        match queue.leave(self.ticket) {
            Some(asked) => {
                let room = look(self.shard.hosting().as_deref(), &asked, changed);
                queue.last(asked, room, Instant::now())
            }
            // Told at the last moment.
            None => self.answer.try_recv().unwrap_or(RoomAnswer::Instead(PushOutcome::Busy)),
        }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.shard.room().leave(self.ticket);
    }
}

/// What room a block here has, or what a push would be answered. It may be noted that the block waits for memory.
fn look(hosting: Option<&Hosting>, asked: &Asked, changed: &mut Changed) -> Result<Room, PushOutcome> {
    let hosting = hosting.ok_or(PushOutcome::Moved)?;
    if asked.exclusions < hosting.assignment.exclusions {
        return Err(PushOutcome::Rewound);
    }
    let hosted = hosting.block(asked.block).ok_or(PushOutcome::Moved)?;
    // A block that panicked says so to whoever sends it something.
    hosted
        .with(changed, |block| block.room(asked.rewind, asked.step, asked.node))
        .map_err(|_| PushOutcome::Busy)?
}
