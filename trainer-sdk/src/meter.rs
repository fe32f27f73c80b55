//! What one trainer counts, and how it looks from outside: counters for the master, pages for probes. Decides nothing.

use crate::activities::{Activities, Activity};
use crate::leaders::Leaders;
use shoal_job::counters::{Counters, TrainerCounters};
use shoal_runtime::host::http::{self, Exposition};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The counts of one trainer.
pub(crate) struct Meter {
    began: Instant,
    activities: Mutex<Activities>,
    /// What is counted as it happens; the rest is 0.
    counted: Mutex<TrainerCounters>,
    /// Chunks that may be read at a time.
    pub(crate) reads_max: AtomicU64,
    /// Whom it calls, and the time to live of leases.
    joined: OnceLock<(Arc<Leaders>, Duration)>,
}

impl Meter {
    /// Nothing is counted yet; time runs.
    pub(crate) fn new() -> Meter {
        Meter {
            began: Instant::now(),
            activities: Mutex::new(Activities::new()),
            counted: Mutex::default(),
            reads_max: AtomicU64::new(0),
            joined: OnceLock::new(),
        }
    }

    /// The trainer has joined a job of this time to live.
    pub(crate) fn join(&self, leaders: Arc<Leaders>, ttl: Duration) {
        // Joining again, under a later master, changes nothing of it.
        let _ = self.joined.set((leaders, ttl));
    }

    /// Counts something that has happened.
    pub(crate) fn count(&self, count: impl FnOnce(&mut TrainerCounters)) {
        count(&mut self.counted.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The trainer is at something else from now on.
    pub(crate) fn enter(&self, activity: Activity) {
        let now = self.began.elapsed();
        self.activities().enter(activity, now);
    }

    /// Every gradient is pushed.
    pub(crate) fn pushed(&self) {
        let now = self.began.elapsed();
        self.activities().pushed(now);
    }

    /// A pull was answered with what was published at `published`.
    pub(crate) fn answered(&self, published: Instant) {
        let (published, now) = (published.saturating_duration_since(self.began), self.began.elapsed());
        self.activities().answered(published, now);
    }

    /// How long it has had nothing to compute but waited for records.
    pub(crate) fn waited_for_records(&self) -> Duration {
        self.activities().spent(Activity::Read, self.began.elapsed())
    }

    /// Returns the time for which the program has been computing; `None` while it is not.
    pub(crate) fn computing(&self) -> Option<Duration> {
        self.activities().computing(self.began.elapsed())
    }

    /// All counters.
    pub(crate) fn counters(&self) -> TrainerCounters {
        let (activities, now) = (self.activities(), self.began.elapsed());
        let micros = |activity: Activity| activities.spent(activity, now).as_micros() as u64;
        TrainerCounters {
            retries: self.joined.get().map_or(0, |(leaders, _)| leaders.caller.retries()),
            compute_micros: micros(Activity::Compute),
            pull_micros: micros(Activity::Pull),
            push_micros: micros(Activity::Push),
            read_micros: micros(Activity::Read),
            wait_micros: micros(Activity::Wait),
            ..*self.counted.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    fn activities(&self) -> MutexGuard<'_, Activities> {
        self.activities.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl http::Watched for Meter {
    fn metrics(&self) -> String {
        text(&self.counters(), self.joined.get().is_some(), self.reads_max.load(Relaxed))
    }

    /// A trainer is ready when it has joined, and a master that leads was heard of within two leases' time to live.
    async fn readiness(&self) -> Result<(), String> {
        match self.joined.get() {
            Some((leaders, ttl)) => leaders.check_heard(*ttl),
            None => Err("not joined yet: no master has taken it in, or blocks are not placed".to_owned()),
        }
    }
}

/// The metrics of a trainer.
pub(crate) fn text(counters: &TrainerCounters, has_joined: bool, reads_max: u64) -> String {
    let mut page = Exposition::new();
    page.build("trainer", env!("CARGO_PKG_VERSION"));
    page.gauge("shoal_trainer_joined", "1 once a master has taken this trainer in.", has_joined);
    page.counted("shoal_trainer", counters.metrics());
    let help = "Chunks that may be read at a time: more while the trainer waits for records.";
    page.gauge("shoal_trainer_reads_max", help, reads_max);
    page.into_text()
}
