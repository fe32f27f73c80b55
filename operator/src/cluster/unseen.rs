//! What this operator has written and its caches do not show yet: without it, the next reconcile would decide on the past.
//! Lost with its process, whose successor begins with what the API server has.

use crate::api::TrainingJob;
use crate::decide::PodView;
use kube::ResourceExt;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// What was made and has not been seen for so long was removed before anybody saw it.
const UNSEEN_MAX: Duration = Duration::from_secs(30);

/// What was written of one job.
#[derive(Debug, Default)]
pub(super) struct Unseen {
    /// The version that the cache showed last.
    cached: Option<String>,
    /// The job after the newest write, and all versions before it that the cache may still come to show.
    written: Option<(Vec<String>, TrainingJob)>,
    /// By name, pods that were made, and when.
    made: BTreeMap<String, (Instant, PodView)>,
}

impl Unseen {
    /// The job as it is at least: what the cache shows, or what was written over exactly that.
    pub(super) fn newest(&mut self, cached: &TrainingJob) -> TrainingJob {
        self.cached = cached.resource_version();
        match &self.written {
            Some((replaced, after)) if self.cached.as_ref().is_some_and(|one| replaced.contains(one)) => {
                after.clone()
            }
            _ => {
                self.written = None;
                cached.clone()
            }
        }
    }

    /// Notes that the job is so, written over what [`Unseen::newest`] or the write before has given.
    pub(super) fn wrote(&mut self, after: TrainingJob) {
        let (mut replaced, before) = match self.written.take() {
            Some((replaced, before)) => (replaced, before.resource_version()),
            None => (Vec::new(), self.cached.clone()),
        };
        replaced.extend(before);
        self.written = Some((replaced, after));
    }

    /// Notes that a pod was made.
    pub(super) fn made(&mut self, pod: PodView) {
        self.made.insert(pod.name.clone(), (Instant::now(), pod));
    }

    /// The cached pods, and those that were made since.
    pub(super) fn with_made(&mut self, mut cached: Vec<PodView>) -> Vec<PodView> {
        self.made.retain(|name, (at, pod)| {
            let is_seen = cached.iter().any(|seen| seen.uid == pod.uid);
            // One of that name, made earlier, is gone: its successor could not have been made otherwise.
            cached.retain(|seen| seen.name != *name || seen.uid == pod.uid);
            !is_seen && at.elapsed() < UNSEEN_MAX
        });
        cached.extend(self.made.values().map(|(_, pod)| pod.clone()));
        cached
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::{PodState, Role};

    fn pod(name: &str, uid: &str) -> PodView {
        PodView {
            name: name.to_owned(),
            uid: uid.to_owned(),
            role: Role::Trainer,
            ordinal: 0,
            state: PodState::Unplaced(None),
            is_ready: false,
            created: Default::default(),
            deleted: None,
            disruption: String::new(),
            node: None,
            ip: None,
            memory: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_was_made_is_there_until_it_is_seen_or_given_up() {
        let mut unseen = Unseen::default();
        unseen.made(pod("a", "2"));
        assert_eq!(unseen.with_made(vec![pod("a", "1"), pod("b", "1")]), [pod("b", "1"), pod("a", "2")]);
        assert_eq!(unseen.with_made(vec![pod("a", "2")]), [pod("a", "2")]);
        assert_eq!(unseen.with_made(vec![]), []);
        unseen.made(pod("c", "1"));
        tokio::time::advance(UNSEEN_MAX).await;
        unseen.with_made(vec![]);
        assert_eq!(unseen.with_made(vec![]), []);
    }

    #[test]
    fn what_was_written_holds_until_the_cache_shows_something_newer() {
        let version = |version: &str| {
            let mut job = TrainingJob::new("j", Default::default());
            job.metadata.resource_version = Some(version.to_owned());
            job
        };
        let mut unseen = Unseen::default();
        unseen.newest(&version("1"));
        unseen.wrote(version("2"));
        assert_eq!(unseen.newest(&version("1")), version("2"));
        unseen.wrote(version("3"));
        // The cache comes to show one write after the other.
        assert_eq!(unseen.newest(&version("1")), version("3"));
        assert_eq!(unseen.newest(&version("2")), version("3"));
        assert_eq!(unseen.newest(&version("3")), version("3"));
        assert_eq!(unseen.newest(&version("4")), version("4"), "somebody else wrote");
        assert_eq!(unseen.newest(&version("2")), version("2"), "and all that was written is forgotten");
    }
}
