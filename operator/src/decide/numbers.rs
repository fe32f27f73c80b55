//! How many of whom a job is to have: what its spec says, or what was planned for it among all jobs. Pure.

use crate::api::{PlanStatus, TrainingJob, TrainingJobSpec, TrainingJobStatus};
use shoal_planner::{Blocker, JobPlan};

/// Who says how many trainers a job is to have.
#[derive(Clone, Copy, Debug)]
pub enum Choice<'a> {
    /// Its spec alone: the operator has no rights to see the cluster's nodes.
    Spec,
    /// The plan for all jobs; and the uids of trainers that go, whoever else stays: others need their nodes.
    Plan(&'a JobPlan, &'a [String]),
    /// A plan that is not made yet: nothing changes until then.
    NotYet,
}

/// How many of whom there should be, and why.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Numbers {
    /// What a job waits for that may have no pods yet; none once it was let in.
    pub(super) waits_for: Option<String>,
    /// Uids of trainers that go, whoever else stays.
    pub(super) scaled_down: Vec<String>,
    /// What it lacks of its least although it was let in.
    pub(super) lacks: Option<String>,
    /// What the plan says, but for the time.
    pub(super) plan: Option<PlanStatus>,
    /// Trainers, within the job's bounds.
    pub(super) trainers: u32,
    /// Pservers, within the job's bounds, unless their load asks for others.
    pub(super) pservers: u32,
    /// Why so many trainers.
    pub(super) why_trainers: String,
    /// Why so many pservers.
    pub(super) why_pservers: String,
}

/// How many of whom there should be.
pub(super) fn numbers(job: &TrainingJob, status: Option<&TrainingJobStatus>, choice: Choice<'_>) -> Numbers {
    let (spec, asked) = (&job.spec, job.asked_trainers());
    let trainer = &spec.trainer;
    let least = trainer.min_replicas;
    let trainers = asked.unwrap_or(least).clamp(least, trainer.max_replicas.unwrap_or(least).max(least));
    let why = |is_stated: bool| {
        let what = if is_stated { "replicas" } else { "minReplicas" };
        format!("{what}, as the job's spec says")
    };
    let by_spec = Numbers {
        trainers,
        pservers: pservers_wanted(spec, status),
        why_trainers: why(asked.is_some()),
        why_pservers: match spec.pserver.replicas {
            Some(_) => why(true),
            None => "within minReplicas and maxReplicas of the job's spec".to_owned(),
        },
        ..Numbers::default()
    };
    match choice {
        Choice::Spec => by_spec,
        // Who was let in stays in: a plan that says otherwise is older than that.
        Choice::Plan(plan, scaled_down) if plan.is_admitted || !is_in(status) => {
            by_plan(job, plan, scaled_down, by_spec)
        }
        Choice::Plan(..) | Choice::NotYet => as_before(spec, status, by_spec),
    }
}

/// The least and the most pservers that a job may have.
pub(super) fn pserver_bounds(spec: &TrainingJobSpec) -> (u32, u32) {
    let pserver = &spec.pserver;
    let (least, most) = (pserver.min_replicas, pserver.max_replicas.unwrap_or(pserver.min_replicas));
    let stated = pserver.replicas.map(|replicas| replicas.clamp(least, most.max(least)));
    stated.map_or((least, most.max(least)), |stated| (stated, stated))
}

/// How many pservers a job is to have: as many as its spec says, or as their load was last found to ask for.
pub fn pservers_wanted(spec: &TrainingJobSpec, status: Option<&TrainingJobStatus>) -> u32 {
    let (least, most) = pserver_bounds(spec);
    status.map_or(least, |status| status.pserver.wanted).clamp(least, most)
}

fn by_plan(job: &TrainingJob, plan: &JobPlan, scaled_down: &[String], by_spec: Numbers) -> Numbers {
    let spec = &job.spec;
    let blocked_by = plan.blocker.as_ref().map(Blocker::to_string);
    let status = PlanStatus {
        share: format!("{:.1}%", 100.0 * plan.share),
        why: plan.why.clone(),
        blocker: plan.blocker.as_ref().map_or("", Blocker::word).to_owned(),
        blocked_by: blocked_by.clone().unwrap_or_default(),
        ..PlanStatus::default()
    };
    let least = spec.trainer.min_replicas;
    let most = spec.trainer.max_replicas.unwrap_or(least).max(least);
    let why_trainers = match &blocked_by {
        _ if job.asked_trainers() == Some(plan.trainers) => by_spec.why_trainers.clone(),
        None => plan.why.clone(),
        Some(blocked_by) => format!("{}; no more, for {blocked_by}", plan.why),
    };
    let waits_for = || blocked_by.unwrap_or_else(|| "it waits for room".to_owned());
    Numbers {
        waits_for: (!plan.is_admitted).then(waits_for),
        // The plan may be older than the spec.
        trainers: if plan.is_admitted { plan.trainers.clamp(least, most) } else { 0 },
        why_trainers,
        scaled_down: scaled_down.to_vec(),
        lacks: plan.lacks.clone(),
        plan: Some(status),
        ..by_spec
    }
}

