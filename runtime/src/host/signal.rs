//! Telling tasks that something has changed, and nothing else: they look for themselves.
//!
//! Whoever waits is woken in the order of waiting. A `tokio::sync::watch` wakes in an order drawn at random, and a
//! simulation's seed would not be a whole story.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

/// What changes are told by. Clones tell the same listeners.
#[derive(Clone, Debug, Default)]
pub struct Signal {
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    changes: AtomicU64,
    waiting: Notify,
}

/// What changes are heard by: each clone hears of all that come after what it has heard.
#[derive(Clone, Debug)]
pub struct Changes {
    state: Arc<State>,
    heard: u64,
}

impl Signal {
    /// Nothing has changed yet.
    pub fn new() -> Signal {
        Signal::default()
    }
    /// Something has changed.
    pub fn send(&self) {
        self.state.changes.fetch_add(1, Ordering::SeqCst);
        self.state.waiting.notify_waiters();
    }
    /// Hears of every change from now on.
    pub fn listen(&self) -> Changes {
        Changes { heard: self.state.changes.load(Ordering::SeqCst), state: Arc::clone(&self.state) }
    }
}

impl Changes {
    /// Waits for a change that was not heard yet. May be dropped at any time, and then has heard nothing.
    pub async fn changed(&mut self) {
        loop {
            // Begun before the look, so that no change falls between the two.
            let waiting = self.state.waiting.notified();
            let changes = self.state.changes.load(Ordering::SeqCst);
            if changes != self.heard {
                self.heard = changes;
                return;
            }
            waiting.await;
        }
    }
    /// Whether something has changed that was not heard yet.
    pub fn has_changed(&self) -> bool {
        self.state.changes.load(Ordering::SeqCst) != self.heard
    }
    /// Takes all changes until now as heard.
    pub fn mark_heard(&mut self) {
        self.heard = self.state.changes.load(Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::sync::Mutex;

    #[tokio::test]
    async fn a_change_is_heard_once_however_often_it_was_told_and_whenever_one_began_to_wait() {
        let signal = Signal::new();
        let (mut early, mut other) = (signal.listen(), signal.listen());
        assert!(!early.has_changed() && early.changed().now_or_never().is_none());
        signal.send();
        signal.send();
        assert!(early.has_changed() && early.changed().now_or_never().is_some());
        assert!(early.changed().now_or_never().is_none());
        assert!(signal.listen().changed().now_or_never().is_none(), "that was before its time");
        other.mark_heard();
        assert!(!other.has_changed());
    }

    #[tokio::test]
    async fn who_waits_is_woken_in_the_order_of_waiting() {
        let (signal, woken) = (Signal::new(), Arc::new(Mutex::new(Vec::new())));
        let mut tasks = Vec::new();
        for number in 0..50 {
            let (mut changes, woken) = (signal.listen(), Arc::clone(&woken));
            tasks.push(tokio::spawn(async move {
                changes.changed().await;
                woken.lock().unwrap().push(number);
            }));
            tokio::task::yield_now().await;
        }
        signal.send();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*woken.lock().unwrap(), (0..50).collect::<Vec<_>>());
    }
}
