//! A pserver with a device: blocks whose updates are done are published, in whatever order they are done.

use super::Shard;
use crate::block::Block;
use crate::device::{Device, DeviceError, Given};
use shoal_runtime::cluster::{BlockId, Refusal, RefusalKind};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How often areas are looked at through which nothing may come any more.
const AREAS_LOOK: Duration = Duration::from_secs(60);

impl Shard {
    /// The same with a device that updates dense blocks, as far as it has memory.
    pub fn with_device(mut self, device: Option<Device>) -> Shard {
        if let Some(device) = device {
            // One registry: the device's threads have it already.
            self.waits = device.waits().clone();
            self.settings = Arc::new(self.settings.with_device(device));
        }
        self
    }

    /// The device, if there is one.
    pub fn device(&self) -> Option<&Device> {
        self.settings.device()
    }

    /// Does what may wait for the device on a thread of its own, if there is a device, one of `WAITERS_MAX` at most: who asks for
    /// something else is answered meanwhile, and what computes has its processors.
    ///
    /// # Panics
    /// When it has panicked, with its words.
    pub async fn beside<T: Send + 'static>(
        self: &Arc<Self>,
        act: impl FnOnce(&Shard) -> T + Send + 'static,
    ) -> T {
        if self.device().is_none() {
            return act(self);
        }
        let shard = Arc::clone(self);
        // Never closed. The thread has it, which goes on where whoever asked is gone.
        let permit = Arc::clone(&self.waiters).acquire_owned().await;
        let waits = move || {
            let _permit = permit;
            act(&shard)
        };
        self.processors.run_apart(waits).await
    }

    /// Publishes what the device has done, and gives areas of trainers that are no more back to it, for ever. Returns only what no
    /// repetition can mend.
    pub async fn land(self: &Arc<Self>) -> Refusal {
        let Some(device) = self.device() else { return std::future::pending().await };
        let mut changed = device.changed();
        loop {
            changed.mark_heard();
            if let Err(refusal) = self.note_done(&device.take_finished()).await {
                return refusal;
            }
            // Whether anything was done or not.
            let _ = timeout(AREAS_LOOK, changed.changed()).await;
            self.give_areas_back();
        }
    }

    /// The device's failure, once it fails: everything that lives there is gone.
    pub async fn device_failure(&self) -> DeviceError {
        let Some(device) = self.device() else { return std::future::pending().await };
        let mut changed = device.changed();
        loop {
            changed.mark_heard();
            if let Some(error) = device.failure() {
                return error.clone();
            }
            changed.changed().await;
        }
    }

    /// Waits until the device has given all of it.
    ///
    /// # Errors
    /// It has failed, and this process is about to end.
    pub async fn given(&self, given: &Given) -> Result<(), Refusal> {
        let Some(device) = self.device().filter(|_| !given.is_done()) else { return Ok(()) };
        let mut changed = device.changed();
        loop {
            changed.mark_heard();
            if given.is_done() {
                return Ok(());
            }
            if let Some(failure) = device.failure() {
                return Err(Refusal::new(RefusalKind::NotReady, "area", failure.to_string()));
            }
            changed.changed().await;
        }
    }

    /// Updates of these blocks are done, or their parameters here.
    pub async fn note_done(self: &Arc<Self>, blocks: &[BlockId]) -> Result<(), Refusal> {
        let hosting = self.hosting();
        let those = blocks.iter().filter_map(|id| hosting.as_ref()?.block(*id).cloned());
        self.each(those.collect(), |_, changed, hosted| hosted.with(changed, Block::note_done)).await?;
        Ok(())
    }
}
