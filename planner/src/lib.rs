//! Who gets how many trainers: one pure plan for all jobs of a cluster, from what is seen of it.
//!
//! The plan starts from where every pod is and changes what must change:
//! 1. what is wanted and has no node yet is placed (`state`);
//! 2. what is not worth its room goes;
//! 3. pods of others that wait, and the least of every job, take what they need, by priority (`claims`);
//! 4. what reaches into the headroom goes, what is left is given out, the smallest share first (`fill`).
//!
//! Invariants, which `properties.rs` holds against random clusters, and `check` every plan against as far as it costs little:
//! 1. Planning ends: every step of filling makes the sorted shares larger, every other loop takes trainers away.
//! 2. No node is given more than it has, beyond what it owed before.
//! 3. No job that is in has less than its least in mind, none has more than its most.
//! 4. No job could be given a trainer without taking it from one with no more than it would have then (max-min fairness).
//! 5. The same cluster, planned again after the plan was carried out, keeps its plan.
//! 6. With jobs alike, more room makes nobody's share smaller.

#![forbid(unsafe_code)]

mod check;
mod claims;
mod fill;
#[cfg(test)]
mod properties;
mod pservers;
mod reason;
#[cfg(test)]
mod regressions;
mod resources;
mod room;
mod settings;
mod speed;
mod state;
mod view;

pub use check::Broken;
pub use pservers::{HOT, Load, PserverPlan, pservers};
pub use reason::{Blocker, QUOTA};
pub use resources::{CPU, DEVICES, KINDS, MEMORY, PODS, Resources};
pub use room::Room;
pub use settings::Settings;
pub use speed::{MARGINAL_LEAST, SpeedCurve, SpeedSample};
pub use view::{Ask, ClusterView, JobView, Node, Pools, Seconds, Servers, Trainers, WaitingPod};

use state::{State, Taker, Willing};
use std::collections::BTreeMap;

/// What one job is to have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobPlan {
    /// Whether it is let in: all of its least has room.
    pub is_admitted: bool,
    /// Trainers that it is to have; 0 if it is not let in.
    pub trainers: u32,
    /// Which of the trainers that were seen go, by their place in the view.
    pub scaled_down: Vec<usize>,
    /// When it last gave trainers up to something that is no training job.
    pub yielded: Option<Seconds>,
    /// Its dominant share of the cluster, from 0 to 1.
    pub share: f64,
    /// Why it has fewer than before, or as many as it has.
    pub why: String,
    /// Why it has no more, or is not let in.
    pub blocker: Option<Blocker>,
    /// What it lacks of its least although it is in, such as a pserver whose node was lost.
    pub lacks: Option<String>,
}

/// What every job of a view is to have, in the view's order.
///
/// # Errors
/// The plan would break what must hold of every plan: none of it is to be used.
pub fn plan(view: &ClusterView, settings: &Settings, now: Seconds) -> Result<Vec<JobPlan>, Broken> {
    let state = planned(view, settings, now);
    let plans = told(&state, now);
    check::check(&state, &plans)?;
    Ok(plans)
}

fn told(state: &State<'_>, now: Seconds) -> Vec<JobPlan> {
    (0..state.jobs.len()).map(|job| outcome(state, job, now)).collect()
}

fn planned<'a>(view: &'a ClusterView, settings: &'a Settings, now: Seconds) -> State<'a> {
    let mut state = State::new(view, settings);
    place(&mut state);
    for job in 0..view.jobs.len() {
        fill::bound(&mut state, job);
        fill::trim(&mut state, job);
    }
    claims::grant(&mut state, now);
    fill::keep_headroom(&mut state);
    fill::fill(&mut state, now);
    state
}

/// Finds nodes for trainers that were wanted before and have none yet. Those for which there is none are not wanted any more.
fn place(state: &mut State<'_>) {
    for job in 0..state.jobs.len() {
        let trainers = &state.view.jobs[job].trainers;
        while (state.jobs[job].trainers.len() as u32) < trainers.wanted.min(trainers.max) {
            let Some(made) = state.make_room(&trainers.ask, true, |_, _| Willing::NoFurther) else { break };
            state.push(job, made.node);
        }
    }
}

fn outcome(state: &State<'_>, job: usize, now: Seconds) -> JobPlan {
    let (view, made) = (&state.view.jobs[job], &state.jobs[job]);
    if !made.is_admitted {
        return JobPlan { blocker: made.blocker.clone(), why: "it waits".to_owned(), ..JobPlan::default() };
    }
    let trainers = (made.trainers.len() as u32 + made.to_come).max(view.trainers.min);
    let has_yielded = made.gave.iter().any(|taker| matches!(taker, Taker::Pod(_) | Taker::Headroom));
    JobPlan {
        is_admitted: true,
        trainers,
        scaled_down: check::without(&view.trainers.nodes, &made.trainers),
        yielded: if has_yielded { Some(now) } else { view.trainers.yielded },
        share: state.share_now(job),
        why: why(state, job, trainers),
        blocker: made.blocker.clone(),
        lacks: made.lacks.clone(),
    }
}

/// What became of a job's trainers, and by whom.
fn why(state: &State<'_>, job: usize, trainers: u32) -> String {
    let (view, made) = (&state.view.jobs[job], &state.jobs[job]);
    let mut said = Vec::new();
    if !view.is_admitted {
        said.push("it is let in: its least has room".to_owned());
    }
    let mut gave: BTreeMap<Taker, u32> = BTreeMap::new();
    made.gave.iter().for_each(|taker| *gave.entry(*taker).or_default() += 1);
    for (taker, count) in gave.iter().take(GAVE_MAX) {
        let to = match taker {
            Taker::Pod(pod) => format!("pod {}, which waits", state.view.waiting[*pod].name),
            Taker::Least(other) => format!("{}, for its least", state.view.jobs[*other].name),
            Taker::Share(other) => format!("{}, which had less", state.view.jobs[*other].name),
            Taker::Headroom => "the headroom".to_owned(),
            Taker::Nobody => "nobody: they are not worth their room".to_owned(),
            Taker::Fewer => {
                said.push(format!("{count} fewer are asked for"));
                continue;
            }
        };
        said.push(format!("{count} went to {to}"));
    }
    if gave.len() > GAVE_MAX {
        said.push(format!("and others to {} more", gave.len() - GAVE_MAX));
    }
    let before = view.trainers.wanted;
    if trainers > before && view.is_admitted {
        said.push(format!("there is room for {} more", trainers - before));
    }
    said.push(format!("its share of the cluster is {:.1} %", 100.0 * state.share_now(job)));
    said.join("; ")
}

/// Takers that are named.
const GAVE_MAX: usize = 3;
