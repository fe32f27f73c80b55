//! What is told of a job: its phase, its counts, its conditions, each with the reason. Pure.

use super::upkeep::Upkeep;
use super::view::{Memory, PodState, Role, Unusable};
use super::{is_kept, planned};
use crate::api::{Condition, Moment, Phase, TrainingJobStatus};

/// The word for pods that a quota leaves no room for.
pub const QUOTA: &str = "QuotaExceeded";
/// The word for a name of the job's that an object of somebody else has.
pub const NAME_TAKEN: &str = "NameTaken";
/// The word for a name of the job's that an object has which is on its way out.
pub const GOING: &str = "NameStillInUse";

/// The job cannot be kept as it is written; what runs goes on until it is mended.
pub(super) fn invalid(next: &mut Upkeep<'_>, fault: &str) {
    if next.status.message != fault {
        next.event(true, "InvalidSpec", fault.to_owned());
    }
    next.status.message = fault.to_owned();
    counts(next);
    let set = Setter::of(next);
    set.all(&mut next.status, None, Some(("InvalidSpec", fault.to_owned())), None);
}

/// Phase, counts and conditions as they follow from what is seen.
pub(super) fn conditions(next: &mut Upkeep<'_>, memory: &Memory) {
    counts(next);
    let refused = memory.blocked.clone().filter(|_| is_kept(next.status.phase));
    // Room that a quota keeps is waited for like any other; anything else that is refused somebody has to mend.
    let (quota, refused) = match refused {
        Some((QUOTA | GOING, why)) => (Some(why), None),
        other => (None, other),
    };
    let stuck = stuck(next).or(refused);
    let waits = || planned::waits_for(next).or(quota).or_else(|| waits_for(next));
    let waits = is_kept(next.status.phase).then(waits).flatten();
    if is_kept(next.status.phase) {
        let is_running = can_train(next);
        if is_running && next.status.phase == Phase::Pending {
            next.event(false, "Running", "master, pservers and trainers are ready");
        }
        next.status.phase = if is_running { Phase::Running } else { Phase::Pending };
        let stuck = stuck.as_ref().map(|(reason, why)| format!("{reason}: {why}"));
        next.status.message =
            stuck.or_else(|| waits.clone()).unwrap_or_else(|| "as many as wanted are ready".to_owned());
    } else if matches!(next.status.phase, Phase::Suspending | Phase::Suspended) {
        next.status.message = match next.status.phase {
            Phase::Suspended => "spec.suspend is set: set it to false to go on".to_owned(),
            _ => "a checkpoint is made, then the pods go".to_owned(),
        };
    }
    let excluded = next.view.master.map_or(0, |master| master.excluded);
    let degraded = (excluded > 0).then(|| format!("{excluded} records were left out: see `shoal status`"));
    let set = Setter::of(next);
    set.all(&mut next.status, waits, stuck, degraded);
}

/// Whether the job has one of each. At first it waits for its least number of trainers.
fn can_train(next: &Upkeep<'_>) -> bool {
    let spec = &next.view.job.spec;
    let was_running = next.status.phase == Phase::Running;
    let (trainers, pservers) =
        if was_running { (1, 1) } else { (spec.trainer.min_replicas, spec.pserver.min_replicas) };
    let is_master_ready = next.view.pod(Role::Master, 0).is_some_and(|master| master.is_ready);
    is_master_ready && next.status.trainer.ready >= trainers && next.status.pserver.ready >= pservers
}

fn counts(next: &mut Upkeep<'_>) {
    let count = |role: Role| {
        let there = next.view.of(role).filter(|pod| !matches!(pod.state, PodState::Ended(_)));
        (there.count() as u32, next.view.ready(role))
    };
    let spec = &next.view.job.spec;
    let text = |ready: u32, min: u32, max: Option<u32>| match max.filter(|max| *max != min) {
        Some(max) => format!("{ready}/{min}–{max}"),
        None => format!("{ready}/{min}"),
    };
    let (trainer, pserver) = (count(Role::Trainer), count(Role::Pserver));
    let name = next.view.name();
    let status = &mut next.status;
    (status.trainer.replicas, status.trainer.ready) = trainer;
    status.trainer.text = text(trainer.1, spec.trainer.min_replicas, spec.trainer.max_replicas);
    status.trainer.selector = format!("shoal.dev/job={name},shoal.dev/role=trainer");
    (status.pserver.replicas, status.pserver.ready) = pserver;
    status.pserver.text = text(pserver.1, spec.pserver.min_replicas, spec.pserver.max_replicas);
}

