//! Nodes that could not start pods of a job: which are avoided, and when what they say is the job's own fault. Pure.
//!
//! A node without a driver, a full disk or a broken runtime fails every pod that is put on it, and has most room of all. So what one
//! node says of a pod is final only where no other node can be asked.

use super::ends::last_words;
use super::view::{Avoids, PodState, PodView, Role, View};
use crate::api::{AvoidedNode, Moment, TrainingJobSpec, TrainingJobStatus};

/// For how long after it could not start a pod a node is avoided, in seconds, unless images are waited for longer. It may have been mended.
const AVOIDED_SECONDS: u64 = 600;
/// How long an image may be unusable, where the job does not say, in seconds.
const IMAGE_SECONDS: u64 = 600;
/// Nodes that are remembered, the newest.
const AVOIDED_MAX: usize = 32;
/// So many nodes are tried within the time for which an image may be unusable, each for so many seconds at least: a registry that does
/// not answer for a moment is no reason to move.
const NODES_TRIED: u64 = 5;
const TRIED_SECONDS: u64 = 10;
/// So many pods of a role that a single node could not start end a job, where no other suits.
const PODS_OF_ONE_NODE: u32 = 3;

/// For how many seconds an image may be unusable.
pub(super) fn patience(spec: &TrainingJobSpec) -> u64 {
    spec.failure_policy.image_seconds.unwrap_or(IMAGE_SECONDS)
}

/// Forgives the nodes that have been avoided for long enough.
pub(super) fn forgive(status: &mut TrainingJobStatus, spec: &TrainingJobSpec, now: Moment) {
    let enough = patience(spec).max(AVOIDED_SECONDS);
    status.avoided_nodes.retain(|one| now.since(one.at) < enough);
}

/// Notes that a pod's node could not start it.
pub(super) fn note(status: &mut TrainingJobStatus, pod: &PodView, now: Moment, why: &str) {
    let Some(node) = &pod.node else { return };
    let all = &mut status.avoided_nodes;
    let known = all.iter().position(|one| one.node == *node && one.role == pod.role.name());
    let before = known.map(|at| all.remove(at));
    let (pods, since) = before.map_or((0, pod.created), |before| (before.pods, before.since));
    let why = last_words(why);
    let (node, role) = (node.clone(), pod.role.name().to_owned());
    all.push(AvoidedNode { node, role, pods: pods.saturating_add(1), since, at: now, why });
    let surplus = all.len().saturating_sub(AVOIDED_MAX);
    all.drain(..surplus);
}

/// The nodes that could not start pods of a role.
pub fn avoided(status: &TrainingJobStatus, role: Role) -> impl Iterator<Item = &AvoidedNode> {
    status.avoided_nodes.iter().filter(move |one| one.role == role.name())
}

/// Whether a pod is one that its node has failed to start, as far as is seen of it alone.
pub fn has_failed_to_start(pod: &PodView) -> bool {
    match &pod.state {
        PodState::Starting(unusable) => unusable.is_some(),
        PodState::Ended(ended) => ended.end.would_recur(),
        PodState::Unplaced(_) | PodState::Running => false,
    }
}

/// Whether another node may do better.
fn is_elsewhere(view: &View<'_>, role: Role) -> bool {
    view.elsewhere.is_some_and(|roles| roles.contains(&role))
}

/// What the next pods of a role are kept from.
pub(super) fn avoids(view: &View<'_>, status: &TrainingJobStatus, role: Role) -> Avoids {
    // Who may not see nodes cannot know of others: such a pod would rather not be put there, and is if it must.
    let is_strict = view.elsewhere.is_some();
    if is_strict && !is_elsewhere(view, role) {
        return Avoids::default();
    }
    Avoids { nodes: avoided(status, role).map(|one| one.node.clone()).collect(), is_strict }
}

/// What becomes of a pod whose node says that it cannot start it, and tries on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It may yet, or there is no other node to try.
    Wait,
    /// Another node is tried.
    Elsewhere,
    /// No node can.
    Nowhere,
}

