//! What nobody reconciles with a job: plans of jobs that are not there are told what they wait for, jobs that have vanished are
//! forgotten.

use super::apply;
use super::fleet::{Fleet, present};
use crate::api::{Moment, ScalePlan, ScalePlanPhase, ScalePlanStatus, TrainingJob};
use kube::ResourceExt;
use kube::runtime::reflector::{ObjectRef, Store};
use std::time::Duration;

/// A plan may be made a moment before its job.
const EVERY: Duration = Duration::from_secs(10);

/// Tells plans without a job so, for ever.
pub(super) async fn tell(fleet: &Fleet, jobs: &Store<TrainingJob>) -> std::convert::Infallible {
    loop {
        tokio::time::sleep(EVERY).await;
        if jobs.wait_until_ready().await.is_err() || !fleet.is_leading() {
            continue;
        }
        fleet.forget_all_but(&jobs.state().iter().filter_map(|job| job.uid()).collect());
        for plan in fleet.plans.due() {
            let namespace = plan.namespace().unwrap_or_default();
            if fleet.others.as_ref().is_some_and(|others| others.keep(&namespace)) {
                continue;
            }
            if let Some(status) = orphaned(&plan, present(), |job| jobs.get(job).is_some())
                && let Err(error) = apply::write_plan(fleet, &plan, &status).await
            {
                tracing::warn!(plan = plan.name_any(), %error, "a plan could not be told that its job is not there");
            }
        }
    }
}

/// What is to be said of a plan whose job is not there; nothing if it is, or if that was said. One that has had its job ends.
fn orphaned(
    plan: &ScalePlan,
    now: Moment,
    is_there: impl Fn(&ObjectRef<TrainingJob>) -> bool,
) -> Option<ScalePlanStatus> {
    let namespace = plan.namespace().unwrap_or_default();
    let name = &plan.spec.owner_job;
    if is_there(&ObjectRef::new(name).within(&namespace)) {
        return None;
    }
    let before = plan.status.clone().unwrap_or_default();
    if before.job_uid.is_some() {
        let (phase, message) = (ScalePlanPhase::Failed, format!("the job {name} is gone"));
        return Some(ScalePlanStatus { phase, message, finish_time: Some(now), ..before });
    }
    let message = format!("spec.ownerJob: there is no job {name} in namespace {namespace}");
    (before.message != message).then_some(ScalePlanStatus { message, ..before })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ScalePlanSpec;

    #[test]
    fn a_plan_without_a_job_is_told_so_once_and_waits_and_ends_if_it_has_had_one() {
        let mut plan =
            ScalePlan::new("p", ScalePlanSpec { owner_job: "j".to_owned(), ..ScalePlanSpec::default() });
        plan.metadata.namespace = Some("n".to_owned());
        let orphaned = |plan: &ScalePlan, is_there: fn(&ObjectRef<TrainingJob>) -> bool| {
            orphaned(plan, Moment(9), is_there)
        };
        assert_eq!(orphaned(&plan, |job| job.name == "j" && job.namespace.as_deref() == Some("n")), None);
        let status = orphaned(&plan, |_| false).unwrap();
        assert_eq!(
            (status.message.as_str(), status.phase),
            ("spec.ownerJob: there is no job j in namespace n", ScalePlanPhase::Pending)
        );
        plan.status = Some(status.clone());
        assert_eq!(orphaned(&plan, |_| false), None);
        plan.status = Some(ScalePlanStatus { job_uid: Some("u".to_owned()), ..status });
        let ended = orphaned(&plan, |_| false).unwrap();
        assert_eq!((ended.phase, ended.finish_time), (ScalePlanPhase::Failed, Some(Moment(9))));
    }
}
