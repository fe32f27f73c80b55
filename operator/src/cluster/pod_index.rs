//! The pods there are, by their job: what the watch says, kept as it is needed. A look at a job must not pass over the pods of
//! all others.

use super::pods;
use crate::api::TrainingJob;
use crate::decide::PodView;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::runtime::watcher::Event;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// A job: its namespace, for a pod of another may say that it is owned by anybody, and its uid.
type Job = (String, String);
/// By the job that owns them, pods by their names.
type ByJob = BTreeMap<Job, BTreeMap<String, PodView>>;

/// All pods of jobs.
#[derive(Debug)]
pub(super) struct PodIndex {
    pods: Mutex<State>,
    is_ready: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    now: ByJob,
    /// What a list that is under way has brought so far: what it does not bring is no more.
    listed: Option<ByJob>,
}

impl PodIndex {
    pub(super) fn new() -> PodIndex {
        PodIndex { pods: Mutex::default(), is_ready: watch::channel(false).0 }
    }

    /// Takes in what the watch says.
    pub(super) fn note(&self, event: &Event<Pod>) {
        let mut state = self.state();
        match event {
            Event::Init => state.listed = Some(ByJob::default()),
            Event::InitApply(pod) => insert(state.listed.get_or_insert_default(), pod),
            Event::InitDone => {
                state.now = state.listed.take().unwrap_or_default();
                self.is_ready.send_replace(true);
            }
            Event::Apply(pod) => insert(&mut state.now, pod),
            Event::Delete(pod) => remove(&mut state.now, pod),
        }
    }

    /// Waits until all pods have been listed once.
    pub(super) async fn wait_until_ready(&self) {
        // Its sender is this index's own.
        let _ = self.is_ready.subscribe().wait_for(|is_ready| *is_ready).await;
    }

    /// The pods of a job, by role and ordinal.
    pub(super) fn of(&self, job: &TrainingJob) -> Vec<PodView> {
        let job = (job.namespace().unwrap_or_default(), job.uid().unwrap_or_default());
        let mut pods: Vec<PodView> =
            self.state().now.get(&job).into_iter().flat_map(BTreeMap::values).cloned().collect();
        pods.sort_by_key(|pod| (pod.role, pod.ordinal));
        pods
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Those that own a pod; of a job's pod there is one.
fn owners(pod: &Pod) -> impl Iterator<Item = Job> {
    let owners = pod.metadata.owner_references.iter().flatten();
    owners.map(|owner| (pod.namespace().unwrap_or_default(), owner.uid.clone()))
}

fn insert(all: &mut ByJob, pod: &Pod) {
    let Some(view) = pods::seen(pod) else { return };
    for owner in owners(pod) {
        all.entry(owner).or_default().insert(view.name.clone(), view.clone());
    }
}

fn remove(all: &mut ByJob, pod: &Pod) {
    for owner in owners(pod) {
        let Some(pods) = all.get_mut(&owner) else { continue };
        // A late word about one that had the name before is none about its successor.
        if pods.get(&pod.name_any()).is_some_and(|known| Some(&known.uid) == pod.uid().as_ref()) {
            pods.remove(&pod.name_any());
        }
        if pods.is_empty() {
            all.remove(&owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, uid: &str, job: &str) -> Pod {
        let labels = json!({ "shoal.dev/role": "trainer", "shoal.dev/ordinal": "0" });
        let owner = json!({ "apiVersion": "v", "kind": "k", "name": "j", "uid": job });
        serde_json::from_value(json!({ "metadata": {
            "name": name, "namespace": "n", "uid": uid, "labels": labels, "ownerReferences": [owner],
        } }))
        .unwrap()
    }

    fn uids(index: &PodIndex, uid: &str) -> Vec<String> {
        let mut job = TrainingJob::new("j", Default::default());
        job.metadata.namespace = Some("n".to_owned());
        job.metadata.uid = Some(uid.to_owned());
        index.of(&job).into_iter().map(|pod| pod.uid).collect()
    }

    #[tokio::test]
    async fn a_job_has_the_pods_that_the_watch_has_told_of() {
        let index = PodIndex::new();
        index.note(&Event::Init);
        index.note(&Event::InitApply(pod("a", "1", "x")));
        index.note(&Event::InitApply(pod("b", "2", "y")));
        assert!(uids(&index, "x").is_empty(), "half a list says nothing");
        index.note(&Event::InitDone);
        index.wait_until_ready().await;
        assert_eq!((uids(&index, "x"), uids(&index, "y")), (vec!["1".to_owned()], vec!["2".to_owned()]));

        let mut foreign = pod("z", "9", "x");
        foreign.metadata.namespace = Some("another".to_owned());
        index.note(&Event::Apply(foreign.clone()));
        assert_eq!(uids(&index, "x"), ["1"], "whatever a pod of another namespace says");
        index.note(&Event::Delete(foreign));
        index.note(&Event::Apply(pod("a", "3", "x")));
        index.note(&Event::Delete(pod("a", "1", "x")));
        assert_eq!(uids(&index, "x"), ["3"], "its successor stays");
        index.note(&Event::Delete(pod("a", "3", "x")));
        assert!(uids(&index, "x").is_empty() && index.state().now.len() == 1);

        // Listed anew: what is not in the list has gone.
        index.note(&Event::Init);
        index.note(&Event::InitApply(pod("c", "4", "x")));
        assert_eq!(uids(&index, "y"), ["2"]);
        index.note(&Event::InitDone);
        assert_eq!((uids(&index, "x"), uids(&index, "y").len()), (vec!["4".to_owned()], 0));
    }
}
