//! What an operator counts of its reconciling. Counts and says nothing else.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Upper bounds of the histogram, in milliseconds: from one that finds nothing to do to the deadline.
pub(crate) const BOUNDS_MILLIS: [u64; 10] = [1, 5, 10, 50, 100, 500, 1000, 5000, 15_000, 30_000];

/// How jobs were reconciled.
#[derive(Debug, Default)]
pub struct Reconciles {
    under_way: AtomicU64,
    /// One more than bounds: the last is for whatever takes longer.
    buckets: [AtomicU64; BOUNDS_MILLIS.len() + 1],
    micros: AtomicU64,
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
        let bucket = BOUNDS_MILLIS.partition_point(|bound| Duration::from_millis(*bound) < took);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(took.as_micros() as u64, Ordering::Relaxed);
        if let Some(kind) = error {
            *self.errors.lock().unwrap_or_else(PoisonError::into_inner).entry(kind).or_default() += 1;
        }
    }

    /// How many are under way.
    pub(crate) fn under_way(&self) -> u64 {
        self.under_way.load(Ordering::Relaxed)
    }

    /// For each bound in seconds, the last of which is not used, how many took no longer and longer than the bound before;
    /// and the seconds that all took.
    pub(crate) fn seconds(&self) -> (Vec<(f64, u64)>, f64) {
        let bounds = BOUNDS_MILLIS.iter().map(|millis| *millis as f64 / 1e3).chain([f64::INFINITY]);
        let counts = self.buckets.iter().map(|count| count.load(Ordering::Relaxed));
        (bounds.zip(counts).collect(), self.micros.load(Ordering::Relaxed) as f64 / 1e6)
    }

    /// How many failed, by kind.
    pub(crate) fn errors(&self) -> BTreeMap<&'static str, u64> {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    }

    #[test]
    fn one_that_is_dropped_midway_is_under_way_no_more() {
        let reconciles = Reconciles::default();
        let one = reconciles.begin();
        assert_eq!(reconciles.under_way(), 1);
        drop(one);
        assert_eq!(reconciles.under_way(), 0);
    }
}