/// What somebody has to mend, if something: reason and message.
fn stuck(next: &Upkeep<'_>) -> Option<(&'static str, String)> {
    next.view.pods.iter().find_map(|pod| match &pod.state {
        PodState::Starting(Some(Unusable { reason, message })) => {
            Some(("ImageUnusable", format!("{}: {reason}: {message}", pod.name)))
        }
        _ => None,
    })
}

/// What a job that is kept up waits for, if it is not as it should be.
fn waits_for(next: &Upkeep<'_>) -> Option<String> {
    let (view, status) = (next.view, &next.status);
    let unschedulable = view.pods.iter().find_map(|pod| match &pod.state {
        PodState::Unplaced(Some(why)) => Some(format!("{} waits for room: {why}", pod.name)),
        _ => None,
    });
    let fewer = || planned::fewer_than_asked_for(next);
    let unschedulable = unschedulable.or_else(|| view.target.lacks.clone()).or_else(fewer);
    if unschedulable.is_some() {
        return unschedulable;
    }
    if view.pod(Role::Master, 0).is_none_or(|master| !master.is_ready) {
        return Some("the master is not ready".to_owned());
    }
    let missing = [
        ("pservers", status.pserver.ready, status.pserver.wanted),
        ("trainers", status.trainer.ready, status.trainer.wanted),
    ];
    missing.into_iter().find(|(_, ready, wanted)| ready != wanted).map(|(what, ready, wanted)| {
        let pause = status.last_failure.as_ref().filter(|_| ready < wanted);
        let after =
            pause.map_or_else(String::new, |failure| format!("; {} ended: {}", failure.pod, failure.reason));
        format!("{ready} of {wanted} {what} are ready{after}")
    })
}

/// Sets conditions, keeping the time of those that do not change.
struct Setter {
    now: Moment,
    generation: Option<i64>,
}

impl Setter {
    fn of(next: &Upkeep<'_>) -> Setter {
        Setter { now: next.view.now, generation: next.view.job.metadata.generation }
    }

    /// All conditions, from the phase and from what is waited for, has to be mended, or is missing for good.
    fn all(
        &self,
        status: &mut TrainingJobStatus,
        waits: Option<String>,
        stuck: Option<(&'static str, String)>,
        degraded: Option<String>,
    ) {
        let (phase, message) = (status.phase, status.message.clone());
        let word = format!("{phase:?}");
        let failed =
            (phase == Phase::Failed).then(|| message.split(':').next().unwrap_or("Failed").to_owned());
        let is_steady = waits.is_none() && stuck.is_none();
        let is_ready = matches!(phase, Phase::Running | Phase::Succeeded) && is_steady;
        let is_changing = (is_kept(phase) && waits.is_some()) || phase == Phase::Suspending;
        let stalled = stuck
            .map(|(reason, why)| (reason.to_owned(), why))
            .or(failed.clone().map(|reason| (reason, message.clone())));
        let (why_stalled, stalled_message) = stalled.clone().unwrap_or_default();
        let reason = |is: bool, yes: &str, no: &str| if is { yes.to_owned() } else { no.to_owned() };
        let mut set = |type_: &str, is: bool, reason: String, message: String| {
            self.set(status, type_, is, reason, message);
        };
        set("Ready", is_ready, word.clone(), message.clone());
        let waits = waits.unwrap_or_default();
        set("Reconciling", is_changing, reason(is_changing, "Waiting", "AsWanted"), waits);
        set("Stalled", stalled.is_some(), reason(stalled.is_some(), &why_stalled, "Able"), stalled_message);
        set("Running", phase == Phase::Running, word.clone(), String::new());
        set("Suspended", phase == Phase::Suspended, word.clone(), String::new());
        let is_degraded = degraded.is_some();
        set(
            "Degraded",
            is_degraded,
            reason(is_degraded, "RecordsExcluded", "Whole"),
            degraded.unwrap_or_default(),
        );
        set("Succeeded", phase == Phase::Succeeded, word.clone(), String::new());
        set(
            "Failed",
            failed.is_some(),
            failed.clone().unwrap_or(word),
            failed.map_or_else(String::new, |_| message),
        );
    }

    fn set(&self, status: &mut TrainingJobStatus, type_: &str, is: bool, reason: String, message: String) {
        let is = if is { "True" } else { "False" };
        let before = status.conditions.iter().position(|one| one.type_ == type_);
        let since = before.map(|at| &status.conditions[at]).filter(|one| one.status == is);
        let condition = Condition {
            type_: type_.to_owned(),
            status: is.to_owned(),
            reason,
            message,
            last_transition_time: since.map_or(self.now, |one| one.last_transition_time),
            observed_generation: self.generation,
        };
        match before {
            Some(at) => status.conditions[at] = condition,
            None => status.conditions.push(condition),
        }
    }
}
