//! A job `j` and its pods, for the tests of this module.

use super::{Choice, PodState, PodView, Role, View, pod_name};
use crate::api::{Moment, TlsMode, TrainingJob};
use serde_json::{Value, json};

/// A job whose trainers are so, beside their template, and that has this status.
pub(super) fn job(trainer: Value, status: Value) -> TrainingJob {
    let template = json!({ "spec": { "containers": [{ "name": "trainer", "image": "i" }] } });
    let mut spec =
        json!({ "data": ["/d"], "checkpoint": { "place": "/c" }, "trainer": { "template": template } });
    for (key, value) in trainer.as_object().into_iter().flatten() {
        spec["trainer"][key] = value.clone();
    }
    let mut job = TrainingJob::new("j", serde_json::from_value(spec).unwrap());
    job.status = Some(serde_json::from_value(status).unwrap());
    job
}

/// A pod of it, which is ready if it runs.
pub(super) fn pod(role: Role, ordinal: u32, state: PodState) -> PodView {
    PodView {
        name: pod_name(role, "j", ordinal),
        uid: format!("{role}-{ordinal}"),
        role,
        ordinal,
        is_ready: state == PodState::Running,
        state,
        created: Moment(0),
        deleted: None,
        disruption: String::new(),
        node: None,
        ip: None,
        memory: None,
    }
}

/// Both as they are seen at a moment, by an operator without nodes, plans or a word of the master.
pub(super) fn view<'a>(job: &'a TrainingJob, pods: &'a [PodView], now: i64) -> View<'a> {
    View {
        job,
        pods,
        silent_nodes: None,
        elsewhere: None,
        master: None,
        plans: &[],
        choice: Choice::Spec,
        has_store: false,
        tls: TlsMode::Plaintext,
        now: Moment(now),
        uptime: u64::try_from(now).unwrap(),
    }
}
