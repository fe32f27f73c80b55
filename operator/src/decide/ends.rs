//! What the ends of a job's pods mean for it, by the table of `shoal run` ([`shoal_job::ends`]), and what they cost. Pure.

use super::nodes;
use super::observe::Observed;
use super::view::{Deleted, Ended, Memory, PodState, PodView, Role};
use crate::api::{
    Ends, Failure, Failures, MemoryGrant, Moment, TrainingJobSpec, TrainingJobStatus, bytes, doubled,
};
use shoal_job::ends::{
    self, Account, Displacement, End, Life, Meaning, NOT_OF_THE_JOB_CODE, Part, Pauses, Strikes, sentence,
};
use std::time::Duration;

/// How long the next pod waits, where making one takes seconds.
const PAUSES: Pauses = Pauses { unit: Duration::from_secs(1), most: Duration::from_secs(60) };
/// What a pod that its node could not start is called.
const NOT_STARTED: &str = "NotStarted";
/// Without another bound, memory grows to so many times what it was.
const MEMORY_FACTOR: u64 = 4;

/// How a pod has ended or is being ended by others, if so.
pub(super) fn of(pod: &PodView) -> Option<Ended> {
    let displaced = pod.deleted.map(|Deleted { why, .. }| End::Displaced(why));
    match (&pod.state, displaced) {
        // Whoever is told to end may do so with any exit code.
        (PodState::Ended(ended), displaced) => {
            Some(Ended { end: displaced.unwrap_or(ended.end), ..ended.clone() })
        }
        (_, Some(end)) => {
            let is_said = !pod.disruption.is_empty();
            let message = if is_said { pod.disruption.clone() } else { "it was deleted".to_owned() };
            Some(Ended { end, exit_code: None, message, at: None, leaves_others: false })
        }
        _ => None,
    }
}

/// What is known of a pod's life.
pub(super) fn life(seen: &Observed<'_>, pod: &PodView) -> Life {
    let (view, status) = (seen.view, &seen.books);
    let members = |role: Role| match (view.master, role) {
        (Some(master), Role::Trainer) => &master.trainers[..],
        (Some(master), Role::Pserver) => &master.pservers[..],
        _ => &[],
    };
    let member = members(pod.role).iter().find(|member| member.name == pod.name);
    let part = match member {
        Some(member) if member.work > 0 || pod.role != Role::Trainer => Part::Worked,
        None if pod.role != Role::Master => Part::NeverJoined,
        _ => Part::Joined,
    };
    let has_trained = status.progress.as_ref().is_some_and(|progress| progress.step > 0);
    let has_any = match pod.role {
        Role::Master => status.progress.is_some() || view.master.is_some(),
        role => has_trained || !members(role).is_empty() || view.ready(role) > 0,
    };
    let is_seat_left =
        |seat: &crate::api::Seat| seat.ordinal == pod.ordinal && (seat.leaving || seat.replaced_by.is_some());
    Life {
        role: pod.role,
        part,
        is_first: !has_any,
        was_told: member.is_some_and(|member| member.is_leaving)
            || (pod.role == Role::Pserver && status.pserver.seats.iter().any(is_seat_left)),
        was_killed: false,
        has_left: member.is_some_and(|member| member.has_left),
        is_alone: match view.master {
            Some(master) => !master.trainers.iter().any(|trainer| trainer.is_live),
            None => view.ready(Role::Trainer) == 0,
        },
    }
}

/// The counter of an account. What is not in the status is the operator's own to remember.
fn strikes(status: &TrainingJobStatus, memory: &Memory, account: Account) -> Strikes {
    let known = match account {
        Account::TrainersFailed => Some(status.trainer.failures),
        Account::TrainersRefused => Some(status.trainer.refusals),
        Account::Servers => Some(status.pserver.failures),
        Account::TrainersTaken
        | Account::TrainersDisplaced
        | Account::ServersDisplaced
        | Account::TrainersUnstarted
        | Account::ServersUnstarted => None,
    };
    match known {
        Some(Failures { count, step, at }) => {
            Strikes { count, step, at: Duration::from_secs(u64::try_from(at.0).unwrap_or(0)) }
        }
        None => memory.strikes.get(&account).copied().unwrap_or_default(),
    }
}

