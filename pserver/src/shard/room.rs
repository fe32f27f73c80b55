//! Telling trainers whether there is room for a node, before they send it.

use super::{Pushed, Shard};
use crate::block::PushOutcome;
use crate::block::held::Room;
use crate::hosting::Hosting;
use crate::room_queue::{Asked, RoomAnswer, RoomQueue, Ticket};
use shoal_runtime::cluster::{BlockId, Refusal};
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
        if look(self.hosting().as_deref(), &asked) == Err(PushOutcome::Throttled) {
            self.count(|counters| counters.throttled += 1);
        }
        let (sender, answer) = oneshot::channel();
        let ticket = self.room().wait(asked, sender);
        self.tell_of_room();
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
        self.tell_of_room();
    }

    /// Answers whoever can be answered.
    pub(super) fn tell_of_room(&self) {
        let mut queue = self.room();
        if queue.is_idle() {
            return;
        }
        let hosting = self.hosting();
        while let Some((sender, answer)) = queue.next(Instant::now(), |asked| look(hosting.as_deref(), asked))
        {
            let _ = sender.send(answer);
        }
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
        let mut queue = self.shard.room();
        match queue.leave(self.ticket) {
            Some(asked) => {
                let room = look(self.shard.hosting().as_deref(), &asked);
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

/// What room a block here has, or what a push would be answered.
fn look(hosting: Option<&Hosting>, asked: &Asked) -> Result<Room, PushOutcome> {
    let hosting = hosting.ok_or(PushOutcome::Moved)?;
    if asked.exclusions < hosting.exclusions {
        return Err(PushOutcome::Rewound);
    }
    let hosted = hosting.block(asked.block).ok_or(PushOutcome::Moved)?;
    // A block that panicked says so to whoever sends it something.
    let mut block = hosted.lock().map_err(|_| PushOutcome::Busy)?;
    block.room(asked.rewind, asked.step, asked.node)
}
