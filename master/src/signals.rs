//! Who waits for what at the master. A word of one among thousands must not wake them all.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Calls for tasks that are woken when several tasks may have become free; each that is given one wakes the next.
const WOKEN_MAX: usize = 64;

/// What is waited for, and how many wait for tasks.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    changed: Notify,
    adopted: Notify,
    free: Notify,
    waiting: AtomicUsize,
    broken: Notify,
    is_stopping: AtomicBool,
}

/// A call for tasks that is kept open, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Waiting<'a>(&'a AtomicUsize);

impl Signals {
    /// There is another document, or none: all who wait for anything are told.
    pub(crate) fn adopted(&self) {
        for signal in [&self.changed, &self.adopted, &self.free] {
            signal.notify_waiters();
        }
    }

    /// This process is to end: all who wait are told, and nobody waits any more.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.adopted();
    }

    /// Whether nobody is to wait any more.
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Something was said that may call for a decision.
    pub(crate) fn heard(&self) {
        self.changed.notify_waiters();
    }

    /// The same, and tasks may have become free, as at a step's end.
    pub(crate) fn freed(&self) {
        self.heard();
        for _ in 0..self.calls_waiting().min(WOKEN_MAX) {
            self.free.notify_one();
        }
    }

    /// A task may be free.
    pub(crate) fn freed_one(&self) {
        self.free.notify_one();
    }

    /// A panic has ended a change of the machine half-way.
    pub(crate) fn broke(&self) {
        self.broken.notify_one();
    }

    /// For whoever ends this process then.
    pub(crate) async fn broken(&self) {
        self.broken.notified().await;
    }

    /// For whoever keeps the document.
    pub(crate) fn changed(&self) -> &Notify {
        &self.changed
    }

    /// For calls that are kept open until there is another document.
    pub(crate) fn adoption(&self) -> Notified<'_> {
        self.adopted.notified()
    }

    /// For calls that are kept open until there is a task.
    pub(crate) fn free(&self) -> Notified<'_> {
        self.free.notified()
    }

    /// One of these waits.
    pub(crate) fn wait(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(&self.waiting)
    }

    /// How many of these wait.
    pub(crate) fn calls_waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
