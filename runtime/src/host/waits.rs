//! The registry of a process's waits in progress. A task that waits for something that may never come holds an [`OpenWait`]; reports to
//! the master carry the oldest. It must never decide anything, and an entry costs one lock of a short map.

use crate::cluster::waits::{Wait, WaitKind};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Waits that one report carries at most.
pub const REPORTED_MAX: usize = 8;
/// Bytes of a subject or of an error in a report.
const TEXT_BYTES_MAX: usize = 400;
/// A wait is reported once it is this old: nearly all are over by then.
const REPORTED_AGE: Duration = Duration::from_millis(500);

/// The waits of one process. Clones share the registry.
#[derive(Clone, Debug, Default)]
pub struct Waits(Arc<Registry>);

#[derive(Debug, Default)]
struct Registry {
    next: AtomicU64,
    /// Entries by number, the oldest first.
    open: Mutex<BTreeMap<u64, Entry>>,
}

#[derive(Clone, Debug)]
struct Entry {
    kind: WaitKind,
    subject: String,
    since: Instant,
    error: String,
}

/// A wait in progress: it ends when this is dropped.
#[derive(Debug)]
#[must_use = "the wait ends when this is dropped"]
pub struct OpenWait {
    registry: Arc<Registry>,
    number: u64,
}

impl Waits {
    /// Begins a wait for `subject`.
    pub fn begin(&self, kind: WaitKind, subject: impl Into<String>) -> OpenWait {
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let entry = Entry { kind, subject: subject.into(), since: Instant::now(), error: String::new() };
        self.0.lock().insert(number, entry);
        OpenWait { registry: Arc::clone(&self.0), number }
    }

    /// Returns the waits that are old enough for a report, the oldest first, [`REPORTED_MAX`] at most.
    pub fn report(&self) -> Vec<Wait> {
        let now = Instant::now();
        let open = self.0.lock();
        let old = open.values().filter(|entry| now.saturating_duration_since(entry.since) >= REPORTED_AGE);
        old.take(REPORTED_MAX)
            .map(|entry| Wait {
                kind: entry.kind,
                subject: bounded(&entry.subject),
                age: now.saturating_duration_since(entry.since),
                error: bounded(&entry.error),
            })
            .collect()
    }
}

impl OpenWait {
    /// Notes the error of the last attempt.
    pub fn failed(&self, error: impl fmt::Display) {
        if let Some(entry) = self.registry.lock().get_mut(&self.number) {
            entry.error = error.to_string();
        }
    }
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Entry>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OpenWait {
    fn drop(&mut self) {
        self.registry.lock().remove(&self.number);
    }
}

/// The first bytes of a text, as many as a report has room for.
pub(crate) fn bounded(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_BYTES_MAX)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_oldest_waits_are_reported_and_those_that_are_over_are_not() {
        let waits = Waits::default();
        let first = waits.begin(WaitKind::Storage, "a");
        tokio::time::advance(Duration::from_secs(3)).await;
        let _second = waits.begin(WaitKind::Primary, "b");
        assert_eq!(waits.report().len(), 1, "the second has just begun");
        tokio::time::advance(REPORTED_AGE).await;
        first.failed("no answer");
        let [a, b] = &waits.report()[..] else { panic!("{:?}", waits.report()) };
        assert_eq!((a.kind, a.subject.as_str(), a.error.as_str()), (WaitKind::Storage, "a", "no answer"));
        assert_eq!((a.age, b.age), (Duration::from_millis(3500), REPORTED_AGE));
        drop(first);
        assert_eq!(waits.report().iter().map(|wait| wait.subject.as_str()).collect::<Vec<_>>(), ["b"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_report_is_bounded_in_waits_and_in_bytes() {
        let waits = Waits::default();
        let _open: Vec<OpenWait> =
            (0..20).map(|_| waits.begin(WaitKind::Data, "é".repeat(TEXT_BYTES_MAX))).collect();
        tokio::time::advance(REPORTED_AGE).await;
        let reported = waits.report();
        assert_eq!(reported.len(), REPORTED_MAX);
        assert!(reported.iter().all(|wait| wait.subject.len() <= TEXT_BYTES_MAX));
    }
}
