//! How many of whom a job is to have: what its spec says, or what was planned for it among all jobs. Pure.

use super::view::{Planned, Target};
use crate::api::{PlanStatus, TrainingJobSpec, TrainingJobStatus};

/// Who says how many trainers a job is to have.
#[derive(Clone, Copy, Debug)]
pub enum Choice<'a> {
    /// Its spec alone: the operator has no rights to see the cluster's nodes.
    Spec,
    /// The plan for all jobs.
    Plan(&'a Planned),
    /// A plan that is not made yet: nothing changes until then.
    NotYet,
}

/// How many of whom there should be.
pub fn target(spec: &TrainingJobSpec, status: Option<&TrainingJobStatus>, choice: Choice<'_>) -> Target {
    let within = |replicas: Option<u32>, min: u32, max: Option<u32>| {
        let (wanted, why) = match replicas {
            Some(replicas) => (replicas, "replicas, as the job's spec says"),
            None => (min, "minReplicas, as the job's spec says"),
        };
        (wanted.clamp(min, max.unwrap_or(min).max(min)), why.to_owned())
    };
    let (trainer, pserver) = (&spec.trainer, &spec.pserver);
    let (trainers, why_trainers) = within(trainer.replicas, trainer.min_replicas, trainer.max_replicas);
    let (pservers, why_pservers) = within(pserver.replicas, pserver.min_replicas, pserver.max_replicas);
    let by_spec = Target { trainers, pservers, why_trainers, why_pservers, ..Target::default() };
    match choice {
        Choice::Spec => by_spec,
        // Who was let in stays in: a plan that says otherwise is older than that.
        Choice::Plan(planned) if planned.is_admitted || !is_in(status) => by_plan(spec, planned, by_spec),
        Choice::Plan(_) | Choice::NotYet => as_before(spec, status, by_spec),
    }
}

/// How many pservers a job is to have.
pub fn pservers_wanted(spec: &TrainingJobSpec) -> u32 {
    target(spec, None, Choice::Spec).pservers
}

fn by_plan(spec: &TrainingJobSpec, planned: &Planned, by_spec: Target) -> Target {
    let (blocker, blocked_by) = planned.blocker.clone().unwrap_or_default();
    let plan = PlanStatus {
        share: format!("{:.1}%", 100.0 * planned.share),
        why: planned.why.clone(),
        blocker: blocker.to_owned(),
        blocked_by: blocked_by.clone(),
        ..PlanStatus::default()
    };
    let least = spec.trainer.min_replicas;
    let most = spec.trainer.max_replicas.unwrap_or(least).max(least);
    // What is held up may be held up by what the plan could not know.
    let why_trainers = match blocked_by.as_str() {
        "" => planned.why.clone(),
        blocked_by => format!("{}; no more, for {blocked_by}", planned.why),
    };
    Target {
        waits_for: (!planned.is_admitted).then(|| planned.waits_for()),
        // The plan may be older than the spec.
        trainers: if planned.is_admitted { planned.trainers.clamp(least, most) } else { 0 },
        why_trainers,
        let_go: planned.let_go.clone(),
        lacks: planned.lacks.clone(),
        plan: Some(plan),
        ..by_spec
    }
}

/// What there was stays until there is a plan.
fn as_before(spec: &TrainingJobSpec, status: Option<&TrainingJobStatus>, by_spec: Target) -> Target {
    let wanted = status.filter(|_| is_in(status)).map(|status| status.trainer.wanted);
    match wanted {
        Some(wanted) => Target { trainers: wanted.max(spec.trainer.min_replicas), ..by_spec },
        None => Target { waits_for: Some("it waits to be planned for".to_owned()), trainers: 0, ..by_spec },
    }
}

fn is_in(status: Option<&TrainingJobStatus>) -> bool {
    status.is_some_and(|status| status.admitted.is_some())
}
