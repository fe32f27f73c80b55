//! The third stage: what is to be done, so that there is what there should be. Repeated, it changes nothing. Pure.

use super::ends;
use super::nodes;
use super::observe::{Course, Observed};
use super::target::{Surroundings, Target};
use super::view::{Act, Command, Grace, Memory, PodPlan, PodState, PodView, Role};
use crate::api::TlsMode;
use shoal_job::spec;
use std::collections::BTreeSet;

/// What is to be done, in this order.
pub(super) fn acts(seen: &Observed<'_>, target: &Target<'_>, memory: &Memory) -> Vec<Act> {
    let view = seen.view;
    let mut acts = Vec::new();
    if seen.course != Course::Deleted && !view.has_finalizer() {
        acts.push(Act::AddFinalizer);
    }
    match (target.plans.replicas, planned(seen, target)) {
        (Some((trainers, pservers)), _) => acts.push(Act::SetReplicas { trainers, pservers }),
        (None, Some(planned)) => acts.push(Act::WritePlanned(planned)),
        (None, None) => {}
    }
    if target.surroundings == Surroundings::Made {
        acts.push(Act::MakeSurroundings);
    }
    if has_certificates(seen, target) {
        acts.push(Act::IssueCertificates);
    }
    acts.extend(deletions(seen, target));
    // Before what takes long: whoever trains goes by it at once.
    acts.extend(commands(seen, target).into_iter().map(Act::Tell));
    if seen.course == Course::Kept && target.is_admitted {
        acts.extend(creations(seen, target, memory).into_iter().map(Act::CreatePod));
    }
    if target.surroundings == Surroundings::Deleted {
        acts.push(Act::DeleteSurroundings);
    }
    let may_go = view.pods.is_empty() || view.is_orphaning();
    if seen.course == Course::Deleted && may_go && view.has_finalizer() {
        acts.push(Act::RemoveFinalizer);
    }
    if target.is_job_deleted {
        acts.push(Act::DeleteJob);
    }
    acts
}

/// Whether there are pods to come, or to go on, by certificates of the operator: also of a job that trains and was edited into one that
/// cannot begin.
fn has_certificates(seen: &Observed<'_>, target: &Target<'_>) -> bool {
    let (view, job) = (seen.view, seen.view.job);
    let has_pods = match seen.course {
        Course::Kept => target.is_admitted,
        Course::Invalid(_) => seen.books.admitted.is_some(),
        Course::Suspended => !view.pods.is_empty(),
        Course::Deleted | Course::Over | Course::Ended(_) => false,
    };
    let mode = job.recorded_tls().or_else(|| job.spec.stated_tls()).unwrap_or(view.tls);
    has_pods && mode == TlsMode::Issued
}

/// What the spec is to say of the operator's own number of trainers, if not what it says.
fn planned(seen: &Observed<'_>, target: &Target<'_>) -> Option<Option<u32>> {
    let job = seen.view.job;
    if seen.course != Course::Kept {
        return None;
    }
    let least = job.spec.trainer.min_replicas;
    let trainers = if target.is_admitted { target.trainers.max(least) } else { least };
    let wanted = job.asked_trainers().is_none().then_some(trainers);
    let is_written = wanted.is_none() || job.spec.trainer.replicas == wanted;
    (job.planned_trainers() != wanted || !is_written).then_some(wanted)
}

/// Each pod that goes, once. Who has been told to end is told again only to be given up, or to end sooner than somebody else has said.
fn deletions(seen: &Observed<'_>, target: &Target<'_>) -> Vec<Act> {
    let mut told = BTreeSet::new();
    let going = seen.spent.iter().chain(&target.going);
    let is_sooner = |pod: &PodView, grace: Grace| match (pod.deleted, grace) {
        (None, _) | (_, Grace::Force) => true,
        (Some(deleted), Grace::Seconds(seconds)) => u64::from(seconds) < deleted.grace_seconds,
        (Some(_), Grace::Own) => false,
    };
    let due = going.filter(|(pod, grace)| is_sooner(pod, *grace));
    let each = due.filter(|(pod, _)| told.insert(&pod.uid));
    each.map(|(pod, grace)| Act::DeletePod { name: pod.name.clone(), uid: pod.uid.clone(), grace: *grace })
        .collect()
}

