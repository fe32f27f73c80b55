//! Plans: each ends, and none is another job's.

use super::fixture::{self, pod, view};
use super::{Memory, PodState, Role, View, decide};
use crate::api::{Moment, ScalePlan, ScalePlanPhase, ScalePlanStatus};
use serde_json::json;

/// What becomes of a plan for three trainers, which the job `u` has.
fn becomes(status: ScalePlanStatus, phase: &str) -> ScalePlanStatus {
    let of_job = json!({ "admitted": "2026-01-01T00:00:00Z", "phase": phase,
        "pserver": { "seats": [{ "ordinal": 0 }], "nextOrdinal": 1 } });
    let mut job = fixture::job(json!({ "maxReplicas": 4, "replicas": 3 }), of_job);
    job.metadata.uid = Some("u".to_owned());
    let asks = json!({ "ownerJob": "j", "replicaResourceSpecs": { "worker": { "replicas": 3 } } });
    let mut plan = ScalePlan::new("p", serde_json::from_value(asks).unwrap());
    plan.status = Some(status);
    let (pods, plans) = ([pod(Role::Master, 0, PodState::Running)], [plan]);
    let view = View { plans: &plans, ..view(&job, &pods, 2000) };
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
