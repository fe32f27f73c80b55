//! What must be had before anyone gets more: pods of others that wait, and the least of every job. Pure.
//!
//! In the order of priority, and of time within one: each takes what is free, else what trainers beyond their job's least can
//! give. A job that is not let in yet gets all of its least or nothing.

use super::reason::Blocker;
use super::resources::{DEVICES, Resources};
use super::state::{Made, State, Taker, Willing};
use super::view::{Ask, Seconds, Servers};
use std::cmp::Reverse;

/// Who wants room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Claim {
    Pod(usize),
    Job(usize),
}

/// Grants what can be granted.
pub(super) fn grant(state: &mut State<'_>, now: Seconds) {
    let view = state.view;
    let pods = view.waiting.iter().enumerate();
    let pods = pods.map(|(index, pod)| (Reverse(pod.priority), pod.since, Claim::Pod(index)));
    let jobs = view.jobs.iter().enumerate();
    let jobs = jobs.map(|(index, job)| (Reverse(job.priority), job.since, Claim::Job(index)));
    let mut claims: Vec<_> = pods.chain(jobs).collect();
    // Of one priority, who is in goes before who wants in.
    let is_in = |claim: &Claim| matches!(claim, Claim::Job(job) if view.jobs[*job].is_admitted);
    claims.sort_by_key(|(priority, since, claim)| (*priority, !is_in(claim), *since, *claim));
    // Of a job that is not overtaken any more: its priority and name.
    let mut behind: Option<(i32, String)> = None;
    let mut hopeless: Vec<Least<'_>> = Vec::new();
    for (_, _, claim) in claims {
        match claim {
            Claim::Pod(pod) => grant_pod(state, pod, now),
            Claim::Job(job) if view.jobs[job].is_admitted => keep_least(state, job),
            Claim::Job(job) => {
                let first = behind.as_ref().filter(|(priority, _)| view.jobs[job].priority <= *priority);
                if let Some((_, first)) = first {
                    state.jobs[job].blocker = Some(Blocker::Behind(first.clone()));
                    continue;
                }
                let least = Least::of(state, job);
                let is_hopeless = hopeless.iter().any(|other| least.is_no_less_than(other));
                if (is_hopeless || !let_in(state, job, &least)) && !view.jobs[job].allows_new_nodes {
                    note_refusal(state, job, &least);
                    hopeless.push(least);
                    let waited = now.saturating_sub(view.jobs[job].since);
                    if waited >= state.settings.overtaken_seconds && could_ever_fit(state, job) {
                        behind = Some((view.jobs[job].priority, view.jobs[job].name.clone()));
                    }
                } else if !state.jobs[job].is_admitted {
                    state.jobs[job].is_admitted = true;
                    state.jobs[job].to_come = view.jobs[job].trainers.min;
                }
            }
        }
    }
}

/// Keeps room for a pod of others that waits.
fn grant_pod(state: &mut State<'_>, pod: usize, now: Seconds) {
    let waiting = &state.view.waiting[pod];
    let has_waited = now.saturating_sub(waiting.since) >= state.settings.unplaced_seconds;
    if has_waited && state.room.first_fit(&waiting.ask).is_some() {
        return;
    }
    if let Some(made) = state.make_room(&waiting.ask, false, |_, _| Willing::Yes) {
        note_taken(state, &made, Taker::Pod(pod));
        state.reserve(made.node, &waiting.ask.request);
    }
}

fn note_taken(state: &mut State<'_>, made: &Made, by: Taker) {
    made.taken.iter().for_each(|(job, _)| state.jobs[*job].gave.push(by));
}

/// What a job lacks of its least, once it was let in, one by one.
fn keep_least(state: &mut State<'_>, job: usize) {
    let view = state.job(job);
    for (part, who) in ["its master", "its pserver"].into_iter().enumerate() {
        let servers = state.servers(job, part);
        for _ in servers.nodes.len() as u32..servers.count {
            match state.make_room(&servers.ask, false, |_, _| Willing::Yes) {
                Some(made) => {
                    note_taken(state, &made, Taker::Least(job));
                    state.serve(job, part, made.node);
                }
                None => return lack(state, job, who.to_owned(), &servers.ask),
            }
        }
    }
    let least = view.trainers.min;
    while (state.jobs[job].trainers.len() as u32) < least {
        match state.make_room(&view.trainers.ask, false, |_, _| Willing::Yes) {
            Some(made) => {
                note_taken(state, &made, Taker::Least(job));
                state.push(job, made.node);
            }
            None if view.allows_new_nodes => {
                state.jobs[job].to_come = least - state.jobs[job].trainers.len() as u32;
                return;
            }
            None => {
                let ordinal = state.jobs[job].trainers.len();
                return lack(
                    state,
                    job,
                    format!("trainer {} of at least {least}", ordinal + 1),
                    &view.trainers.ask,
                );
            }
        }
    }
}

fn lack(state: &mut State<'_>, job: usize, who: String, ask: &Ask) {
    let devices = &state.view.devices;
    let free = state.yielding.most_free(ask);
    let asked = ask.request.told(&ask.request, devices);
    let told =
        format!("{who} asks for {asked}, nodes have at most {} free", free.told(&ask.request, devices));
    state.jobs[job].lacks = Some(told);
}

