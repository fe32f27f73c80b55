//! What a job needs next: from the job as it is written, its pods, its plans and its master's word. Pure.
//!
//! The state machine is the job's phase. What must not be forgotten between two looks is in the job's status, and is
//! written before anything is done (`Decision`); so every act may be repeated, come late, or be lost with its operator.
//!
//! Invariants, which `properties.rs` holds against a model of a cluster:
//! 1. A pod's name is made of job, role and ordinal alone, so that there is at most one pod for each.
//! 2. A seat is given up only when its pod is gone; no ordinal of a pserver is given twice to another seat.
//! 3. An end of a pod is counted once.
//! 4. A job that is over, suspended or deleted has, after its policy, no pods, and gets none.
//! 5. A job that was not let in has no pods and gets none; one that was stays in until it is over or suspended.
//! 6. No pserver and no trainer is made before the job's master has a node.
//! 7. From whatever state, with the cluster at rest and room for all, as many pods run as are wanted.

mod end;
mod ends;
mod leave;
mod load;
mod planned;
mod plans;
mod progress;
#[cfg(test)]
mod properties;
mod report;
mod seats;
mod target;
mod trainers;
mod upkeep;
mod view;

pub use report::{GOING, NAME_TAKEN, QUOTA};
pub use target::{Choice, pservers_wanted, target};
pub use view::{
    Act, Command, Decision, Deleted, Ended, FINALIZER, Grace, MasterView, MemberView, Memory, Planned,
    PodPlan, PodState, PodView, Role, Target, Unusable, View, pod_name,
};

use crate::api::{DecisionRecord, Phase, TrainingJobStatus, changed, faults};
use upkeep::Upkeep;

/// What a job needs next.
pub fn decide(view: &View<'_>, memory: &mut Memory) -> Decision {
    let mut next = Upkeep::new(view);
    if view.job.metadata.deletion_timestamp.is_some() {
        leave::deleted(&mut next, memory);
        return next.finish();
    }
    if !view.has_finalizer() {
        next.acts.push(Act::AddFinalizer);
    }
    if next.status.phase.is_over() {
        leave::released(&mut next);
        return next.finish();
    }
    let pinned = next.status.pinned.clone();
    let fault = faults(view.job, view.has_store).into_iter().next();
    if let Some(fault) = fault.or_else(|| changed(&view.job.spec, &pinned).filter(|_| !pinned.is_empty())) {
        report::invalid(&mut next, &fault);
        return next.finish();
    }
    if end::reached(&mut next) {
        leave::released(&mut next);
    } else if view.job.spec.suspend {
        leave::suspended(&mut next);
    } else {
        next.resume();
        planned::note(&mut next);
        plans::take_up(&mut next);
        next.keep(memory);
        if let Some((reason, why)) = next.failed.take() {
            end::fail(&mut next, reason, &why);
            leave::released(&mut next);
        }
    }
    report::conditions(&mut next, memory);
    next.finish()
}

/// How many decisions a job remembers.
const DECISIONS_MAX: usize = 10;

/// Remembers a decision, unless it is the newest already.
fn remember(status: &mut TrainingJobStatus, record: DecisionRecord) {
    let is_known =
        status.decisions.first().is_some_and(|last| (&last.what, &last.why) == (&record.what, &record.why));
    if !is_known {
        status.decisions.insert(0, record);
        status.decisions.truncate(DECISIONS_MAX);
    }
}

/// Whether pods of a job in this phase are kept up.
fn is_kept(phase: Phase) -> bool {
    matches!(phase, Phase::Pending | Phase::Running)
}