fn keep_strikes(status: &mut TrainingJobStatus, memory: &mut Memory, account: Account, strikes: Strikes) {
    let Strikes { count, step, at } = strikes;
    let failures = Failures { count, step, at: Moment(i64::try_from(at.as_secs()).unwrap_or(i64::MAX)) };
    match account {
        Account::TrainersFailed => status.trainer.failures = failures,
        Account::TrainersRefused => status.trainer.refusals = failures,
        Account::Servers => status.pserver.failures = failures,
        Account::TrainersTaken
        | Account::TrainersDisplaced
        | Account::ServersDisplaced
        | Account::TrainersUnstarted
        | Account::ServersUnstarted => {
            memory.strikes.insert(account, strikes);
        }
    }
}

fn clock(now: Moment) -> Duration {
    Duration::from_secs(u64::try_from(now.0).unwrap_or(0))
}

/// Whether a pod of the role may be made now.
pub(super) fn may_start(status: &TrainingJobStatus, memory: &Memory, role: Role, now: Moment) -> bool {
    let of_role = Account::ALL.into_iter().filter(|account| account.holds_up(role));
    of_role.into_iter().all(|account| strikes(status, memory, account).may_start(PAUSES, clock(now)))
}

/// Forgives what a step that was made since forgives.
pub(super) fn see_progress(status: &mut TrainingJobStatus, memory: &mut Memory, step: u64) {
    for account in Account::ALL.into_iter().filter(|account| account.is_forgiven_by_progress()) {
        let mut known = strikes(status, memory, account);
        if known.count > 0 {
            known.see(step);
            keep_strikes(status, memory, account, known);
        }
    }
}

/// Counts the end of a pod. Returns why the job fails, if that was one too many.
pub(super) fn count(
    seen: &mut Observed<'_>,
    memory: &mut Memory,
    pod: &PodView,
    ended: &Ended,
) -> Option<(&'static str, String)> {
    let (life, now, view) = (life(seen, pod), seen.view.now, seen.view);
    let status = &mut seen.books;
    let meaning = match ends::meaning(ended.end, life) {
        Meaning::Hopeless if !nodes::is_confirmed(view, status, pod, &ended.message) => Meaning::Unstarted,
        meaning @ Meaning::Unstarted => {
            nodes::note(status, pod, now, &ended.message);
            meaning
        }
        meaning => meaning,
    };
    let reason = reason(ended.end, life, meaning);
    note(&mut status.ends, ended.end, meaning);
    if meaning <= Meaning::Killed {
        return None;
    }
    let mut told = told(pod, ended, life);
    if let (Meaning::Unstarted, Some(node)) = (meaning, &pod.node) {
        told += &format!("; {node} is avoided if another node suits");
    }
    if meaning > Meaning::Displaced {
        status.last_failure = Some(Failure {
            pod: pod.name.clone(),
            reason: reason.to_owned(),
            exit_code: ended.exit_code,
            message: last_words(&ended.message),
            at: now,
        });
    }
    let is_mended = meaning == Meaning::OutOfMemory && more_memory(status, &view.job.spec, pod);
    let failed =
        if is_mended { None } else { charge(status, memory, &view.job.spec, pod.role, meaning, now) };
    seen.notes.event(true, reason, told.clone());
    failed.map(|times| (reason, format!("{told}{times}")))
}

/// Counts a pod that is gone without anybody having been seen to tell it to end.
pub(super) fn count_vanished(seen: &mut Observed<'_>, memory: &mut Memory, pod: &PodView) {
    let (status, now) = (&mut seen.books, seen.view.now);
    status.ends.evicted += 1;
    charge(status, memory, &seen.view.job.spec, pod.role, Meaning::Displaced, now);
    let node = pod.node.as_ref().map_or_else(String::new, |node| format!(" from {node}"));
    let told = format!("{} is gone{node}: it was deleted by force, or at once", pod.name);
    seen.notes.event(true, "Evicted", told);
}

