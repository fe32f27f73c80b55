//! The pods there are, by the job that owns them: a reconcile of a job must not pass over the pods of all others.

use super::index::{Index, named};
use super::pods;
use crate::api::TrainingJob;
use crate::decide::PodView;
use crate::manifest::job_of;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::runtime::watcher::Event;

/// A pod, and the uid of the job that owns it now. A pod's owner may change while it lives; its name does not.
#[derive(Debug)]
pub(super) struct OwnedPod {
    job: String,
    pod: PodView,
}

/// All pods of jobs.
pub(super) type PodIndex = Index<OwnedPod>;

impl PodIndex {
    /// Takes in what the watch says.
    pub(super) fn note_pod(&self, event: &Event<Pod>) {
        self.note(event, named, |pod| {
            let owner = job_of(&pod.metadata)?;
            Some(OwnedPod { job: owner.uid.clone(), pod: pods::seen(pod)? })
        });
    }

    /// The pods of a job, by role and ordinal. Those of its namespace alone: a pod of another may say that it is owned by anybody.
    pub(super) fn of(&self, job: &TrainingJob) -> Vec<PodView> {
        let (namespace, uid) = (job.namespace().unwrap_or_default(), job.uid().unwrap_or_default());
        // Its pods' names begin with its own, as those of few other pods do.
        let prefix = format!("{}-", job.name_any());
        let seen = self.seen();
        let from = seen.all().range((namespace.clone(), prefix.clone())..);
        let alike = from.take_while(|((at, name), _)| *at == namespace && name.starts_with(&prefix));
        let ours = alike.filter(|(_, owned)| owned.job == uid);
        let mut pods: Vec<PodView> = ours.map(|(_, owned)| owned.pod.clone()).collect();
        pods.sort_by_key(|pod| (pod.role, pod.ordinal));
        pods
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, uid: &str, job: &str) -> Pod {
        let labels = json!({ "shoal.dev/role": "trainer", "shoal.dev/ordinal": "0" });
        let owner =
            json!({ "apiVersion": "shoal.dev/v1alpha1", "kind": "TrainingJob", "name": "j", "uid": job });
        serde_json::from_value(json!({ "metadata": {
            "name": format!("j-{name}"), "namespace": "n", "uid": uid, "labels": labels, "ownerReferences": [owner],
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
        index.note_pod(&Event::Init);
        index.note_pod(&Event::InitApply(pod("a", "1", "x")));
        index.note_pod(&Event::InitApply(pod("b", "2", "y")));
        assert!(uids(&index, "x").is_empty(), "half a list says nothing");
        index.note_pod(&Event::InitDone);
        index.wait_until_ready().await;
        assert_eq!((uids(&index, "x"), uids(&index, "y")), (vec!["1".to_owned()], vec!["2".to_owned()]));

        let mut foreign = pod("z", "9", "x");
        foreign.metadata.namespace = Some("another".to_owned());
        index.note_pod(&Event::Apply(foreign.clone()));
        assert_eq!(uids(&index, "x"), ["1"], "whatever a pod of another namespace says");
        index.note_pod(&Event::Delete(foreign));
        index.note_pod(&Event::Delete(pod("a", "1", "x")));
        index.note_pod(&Event::Apply(pod("a", "3", "x")));
        assert_eq!(uids(&index, "x"), ["3"]);
        index.note_pod(&Event::Delete(pod("a", "3", "x")));
        assert!(uids(&index, "x").is_empty() && index.seen().all().len() == 1);

        // A collector of garbage takes the owner out of a pod that is to outlive its job; a pod may be another job's later.
        let mut orphaned = pod("b", "2", "y");
        orphaned.metadata.owner_references = None;
        index.note_pod(&Event::Apply(orphaned));
        assert!(uids(&index, "y").is_empty());
        index.note_pod(&Event::Apply(pod("b", "2", "x")));
        index.note_pod(&Event::Apply(pod("b", "2", "y")));
        assert_eq!((uids(&index, "x").len(), uids(&index, "y")), (0, vec!["2".to_owned()]));

        // Listed anew: what is not in the list has gone.
        index.note_pod(&Event::Init);
        index.note_pod(&Event::InitApply(pod("c", "4", "x")));
        assert_eq!(uids(&index, "y"), ["2"]);
        index.note_pod(&Event::InitDone);
        assert_eq!((uids(&index, "x"), uids(&index, "y").len()), (vec!["4".to_owned()], 0));
    }
}
