//! A pserver with a device: blocks whose updates are done are published, in whatever order they are done.

use super::Shard;
use crate::device::{Device, DeviceError};
use shoal_runtime::cluster::{BlockId, Refusal};
use std::sync::Arc;

impl Shard {
    /// The same with a device that updates dense blocks, as far as it has memory.
    pub fn with_device(mut self, device: Option<Device>) -> Shard {
        if let Some(device) = device {
            self.terms = Arc::new(self.terms.with_device(device));
        }
        self
    }

    /// The device, if there is one.
    pub fn device(&self) -> Option<&Device> {
        self.terms.device()
    }

    /// Publishes what the device has done, for ever. Returns only what no repetition can mend.
    pub async fn land(&self) -> Refusal {
        let Some(device) = self.device() else { return std::future::pending().await };
        let mut changed = device.changed();
        loop {
            changed.mark_heard();
            if let Err(refusal) = self.note_done(&device.take_finished()) {
                return refusal;
            }
            changed.changed().await;
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

    /// Updates of these blocks are done.
    pub fn note_done(&self, blocks: &[BlockId]) -> Result<(), Refusal> {
        let hosting = self.hosting();
        let (mut is_published, mut is_updated) = (false, false);
        for hosted in blocks.iter().filter_map(|id| hosting.as_ref()?.block(*id)) {
            let mut block = hosted.lock()?;
            let before = (block.published(), block.version());
            block.note_done();
            is_published |= block.published() > before.0;
            is_updated |= block.version() > before.1;
        }
        if is_updated {
            self.logged.send();
        }
        if is_published {
            self.published.send();
            self.whole.send();
            self.tell_of_room();
        }
        Ok(())
    }
}
