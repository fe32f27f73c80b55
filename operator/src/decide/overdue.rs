//! Pods that have been told to end and do not: since when, and from when on they are given up by force. Pure.
//!
//! A pod that is given up is gone for the API server at once, and another is made with its name, while whatever ran of it may run
//! on. So that takes two things at the same time, for as long as the pod was given to end and a while more: it has been told to
//! end, and its node does not answer. A node that answers may be slow to unmount a volume, and is waited for. How long is counted
//! by a clock of this operator's that nobody sets, from its own first sight of both: the API server's may be another, and that of the
//! day may jump.

use super::view::{PodView, View};
use std::collections::BTreeMap;

/// Beyond the time that a pod was given to end: what a kubelet may take to say that it has.
const OVERDUE_SECONDS: u64 = 15;
/// The same for an operator that cannot see whether a node answers: as long as Kubernetes by default waits for a silent node to
/// come back before it deletes its pods.
const UNSEEN_SECONDS: u64 = 300;

/// By uid, since when a pod that has been told to end is on a node that does not answer, and how many seconds it was given.
#[derive(Clone, Debug, Default)]
pub(super) struct Overdue(BTreeMap<String, (u64, u64)>);

/// What is known of a pod's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Answers,
    /// It does not answer or is gone; or the pod has none, so that nothing of it runs.
    Silent,
    /// This operator may not see nodes.
    Unseen,
}

/// What is known of a pod's node.
pub(super) fn node(view: &View<'_>, pod: &PodView) -> Node {
    match (&pod.node, view.silent_nodes) {
        (None, _) => Node::Silent,
        (Some(_), None) => Node::Unseen,
        (Some(node), Some(silent)) if silent.contains(node) => Node::Silent,
        (Some(_), Some(_)) => Node::Answers,
    }
}

impl Overdue {
    /// Notes which pods have been told to end and are on nodes that do not answer, as far as is seen. One whose node answers
    /// again, or that is given another time to end, begins anew.
    pub(super) fn see(&mut self, view: &View<'_>) {
        let before = std::mem::take(&mut self.0);
        for pod in view.pods {
            let Some(deleted) = pod.deleted.filter(|_| node(view, pod) != Node::Answers) else { continue };
            let known = before.get(&pod.uid).filter(|(_, grace)| *grace == deleted.grace_seconds);
            let since = known.map_or(view.uptime, |(since, _)| *since);
            self.0.insert(pod.uid.clone(), (since, deleted.grace_seconds));
        }
    }

    /// Why a pod is given up now; none for one that is not.
    pub(super) fn why(&self, view: &View<'_>, pod: &PodView) -> Option<&'static str> {
        let (since, grace) = self.0.get(&pod.uid)?;
        let (beyond, why) = match node(view, pod) {
            Node::Answers => return None,
            Node::Silent => (OVERDUE_SECONDS, "its node does not answer"),
            Node::Unseen => (UNSEEN_SECONDS, "it does not end, and whether its node answers cannot be seen"),
        };
        (view.uptime >= since.saturating_add(*grace).saturating_add(beyond)).then_some(why)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Act, Deleted, Grace, Memory, PodState, Role, decide, fixture};
    use super::*;
    use serde_json::json;
    use shoal_job::ends::Displacement;

    /// A trainer that was told to end within 30 s, and does not.
    fn trainer() -> PodView {
        PodView {
            deleted: Some(Deleted { grace_seconds: 30, why: Displacement::Evicted }),
            node: Some("n".to_owned()),
            ..fixture::pod(Role::Trainer, 0, PodState::Running)
        }
    }

    /// After how many seconds, with one reconcile each second, a pod is given up. `silent` says at each of them which nodes are silent.
    fn given_up_after(pod: impl Fn(u64) -> PodView, silent: impl Fn(u64) -> Option<bool>) -> Option<u64> {
        let status = json!({ "admitted": "2026-01-01T00:00:00Z", "trainer": { "wanted": 1 } });
        let job = fixture::job(json!({}), status);
        let mut memory = Memory::default();
        (0..2000).find(|second| {
            let pods = [pod(*second)];
            let nodes = silent(*second).map(|is_silent| Vec::from_iter(is_silent.then(|| "n".to_owned())));
            let now = 1_800_000_000 + i64::try_from(*second).unwrap();
            let view = View { silent_nodes: nodes.as_deref(), ..fixture::view(&job, &pods, now) };
            let acts = decide(&view, &mut memory).unwrap().acts;
            acts.iter().any(
                |act| matches!(act, Act::DeletePod { uid, grace: Grace::Force, .. } if uid == "trainer-0"),
            )
        })
    }

    /// Whatever the operator's clock says beside the API server's: by one that is a minute ahead, every pod that is told to end
    /// within 30 s is late from the beginning.
    #[test]
    fn a_pod_whose_node_answers_is_never_given_up() {
        assert_eq!(given_up_after(|_| trainer(), |_| Some(false)), None);
    }

    #[test]
    fn a_pod_whose_node_does_not_answer_is_given_up_after_its_time_to_end_and_a_while() {
        assert_eq!(given_up_after(|_| trainer(), |_| Some(true)), Some(45));
        assert_eq!(given_up_after(|_| PodView { node: None, ..trainer() }, |_| Some(false)), Some(45));
        let deleted = Some(Deleted { grace_seconds: u64::MAX, why: Displacement::Evicted });
        assert_eq!(given_up_after(|_| PodView { deleted, ..trainer() }, |_| Some(true)), None);
    }

    #[test]
    fn time_counts_only_while_the_node_does_not_answer_and_the_pod_is_told_to_end() {
        assert_eq!(given_up_after(|_| trainer(), |second| Some(second >= 100)), Some(145));
        assert_eq!(given_up_after(|_| trainer(), |second| Some(second != 40)), Some(41 + 45));
        let late = |second| PodView { deleted: trainer().deleted.filter(|_| second >= 100), ..trainer() };
        assert_eq!(given_up_after(late, |_| Some(true)), Some(145));
        let hurried = |second| {
            let grace_seconds = if second < 20 { 30 } else { 1 };
            PodView { deleted: Some(Deleted { grace_seconds, why: Displacement::Evicted }), ..trainer() }
        };
        assert_eq!(given_up_after(hurried, |_| Some(true)), Some(20 + 16), "a shorter time begins anew");
    }

    #[test]
    fn who_cannot_see_nodes_waits_for_as_long_as_kubernetes_does() {
        assert_eq!(given_up_after(|_| trainer(), |_| None), Some(330));
    }
}
