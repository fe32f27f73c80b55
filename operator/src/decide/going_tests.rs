//! What goes with a job that is over or is deleted, by whatever cascade, and what stays.

use super::fixture::{self, pod, view};
use super::{Act, Deleted, Ended, FINALIZER, Grace, Memory, PodState, PodView, Role, decide};
use crate::api::TrainingJob;
use serde_json::{Value, json};
use shoal_job::ends::{Displacement, End};

/// A job that is being deleted, with these finalizers beside the operator's.
fn deleted(finalizers: &[&str]) -> TrainingJob {
    let mut job = fixture::job(json!({}), json!({ "admitted": "2026-01-01T00:00:00Z" }));
    let all = finalizers.iter().copied().chain([FINALIZER]).map(str::to_owned).collect();
    (job.metadata.finalizers, job.metadata.deletion_timestamp) =
        (Some(all), serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
    job
}

/// What is done, without what is told.
fn acts(job: &TrainingJob, pods: &[PodView]) -> Vec<Act> {
    let acts = decide(&view(job, pods, 1_800_000_000), &mut Memory::default()).unwrap().acts;
    acts.into_iter().filter(|act| !matches!(act, Act::Event { .. })).collect()
}

fn goes(pod: &PodView, grace: Grace) -> Act {
    Act::DeletePod { name: pod.name.clone(), uid: pod.uid.clone(), grace }
}

#[test]
fn what_is_deleted_with_its_pods_ends_its_trainers_first_and_goes_with_the_last_pod() {
    let [master, trainer] = [Role::Master, Role::Trainer].map(|role| pod(role, 0, PodState::Running));
    let job = deleted(&[]);
    assert_eq!(acts(&job, &[master.clone(), trainer.clone()]), [goes(&trainer, Grace::Own)]);
    assert_eq!(acts(&job, std::slice::from_ref(&master)), [goes(&master, Grace::Seconds(1))]);
    assert_eq!(acts(&job, &[]), [Act::DeleteSurroundings, Act::RemoveFinalizer]);
}

/// `kubectl delete --cascade=orphan`.
#[test]
fn of_a_job_that_is_to_leave_orphans_nothing_is_deleted() {
    let pods = [Role::Master, Role::Trainer].map(|role| pod(role, 0, PodState::Running));
    assert_eq!(acts(&deleted(&["orphan"]), &pods), [Act::RemoveFinalizer]);
}

/// `kubectl delete --cascade=foreground`: the collector of garbage has told all pods to end, each within the time that it was made with,
/// which a pserver takes to hand blocks over that nobody needs any more.
#[test]
fn who_was_told_by_others_to_end_later_is_told_to_end_sooner() {
    let told = |role, grace_seconds| PodView {
        deleted: Some(Deleted { grace_seconds, why: Displacement::Evicted }),
        ..pod(role, 0, PodState::Running)
    };
    let job = deleted(&["foregroundDeletion"]);
    let [master, pserver] = [told(Role::Master, 5), told(Role::Pserver, 125)];
    let sooner = [goes(&master, Grace::Seconds(1)), goes(&pserver, Grace::Seconds(1))];
    assert_eq!(acts(&job, &[master, pserver]), sooner);
    assert_eq!(acts(&job, &[told(Role::Master, 1), told(Role::Pserver, 0)]), [], "nor again, nor later");
}

#[test]
fn a_pod_whose_program_has_ended_goes_with_its_job_if_something_beside_it_runs_on() {
    let ended = |leaves_others| {
        let end = End::Exited(0);
        let ended = Ended { end, exit_code: Some(0), message: String::new(), at: None, leaves_others };
        pod(Role::Trainer, u32::from(leaves_others), PodState::Ended(ended))
    };
    let over = json!({ "phase": "Succeeded", "completionTime": "2026-01-01T00:00:00Z" });
    let job = |policy: Value| {
        let mut job = fixture::job(json!({}), over.clone());
        job.spec.clean_pod_policy = serde_json::from_value(policy).unwrap();
        job.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
        job
    };
    let pods = [ended(true), ended(false)];
    assert_eq!(acts(&job(json!("Running")), &pods), [goes(&pods[0], Grace::Own)]);
    assert_eq!(acts(&job(json!("Running")), &pods[1..]), [Act::DeleteSurroundings]);
    assert_eq!(acts(&job(json!("None")), &pods), [Act::DeleteSurroundings]);
}
