//! What was planned for a job among all jobs, as it becomes part of its status. Pure.

use super::upkeep::Upkeep;
use crate::api::PlanStatus;

/// What the plan says is written again after so many seconds although it says the same with other figures.
const REFRESHED_SECONDS: u64 = 60;

/// Lets the job in if the plan does, and notes what the plan says.
pub(super) fn note(next: &mut Upkeep<'_>) {
    let (target, now) = (&next.view.target, next.view.now);
    if target.waits_for.is_none() && next.status.admitted.is_none() {
        next.status.admitted = Some(now);
        // Without a plan nobody has to be let in.
        if let Some(plan) = &target.plan {
            let waited =
                next.view.job.metadata.creation_timestamp.as_ref().map(|made| now.since(made.0.into()));
            let waited = waited.map_or_else(String::new, |seconds| format!("after {seconds} s: "));
            next.event(false, "Admitted", format!("{waited}{}", plan.why));
        }
    }
    let Some(plan) = &target.plan else { return };
    let before = next.status.plan.as_ref();
    let is_same = before
        .is_some_and(|before| before.blocker == plan.blocker && now.since(before.at) < REFRESHED_SECONDS);
    let is_changed = next.status.admitted.is_some() && next.status.trainer.wanted != target.trainers;
    if is_same && !is_changed {
        return;
    }
    let is_news = before.is_none_or(|before| before.blocker != plan.blocker);
    if is_news && next.status.admitted.is_none() && !plan.blocked_by.is_empty() {
        next.event(false, "Waits", plan.blocked_by.clone());
    }
    next.status.plan = Some(PlanStatus { at: now, ..plan.clone() });
}

/// Whether the job may have pods.
pub(super) fn is_admitted(next: &Upkeep<'_>) -> bool {
    next.status.admitted.is_some()
}

/// What a job waits for that is not let in, in the words that its status has.
pub(super) fn waits_for(next: &Upkeep<'_>) -> Option<String> {
    let now = next.view.target.waits_for.as_ref().filter(|_| !is_admitted(next))?;
    let noted = next.status.plan.as_ref().map(|plan| plan.blocked_by.clone()).filter(|said| !said.is_empty());
    Some(noted.unwrap_or_else(|| now.clone()))
}

/// Why a job has fewer trainers than its spec says in so many words.
pub(super) fn fewer_than_asked_for(next: &Upkeep<'_>) -> Option<String> {
    let (asked, wanted) = (next.view.job.spec.trainer.replicas?, next.status.trainer.wanted);
    let plan = next.status.plan.as_ref().filter(|plan| wanted < asked && !plan.blocked_by.is_empty())?;
    Some(format!("{wanted} of {asked} trainers: {}", plan.blocked_by))
}
