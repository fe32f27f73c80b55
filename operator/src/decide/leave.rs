//! How a job lets go of its pods: because it is deleted, over, or to be suspended. Pure.

use super::progress;
use super::upkeep::Upkeep;
use super::view::{Act, Command, Grace, Memory, PodState, Role};
use crate::api::{CleanPodPolicy, Phase, Suspending};

/// Pservers and masters that nobody needs any more are given so many seconds: their blocks go nowhere.
const SERVERS_GRACE: Grace = Grace::Seconds(1);
/// Trainers of a job that is over are given so many seconds to hear of it and end by themselves.
const LAST_WORDS_SECONDS: u64 = 10;
/// How long a checkpoint is waited for before a job is suspended without.
const CHECKPOINT_SECONDS: u64 = 300;

/// The job is being deleted: its trainers end first, then the rest, then it goes.
pub(super) fn deleted(next: &mut Upkeep<'_>, memory: &mut Memory) {
    next.clear(memory);
    for_all(next, Grace::Own, |role| role == Role::Trainer);
    if next.view.of(Role::Trainer).next().is_none() {
        for_all(next, SERVERS_GRACE, |role| role != Role::Trainer);
    }
    if next.view.pods.is_empty() && next.view.has_finalizer() {
        next.acts.push(Act::DeleteSurroundings);
        next.acts.push(Act::RemoveFinalizer);
    }
}

/// The job is over: what its policy says of its pods.
pub(super) fn released(next: &mut Upkeep<'_>) {
    let view = next.view;
    let policy = view.job.spec.clean_pod_policy.unwrap_or_default();
    let since = next.status.completion_time.map_or(u64::MAX, |over| view.now.since(over));
    let is_running = |role: Role| view.of(role).any(|pod| !matches!(pod.state, PodState::Ended(_)));
    if policy != CleanPodPolicy::None && (since >= LAST_WORDS_SECONDS || !is_running(Role::Trainer)) {
        next.clear_overdue();
        for pod in view.pods {
            let has_ended = matches!(pod.state, PodState::Ended(_));
            if policy == CleanPodPolicy::All || !has_ended {
                let grace = if pod.role == Role::Trainer { Grace::Own } else { SERVERS_GRACE };
                next.delete(pod, grace);
            }
        }
    }
    if policy == CleanPodPolicy::None || view.pods.iter().all(|pod| matches!(pod.state, PodState::Ended(_))) {
        next.acts.push(Act::DeleteSurroundings);
    }
    if view.job.spec.ttl_seconds_after_finished.is_some_and(|seconds| since >= seconds) {
        next.acts.push(Act::DeleteJob);
    }
}

/// The job is to stop: a checkpoint first, then all pods go.
pub(super) fn suspended(next: &mut Upkeep<'_>) {
    let view = next.view;
    next.clear_overdue();
    if view.pods.is_empty() {
        if next.status.phase != Phase::Suspended {
            next.event(false, "Suspended", "all pods are gone");
        }
        next.status.phase = Phase::Suspended;
        next.status.suspending = None;
        next.status.admitted = None;
        next.status.plan = None;
        next.status.trainer.wanted = 0;
        next.status.pserver.seats.retain(|seat| !seat.leaving && seat.replaced_by.is_none());
        next.acts.push(Act::DeleteSurroundings);
        return;
    }
    if next.status.phase != Phase::Suspending {
        next.status.phase = Phase::Suspending;
        next.event(false, "Suspending", "a checkpoint is made, then the pods go");
    }
    if is_saved(next) {
        for_all(next, Grace::Own, |role| role == Role::Trainer);
        for_all(next, SERVERS_GRACE, |role| role != Role::Trainer);
    } else {
        next.acts.push(Act::Tell(Command::Checkpoint));
    }
}

/// Whether what the job has done is in a checkpoint made since it was asked to stop, or has been waited for long enough.
fn is_saved(next: &mut Upkeep<'_>) -> bool {
    let now = next.view.now;
    let mut suspending = next.status.suspending.unwrap_or(Suspending { since: now, ..Suspending::default() });
    let was_saved = suspending.saved;
    let is_saved = match next.view.master {
        Some(master) => {
            progress::see(&mut next.status, master, next.view.ready(Role::Trainer), now);
            let before = *suspending.after.get_or_insert(master.checkpoint);
            // A master without a step has nothing to save.
            master.checkpoint > before || (master.is_progress_known && master.step == 0)
        }
        None => next.status.progress.is_none(),
    };
    let is_late = now.since(suspending.since) >= CHECKPOINT_SECONDS;
    suspending.saved |= is_saved || is_late;
    next.status.suspending = Some(suspending);
    if is_saved && !was_saved {
        next.decided("suspended".to_owned(), "spec.suspend; all that was done is in a checkpoint");
    } else if is_late && !was_saved {
        let why = format!(
            "no checkpoint was made within {CHECKPOINT_SECONDS} s: steps after the newest are made again"
        );
        next.event(true, "SuspendedWithoutCheckpoint", why.clone());
        next.decided("suspended without a checkpoint".to_owned(), why);
    }
    suspending.saved
}

fn for_all(next: &mut Upkeep<'_>, grace: Grace, is_meant: impl Fn(Role) -> bool) {
    for pod in next.view.pods.iter().filter(|pod| is_meant(pod.role)) {
        next.delete(pod, grace);
    }
}
