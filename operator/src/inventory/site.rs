//! A node, cut down to what counts for room. Pure.

use super::Amounts;
use k8s_openapi::api::core::v1::{Node, Taint};
use std::collections::BTreeMap;

/// A node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Site {
    /// Its name.
    pub name: String,
    /// What it has for pods.
    pub allocatable: Amounts,
    /// What selectors look at.
    pub labels: BTreeMap<String, String>,
    /// What keeps pods away that do not tolerate it.
    pub taints: Vec<Taint>,
    /// Whether its kubelet is heard of and well.
    pub is_ready: bool,
    /// Whether its kubelet is not heard of: nobody knows what runs there. One that says itself that it is not ready answers.
    pub is_silent: bool,
    /// Whether it takes new pods.
    pub is_open: bool,
}

impl Site {
    /// What a node is.
    pub fn of(node: &Node) -> Site {
        let (spec, status) = (node.spec.as_ref(), node.status.as_ref());
        let ready =
            status.and_then(|status| status.conditions.as_ref()?.iter().find(|one| one.type_ == "Ready"));
        let is_ready = ready.is_none_or(|ready| ready.status == "True");
        let is_cordoned = spec.and_then(|spec| spec.unschedulable).unwrap_or(false);
        let keeps_away = |taint: &&Taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute");
        let taints = spec.and_then(|spec| spec.taints.as_ref()).into_iter().flatten();
        Site {
            name: node.metadata.name.clone().unwrap_or_default(),
            allocatable: status
                .and_then(|status| status.allocatable.as_ref())
                .map(Amounts::of)
                .unwrap_or_default(),
            labels: node.metadata.labels.clone().unwrap_or_default(),
            taints: taints.filter(keeps_away).cloned().collect(),
            is_ready,
            is_silent: ready.is_some_and(|ready| ready.status == "Unknown"),
            is_open: is_ready && !is_cordoned,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn site(spec: Value, ready: Option<&str>) -> Site {
        let conditions: Vec<Value> =
            ready.map(|ready| json!({ "type": "Ready", "status": ready })).into_iter().collect();
        let status = json!({ "allocatable": { "cpu": "7910m", "pods": "110" }, "conditions": conditions });
        Site::of(
            &serde_json::from_value(json!({ "metadata": { "name": "n" }, "spec": spec, "status": status }))
                .unwrap(),
        )
    }

    #[test]
    fn a_node_takes_pods_if_it_is_ready_and_not_cordoned() {
        assert!(site(json!({}), None).is_open && site(json!({}), Some("True")).is_open);
        let cordoned = site(json!({ "unschedulable": true }), Some("True"));
        assert!(cordoned.is_ready && !cordoned.is_open);
        for (status, is_silent) in [("Unknown", true), ("False", false)] {
            let closed = site(json!({}), Some(status));
            assert!(!closed.is_ready && !closed.is_open && closed.is_silent == is_silent, "{status}");
        }
        assert!(!site(json!({}), None).is_silent, "it has just come");
        assert_eq!(site(json!({}), None).allocatable.cpu_millis, 7910);
    }

    #[test]
    fn a_taint_that_only_asks_for_something_better_keeps_nobody_away() {
        let taints = json!({ "taints": [{ "key": "a", "effect": "PreferNoSchedule" }, { "key": "b", "effect": "NoSchedule" }] });
        let taints = site(taints, None).taints;
        assert_eq!(taints.iter().map(|taint| taint.key.as_str()).collect::<Vec<_>>(), ["b"]);
    }
}
