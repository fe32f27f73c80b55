//! Who gets what is left: the job with the smallest share first, and from who has more. Pure.
//!
//! Progressive filling: the job of the highest priority, and of these the one of the smallest dominant share, gets one trainer,
//! until nobody can be given another. Where nothing is free, a job takes from one of lower priority, or from one of its own
//! priority that still has no less than it once the trainer has changed hands: so shares become equal, one trainer is never
//! handed to and fro, and every step makes the sorted shares larger, which ends it.

use super::reason::Blocker;
use super::speed::SpeedCurve;
use super::state::{State, Taker, Willing};
use super::view::Seconds;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// A job has more than is worth its room only if it is so many times as many: speeds are measured with noise.
const SLOW_MARGIN: f64 = 1.25;

/// What a job may have at most now, and why no more.
pub(super) fn bound(state: &mut State<'_>, job: usize) {
    let trainers = &state.job(job).trainers;
    let now = state.jobs[job].trainers.len() as u32;
    let mut most = (trainers.max, Blocker::Most(trainers.max));
    if let Some(curve) = SpeedCurve::fitted(&trainers.speeds) {
        // Half of them stay: a speed that was measured wrongly is measured again before the rest goes.
        let useful = curve.useful(trainers.max).max(trainers.min).max(now.div_ceil(2));
        if useful < most.0 {
            most = (useful, Blocker::Slow { useful, marginal: curve.marginal(useful) });
        }
    }
    if !trainers.is_stated {
        let now = now.max(trainers.min);
        let is_measured = trainers.speeds.iter().any(|speed| speed.trainers == now);
        let step = if is_measured { now.saturating_mul(2) } else { now };
        if step < most.0 {
            most = (step.max(trainers.min), Blocker::Unmeasured(step));
        }
    }
    state.jobs[job].most = most.0.max(trainers.min);
    state.jobs[job].bound = Some(most.1);
}

/// Takes what is beyond the most.
pub(super) fn trim(state: &mut State<'_>, job: usize) {
    let max = state.job(job).trainers.max;
    let most = state.jobs[job].most.min(max) as usize;
    let is_slow = matches!(state.jobs[job].bound, Some(Blocker::Slow { .. }));
    let allowed = if is_slow { (most as f64 * SLOW_MARGIN).ceil() as usize } else { max as usize };
    if state.jobs[job].trainers.len() > allowed.min(max as usize) {
        while state.jobs[job].trainers.len() > most
            && let Some(node) = state.last_spare(job)
        {
            state.pop(job, node);
            let is_asked = state.jobs[job].trainers.len() < max as usize;
            state.jobs[job].gave.push(if is_asked { Taker::Nobody } else { Taker::Fewer });
        }
    }
}

/// Takes what reaches into the headroom.
pub(super) fn keep_headroom(state: &mut State<'_>) {
    while let Some(kind) = state.over_ceiling() {
        let Some((donor, node)) = state.donor_of(kind) else { break };
        state.pop(donor, node);
        state.jobs[donor].gave.push(Taker::Headroom);
    }
}

/// By priority, then share, then age.
type GrowerKey = (Reverse<i32>, u64, Seconds, usize);

/// Gives out what is left.
pub(super) fn fill(state: &mut State<'_>, now: Seconds) {
    let jobs = 0..state.jobs.len();
    let growing: Vec<usize> =
        jobs.filter(|job| state.jobs[*job].is_admitted && state.jobs[*job].lacks.is_none()).collect();
    // Far more than there can be: what ends it is that shares become more equal.
    let mut steps_left = 1000 + growing.iter().map(|job| 8 * state.jobs[*job].most as usize).sum::<usize>();
    // Who was refused may have room once somebody gave more than was needed, or has become richer elsewhere: all are asked
    // again, until nobody was given anything.
    while round(state, &growing, now, &mut steps_left) {}
}

/// Asks everybody until nobody can be given another. Whether anybody was.
fn round(state: &mut State<'_>, growing: &[usize], now: Seconds, steps_left: &mut usize) -> bool {
    let mut growers: BTreeSet<GrowerKey> = growing.iter().map(|job| key(state, *job)).collect();
    let mut was_given = false;
    while let Some(next) = growers.pop_first() {
        let job = next.3;
        let fresh = key(state, job);
        if fresh != next {
            // It gave in the meantime.
            growers.insert(fresh);
            continue;
        }
        debug_assert!(*steps_left > 0, "filling ends by itself");
        let Some(left) = steps_left.checked_sub(1) else { return false };
        *steps_left = left;
        match held(state, job, now).map_or_else(|| grow(state, job), Err) {
            Ok(()) => {
                was_given = true;
                growers.insert(key(state, job));
            }
            Err(blocker) => state.jobs[job].blocker = Some(blocker),
        }
    }
    was_given
}

fn key(state: &State<'_>, job: usize) -> GrowerKey {
    let view = state.job(job);
    (Reverse(view.priority), state.share_now(job).to_bits(), view.since, job)
}

/// Why a job is not to grow whatever room there is.
fn held(state: &State<'_>, job: usize, now: Seconds) -> Option<Blocker> {
    let (view, made) = (state.job(job), &state.jobs[job]);
    if made.trainers.len() as u32 + made.to_come >= made.most {
        return Some(made.bound.clone().unwrap_or(Blocker::Most(view.trainers.max)));
    }
    let has_yielded = made.gave.iter().any(|taker| matches!(taker, Taker::Pod(_) | Taker::Headroom));
    let since = if has_yielded { Some(now) } else { view.trainers.yielded };
    let left = since?.saturating_add(state.settings.regrow_seconds).saturating_sub(now);
    (left > 0).then_some(Blocker::Settles(left))
}

/// Gives a job one more trainer, or says why not.
fn grow(state: &mut State<'_>, job: usize) -> Result<(), Blocker> {
    let view = state.job(job);
    let ask = &view.trainers.ask;
    let then = state.share(job, state.jobs[job].trainers.len() + 1);
    let priority = view.priority;
    let willing = |state: &State<'_>, donor: usize| {
        let theirs = state.job(donor).priority;
        if theirs < priority {
            return Willing::Yes;
        }
        let (now, after) = (state.share_now(donor), state.share(donor, state.jobs[donor].trainers.len() - 1));
        match (theirs > priority || now < then, after >= then && donor != job) {
            (true, _) => Willing::NoFurther,
            (false, true) => Willing::Yes,
            (false, false) => Willing::No,
        }
    };
    if let Some(made) = state.make_room(ask, true, willing) {
        made.taken.iter().for_each(|(from, _)| state.jobs[*from].gave.push(Taker::Share(job)));
        state.push(job, made.node);
        return Ok(());
    }
    if view.allows_new_nodes {
        let made = &mut state.jobs[job];
        made.to_come = made.most - made.trainers.len() as u32;
        return Ok(());
    }
    if !state.room.has_suiting(ask) {
        return Err(Blocker::Unsuited { who: "a trainer".to_owned(), nodes: state.room.open_nodes() });
    }
    let devices = &state.view.devices;
    Err(match state.headroom_hit(&ask.request) {
        Some(kind) if state.room.first_fit(ask).is_some() => Blocker::headroom(kind, devices),
        _ => {
            let others =
                (0..state.jobs.len()).any(|other| other != job && !state.jobs[other].trainers.is_empty());
            Blocker::no_room(&ask.request, &state.room.most_free(ask), others, devices)
        }
    })
}
