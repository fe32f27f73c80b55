//! What an operator counts of its jobs and of reconciling them. Counts and says nothing else.

use super::queue::Queue;
use crate::api::{Phase, TrainingJob};
use kube::runtime::reflector::Store;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Upper bounds of histograms, in milliseconds: from a reconciliation that finds nothing to do to the deadline.
pub(crate) const BOUNDS_MILLIS: [u64; 10] = [1, 5, 10, 50, 100, 500, 1000, 5000, 15_000, 30_000];

/// How long something took, time after time.
#[derive(Debug, Default)]
pub(super) struct Histogram {
    /// One more than bounds: the last is for whatever takes longer.
    buckets: [AtomicU64; BOUNDS_MILLIS.len() + 1],
    micros: AtomicU64,
}

impl Histogram {
    /// Notes how long it took once.
    pub(super) fn note(&self, took: Duration) {
        let bucket = BOUNDS_MILLIS.partition_point(|bound| Duration::from_millis(*bound) < took);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(took.as_micros() as u64, Ordering::Relaxed);
    }

    /// For each bound in seconds, the last of which is not used, how many took no longer and longer than the bound before;
    /// and the seconds that all took.
    pub(super) fn seconds(&self) -> (Vec<(f64, u64)>, f64) {
        let bounds = BOUNDS_MILLIS.iter().map(|millis| *millis as f64 / 1e3).chain([f64::INFINITY]);
        let counts = self.buckets.iter().map(|count| count.load(Ordering::Relaxed));
        (bounds.zip(counts).collect(), self.micros.load(Ordering::Relaxed) as f64 / 1e6)
    }

    fn count(&self) -> u64 {
        self.buckets.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

/// How jobs were reconciled.
#[derive(Debug, Default)]
pub struct Reconciles {
    /// Those that wait for it.
    pub(crate) queue: Queue,
    under_way: AtomicU64,
    took: Histogram,
    errors: Mutex<BTreeMap<&'static str, u64>>,
}

/// One reconciliation while it lasts, however it ends.
pub(crate) struct UnderWay<'a>(&'a Reconciles);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Reconciles {
    /// Notes that one begins.
    pub(crate) fn begin(&self) -> UnderWay<'_> {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(self)
    }

    /// Notes how long one took, and what went wrong if something did.
    pub(crate) fn note(&self, took: Duration, error: Option<&'static str>) {
        if let Some(kind) = error {
            *self.errors.lock().unwrap_or_else(PoisonError::into_inner).entry(kind).or_default() += 1;
        }
        self.took.note(took);
    }

    /// How many are under way.
    pub(crate) fn under_way(&self) -> u64 {
        self.under_way.load(Ordering::Relaxed)
    }

    /// How long they took, as [`Histogram::seconds`] says.
    pub(crate) fn seconds(&self) -> (Vec<(f64, u64)>, f64) {
        self.took.seconds()
    }

    /// How many went well, and how many did not.
    pub(crate) fn results(&self) -> [(&'static str, u64); 2] {
        let errors = self.errors().values().sum();
        [("success", self.took.count().saturating_sub(errors)), ("error", errors)]
    }

    /// How many failed, by kind.
    pub(crate) fn errors(&self) -> BTreeMap<&'static str, u64> {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The jobs that are looked after: none of an operator that stands by.
#[derive(Debug, Default)]
pub struct Jobs(OnceLock<Store<TrainingJob>>);

impl Jobs {
    /// Says where they are seen, from now on.
    pub(crate) fn are_in(&self, store: Store<TrainingJob>) {
        // An operator leads once in its life.
        let _ = self.0.set(store);
    }

    /// How many are in each phase; nothing of an operator that stands by.
    pub(crate) fn by_phase(&self) -> Option<BTreeMap<&'static str, u64>> {
        let jobs = self.0.get()?.state();
        // All phases are there from the start: a series that begins later has no increase.
        let mut counts: BTreeMap<&'static str, u64> = Phase::ALL.map(|phase| (phase.word(), 0)).into();
        for job in jobs {
            let phase = job.status.as_ref().map(|status| status.phase).unwrap_or_default();
            *counts.entry(phase.word()).or_default() += 1;
        }
        Some(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::TrainingJobStatus;
    use kube::runtime::reflector::store;
    use kube::runtime::watcher::Event;

    #[test]
    fn each_falls_into_the_bucket_of_the_least_bound_that_it_does_not_pass() {
        let reconciles = Reconciles::default();
        [1, 2, 5, 40_000].into_iter().for_each(|millis| reconciles.note(Duration::from_millis(millis), None));
        reconciles.note(Duration::from_secs(30), Some("deadline"));
        let (buckets, seconds) = reconciles.seconds();
        let filled: Vec<(f64, u64)> = buckets.into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled, [(0.001, 1), (0.005, 2), (30.0, 1), (f64::INFINITY, 1)]);
        assert!((seconds - 70.008).abs() < 1e-9);
        assert_eq!(reconciles.errors(), BTreeMap::from([("deadline", 1)]));
        assert_eq!(reconciles.results(), [("success", 4), ("error", 1)]);
    }

    #[test]
    fn one_that_is_dropped_midway_is_under_way_no_more() {
        let reconciles = Reconciles::default();
        let one = reconciles.begin();
        assert_eq!(reconciles.under_way(), 1);
        drop(one);
        assert_eq!(reconciles.under_way(), 0);
    }

    #[test]
    fn jobs_are_counted_by_their_phase_from_when_there_are_any_to_see() {
        let jobs = Jobs::default();
        assert_eq!(jobs.by_phase(), None);
        let (reader, mut writer) = store::<TrainingJob>();
        jobs.are_in(reader);
        assert_eq!(jobs.by_phase(), Some(Phase::ALL.map(|phase| (phase.word(), 0)).into()));
        for (number, phase) in [None, Some(Phase::Failed), Some(Phase::Failed)].into_iter().enumerate() {
            let mut job = TrainingJob::new(&number.to_string(), Default::default());
            job.status = phase.map(|phase| TrainingJobStatus { phase, ..Default::default() });
            writer.apply_watcher_event(&Event::Apply(job));
        }
        let counts = jobs.by_phase().unwrap();
        assert_eq!((counts.len(), counts["Pending"], counts["Failed"], counts["Running"]), (7, 1, 2, 0));
    }
}
