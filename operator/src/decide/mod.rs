//! What a job needs next: from the job as it is written, its pods, its plans and its master's word. Pure.
//!
//! Four stages, each a function of those before: `observe` counts what there is, `target` says what there should be, `acts` what is
//! to be done for it, `status` what is told. `check` holds the decision against what must hold whatever is seen.
//!
//! The state machine is the job's phase. What must not be forgotten between two reconciles is in the job's status, and is
//! written before anything is done (`Decision`); so every act may be repeated, come late, or be lost with its operator.
//!
//! Invariants, which `properties.rs` holds against a model of a cluster, and `check` against every decision where one reconcile tells:
//! 1. A pod's name is made of job, role and ordinal alone, so that there is at most one pod for each.
//! 2. A seat is given up only when its pod is gone; no ordinal of a pserver is given twice to another seat.
//! 3. An end of a pod is counted once.
//! 4. A job that is over, suspended or deleted has, after its policy, no pods, and gets none.
//! 5. A job that was not let in has no pods and gets none; one that was stays in until it is over or suspended.
//! 6. No pserver and no trainer is made before the job's master has a node.
//! 7. From whatever state, with the cluster at rest and room for all, as many pods run as are wanted.

mod acts;
mod certificates;
mod check;
mod ends;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod going_tests;
mod load;
mod nodes;
mod notes;
mod numbers;
mod observe;
mod overdue;
mod plans;
#[cfg(test)]
mod plans_tests;
mod progress;
#[cfg(test)]
mod properties;
mod seats;
mod status;
mod target;
#[cfg(test)]
mod tls_tests;
#[cfg(test)]
mod trainers_tests;
mod view;

pub use certificates::{CertificateView, Due, IssuerView, certificate_due, certificate_end};
pub use nodes::{avoided, has_failed_to_start};
pub use numbers::{Choice, pservers_wanted};
pub use shoal_planner::QUOTA;
pub use status::{GOING, NAME_TAKEN, POD_REFUSED};
pub use view::{
    Act, Avoids, Broken, Command, Decision, Deleted, Ended, FINALIZER, Grace, MasterView, MemberView, Memory,
    PodPlan, PodState, PodView, Role, Unusable, View, pod_name,
};

use crate::api::{Moment, Phase, TrainingJobStatus};

/// How often a job is reconciled, in seconds, by what there is to expect.
const CLOSELY: u64 = 1;
const USUALLY: u64 = 3;
const SELDOM: u64 = 60;
const RARELY: u64 = 300;

/// What a job needs next: what there is, what there should be, what is to be done for it, and what is told of it, each by the one before.
///
/// # Errors
/// The decision would break what must hold whatever is seen.
pub fn decide(view: &View<'_>, memory: &mut Memory) -> Result<Decision, Broken> {
    let seen = observe::observe(view, memory);
    let target = target::target(&seen, memory);
    let mut acts = acts::acts(&seen, &target, memory);
    let (mut status, told) = status::status(&seen, &target, &acts, memory);
    check::check(&seen, &target, &acts, &status).map_err(Broken)?;
    let is_staying = |pod: &&PodView| {
        pod.deleted.is_none()
            && !matches!(pod.state, PodState::Ended(_))
            && !status.counted.contains(&pod.uid)
    };
    memory.present = view.pods.iter().filter(is_staying).map(|pod| (pod.uid.clone(), pod.clone())).collect();
    let target::Target { plans, notes, .. } = target;
    let notes = seen.notes.and(plans.notes).and(notes).and(told);
    notes.remember(&mut status, view.now);
    let again_after = again_after(view, &status, &acts);
    acts.extend(notes.into_events());
    Ok(Decision { status, plans: plans.statuses, acts, again_after })
}

/// In how many seconds the job is reconciled again, even if nothing is heard.
fn again_after(view: &View<'_>, status: &TrainingJobStatus, acts: &[Act]) -> u64 {
    let is_empty = view.pods.is_empty() && !acts.iter().any(|act| matches!(act, Act::CreatePod(_)));
    match status.phase {
        Phase::Suspended | Phase::Succeeded | Phase::Failed if view.pods.is_empty() => {
            expiry(view, status).unwrap_or(RARELY)
        }
        // The planner says once there is room.
        Phase::Pending | Phase::Invalid if is_empty && status.admitted.is_none() => SELDOM,
        // Without one its end is near.
        Phase::Running if view.ready(Role::Trainer) > 0 => USUALLY,
        _ => CLOSELY,
    }
}

/// In how many seconds the job itself is to be deleted, if ever.
fn expiry(view: &View<'_>, status: &TrainingJobStatus) -> Option<u64> {
    let after = view.job.spec.ttl_seconds_after_finished?;
    let over: Moment = status.completion_time?;
    Some(over.plus(after).since(view.now).clamp(1, RARELY))
}