/// The pods that are missing and may be made now.
fn creations(seen: &Observed<'_>, target: &Target<'_>, memory: &Memory) -> Vec<PodPlan> {
    let (view, books) = (seen.view, &seen.books);
    let may_start = |role: Role| ends::may_start(books, memory, role, view.now);
    let plan = |role: Role, ordinal: u32| PodPlan {
        role,
        ordinal,
        is_elastic: role == Role::Trainer && ordinal >= view.job.spec.trainer.min_replicas,
        resources: None,
        memory: books.memory.get(role.name()).map(|grant| grant.now),
        pservers: target.numbers.pservers,
        trainers: target.numbers.trainers,
        avoids: nodes::avoids(view, books, role),
    };
    let mut missing = Vec::new();
    let master = view.pod(Role::Master, 0);
    if master.is_none() && may_start(Role::Master) {
        missing.push(plan(Role::Master, 0));
    }
    if !has_node(master) {
        return missing;
    }
    if may_start(Role::Pserver) {
        let empty = target.seats.staying().filter(|seat| view.pod(Role::Pserver, seat.ordinal).is_none());
        missing.extend(
            empty.map(|seat| PodPlan {
                resources: seat.resources.clone(),
                ..plan(Role::Pserver, seat.ordinal)
            }),
        );
    }
    if may_start(Role::Trainer) {
        let lacking = (target.trainers as usize).saturating_sub(view.of(Role::Trainer).count());
        let is_free = |ordinal: &u32| view.pod(Role::Trainer, *ordinal).is_none();
        missing.extend((0..).filter(is_free).take(lacking).map(|ordinal| plan(Role::Trainer, ordinal)));
    }
    missing
}

/// Whether pservers and trainers may be made: the master has a node. They start while it does, and ask for it until it
/// answers; before, they could hold the very room that it waits for.
fn has_node(master: Option<&PodView>) -> bool {
    let master = master.filter(|master| master.deleted.is_none());
    master.is_some_and(|master| matches!(master.state, PodState::Starting(None) | PodState::Running))
}

/// What the master is told, as long as it does not say so itself.
fn commands(seen: &Observed<'_>, target: &Target<'_>) -> Vec<Command> {
    let view = seen.view;
    if seen.course == Course::Suspended {
        let is_awaited = !view.pods.is_empty() && seen.books.suspending.is_some_and(|one| !one.saved);
        return is_awaited.then_some(Command::Checkpoint).into_iter().collect();
    }
    let is_kept = seen.course == Course::Kept && target.is_admitted;
    let Some(master) = view.master.filter(|master| is_kept && master.takes_commands()) else {
        return Vec::new();
    };
    let pservers = target.seats.number_to_tell(view.name(), master);
    let is_other = master.trainers_wanted != target.trainers || pservers.is_some();
    let scale = is_other.then_some(Command::Scale { trainers: target.trainers, pservers });
    let is_edited = !master.live_differences(view.job).is_empty();
    let live = || spec::Document(view.job.spec.training.live()).to_string();
    let settings = is_edited.then(|| Command::GoBy { spec: live() });
    let drains = target.seats.leaving().filter_map(|seat| {
        let pod = view.pod(Role::Pserver, seat.ordinal)?;
        let is_untold = |one: &&super::MemberView| one.is_live && one.name == pod.name && !one.is_leaving;
        master.pservers.iter().find(is_untold)?;
        Some(Command::Drain { pserver: pod.name.clone(), is_replaced: seat.replaced_by.is_some() })
    });
    scale.into_iter().chain(settings).chain(drains).collect()
}