/// The least of a job that is not let in yet.
#[derive(Debug)]
struct Least<'a> {
    parts: Vec<(&'a Ask, u32, &'static str)>,
}

impl<'a> Least<'a> {
    fn of(state: &State<'a>, job: usize) -> Least<'a> {
        let view = state.job(job);
        let missing = |servers: &Servers| servers.count.saturating_sub(servers.nodes.len() as u32);
        let trainers = view.trainers.min.saturating_sub(state.jobs[job].trainers.len() as u32);
        let parts = vec![
            (&view.master.ask, missing(&view.master), "its master"),
            (&view.pservers.ask, missing(&view.pservers), "its pserver"),
            (&view.trainers.ask, trainers, "its trainer"),
        ];
        Least { parts }
    }

    /// Whether it cannot be had if the other could not.
    fn is_no_less_than(&self, other: &Least<'_>) -> bool {
        self.parts.iter().zip(&other.parts).all(|((mine, many, _), (theirs, some, _))| {
            many >= some && (*some == 0 || (mine.request.fits(&theirs.request) && mine.pools == theirs.pools))
        })
    }
}

/// Lets a job in, if all of its least can be had: as sparingly as can be, or else by all that may be taken.
fn let_in(state: &mut State<'_>, job: usize, least: &Least<'_>) -> bool {
    let mut all = Resources::default();
    least.parts.iter().for_each(|(ask, count, _)| all.add(&ask.request.times(*count)));
    if !state.yielding.whole_free().fits(&all) {
        return false;
    }
    let sparing = |state: &mut State<'_>, ask: &Ask| state.make_room(ask, false, |_, _| Willing::Yes);
    let by_all = |state: &mut State<'_>, ask: &Ask| {
        let node = state.yielding.first_fit(ask)?;
        Some(Made { node, taken: state.clear(node, ask) })
    };
    let Some(taken) = seat(state, job, least, sparing).or_else(|| seat(state, job, least, by_all)) else {
        return false;
    };
    taken.iter().for_each(|(from, _)| state.jobs[*from].gave.push(Taker::Least(job)));
    state.jobs[job].is_admitted = true;
    true
}

/// Seats the whole of a job's least, and returns what was taken for it; or nothing of it.
fn seat(
    state: &mut State<'_>,
    job: usize,
    least: &Least<'_>,
    find: impl Fn(&mut State<'_>, &Ask) -> Option<Made>,
) -> Option<Vec<(usize, usize)>> {
    let trainers = least.parts.len() - 1;
    let mut done: Vec<(usize, Made)> = Vec::new();
    // What needs devices first: the others find a place beside it.
    let devices = |ask: &Ask| Reverse(ask.request.0[DEVICES..].iter().sum::<i64>());
    let mut parts: Vec<_> = least.parts.iter().enumerate().collect();
    parts.sort_by_key(|(_, (ask, ..))| devices(ask));
    for (part, ask) in
        parts.into_iter().flat_map(|(part, (ask, count, _))| (0..*count).map(move |_| (part, *ask)))
    {
        let Some(made) = find(state, ask) else {
            for (part, made) in done.into_iter().rev() {
                if part == trainers {
                    state.retract(job);
                } else {
                    state.unserve(job, part);
                }
                state.give_back(&made.taken);
            }
            return None;
        };
        if part == trainers {
            state.push(job, made.node);
        } else {
            state.serve(job, part, made.node);
        }
        done.push((part, made));
    }
    Some(done.into_iter().flat_map(|(_, made)| made.taken).collect())
}

/// Says what a job waits for: the first part that nothing could make room for, or else its largest.
fn note_refusal(state: &mut State<'_>, job: usize, least: &Least<'_>) {
    let needed = |(ask, count, _): &&(&Ask, u32, &str)| *count > 0 && state.yielding.first_fit(ask).is_none();
    let parts = &least.parts;
    let part = parts.iter().find(needed).or_else(|| parts.iter().rev().find(|(_, count, _)| *count > 0));
    let Some((ask, count, who)) = part else { return };
    let devices = &state.view.devices;
    if !state.room.has_suiting(ask) {
        let unsuited = Blocker::Unsuited { who: (*who).to_owned(), nodes: state.room.open_nodes() };
        state.jobs[job].blocker = Some(unsuited);
        return;
    }
    let most_free = state.yielding.most_free(ask).told(&ask.request, devices).to_string();
    let asked = ask.request.told(&ask.request, devices).to_string();
    state.jobs[job].blocker = Some(Blocker::Least { who, count: *count, asked, most_free });
}

/// Whether the job would fit the cluster if nothing else were there: who never fits holds nobody up.
fn could_ever_fit(state: &State<'_>, job: usize) -> bool {
    let view = state.job(job);
    let nodes = state.view.nodes.iter().filter(|node| node.is_open);
    let fits =
        |ask: &Ask| nodes.clone().any(|node| ask.pools.has(node.pool) && node.allocatable.fits(&ask.request));
    let mut all = view.trainers.ask.request.times(view.trainers.min);
    all.add(&view.master.ask.request.times(view.master.count));
    all.add(&view.pservers.ask.request.times(view.pservers.count));
    [&view.master.ask, &view.pservers.ask, &view.trainers.ask].into_iter().all(fits)
        && state.room.whole().fits(&all)
}
