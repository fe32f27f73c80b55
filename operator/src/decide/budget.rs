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

/// Counts the end of a pod of a job that has, or has no, trainers that take part. Returns why the job fails, if that was one too
/// many.
pub(super) fn count(
    status: &mut TrainingJobStatus,
    spec: &TrainingJobSpec,
    pod: &PodView,
    ended: &Ended,
    has_trainers: bool,
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
        EndClass::Refused => ends.refused += 1,
    };
    counter(&mut status.ends);
    let is_failure = matches!(
        ended.class,
        EndClass::OutOfMemory | EndClass::Error | EndClass::Hopeless | EndClass::Refused
    );
    if !is_failure {
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
    let step = status.progress.as_ref().map_or(0, |progress| progress.step);
    if ended.class == EndClass::Refused {
        let refusals = &mut status.trainer.refusals;
        *refusals = Failures { count: refusals.count.saturating_add(1), step, at: now };
        // The job has trainers of its own, and goes on without this one.
        if has_trainers {
            return None;
        }
    }
    let policy = &spec.failure_policy;
    let (failures, most) = match pod.role {
        Role::Trainer => (&mut status.trainer.failures, policy.trainer_failures.unwrap_or(TRAINER_FAILURES)),
        Role::Master | Role::Pserver => {
            (&mut status.pserver.failures, policy.server_failures.unwrap_or(SERVER_FAILURES))
        }
    };
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
        EndClass::Refused => "Refused",
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::view::PodState;
    use serde_json::json;

    fn refused(name: &str) -> (PodView, Ended) {
        let message =
            "environment mismatch: this trainer: threads is \"1\" in the job and \"2\" here".to_owned();
        let ended = Ended { class: EndClass::Refused, exit_code: Some(5), message, at: None };
        let pod = PodView {
            name: name.to_owned(),
            uid: name.to_owned(),
            role: Role::Trainer,
            ordinal: 1,
            state: PodState::Ended(ended.clone()),
            is_ready: false,
            created: Moment(0),
            deleted: None,
            ip: None,
            memory: None,
        };
        (pod, ended)
    }

    #[test]
    fn who_is_not_let_into_a_job_that_has_trainers_never_fails_it_and_comes_again_ever_more_slowly() {
        let spec =
            serde_json::from_value(json!({ "data": ["/d"], "checkpoint": { "place": "/c" } })).unwrap();
        let mut status = TrainingJobStatus::default();
        let (pod, ended) = refused("j-trainer-1");
        for second in 0..100 {
            assert_eq!(count(&mut status, &spec, &pod, &ended, true, Moment(second)), None);
            // Steps made meanwhile are no reason to try at once.
            let step = 10 + second.unsigned_abs();
            let master = MasterView { is_progress_known: true, step, ..MasterView::default() };
            see_progress(&mut status, &master);
        }
        let (refusals, failures) = (status.trainer.refusals, status.trainer.failures);
        assert_eq!((refusals.count, failures.count, status.ends.refused), (100, 0, 100));
        assert!(!may_start(refusals, Moment(99 + 59)) && may_start(refusals, Moment(99 + 60)));
        let told = status.last_failure.unwrap();
        assert_eq!((told.reason.as_str(), told.exit_code), ("Refused", Some(5)));
        assert!(told.message.contains("threads is"), "{}", told.message);
    }

    #[test]
    fn a_job_into_which_nobody_is_let_fails_with_the_reason() {
        let spec =
            serde_json::from_value(json!({ "data": ["/d"], "checkpoint": { "place": "/c" } })).unwrap();
        let mut status = TrainingJobStatus::default();
        let (pod, ended) = refused("j-trainer-1");
        let mut told = (0..8).map(|second| count(&mut status, &spec, &pod, &ended, false, Moment(second)));
        assert!(told.by_ref().take(7).all(|failed| failed.is_none()));
        let (reason, message) = told.next().unwrap().unwrap();
        assert!(reason == "Refused" && message.contains("exit code 5") && message.contains("threads is"));
    }
}
