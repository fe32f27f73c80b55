//! The one door to the blocks: a transition is let happen here, on one block or on many and on all processors, and what it has
//! changed becomes what others hear. No other code chooses whom to wake.

use super::Shard;
use crate::block::Block;
use crate::hosting::{BATCH_MIN, Changed, Hosted};
use shoal_runtime::cluster::waits::WaitKind;
use shoal_runtime::cluster::{BlockId, Refusal};
use shoal_runtime::host::waits::{OpenWait, Waits};
use std::collections::BTreeSet;
use std::sync::{Arc, MutexGuard, PoisonError};

/// Blocks whose updates wait for memory that pieces of a checkpoint have.
#[derive(Debug, Default)]
pub(super) struct Starved {
    blocks: BTreeSet<BlockId>,
    /// `Some` while there are any.
    wait: Option<OpenWait>,
}

impl Shard {
    /// Returns the registry of this pserver's waits.
    pub fn waits(&self) -> &Waits {
        &self.waits
    }

    /// Runs work over `bytes` bytes on a processor of its own, or in place if they are few.
    pub async fn over<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        self.processors.over(bytes, work).await
    }

    /// Lets one transition of one block happen, and tells whoever waits for what it has changed.
    pub(super) fn with<T>(&self, hosted: &Hosted, act: impl FnOnce(&mut Block) -> T) -> Result<T, Refusal> {
        let mut changed = Changed::default();
        let result = hosted.with(&mut changed, act);
        self.settle(changed);
        result
    }

    /// Lets transitions of blocks happen on all processors, and tells whoever waits for what they have changed; results are in
    /// the order of the items.
    pub(super) async fn each<I: Send + 'static, T: Send + 'static>(
        self: &Arc<Self>,
        items: Vec<I>,
        act: impl Fn(&Shard, &mut Changed, I) -> Result<T, Refusal> + Send + Sync + 'static,
    ) -> Result<Vec<T>, Refusal> {
        let shard = Arc::clone(self);
        let batch_max = self.hosting().map_or(BATCH_MIN, |hosting| hosting.batch_max);
        let done = self.processors.each(items, batch_max, move |batch| {
            let mut changed = Changed::default();
            let done = shard.check_arithmetic().and_then(|()| {
                batch.into_iter().map(|item| act(&shard, &mut changed, item)).collect::<Result<Vec<T>, _>>()
            });
            shard.settle(changed);
            done
        });
        Ok(done.await.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    }

    /// The one place where what has changed becomes what others hear.
    pub(super) fn settle(&self, changed: Changed) {
        if let Some(violated) = changed.violated {
            tracing::error!(job = %self.job.job, violated, "an invariant does not hold: this process ends");
            self.violated.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(violated);
            self.broken.send();
        }
        if changed.blocks.is_empty() {
            return;
        }
        self.tally(&changed.blocks);
        for (block, effects) in &changed.blocks {
            effects.passed.into_iter().for_each(|checkpoint| self.note_passed(*block, checkpoint));
        }
        self.changes.note(changed.blocks.iter());
        if changed.blocks.iter().any(|(_, effects)| effects.urgent) {
            self.urgent.send();
        }
        let moved = changed.blocks.iter().filter(|(_, effects)| effects.has_moved());
        if self.is_anyone_asking() {
            self.grant_credit(Some(&moved.map(|(id, _)| *id).collect()));
        }
        let starved = changed.blocks.iter().filter(|(_, effects)| effects.starved);
        starved.for_each(|(id, _)| self.note_starved(*id));
    }

    /// A block waits for memory. It looks once more, for some may have become free before it was noted.
    fn note_starved(&self, id: BlockId) {
        let is_new = {
            let mut starved = self.starved();
            let begin = || self.waits.begin(WaitKind::CheckpointMemory, "memory for pieces of a checkpoint");
            starved.wait.get_or_insert_with(begin);
            starved.blocks.insert(id)
        };
        let hosting = self.hosting().filter(|_| is_new);
        if let Some(hosted) = hosting.as_ref().and_then(|hosting| hosting.block(id)) {
            // After a panic nothing goes on: whoever sends the block something is told.
            let _ = self.with(hosted, Block::go_on);
        }
    }

    /// Lets blocks go on that waited for memory, whenever there is some again, for ever. Returns only what no repetition can mend.
    pub async fn feed(self: &Arc<Self>) -> Refusal {
        let mut freed = self.freed.listen();
        loop {
            freed.changed().await;
            if let Err(refusal) = self.go_on().await {
                return refusal;
            }
        }
    }

    /// Blocks that waited for memory go on, if there is any.
    pub async fn go_on(self: &Arc<Self>) -> Result<(), Refusal> {
        let starved = std::mem::take(&mut self.starved().blocks);
        let hosting = self.hosting();
        let hosted = starved.iter().filter_map(|id| hosting.as_ref()?.block(*id).cloned());
        self.each(hosted.collect(), |_, changed, hosted| hosted.with(changed, Block::go_on)).await?;
        self.grant_credit(Some(&starved));
        let mut starved = self.starved();
        if starved.blocks.is_empty() {
            starved.wait = None;
        }
        Ok(())
    }

    fn starved(&self) -> MutexGuard<'_, Starved> {
        self.starved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
