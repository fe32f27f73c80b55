//! A pod as the API server shows it, as a [`PodView`]: what became of it, and whose doing that was. Asks nobody.

use crate::api::{Moment, bytes};
use crate::decide::{Deleted, Ended, PodState, PodView, Role, Unusable};
use crate::manifest::{ORDINAL_LABEL, ROLE_LABEL, program_of};
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodCondition,
};
use shoal_job::ends::{Displacement, End};
use shoal_runtime::host::telemetry;

/// Why a kubelet says that it cannot run a container as it is written.
const UNUSABLE: [&str; 9] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
];
/// What a pod is given to end, where nobody says otherwise: Kubernetes' own.
const GRACE_SECONDS: u64 = 30;

/// A job's pod; none for others.
pub(super) fn seen(pod: &Pod) -> Option<PodView> {
    let metadata = &pod.metadata;
    let labels = metadata.labels.as_ref()?;
    let role = match labels.get(ROLE_LABEL)?.as_str() {
        "master" => Role::Master,
        "pserver" => Role::Pserver,
        "trainer" => Role::Trainer,
        _ => return None,
    };
    let status = pod.status.as_ref();
    let target = condition(pod, "DisruptionTarget").filter(|one| one.status == "True");
    Some(PodView {
        name: metadata.name.clone()?,
        uid: metadata.uid.clone()?,
        role,
        ordinal: labels.get(ORDINAL_LABEL)?.parse().ok()?,
        state: state(pod, target),
        is_ready: condition(pod, "Ready").is_some_and(|ready| ready.status == "True"),
        created: metadata.creation_timestamp.as_ref().map_or(Moment::default(), |time| Moment::from(time.0)),
        deleted: metadata.deletion_timestamp.as_ref().map(|_| Deleted {
            grace_seconds: metadata
                .deletion_grace_period_seconds
                .map_or(GRACE_SECONDS, |seconds| u64::try_from(seconds).unwrap_or(0)),
            why: target.map_or(Displacement::Evicted, disruption),
        }),
        disruption: target.and_then(|target| target.message.clone()).unwrap_or_default(),
        node: node(pod).cloned(),
        ip: status.and_then(|status| status.pod_ip.clone()),
        memory: container_memory(pod),
    })
}

fn condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|one| one.type_ == type_)
}

fn node(pod: &Pod) -> Option<&String> {
    pod.spec.as_ref()?.node_name.as_ref().filter(|node| !node.is_empty())
}

fn container_memory(pod: &Pod) -> Option<u64> {
    let (name, containers) = (program_of(pod)?, &pod.spec.as_ref()?.containers);
    let own = containers.iter().find(|one| one.name == name)?;
    bytes(&own.resources.as_ref()?.limits.as_ref()?.get("memory")?.0)
}

/// How far a pod is, by its role's own container. The pod's phase speaks of all: with another container beside it a program's pod
/// runs on after the program has ended, and is pending while the other has no image.
fn state(pod: &Pod, target: Option<&PodCondition>) -> PodState {
    let Some(status) = &pod.status else { return PodState::Unplaced(None) };
    let is_over = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    match own_state(pod) {
        _ if is_over => PodState::Ended(ended(pod, target)),
        Some(ContainerState { terminated: Some(_), .. }) => PodState::Ended(ended(pod, target)),
        Some(ContainerState { running: Some(_), .. }) => PodState::Running,
        None if status.phase.as_deref() == Some("Running") => PodState::Running,
        _ if node(pod).is_some() => PodState::Starting(unusable(pod)),
        _ => {
            let scheduled = condition(pod, "PodScheduled").filter(|one| one.status == "False");
            PodState::Unplaced(scheduled.map(|one| one.message.clone().unwrap_or_default()))
        }
    }
}

/// All containers of a pod that have a status: those that come before the others, then the others.
fn containers(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.as_ref();
    let init = status.and_then(|status| status.init_container_statuses.as_ref());
    let main = status.and_then(|status| status.container_statuses.as_ref());
    init.into_iter().chain(main).flatten()
}

