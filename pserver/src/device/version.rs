//! The parameters that an update makes. A version is `queued -> made -> brought`, or stops where the device failed: *made* once
//! the device has run the update, *brought* once its parameters are in this machine's memory as well. Whoever is given them in
//! the device's memory needs them nowhere else, and then they are brought only when somebody asks.
//!
//! A block has two buffers of parameters, and each update writes to the one that the newest version is not in: so the newest
//! two versions can be read, brought and given, and no copy can meet an update that overwrites what it reads.

use bytes::Bytes;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The parameters that an update makes, once it is done. Clones are of one version.
#[derive(Clone, Debug, Default)]
pub struct Outcome(Arc<Made>);

#[derive(Debug, Default)]
struct Made {
    is_made: OnceLock<()>,
    brought: OnceLock<Bytes>,
    is_asked_for: AtomicBool,
}

impl Outcome {
    /// Whether the update is done.
    pub fn is_made(&self) -> bool {
        self.0.is_made.get().is_some()
    }

    /// Little-endian f32, if they are here.
    pub fn bytes(&self) -> Option<&Bytes> {
        self.0.brought.get()
    }

    /// The update is done.
    pub(super) fn made(&self) {
        // Set once, where flights land.
        let _ = self.0.is_made.set(());
    }

    /// Its parameters are here.
    pub(super) fn brought(&self, bytes: Bytes) {
        // As above.
        let _ = self.0.brought.set(bytes);
    }

    /// Whether nobody has asked for them before.
    pub(super) fn is_first_to_ask(&self) -> bool {
        !self.0.is_asked_for.swap(true, Ordering::Relaxed)
    }

    pub(super) fn is(&self, other: &Outcome) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Copies of parameters to areas, asked for one after another.
#[derive(Clone, Debug, Default)]
pub struct Given {
    asked: u64,
    done: Arc<AtomicU64>,
}

impl Given {
    /// One more. Whoever makes it adds to what is returned.
    pub(super) fn ask(&mut self) -> Arc<AtomicU64> {
        self.asked += 1;
        Arc::clone(&self.done)
    }

    /// Whether all that were asked for are made.
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire) == self.asked
    }
}
