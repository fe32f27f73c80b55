//! How many of whom a job is to have: what its spec says, or what was planned for it among all jobs. Pure.

use super::view::Planned;
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

/// How many of whom there should be, and why.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Numbers {
    /// What a job waits for that may have no pods yet; none once it was let in.
    pub(super) waits_for: Option<String>,
    /// Uids of trainers that go, whoever else stays.
    pub(super) let_go: Vec<String>,
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
pub(super) fn numbers(
    spec: &TrainingJobSpec,
    status: Option<&TrainingJobStatus>,
    choice: Choice<'_>,
) -> Numbers {
    let trainer = &spec.trainer;
    let least = trainer.min_replicas;
    let trainers =
        trainer.replicas.unwrap_or(least).clamp(least, trainer.max_replicas.unwrap_or(least).max(least));
    let why = |is_stated: bool| {
        let what = if is_stated { "replicas" } else { "minReplicas" };
        format!("{what}, as the job's spec says")
    };
    let by_spec = Numbers {
        trainers,
        pservers: pservers_wanted(spec, status),
        why_trainers: why(trainer.replicas.is_some()),
        why_pservers: match spec.pserver.replicas {
            Some(_) => why(true),
            None => "within minReplicas and maxReplicas of the job's spec".to_owned(),
        },
        ..Numbers::default()
    };
    match choice {
        Choice::Spec => by_spec,
        // Who was let in stays in: a plan that says otherwise is older than that.
        Choice::Plan(planned) if planned.is_admitted || !is_in(status) => by_plan(spec, planned, by_spec),
        Choice::Plan(_) | Choice::NotYet => as_before(spec, status, by_spec),
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

fn by_plan(spec: &TrainingJobSpec, planned: &Planned, by_spec: Numbers) -> Numbers {
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
    let why_trainers = if spec.trainer.replicas == Some(planned.trainers) {
        by_spec.why_trainers.clone()
    } else if blocked_by.is_empty() {
        planned.why.clone()
    } else {
        format!("{}; no more, for {blocked_by}", planned.why)
    };
    Numbers {
        waits_for: (!planned.is_admitted).then(|| waits_for(planned)),
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
fn as_before(spec: &TrainingJobSpec, status: Option<&TrainingJobStatus>, by_spec: Numbers) -> Numbers {
    let wanted = status.filter(|_| is_in(status)).map(|status| status.trainer.wanted);
    match wanted {
        Some(wanted) => Numbers { trainers: wanted.max(spec.trainer.min_replicas), ..by_spec },
        None => Numbers { waits_for: Some("it waits to be planned for".to_owned()), trainers: 0, ..by_spec },
    }
}

/// What a job that is not let in waits for.
fn waits_for(planned: &Planned) -> String {
    planned.blocker.as_ref().map_or_else(|| "it waits for room".to_owned(), |(_, why)| why.clone())
}

fn is_in(status: Option<&TrainingJobStatus>) -> bool {
    status.is_some_and(|status| status.admitted.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec(replicas: Option<u32>) -> TrainingJobSpec {
        let trainer = json!({ "minReplicas": 2, "maxReplicas": 6, "replicas": replicas, "template": {} });
        serde_json::from_value(json!({ "trainer": trainer })).unwrap()
    }

    fn planned(trainers: u32, blocked_by: &str) -> Planned {
        let blocker = Some(("NoRoom", blocked_by.to_owned()));
        Planned { is_admitted: true, trainers, why: "room".to_owned(), blocker, ..Planned::default() }
    }

    #[test]
    fn a_plan_says_how_many_and_why_unless_they_are_as_the_spec_says() {
        let by = |spec: &TrainingJobSpec, trainers| {
            let said = numbers(spec, None, Choice::Plan(&planned(trainers, "full")));
            (said.trainers, said.why_trainers)
        };
        assert_eq!(by(&spec(Some(4)), 4), (4, "replicas, as the job's spec says".to_owned()));
        assert_eq!(by(&spec(Some(4)), 3), (3, "room; no more, for full".to_owned()));
        assert_eq!(by(&spec(None), 3), (3, "room; no more, for full".to_owned()));
        assert_eq!(by(&spec(None), 9).0, 6, "a plan may be older than the spec");
        assert_eq!(by(&spec(None), 1).0, 2);
    }

    #[test]
    fn without_a_plan_what_there_was_stays_and_nobody_is_let_in() {
        let status: TrainingJobStatus =
            serde_json::from_value(json!({ "admitted": "2026-01-01T00:00:00Z", "trainer": { "wanted": 5 } }))
                .unwrap();
        for choice in [Choice::NotYet, Choice::Plan(&Planned::default())] {
            let stays = numbers(&spec(None), Some(&status), choice);
            assert_eq!((stays.trainers, stays.waits_for), (5, None));
        }
        assert!(numbers(&spec(None), None, Choice::NotYet).waits_for.is_some());
        let refused = Planned { is_admitted: false, ..planned(0, "full") };
        let waits = numbers(&spec(None), None, Choice::Plan(&refused));
        assert_eq!((waits.trainers, waits.waits_for.as_deref()), (0, Some("full")));
    }
}
