//! What must hold of a decision, whatever is seen: checked of each one before anything of it is done. Costs some comparisons a pod. Pure.

use super::observe::{Course, Observed};
use super::overdue;
use super::target::Target;
use super::view::{Act, PodPlan, PodView, Role};
use crate::api::TrainingJobStatus;
use std::collections::BTreeSet;

/// Holds a decision against the invariants of this module's parent.
///
/// # Errors
/// What it would break.
pub(super) fn check(
    seen: &Observed<'_>,
    target: &Target<'_>,
    acts: &[Act],
    status: &TrainingJobStatus,
) -> Result<(), String> {
    let view = seen.view;
    let made: Vec<&PodPlan> = acts
        .iter()
        .filter_map(|act| match act {
            Act::CreatePod(plan) => Some(plan),
            _ => None,
        })
        .collect();
    let names: BTreeSet<(Role, u32)> = made.iter().map(|plan| (plan.role, plan.ordinal)).collect();
    let hold = |holds: bool, what: &str| if holds { Ok(()) } else { Err(what.to_owned()) };
    hold(names.len() == made.len(), "one pod would be made twice")?;
    let is_there = |(role, ordinal): &(Role, u32)| view.pod(*role, *ordinal).is_some();
    hold(!names.iter().any(is_there), "a pod would be made that is there")?;
    let may_have_pods = seen.course == Course::Kept && status.admitted.is_some();
    hold(made.is_empty() || may_have_pods, "a pod would be made of a job that may have none")?;
    let of = |role: Role| made.iter().filter(|plan| plan.role == role).count();
    let master = view.pod(Role::Master, 0).is_some();
    hold(master || of(Role::Pserver) + of(Role::Trainer) == 0, "a pod would be made before its master")?;
    let trainers = view.of(Role::Trainer).count() + of(Role::Trainer);
    let is_within = of(Role::Trainer) == 0 || trainers <= target.trainers as usize;
    hold(is_within, "more trainers would be made than are wanted")?;
    // A status that somebody has restored or edited keeps no job from going.
    let has_seats = !matches!(seen.course, Course::Deleted | Course::Over);
    let seats: BTreeSet<u32> = status.pserver.seats.iter().map(|seat| seat.ordinal).collect();
    hold(!has_seats || seats.len() == status.pserver.seats.len(), "two seats would have one ordinal")?;
    let is_given = |ordinal: &u32| *ordinal < status.pserver.next_ordinal;
    hold(
        !has_seats || seats.iter().all(is_given),
        "a seat would have an ordinal that the next one is given",
    )?;
    let is_forced = |act: &Act, pod: &PodView| match act {
        Act::DeletePod { uid, grace: super::Grace::Force, .. } => pod.uid == *uid,
        _ => false,
    };
    let forced = || view.pods.iter().filter(|pod| acts.iter().any(|act| is_forced(act, pod)));
    let is_told = |pod: &PodView| pod.deleted.is_some();
    hold(forced().all(is_told), "a pod would be given up that nobody has told to end")?;
    let answers = |pod: &PodView| overdue::node(view, pod) == overdue::Node::Answers;
    hold(!forced().any(answers), "a pod would be given up whose node answers")
}
