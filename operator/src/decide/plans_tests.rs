//! Plans: each ends, and none is another job's.

use super::{Choice, Memory, PodState, PodView, Role, View, decide, pod_name};
use crate::api::{Moment, ScalePlan, ScalePlanPhase, ScalePlanStatus, TrainingJob};
use serde_json::json;

/// What becomes of a plan for three trainers, which the job `u` has.
fn becomes(status: ScalePlanStatus, phase: &str) -> ScalePlanStatus {
    let template = json!({ "spec": { "containers": [{ "name": "trainer", "image": "i" }] } });
    let trainer = json!({ "maxReplicas": 4, "replicas": 3, "template": template });
    let spec = json!({ "data": ["/d"], "checkpoint": { "place": "/c" }, "trainer": trainer });
    let mut job = TrainingJob::new("j", serde_json::from_value(spec).unwrap());
    job.metadata.uid = Some("u".to_owned());
    let of_job = json!({ "admitted": "2026-01-01T00:00:00Z", "phase": phase,
        "pserver": { "seats": [{ "ordinal": 0 }], "nextOrdinal": 1 } });
    job.status = Some(serde_json::from_value(of_job).unwrap());
    let asks = json!({ "ownerJob": "j", "replicaResourceSpecs": { "worker": { "replicas": 3 } } });
    let mut plan = ScalePlan::new("p", serde_json::from_value(asks).unwrap());
    plan.status = Some(status);
    let master = PodView {
        name: pod_name(Role::Master, "j", 0),
        uid: "m".to_owned(),
        role: Role::Master,
        ordinal: 0,
        state: PodState::Running,
        is_ready: true,
        created: Moment(0),
        deleted: None,
        node: None,
        ip: None,
        memory: None,
    };
    let (pods, plans) = ([master], [plan]);
    let view = View {
        job: &job,
        pods: &pods,
        silent_nodes: None,
        master: None,
        plans: &plans,
        choice: Choice::Spec,
        has_store: false,
        now: Moment(2000),
    };
    let decision = decide(&view, &mut Memory::default()).unwrap();
    decision.plans.into_iter().next().map_or_else(|| plans[0].status.clone().unwrap(), |(_, status)| status)
}

fn scaling(begun: i64) -> ScalePlanStatus {
    let status = ScalePlanStatus { phase: ScalePlanPhase::Scaling, ..ScalePlanStatus::default() };
    ScalePlanStatus { create_time: Some(Moment(begun)), ..status }
}

#[test]
fn a_plan_that_waits_for_what_does_not_come_ends_after_ten_minutes() {
    assert_eq!(becomes(scaling(1401), "Running").phase, ScalePlanPhase::Scaling);
    let late = becomes(scaling(1400), "Running");
    assert!(late.phase == ScalePlanPhase::Failed && late.message.contains("0 of 3 trainers"), "{late:?}");
}

#[test]
fn a_plan_of_an_earlier_job_of_the_name_or_of_one_that_is_over_fails() {
    let of = |uid: &str| ScalePlanStatus { job_uid: Some(uid.to_owned()), ..ScalePlanStatus::default() };
    let earlier = becomes(of("earlier"), "Running");
    assert!(
        earlier.phase == ScalePlanPhase::Failed && earlier.message.contains("earlier job"),
        "{earlier:?}"
    );
    let over = becomes(of("u"), "Succeeded");
    assert!(over.phase == ScalePlanPhase::Failed && over.message.contains("is over"), "{over:?}");
    assert_eq!(becomes(of("u"), "Running").phase, ScalePlanPhase::Scaling);
    // One that was made before its job waits for it, and is this one's from then on.
    let first = becomes(ScalePlanStatus::default(), "Running");
    assert_eq!((first.phase, first.job_uid.as_deref()), (ScalePlanPhase::Scaling, Some("u")));
}
