//! How often pods may fail, and how long the next one waits. Pure.

use super::view::{EndClass, Ended, MasterView, PodView, Role};
use crate::api::{
    Ends, Failure, Failures, MemoryGrant, Moment, TrainingJobSpec, TrainingJobStatus, bytes, doubled,
};

/// Trainers that may fail without a step made in between, where the job does not say: more than the five by which the master finds
/// a record that ends them.
const TRAINER_FAILURES: u32 = 8;
/// The same for pservers and the master.
const SERVER_FAILURES: u32 = 20;
/// Without another bound, memory grows to so many times what it was.
const MEMORY_FACTOR: u64 = 4;
/// The longest pause before the next pod of a role, in seconds.
const PAUSE_MAX: u64 = 60;

/// How long after the newest of so many failures the next pod is made, in seconds.
pub(super) fn pause(failures: u32) -> u64 {
    match failures {
        0 | 1 => 0,
        more => PAUSE_MAX.min(1 << (more - 2).min(10)),
    }
}

/// Whether a pod of the role may be made now.
pub(super) fn may_start(failures: Failures, now: Moment) -> bool {
    failures.count == 0 || now >= failures.at.plus(pause(failures.count))
}

/// Forgets failures once a step was made after them.
pub(super) fn see_progress(status: &mut TrainingJobStatus, master: &MasterView) {
    for failures in [&mut status.trainer.failures, &mut status.pserver.failures] {
        if failures.count > 0 && master.is_progress_known && master.step > failures.step {
            *failures = Failures::default();
        }
    }
}

/// Counts the end of a pod. Returns why the job fails, if that was one too many.
pub(super) fn count(
    status: &mut TrainingJobStatus,
    spec: &TrainingJobSpec,
    pod: &PodView,
    ended: &Ended,
    now: Moment,
) -> Option<(&'static str, String)> {
    let counter = |ends: &mut Ends| match ended.class {
        EndClass::Completed | EndClass::Unreached => {}
        EndClass::Preempted => ends.preempted += 1,
        EndClass::Evicted => ends.evicted += 1,
        EndClass::NodeLost => ends.node_lost += 1,
        EndClass::OutOfMemory => ends.out_of_memory += 1,
        EndClass::Error | EndClass::Hopeless => ends.errors += 1,
        EndClass::Hung => ends.hung += 1,
    };
    counter(&mut status.ends);
    if !matches!(ended.class, EndClass::OutOfMemory | EndClass::Error | EndClass::Hopeless) {
        return None;
    }
    let reason = reason(ended.class);
    status.last_failure = Some(Failure {
        pod: pod.name.clone(),
        reason: reason.to_owned(),
        exit_code: ended.exit_code,
        message: last_words(&ended.message),
        at: now,
    });
    if ended.class == EndClass::OutOfMemory && more_memory(status, spec, pod) {
        return None;
    }
    let policy = &spec.failure_policy;
    let (failures, most) = match pod.role {
        Role::Trainer => (&mut status.trainer.failures, policy.trainer_failures.unwrap_or(TRAINER_FAILURES)),
        Role::Master | Role::Pserver => {
            (&mut status.pserver.failures, policy.server_failures.unwrap_or(SERVER_FAILURES))
        }
    };
    let step = status.progress.as_ref().map_or(0, |progress| progress.step);
    *failures = Failures { count: failures.count + 1, step, at: now };
    let is_over = failures.count >= most || ended.class == EndClass::Hopeless;
    is_over.then(|| (reason, said(pod, ended, failures.count)))
}

/// Gives a role more memory, after one of its pods had too little. Returns whether there was more to give.
fn more_memory(status: &mut TrainingJobStatus, spec: &TrainingJobSpec, pod: &PodView) -> bool {
    let Some(had) = pod.memory else { return false };
    let grant =
        status.memory.entry(pod.role.name().to_owned()).or_insert(MemoryGrant { first: had, now: had });
    // Another pod of the role, with as little, was seen before this one.
    if grant.now > had {
        return true;
    }
    let bound = spec.failure_policy.memory_max.as_deref().and_then(bytes);
    let Some(next) = doubled(had, bound.unwrap_or(grant.first.saturating_mul(MEMORY_FACTOR))) else {
        return false;
    };
    grant.now = next;
    true
}

/// Why, in one word.
pub(super) fn reason(class: EndClass) -> &'static str {
    match class {
        EndClass::Completed => "Completed",
        EndClass::Preempted => "Preempted",
        EndClass::Evicted => "Evicted",
        EndClass::NodeLost => "NodeLost",
        EndClass::OutOfMemory => "OutOfMemory",
        EndClass::Unreached => "MasterUnreached",
        EndClass::Error => "Error",
        EndClass::Hopeless => "Hopeless",
        EndClass::Hung => "Hung",
    }
}

fn said(pod: &PodView, ended: &Ended, failures: u32) -> String {
    let code = ended.exit_code.map_or_else(String::new, |code| format!(" with exit code {code}"));
    let times = if failures > 1 {
        format!(", the {failures}th failure since a step was made")
    } else {
        String::new()
    };
    let words = last_words(&ended.message);
    let words = if words.is_empty() { String::new() } else { format!("; its last words: {words}") };
    format!("{} ended{code}{times}{words}", pod.name)
}

/// The end of what a pod said, short enough for a status.
fn last_words(message: &str) -> String {
    let message = message.trim();
    let from = message.char_indices().rev().nth(511).map_or(0, |(at, _)| at);
    message[from..].to_owned()
}