/// The state of the role's own container; none before its kubelet has said any.
fn own_state(pod: &Pod) -> Option<&ContainerState> {
    let name = program_of(pod)?;
    let main = pod.status.as_ref()?.container_statuses.as_ref()?;
    main.iter().find(|one| one.name == name)?.state.as_ref()
}

/// Why a container of a pod cannot be started, if that is said.
fn unusable(pod: &Pod) -> Option<Unusable> {
    containers(pod).filter_map(|one| one.state.as_ref()?.waiting.as_ref()).find_map(|waiting| {
        let reason = waiting.reason.clone().filter(|reason| UNUSABLE.contains(&reason.as_str()))?;
        Some(Unusable { reason, message: waiting.message.clone().unwrap_or_default(), may_pass: false })
    })
}

/// How a pod ended: its role's own container, or what kept that from being started.
fn ended(pod: &Pod, target: Option<&PodCondition>) -> Ended {
    let status = pod.status.as_ref();
    let own = own_state(pod).and_then(|state| state.terminated.as_ref());
    let earlier = if own.is_none() { failed_before(pod) } else { None };
    let reason = status.and_then(|status| status.reason.clone()).unwrap_or_default();
    let by_container = || match (own, earlier) {
        (Some(own), _) => by_container(own),
        (None, Some((_, init))) if is_unstarted(init) => End::Unstarted,
        // Without a word of its container, nobody knows more than that it failed. What another container returns means nothing here.
        _ => End::Exited(1),
    };
    let end = match (status.and_then(|status| status.phase.as_deref()), target) {
        (Some("Succeeded"), _) => End::Exited(0),
        (_, Some(target)) => End::Displaced(disruption(target)),
        _ => by_reason(&reason).map_or_else(by_container, End::Displaced),
    };
    let said = |text: Option<&String>| text.filter(|text| !text.is_empty()).cloned();
    let terminated = own.or(earlier.map(|(_, init)| init));
    // The end of a log: of a role's own, the error that ended it.
    let words = terminated.and_then(|one| said(one.message.as_ref()));
    let words = words.map(|log| telemetry::last_error(&log).unwrap_or_else(|| telemetry::readable(&log)));
    let words = match (earlier, words) {
        (Some((name, init)), words) => {
            let words = words.map_or_else(String::new, |words| format!(": {words}"));
            Some(format!("its init container {name} ended with exit code {}{words}", init.exit_code))
        }
        (None, words) => words,
    };
    let words = words.or_else(|| status.and_then(|status| said(status.message.as_ref())));
    let runs = |one: &ContainerStatus| one.state.as_ref().is_some_and(|state| state.running.is_some());
    let is_over = matches!(status.and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed"));
    Ended {
        end,
        exit_code: terminated.map(|one| one.exit_code),
        message: words.unwrap_or(reason),
        at: terminated.and_then(|one| one.finished_at.as_ref()).map(|time| Moment::from(time.0)),
        leaves_others: !is_over && containers(pod).any(runs),
    }
}

/// The container that failed before the role's own was to be started.
fn failed_before(pod: &Pod) -> Option<(&str, &ContainerStateTerminated)> {
    let all = pod.status.as_ref()?.init_container_statuses.iter().flatten();
    let mut ends = all.filter_map(|one| Some((one.name.as_str(), one.state.as_ref()?.terminated.as_ref()?)));
    ends.find(|(_, terminated)| terminated.exit_code != 0)
}

/// Whether a node says that it could not start a container.
fn is_unstarted(terminated: &ContainerStateTerminated) -> bool {
    matches!(terminated.reason.as_deref(), Some("ContainerCannotRun" | "StartError"))
}

/// What a kubelet or a controller says of a whole pod.
fn by_reason(reason: &str) -> Option<Displacement> {
    Some(match reason {
        "Preempting" | "Preempted" => Displacement::Preempted,
        "Evicted"
        | "Shutdown"
        | "NodeShutdown"
        | "Terminated"
        | "NodeAffinity"
        | "UnexpectedAdmissionError" => Displacement::Evicted,
        // What a kubelet calls a pod for which it has less room than the scheduler thought: OutOfcpu, OutOfpods…
        room if room.starts_with("OutOf") => Displacement::Evicted,
        "NodeLost" => Displacement::NodeLost,
        _ => return None,
    })
}

/// What a container's end says.
fn by_container(terminated: &ContainerStateTerminated) -> End {
    match (terminated.reason.as_deref(), terminated.exit_code) {
        (Some("OOMKilled"), _) => End::OutOfMemory,
        _ if is_unstarted(terminated) => End::Unstarted,
        (_, code) => End::Exited(code),
    }
}

/// What a server from 1.26 on says of why it ends a pod.
fn disruption(target: &PodCondition) -> Displacement {
    match target.reason.as_deref() {
        Some("PreemptionByScheduler") => Displacement::Preempted,
        Some("DeletionByTaintManager" | "DeletionByPodGC") => Displacement::NodeLost,
        _ => Displacement::Evicted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(status: Value, metadata: Value) -> PodView {
        pod_on(Some("n1"), status, metadata)
    }

    fn pod_on(node: Option<&str>, status: Value, metadata: Value) -> PodView {
        let mut all = json!({
            "name": "j-trainer-1", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": { "shoal.dev/role": "trainer", "shoal.dev/ordinal": "1" },
        });
        metadata.as_object().unwrap().iter().for_each(|(key, value)| all[key] = value.clone());
        let container = json!({ "name": "trainer", "resources": { "limits": { "memory": "1Gi" } } });
        let pod = json!({ "metadata": all, "spec": { "containers": [container], "nodeName": node }, "status": status });
        seen(&serde_json::from_value(pod).unwrap()).unwrap()
    }

    fn failed(terminated: Value) -> End {
        let containers = json!([{ "name": "trainer", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "terminated": terminated } }]);
        match pod(json!({ "phase": "Failed", "containerStatuses": containers }), json!({})).state {
            PodState::Ended(ended) => ended.end,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_end_is_told_by_what_the_container_and_the_cluster_say() {
        assert_eq!(failed(json!({ "exitCode": 137, "reason": "OOMKilled" })), End::OutOfMemory);
        assert_eq!(failed(json!({ "exitCode": 137, "reason": "Error" })), End::Exited(137));
        assert_eq!(failed(json!({ "exitCode": 128, "reason": "StartError" })), End::Unstarted);
        assert_eq!(failed(json!({ "exitCode": 2, "reason": "Error" })), End::Exited(2));
        let whole = [
            ("Evicted", End::Displaced(Displacement::Evicted)),
            ("OutOfcpu", End::Displaced(Displacement::Evicted)),
            ("NodeLost", End::Displaced(Displacement::NodeLost)),
            ("Preempting", End::Displaced(Displacement::Preempted)),
            ("Other", End::Exited(1)),
        ];
        for (reason, wanted) in whole {
            let view = pod(json!({ "phase": "Failed", "reason": reason, "message": "why" }), json!({}));
            let PodState::Ended(ended) = view.state else { panic!("{reason}") };
            assert_eq!((ended.end, ended.message.as_str()), (wanted, "why"), "{reason}");
        }
    }

    /// A pod of a program and a proxy, of which each is in its own state.
    fn beside(phase: &str, own: Value, proxy: Value) -> PodState {
        let container = |name: &str, state: Value| json!({ "name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state });
        let pod = json!({
            "metadata": { "name": "j-trainer-1", "uid": "u",
                "annotations": { "kubectl.kubernetes.io/default-container": "mine" },
                "labels": { "shoal.dev/role": "trainer", "shoal.dev/ordinal": "1" } },
            "spec": { "nodeName": "n", "containers": [{ "name": "proxy" }, { "name": "mine" }] },
            "status": { "phase": phase, "containerStatuses": [container("proxy", proxy), container("mine", own)] },
        });
        seen(&serde_json::from_value(pod).unwrap()).unwrap().state
    }

    #[test]
    fn what_became_of_a_pod_says_its_own_container_whatever_stands_beside_it() {
        let (runs, waits) =
            (json!({ "running": {} }), json!({ "waiting": { "reason": "ContainerCreating" } }));
        let ended = |code: i32| json!({ "terminated": { "exitCode": code, "reason": "Error" } });
        let end = |state| match state {
            PodState::Ended(ended) => Some((ended.end, ended.exit_code, ended.leaves_others)),
            _ => None,
        };
        assert_eq!(end(beside("Running", ended(2), runs.clone())), Some((End::Exited(2), Some(2), true)));
        assert_eq!(end(beside("Running", ended(0), runs.clone())), Some((End::Exited(0), Some(0), true)));
        assert_eq!(end(beside("Failed", ended(0), ended(1))), Some((End::Exited(0), Some(0), false)));
        assert_eq!(beside("Running", runs.clone(), ended(1)), PodState::Running);
        let no_image = json!({ "waiting": { "reason": "ImagePullBackOff", "message": "no" } });
        assert_eq!(beside("Pending", runs.clone(), no_image.clone()), PodState::Running);
        assert_eq!(
            end(beside("Pending", ended(2), no_image.clone())),
            Some((End::Exited(2), Some(2), false))
        );
        assert!(matches!(beside("Pending", waits.clone(), no_image), PodState::Starting(Some(_))));
        assert_eq!(beside("Running", waits, runs), PodState::Starting(None));
    }

    #[test]
    fn what_fails_before_the_program_is_named_and_its_exit_code_is_not_the_programs() {
        let init = |terminated: Value| {
            let state = json!({ "name": "fetch", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": { "terminated": terminated } });
            match pod(json!({ "phase": "Failed", "initContainerStatuses": [state] }), json!({})).state {
                PodState::Ended(ended) => (ended.end, ended.exit_code, ended.message),
                other => panic!("{other:?}"),
            }
        };
        let said = "its init container fetch ended with exit code 2: no such bucket".to_owned();
        let failed = json!({ "exitCode": 2, "reason": "Error", "message": "no such bucket" });
        assert_eq!(init(failed), (End::Exited(1), Some(2), said));
        assert_eq!(init(json!({ "exitCode": 128, "reason": "StartError" })).0, End::Unstarted);
    }

    #[test]
    fn a_deleted_pod_says_by_whom_where_the_server_does() {
        let deleted = json!({ "deletionTimestamp": "2026-01-01T00:01:00Z" });
        let plain = pod(json!({ "phase": "Running" }), deleted.clone());
        assert_eq!((plain.state, plain.deleted.unwrap().why), (PodState::Running, Displacement::Evicted));
        let target = |reason: &str| json!({ "phase": "Running", "conditions": [{ "type": "DisruptionTarget", "status": "True", "reason": reason }] });
        let class = |reason: &str| pod(target(reason), deleted.clone()).deleted.unwrap().why;
        assert_eq!(class("PreemptionByScheduler"), Displacement::Preempted);
        assert_eq!(class("DeletionByTaintManager"), Displacement::NodeLost);
        assert_eq!(class("EvictionByEvictionAPI"), Displacement::Evicted);
        let said = json!({ "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting" });
        let evicted = pod(json!({ "phase": "Running", "conditions": [said] }), deleted.clone());
        assert_eq!(evicted.disruption, "Eviction API: evicting");
    }

    #[test]
    fn a_pod_that_waits_says_for_what() {
        let unscheduled = json!({ "phase": "Pending", "conditions": [
            { "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes" }] });
        assert_eq!(
            pod_on(None, unscheduled, json!({})).state,
            PodState::Unplaced(Some("0/3 nodes".to_owned()))
        );
        let containers = json!([{ "name": "trainer", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "waiting": { "reason": "ImagePullBackOff", "message": "no such image" } } }]);
        let view = pod(json!({ "phase": "Pending", "containerStatuses": containers }), json!({}));
        assert!(matches!(view.state, PodState::Starting(Some(_))));
        assert_eq!(view.memory, Some(1 << 30));
        assert_eq!(pod(json!({ "phase": "Pending" }), json!({})).state, PodState::Starting(None));
        assert_eq!(pod_on(None, json!({ "phase": "Pending" }), json!({})).state, PodState::Unplaced(None));
    }
}
