//! Trainers: which go, and which come.

use super::fixture::{self, pod, view};
use super::{Act, Choice, Deleted, Memory, PodState, PodView, Role, View, decide};
use serde_json::json;
use shoal_job::ends::Displacement;
use shoal_planner::JobPlan;

/// The trainers that are made, each with whether it may be preempted, and those that are deleted.
fn decided(trainers: &[u32], (plan, scaled_down): (JobPlan, Vec<String>)) -> (Vec<(u32, bool)>, Vec<String>) {
    let status = json!({ "admitted": "2026-01-01T00:00:00Z", "trainer": { "wanted": 3 },
        "pserver": { "seats": [{ "ordinal": 0 }], "nextOrdinal": 1 } });
    let job = fixture::job(json!({ "minReplicas": 2, "maxReplicas": 9 }), status);
    let pod = |role, ordinal| pod(role, ordinal, PodState::Running);
    let pods: Vec<PodView> = [pod(Role::Master, 0), pod(Role::Pserver, 0)]
        .into_iter()
        .chain(trainers.iter().map(|ordinal| pod(Role::Trainer, *ordinal)))
        .collect();
    let view = View { choice: Choice::Plan(&plan, &scaled_down), ..view(&job, &pods, 1_800_000_000) };
    let (mut made, mut deleted) = (Vec::new(), Vec::new());
    for act in decide(&view, &mut Memory::default()).unwrap().acts {
        match act {
            Act::CreatePod(plan) => made.push((plan.ordinal, plan.is_elastic)),
            Act::DeletePod { name, .. } => deleted.push(name),
            _ => {}
        }
    }
    (made, deleted)
}

fn planned(trainers: u32, scaled_down: &[&str]) -> (JobPlan, Vec<String>) {
    let scaled_down = scaled_down.iter().map(|uid| (*uid).to_owned()).collect();
    (JobPlan { is_admitted: true, trainers, ..JobPlan::default() }, scaled_down)
}

#[test]
fn who_is_named_goes_then_the_highest_ordinals() {
    let (made, deleted) = decided(&[0, 1, 2, 3, 4], planned(3, &["trainer-1"]));
    assert_eq!(deleted, ["j-trainer-1", "j-trainer-4"]);
    assert!(made.is_empty());
    // One gives way to others, another comes elsewhere once its ordinal is free.
    let (made, deleted) = decided(&[0, 1, 2], planned(3, &["trainer-1"]));
    assert_eq!((made, deleted), (Vec::new(), vec!["j-trainer-1".to_owned()]));
}

/// A scheduler has preempted two of five, and the plan has three from now on.
#[test]
fn who_was_told_to_end_by_others_is_of_those_that_are_too_many() {
    let status = json!({ "admitted": "2026-01-01T00:00:00Z", "trainer": { "wanted": 5 },
        "pserver": { "seats": [{ "ordinal": 0 }], "nextOrdinal": 1 } });
    let job = fixture::job(json!({ "minReplicas": 2, "maxReplicas": 9 }), status);
    let preempted = Some(Deleted { grace_seconds: 30, why: Displacement::Preempted });
    let trainer = |ordinal: u32| PodView {
        deleted: preempted.filter(|_| ordinal < 2),
        ..pod(Role::Trainer, ordinal, PodState::Running)
    };
    let servers = [Role::Master, Role::Pserver].map(|role| pod(role, 0, PodState::Running));
    let pods: Vec<PodView> = servers.into_iter().chain((0..5).map(trainer)).collect();
    let touched = |trainers| {
        let (plan, scaled_down) = planned(trainers, &[]);
        let view = View { choice: Choice::Plan(&plan, &scaled_down), ..view(&job, &pods, 1_800_000_000) };
        let acts = decide(&view, &mut Memory::default()).unwrap().acts;
        let pods = acts.into_iter().filter_map(|act| match act {
            Act::DeletePod { name, .. } => Some(name),
            Act::CreatePod(plan) => Some(format!("+{}", plan.ordinal)),
            _ => None,
        });
        pods.collect::<Vec<_>>()
    };
    assert_eq!(touched(3), Vec::<String>::new());
    assert_eq!(touched(2), ["j-trainer-4"]);
    assert_eq!(touched(5), Vec::<String>::new(), "until they are gone");
}

#[test]
fn who_comes_has_the_lowest_ordinals_and_the_first_of_them_the_jobs_priority() {
    assert_eq!(decided(&[0, 3], planned(5, &[])).0, [(1, false), (2, true), (4, true)]);
    assert_eq!(decided(&[], planned(3, &["trainer-7"])).0, [(0, false), (1, false), (2, true)]);
}

#[test]
fn a_job_that_was_let_in_keeps_its_trainers_whatever_a_plan_says() {
    assert_eq!(decided(&[0, 1, 2], Default::default()), (Vec::new(), Vec::new()));
}