/// What there was stays until there is a plan.
fn as_before(spec: &TrainingJobSpec, status: Option<&TrainingJobStatus>, by_spec: Numbers) -> Numbers {
    let wanted = status.filter(|_| is_in(status)).map(|status| status.trainer.wanted);
    match wanted {
        Some(wanted) => Numbers { trainers: wanted.max(spec.trainer.min_replicas), ..by_spec },
        None => Numbers { waits_for: Some("it waits to be planned for".to_owned()), trainers: 0, ..by_spec },
    }
}

fn is_in(status: Option<&TrainingJobStatus>) -> bool {
    status.is_some_and(|status| status.admitted.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::PLANNED_TRAINERS;
    use serde_json::json;

    fn job(replicas: Option<u32>) -> TrainingJob {
        let trainer = json!({ "minReplicas": 2, "maxReplicas": 6, "replicas": replicas, "template": {} });
        TrainingJob::new("j", serde_json::from_value(json!({ "trainer": trainer })).unwrap())
    }

    fn full() -> Blocker {
        Blocker::Quota("full".to_owned())
    }

    fn planned(trainers: u32, blocker: Blocker) -> JobPlan {
        let (is_admitted, why, blocker) = (true, "room".to_owned(), Some(blocker));
        JobPlan { is_admitted, trainers, why, blocker, ..JobPlan::default() }
    }

    #[test]
    fn a_plan_says_how_many_and_why_unless_they_are_as_the_spec_says() {
        let by = |job: &TrainingJob, trainers| {
            let said = numbers(job, None, Choice::Plan(&planned(trainers, full()), &[]));
            (said.trainers, said.why_trainers)
        };
        assert_eq!(by(&job(Some(4)), 4), (4, "replicas, as the job's spec says".to_owned()));
        assert_eq!(by(&job(Some(4)), 3), (3, "room; no more, for full".to_owned()));
        assert_eq!(by(&job(None), 3), (3, "room; no more, for full".to_owned()));
        assert_eq!(by(&job(None), 9).0, 6, "a plan may be older than the spec");
        assert_eq!(by(&job(None), 1).0, 2);
    }

    #[test]
    fn a_number_that_the_operator_has_written_itself_is_nobodys_wish() {
        let mut job = job(Some(4));
        job.metadata.annotations = Some([(PLANNED_TRAINERS.to_owned(), "4".to_owned())].into());
        let said = |job: &TrainingJob, choice| {
            let said = numbers(job, None, choice);
            (said.trainers, said.why_trainers)
        };
        let plan = planned(3, full());
        let by_plan = said(&job, Choice::Plan(&plan, &[]));
        assert_eq!(by_plan, (3, "room; no more, for full".to_owned()));
        assert_eq!(said(&job, Choice::Spec).0, 2, "without a plan it is the least");
        job.spec.trainer.replicas = Some(5);
        assert_eq!(said(&job, Choice::Spec), (5, "replicas, as the job's spec says".to_owned()));
    }

    #[test]
    fn without_a_plan_what_there_was_stays_and_nobody_is_let_in() {
        let status: TrainingJobStatus =
            serde_json::from_value(json!({ "admitted": "2026-01-01T00:00:00Z", "trainer": { "wanted": 5 } }))
                .unwrap();
        for choice in [Choice::NotYet, Choice::Plan(&JobPlan::default(), &[])] {
            let stays = numbers(&job(None), Some(&status), choice);
            assert_eq!((stays.trainers, stays.waits_for), (5, None));
        }
        assert!(numbers(&job(None), None, Choice::NotYet).waits_for.is_some());
        let refused = JobPlan { is_admitted: false, ..planned(0, full()) };
        let waits = numbers(&job(None), None, Choice::Plan(&refused, &[]));
        assert_eq!((waits.trainers, waits.waits_for.as_deref()), (0, Some("full")));
    }
}
