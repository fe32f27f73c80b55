//! A pod, cut down to what counts for room. Pure.

use super::{Amounts, Wish};
use crate::decide::Role;
use crate::manifest::{ORDINAL_LABEL, ROLE_LABEL, job_of};
use k8s_openapi::api::core::v1::Pod;

/// A pod that has room, or waits for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Tenant {
    /// What it asks for.
    pub amounts: Amounts,
    /// Where it is, or would be.
    pub place: PodPlace,
    /// Its priority.
    pub priority: i32,
    /// When it was made, in seconds since 1970.
    pub since: u64,
    /// Whether it is being removed.
    pub is_leaving: bool,
    /// Whether its scheduler has said that it finds no node for it.
    pub is_unschedulable: bool,
    /// What tells it from others that have had its name.
    pub uid: String,
    /// What it is to which job, if it is a job's.
    pub member: Option<Member>,
}

/// Where a pod is.
#[derive(Clone, Debug, PartialEq)]
pub enum PodPlace {
    /// On this node.
    On(String),
    /// No node has it yet: where it wants to be.
    Wants(Box<Wish>),
    /// The scheduler makes room for it on this node: it is to be there as soon as others have left. Where else it could be.
    Nominated(String, Box<Wish>),
}

/// What a pod is to its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The job's uid.
    pub job: String,
    /// What it is.
    pub role: Role,
    /// Which of them.
    pub ordinal: u32,
}

impl Tenant {
    /// What a pod is; none if it has ended, and needs no room.
    pub fn of(pod: &Pod) -> Option<Tenant> {
        let (metadata, spec) = (&pod.metadata, pod.spec.as_ref()?);
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if matches!(phase, Some("Succeeded" | "Failed")) {
            return None;
        }
        let node = spec.node_name.as_ref().filter(|node| !node.is_empty());
        let nominated = pod.status.as_ref().and_then(|status| status.nominated_node_name.as_ref());
        // One that is held back by gates asks for nothing yet.
        let is_held = spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty());
        if node.is_none() && is_held {
            return None;
        }
        let made = metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second());
        Some(Tenant {
            amounts: Amounts::of_pod(spec),
            place: match (node, nominated) {
                (Some(node), _) => PodPlace::On(node.clone()),
                (None, Some(node)) => PodPlace::Nominated(node.clone(), Box::new(Wish::of(spec))),
                (None, None) => PodPlace::Wants(Box::new(Wish::of(spec))),
            },
            priority: spec.priority.unwrap_or(0),
            since: u64::try_from(made).unwrap_or(0),
            is_leaving: metadata.deletion_timestamp.is_some(),
            is_unschedulable: is_unschedulable(pod),
            uid: metadata.uid.clone().unwrap_or_default(),
            member: member(pod),
        })
    }

    /// The node that it is on.
    pub fn node(&self) -> Option<&str> {
        match &self.place {
            PodPlace::On(node) => Some(node),
            PodPlace::Wants(_) | PodPlace::Nominated(..) => None,
        }
    }
}

fn is_unschedulable(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|one| one.type_ == "PodScheduled" && one.status == "False")
}

/// A job's pods say so by their owner, which nobody but a controller writes, and by their labels.
fn member(pod: &Pod) -> Option<Member> {
    let labels = pod.metadata.labels.as_ref()?;
    let role = match labels.get(ROLE_LABEL)?.as_str() {
        "master" => Role::Master,
        "pserver" => Role::Pserver,
        "trainer" => Role::Trainer,
        _ => return None,
    };
    let ordinal = labels.get(ORDINAL_LABEL)?.parse().ok()?;
    let owner = job_of(&pod.metadata)?;
    Some(Member { job: owner.uid.clone(), role, ordinal })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn tenant(spec: Value, more: Value) -> Option<Tenant> {
        let mut metadata = json!({ "name": "p", "uid": "u", "creationTimestamp": "1970-01-01T00:01:00Z" });
        more.as_object().unwrap().iter().for_each(|(key, value)| metadata[key] = value.clone());
        let mut spec = spec;
        spec["containers"] = json!([{ "name": "c", "resources": { "requests": { "cpu": "1" } } }]);
        let status = metadata.as_object_mut().unwrap().remove("status");
        Tenant::of(
            &serde_json::from_value(json!({ "metadata": metadata, "spec": spec, "status": status })).unwrap(),
        )
    }

    #[test]
    fn a_pod_has_a_node_or_waits_for_one_unless_it_is_held_back() {
        let on = tenant(json!({ "nodeName": "n", "priority": 7 }), json!({})).unwrap();
        assert_eq!((on.node(), on.priority, on.since, &on.member), (Some("n"), 7, 60, &None));
        assert_eq!(tenant(json!({}), json!({})).unwrap().node(), None);
        assert_eq!(tenant(json!({ "schedulingGates": [{ "name": "g" }] }), json!({})), None);
    }

    #[test]
    fn what_the_scheduler_says_of_a_pod_is_heard() {
        let said = |status: Value| tenant(json!({}), json!({ "status": status })).unwrap();
        let refused = json!([{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" }]);
        let waits = said(json!({ "conditions": refused }));
        assert!(waits.is_unschedulable && matches!(waits.place, PodPlace::Wants(_)));
        let makes_room = said(json!({ "conditions": refused, "nominatedNodeName": "n" }));
        assert!(matches!(makes_room.place, PodPlace::Nominated(node, _) if node == "n"));
        assert!(!said(json!({})).is_unschedulable, "it has not looked at it yet");
    }

    #[test]
    fn a_jobs_pod_is_one_by_its_owner_and_not_by_labels_alone() {
        let labels = json!({ "shoal.dev/role": "trainer", "shoal.dev/ordinal": "3" });
        let owner =
            json!([{ "apiVersion": "shoal.dev/v1alpha1", "kind": "TrainingJob", "name": "j", "uid": "job" }]);
        let ours = tenant(json!({}), json!({ "labels": labels, "ownerReferences": owner })).unwrap();
        assert_eq!(ours.member, Some(Member { job: "job".to_owned(), role: Role::Trainer, ordinal: 3 }));
        assert_eq!(tenant(json!({}), json!({ "labels": labels })).unwrap().member, None);
    }
}