/// Counts a pod that its node cannot start, and that is to be made elsewhere.
pub(super) fn count_unstarted(seen: &mut Observed<'_>, memory: &mut Memory, pod: &PodView, why: &str) {
    let (status, now) = (&mut seen.books, seen.view.now);
    nodes::note(status, pod, now, why);
    note(&mut status.ends, End::Unstarted, Meaning::Unstarted);
    let message = last_words(why);
    let node = pod.node.as_deref().unwrap_or("its node");
    let told = format!("{} could not be started on {node}, which is avoided: {message}", pod.name);
    let (pod_name, reason) = (pod.name.clone(), NOT_STARTED.to_owned());
    status.last_failure = Some(Failure { pod: pod_name, reason, exit_code: None, message, at: now });
    charge(status, memory, &seen.view.job.spec, pod.role, Meaning::Unstarted, now);
    seen.notes.event(true, NOT_STARTED, told);
}

/// Charges an end to its account. Returns how often there was such a one, if that is too often.
fn charge(
    status: &mut TrainingJobStatus,
    memory: &mut Memory,
    spec: &TrainingJobSpec,
    role: Role,
    meaning: Meaning,
    now: Moment,
) -> Option<String> {
    let account = Account::of(role, meaning)?;
    let policy = &spec.failure_policy;
    let limit = match account {
        Account::TrainersFailed => policy.trainer_failures.or(account.limit()),
        Account::Servers => policy.server_failures.or(account.limit()),
        _ => account.limit(),
    };
    let step = status.progress.as_ref().map_or(0, |progress| progress.step);
    let mut known = strikes(status, memory, account);
    known.strike(PAUSES, step, clock(now));
    keep_strikes(status, memory, account, known);
    let times = if known.count > 1 {
        format!("; it was the {}th such end since a step was made", known.count)
    } else {
        String::new()
    };
    (meaning == Meaning::Hopeless || known.is_over(limit)).then_some(times)
}

/// Counts an end in the status, by whose doing it was.
fn note(ends: &mut Ends, end: End, meaning: Meaning) {
    let counter = match (end, meaning) {
        (_, Meaning::Left | Meaning::Killed) => return,
        (End::Displaced(Displacement::Preempted), _) => &mut ends.preempted,
        (End::Displaced(Displacement::NodeLost), _) => &mut ends.node_lost,
        (End::Displaced(Displacement::Evicted), _) | (_, Meaning::Displaced | Meaning::Preempted) => {
            &mut ends.evicted
        }
        (_, Meaning::OutOfMemory) => &mut ends.out_of_memory,
        (_, Meaning::Refused) => &mut ends.refused,
        (_, Meaning::Unreached | Meaning::Unstarted | Meaning::Failed | Meaning::Hopeless) => {
            &mut ends.errors
        }
    };
    *counter += 1;
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
fn reason(end: End, life: Life, meaning: Meaning) -> &'static str {
    let is_refused = end == End::Exited(NOT_OF_THE_JOB_CODE.into()) && life.is_refused();
    match (end, meaning) {
        (_, Meaning::Failed) if is_refused => "Refused",
        (_, Meaning::Left) => "Left",
        (_, Meaning::Killed) => "Killed",
        (End::Displaced(Displacement::Preempted), _) => "Preempted",
        (End::Displaced(Displacement::NodeLost), _) => "NodeLost",
        (End::Displaced(Displacement::Evicted), _) | (_, Meaning::Displaced) => "Evicted",
        (_, Meaning::Preempted) => "Terminated",
        (_, Meaning::Unreached) => "MasterUnreached",
        (_, Meaning::Refused) => "Refused",
        (_, Meaning::OutOfMemory) => "OutOfMemory",
        (_, Meaning::Unstarted) => NOT_STARTED,
        (_, Meaning::Failed) => "Error",
        (_, Meaning::Hopeless) => "Hopeless",
    }
}

/// The end in a sentence, and its last words.
fn told(pod: &PodView, ended: &Ended, life: Life) -> String {
    let words = last_words(&ended.message);
    let said = sentence(&pod.name, ended.end, life, &words);
    match (words.is_empty(), ended.end, ended.exit_code) {
        (true, ..) => said,
        // Nothing of its own, but why it was told to end.
        (_, End::Displaced(_), None) => format!("{said}: {words}"),
        _ => format!("{said}; its last words: {words}"),
    }
}

/// The end of what a pod said, short enough for a status.
pub(super) fn last_words(message: &str) -> String {
    let message = message.trim();
    let from = message.char_indices().rev().nth(511).map_or(0, |(at, _)| at);
    message[from..].to_owned()
}

#[cfg(test)]
mod tests;
