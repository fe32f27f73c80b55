//! The jobs that wait to be reconciled, and since when: what an operator that cannot keep up shows first. It only counts; the queue
//! itself is kube's.

use super::index::Key;
use super::metrics::Histogram;
use crate::api::TrainingJob;
use kube::Resource;
use kube::runtime::watcher::Event;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Jobs that something was said of since they were reconciled last. One that is only due again is not among them.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: Mutex<BTreeMap<Key, Instant>>,
    waited: Histogram,
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, BTreeMap<Key, Instant>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a job is to be reconciled. One that waits already waits since then.
    pub(super) fn add(&self, job: Key) {
        self.waiting().entry(job).or_insert_with(Instant::now);
    }

    /// Notes that what an event is about may be news for the jobs that this says.
    pub(super) fn add_all_of<K>(&self, event: &Event<K>, of: impl Fn(&K) -> Vec<Key>) {
        if let Event::Apply(object) | Event::InitApply(object) | Event::Delete(object) = event {
            of(object).into_iter().for_each(|job| self.add(job));
        }
    }

    /// Notes that its turn has come.
    pub(super) fn begin(&self, job: &Key) {
        let since = self.waiting().remove(job);
        if let Some(since) = since {
            self.waited.note(since.elapsed());
        }
    }

    /// Notes that it is not there any more.
    pub(super) fn forget(&self, job: &Key) {
        self.waiting().remove(job);
    }

    /// How many wait, and how long the one that has waited longest.
    pub(crate) fn depth(&self) -> (u64, Duration) {
        let waiting = self.waiting();
        let longest = waiting.values().map(Instant::elapsed).max();
        (waiting.len() as u64, longest.unwrap_or_default())
    }

    /// How long those waited whose turn came, as [`Histogram::seconds`] says.
    pub(crate) fn seconds(&self) -> (Vec<(f64, u64)>, f64) {
        self.waited.seconds()
    }
}

/// The jobs that own an object, by kube's own rule: those that it reconciles because of the object, and no others, come out of the queue.
pub(super) fn owners<K: Resource>(object: &K) -> Vec<Key> {
    let metadata = object.meta();
    let namespace = metadata.namespace.clone().unwrap_or_default();
    let owners = metadata.owner_references.iter().flatten();
    let owners = owners
        .filter(|one| one.kind == TrainingJob::kind(&()) && one.api_version == TrainingJob::api_version(&()));
    owners.map(|one| (namespace.clone(), one.name.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    fn key(name: &str) -> Key {
        ("n".to_owned(), name.to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_waits_from_when_it_is_first_asked_for_until_its_turn_comes() {
        let queue = Queue::default();
        assert_eq!(queue.depth(), (0, Duration::ZERO));
        queue.add(key("a"));
        tokio::time::advance(Duration::from_secs(2)).await;
        queue.add(key("a"));
        queue.add(key("b"));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(queue.depth(), (2, Duration::from_secs(3)));
        queue.begin(&key("a"));
        assert_eq!(queue.depth(), (1, Duration::from_secs(1)));
        let (buckets, seconds) = queue.seconds();
        let filled: Vec<(f64, u64)> = buckets.into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!((filled, seconds), (vec![(5.0, 1)], 3.0));
        // Due again, though nothing was said of it: it did not wait.
        queue.begin(&key("a"));
        assert_eq!(queue.seconds().1, 3.0);
        queue.forget(&key("b"));
        assert_eq!(queue.depth(), (0, Duration::ZERO));
    }

    #[test]
    fn a_pod_is_news_for_the_job_that_owns_it_and_for_nobody_else() {
        let pod = |kind: &str, version: &str| -> Pod {
            let owner = json!({ "apiVersion": version, "kind": kind, "name": "j", "uid": "u" });
            serde_json::from_value(
                json!({ "metadata": { "name": "p", "namespace": "n", "ownerReferences": [owner] } }),
            )
            .unwrap()
        };
        let ours = pod("TrainingJob", "shoal.dev/v1alpha1");
        assert_eq!(owners(&ours), [key("j")]);
        assert_eq!(owners(&pod("TrainingJob", "other.dev/v1")), Vec::<Key>::new());
        assert_eq!(owners(&pod("Job", "batch/v1")), Vec::<Key>::new());
        let queue = Queue::default();
        for event in [Event::Init, Event::InitDone, Event::Apply(ours.clone()), Event::Delete(ours)] {
            queue.add_all_of(&event, owners);
        }
        assert_eq!(queue.depth().0, 1);
    }
}