/// What becomes of a pod whose node says that it cannot start it. `is_first` says that nobody of its role has ever run.
pub(super) fn verdict(view: &View<'_>, status: &TrainingJobStatus, pod: &PodView, is_first: bool) -> Verdict {
    let patience = patience(&view.job.spec);
    let since = avoided(status, pod.role).map(|one| one.since).chain([pod.created]).min();
    let is_asked_elsewhere = avoided(status, pod.role).any(|one| Some(&one.node) != pod.node.as_ref());
    let may_be_elsewhere = view.elsewhere.is_none() || is_elsewhere(view, pod.role);
    let is_known_nowhere = is_asked_elsewhere || !is_elsewhere(view, pod.role);
    let may_pass = matches!(&pod.state, PodState::Starting(Some(unusable)) if unusable.may_pass);
    if is_first
        && is_known_nowhere
        && !may_pass
        && since.is_some_and(|since| view.now.since(since) >= patience)
    {
        return Verdict::Nowhere;
    }
    let tried = (patience / NODES_TRIED).max(TRIED_SECONDS).min(patience);
    let is_tried = view.now.since(pod.created) >= tried;
    if is_tried && may_be_elsewhere { Verdict::Elsewhere } else { Verdict::Wait }
}

/// Notes what a node says of a pod of which no other has run, and says whether that is final: another node has said so, too, or there
/// is no other and it has said so often enough.
pub(super) fn is_confirmed(
    view: &View<'_>,
    status: &mut TrainingJobStatus,
    pod: &PodView,
    why: &str,
) -> bool {
    note(status, pod, view.now, why);
    let all = || avoided(status, pod.role);
    let pods: u32 = all().map(|one| one.pods).sum();
    // What has never been on a node was refused by nobody's word but its own.
    pod.node.is_none() || all().count() >= 2 || (pods >= PODS_OF_ONE_NODE && !is_elsewhere(view, pod.role))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{self, pod, view};
    use super::super::{Act, Ended, MasterView, MemberView, Memory, PodPlan, Unusable, decide};
    use super::*;
    use crate::api::{Phase, TrainingJob};
    use serde_json::json;
    use shoal_job::ends::End;

    const BEGIN: i64 = 1_800_000_000;

    /// A job of one trainer on nodes of which some start nothing, reconciled each second: what is made lands on the first node that
    /// it is not kept from, and is seen there.
    struct Cluster {
        job: TrainingJob,
        memory: Memory,
        nodes: &'static [&'static str],
        broken: fn(&str) -> Option<PodState>,
        /// Whether the operator may see nodes.
        sees: bool,
        master: MasterView,
        trainer: Option<PodView>,
        now: i64,
        /// How long a pod that was told to go is still seen as it was.
        lag: i64,
        gone_at: Option<i64>,
        /// Where trainers were put.
        put: Vec<String>,
    }

    fn ended(end: End) -> PodState {
        let exit_code = matches!(end, End::Unstarted).then_some(128);
        let message = "no driver".to_owned();
        PodState::Ended(Ended { end, exit_code, message, at: None, leaves_others: false })
    }

    impl Cluster {
        fn new(nodes: &'static [&'static str], broken: fn(&str) -> Option<PodState>) -> Cluster {
            let status = json!({ "admitted": "2026-01-01T00:00:00Z", "trainer": { "wanted": 1 },
                "pserver": { "seats": [{ "ordinal": 0 }], "nextOrdinal": 1 } });
            let master =
                MasterView { phase: "training".to_owned(), is_progress_known: true, ..MasterView::default() };
            let job = fixture::job(json!({}), status);
            let memory = Memory::default();
            let (lag, gone_at, put) = (0, None, Vec::new());
            let (sees, trainer, now) = (true, None, BEGIN);
            Cluster { job, memory, nodes, broken, sees, master, trainer, now, lag, gone_at, put }
        }

        /// Others of the role have made steps.
        fn trained(mut self) -> Cluster {
            let name = "j-trainer-7".to_owned();
            self.master.trainers = vec![MemberView { name, is_live: true, ..MemberView::default() }];
            (self.master.step, self.master.steps) = (7, 1000);
            self
        }

        fn status(&self) -> &TrainingJobStatus {
            self.job.status.as_ref().unwrap()
        }

        fn place(&mut self, plan: &PodPlan) {
            let is_kept = |node: &str| plan.avoids.nodes.iter().any(|one| one == node);
            let liked = self.nodes.iter().find(|node| !is_kept(node));
            let node = liked.or(self.nodes.first().filter(|_| !plan.avoids.is_strict)).unwrap();
            self.put.push((*node).to_owned());
            let state = (self.broken)(node).unwrap_or(PodState::Running);
            let made = pod(Role::Trainer, plan.ordinal, state);
            let (uid, node, created) = (self.now.to_string(), Some((*node).to_owned()), Moment(self.now));
            self.trainer = Some(PodView { uid, node, created, ..made });
        }

        /// For at most so many seconds, until the job is over.
        fn run(&mut self, seconds: i64) {
            let until = self.now + seconds;
            while self.now < until && !self.status().phase.is_over() {
                self.now += 1;
                if self.gone_at.is_some_and(|at| at <= self.now) {
                    (self.trainer, self.gone_at) = (None, None);
                }
                let servers = [Role::Master, Role::Pserver].map(|role| pod(role, 0, PodState::Running));
                let pods: Vec<PodView> = servers.into_iter().chain(self.trainer.clone()).collect();
                let failed: Vec<String> =
                    avoided(self.status(), Role::Trainer).map(|one| one.node.clone()).collect();
                let failed_now = self.trainer.iter().filter(|pod| has_failed_to_start(pod));
                let failed_now: Vec<_> = failed_now.filter_map(|pod| pod.node.clone()).collect();
                let is_open = |node: &&str| !failed.iter().chain(&failed_now).any(|one| one == node);
                let roles: &[Role] =
                    if self.nodes.iter().any(is_open) { &Role::ALL } else { &[Role::Master, Role::Pserver] };
                let elsewhere = self.sees.then_some(roles);
                let view = View { master: Some(&self.master), elsewhere, ..view(&self.job, &pods, self.now) };
                let decision = decide(&view, &mut self.memory).unwrap();
                self.job.status = Some(decision.status);
                for act in decision.acts {
                    match act {
                        Act::DeletePod { uid, .. }
                            if self.trainer.as_ref().is_some_and(|one| one.uid == uid) =>
                        {
                            self.gone_at.get_or_insert(self.now + self.lag);
                        }
                        Act::CreatePod(plan) if plan.role == Role::Trainer => self.place(&plan),
                        _ => {}
                    }
                }
            }
        }
    }

    fn starts_nothing(node: &str) -> Option<PodState> {
        (node == "bad").then(|| ended(End::Unstarted))
    }

    #[test]
    fn a_node_that_starts_nothing_is_left_alone_by_a_job_that_has_begun_and_by_one_that_has_not() {
        for cluster in [
            Cluster::new(&["bad", "good"], starts_nothing),
            Cluster::new(&["bad", "good"], starts_nothing).trained(),
        ] {
            let mut cluster = cluster;
            cluster.run(3600);
            assert_eq!(cluster.put, ["bad", "good"]);
            assert!(!cluster.status().phase.is_over(), "{}", cluster.status().message);
            let failure = cluster.status().last_failure.clone().unwrap();
            assert_eq!((failure.reason.as_str(), failure.message.as_str()), ("NotStarted", "no driver"));
        }
    }

    #[test]
    fn a_node_is_named_for_as_long_as_it_is_avoided_and_then_tried_again() {
        let mut cluster = Cluster::new(&["bad", "good"], starts_nothing).trained();
        cluster.run(60);
        let named: Vec<_> =
            cluster.status().avoided_nodes.iter().map(|one| (one.node.as_str(), one.pods)).collect();
        assert_eq!(named, [("bad", 1)]);
        cluster.run(AVOIDED_SECONDS as i64);
        assert!(cluster.status().avoided_nodes.is_empty());
        cluster.trainer = None;
        cluster.run(60);
        assert_eq!(cluster.put, ["bad", "good", "bad", "good"]);
    }

    /// By exit code and by the node's word: what a shell says of a missing program, and what a runtime does.
    #[test]
    fn what_two_nodes_say_of_a_program_that_has_never_run_is_final() {
        for broken in [
            (|_| Some(ended(End::Unstarted))) as fn(&str) -> Option<PodState>,
            |_| Some(ended(End::Exited(127))),
            |_| Some(ended(End::Exited(2))),
        ] {
            let mut cluster = Cluster::new(&["a", "b", "c"], broken);
            cluster.run(60);
            assert_eq!((cluster.status().phase, cluster.put.len()), (Phase::Failed, 2));
            assert!(cluster.status().message.starts_with("Hopeless: "), "{}", cluster.status().message);
        }
    }

    #[test]
    fn the_word_of_the_only_node_is_final_when_it_has_said_so_three_times() {
        for sees in [true, false] {
            let mut cluster = Cluster { sees, ..Cluster::new(&["bad"], starts_nothing) };
            cluster.run(60);
            assert_eq!((cluster.status().phase, cluster.put.len()), (Phase::Failed, 3), "{sees}");
            assert!(cluster.now - BEGIN < 10);
        }
    }

    #[test]
    fn a_job_that_has_begun_outlives_that_every_node_starts_nothing_and_makes_few_pods() {
        let mut cluster = Cluster::new(&["a", "b"], |_| Some(ended(End::Unstarted))).trained();
        cluster.run(3600);
        assert!(!cluster.status().phase.is_over());
        assert!((20..80).contains(&cluster.put.len()), "{}", cluster.put.len());
    }

    fn without_image(node: &str) -> Option<PodState> {
        let (reason, message) = ("ImagePullBackOff".to_owned(), "no such image".to_owned());
        (node != "good").then_some(PodState::Starting(Some(Unusable { reason, message, may_pass: false })))
    }

    #[test]
    fn an_image_that_one_node_cannot_have_is_tried_on_others_and_one_that_none_can_have_ends_the_job() {
        let mut cluster = Cluster::new(&["a", "b", "good"], without_image);
        cluster.run(3600);
        assert_eq!(cluster.put, ["a", "b", "good"]);
        assert!(!cluster.status().phase.is_over());
        for (nodes, sees) in [(&["a", "b"][..], true), (&["a"], true), (&["a"], false)] {
            let mut cluster = Cluster { sees, ..Cluster::new(nodes, without_image) };
            cluster.run(3600);
            assert!(cluster.status().message.starts_with("ImageUnusable: "), "{}", cluster.status().message);
            assert!(
                (600..620).contains(&(cluster.now - BEGIN)),
                "{nodes:?}: after {} s",
                cluster.now - BEGIN
            );
        }
    }

    #[test]
    fn a_pod_that_is_seen_after_it_was_told_to_go_is_counted_once() {
        let mut cluster = Cluster { lag: 4, ..Cluster::new(&["a", "b", "good"], without_image) };
        cluster.run(600);
        assert_eq!(cluster.put, ["a", "b", "good"]);
        let counted: Vec<u32> = cluster.status().avoided_nodes.iter().map(|one| one.pods).collect();
        assert_eq!(counted, [1, 1]);
    }

    #[test]
    fn an_image_that_is_lost_ends_no_job_that_has_begun() {
        let mut cluster = Cluster::new(&["a", "b"], without_image).trained();
        cluster.run(7200);
        assert!(!cluster.status().phase.is_over());
        assert!(cluster.put.len() < 40, "{}", cluster.put.len());
    }

    #[test]
    fn no_more_nodes_are_remembered_than_a_status_should_have() {
        let mut status = TrainingJobStatus::default();
        for node in 0..100 {
            let on = PodView { node: Some(node.to_string()), ..pod(Role::Trainer, 0, PodState::Running) };
            note(&mut status, &on, Moment(node), "why");
        }
        assert_eq!((status.avoided_nodes.len(), status.avoided_nodes[0].node.as_str()), (AVOIDED_MAX, "68"));
    }
}
