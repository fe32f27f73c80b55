//! What must hold of a plan, whatever is seen: checked of each one before anything of it is used. Costs some comparisons a node
//! and a pod. Pure.
//!
//! Invariants 2 and 3 of this module's parent, and what follows from who may be taken. That nobody has more than its share, and
//! that a plan stays (4 to 6), would take further plans to see: `properties.rs` does. Reasons are not held: a plan that explains
//! too little is one all the same.

use super::JobPlan;
use super::resources::{KINDS, Resources, kind_name};
use super::state::{JobState, State};
use super::view::{Ask, ClusterView, JobView};
use std::collections::BTreeMap;
use std::fmt;

/// A plan that is none: what it breaks of what must hold. Nothing of it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken(pub String);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a plan that would break what must hold: {}: this is a fault of the planner's", self.0)
    }
}

impl std::error::Error for Broken {}

/// Holds a plan, as it was made and as it is told, against what must hold of every plan.
///
/// # Errors
/// What it would break, and of whom.
pub(super) fn check(state: &State<'_>, plans: &[JobPlan]) -> Result<(), Broken> {
    let view = state.view;
    hold(plans.len() == view.jobs.len(), || "it is of other jobs than were seen".to_owned())?;
    check_nodes(state)?;
    for ((job, made), plan) in view.jobs.iter().zip(&state.jobs).zip(plans) {
        let of_job = |what: &str| format!("job {}: {what}", job.name);
        check_numbers(job, made, plan).map_err(|what| Broken(of_job(what)))?;
        check_places(view, job, made).map_err(|what| Broken(of_job(what)))?;
    }
    Ok(())
}

fn hold(holds: bool, what: impl FnOnce() -> String) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(Broken(what())) }
}

/// No node is given more than it has, beyond what it owed before, and what the plan took for free is.
fn check_nodes(state: &State<'_>) -> Result<(), Broken> {
    let view = state.view;
    let free = view.nodes.iter().map(|node| {
        let mut free = node.allocatable;
        free.take(&node.used);
        free
    });
    let mut before: Vec<Resources> = free.collect();
    for job in &view.jobs {
        job.master.nodes.iter().for_each(|node| before[*node].take(&job.master.ask.request));
        job.pservers.nodes.iter().for_each(|node| before[*node].take(&job.pservers.ask.request));
    }
    let mut after = before.clone();
    for (job, made) in view.jobs.iter().zip(&state.jobs) {
        let [masters, pservers] = &made.served;
        masters.iter().for_each(|node| after[*node].take(&job.master.ask.request));
        pservers.iter().for_each(|node| after[*node].take(&job.pservers.ask.request));
        made.trainers.iter().for_each(|node| after[*node].take(&job.trainers.ask.request));
        job.trainers.nodes.iter().for_each(|node| before[*node].take(&job.trainers.ask.request));
    }
    for (at, node) in view.nodes.iter().enumerate() {
        // Less than what is free by what is kept for pods of others that wait.
        let counted = state.room.free(at);
        for kind in 0..KINDS {
            let of_node = |what: &str| {
                let name = kind_name(kind, &view.devices);
                format!("node {}: {what} of {name} ({} free)", node.name, after[at].0[kind])
            };
            let (was, is, counted) = (before[at].0[kind], after[at].0[kind], counted.0[kind]);
            hold(is >= was.min(0), || of_node("it would be given more than it has"))?;
            hold(counted <= is, || of_node("more was taken for free than is"))?;
        }
    }
    Ok(())
}

/// Who is in stays in and keeps its least; nobody has less than its least in mind, or more than its most.
fn check_numbers(job: &JobView, made: &JobState, plan: &JobPlan) -> Result<(), &'static str> {
    let hold = |holds: bool, what: &'static str| if holds { Ok(()) } else { Err(what) };
    let (least, seen) = (job.trainers.min, job.trainers.nodes.len());
    if !plan.is_admitted {
        hold(!job.is_admitted, "it is in and would be put out")?;
        let has_none =
            plan.trainers == 0 && plan.scaled_down.is_empty() && made.served.iter().all(Vec::is_empty);
        return hold(has_none, "it waits, and would be given something or lose something");
    }
    hold(plan.trainers >= least, "it would have less than its least")?;
    hold(plan.trainers <= job.trainers.max.max(least), "it would have more than its most")?;
    let placed = made.trainers.len();
    hold(placed <= plan.trainers as usize, "it would have room for more than it is to have")?;
    let is_whole = placed + made.to_come as usize >= least as usize;
    hold(is_whole || made.lacks.is_some(), "nothing has room for its least, and it is not said to lack any")?;
    let has = |part: &super::view::Servers, served: &Vec<usize>| {
        part.nodes.len() + served.len() >= part.count as usize
    };
    let is_served = has(&job.master, &made.served[0]) && has(&job.pservers, &made.served[1]);
    let may_lack = job.is_admitted || job.allows_new_nodes;
    hold(is_served && is_whole || may_lack, "it would be let in without room for all of its least")?;
    let is_sorted = plan.scaled_down.is_sorted_by(|one, next| one < next);
    let are_seen = is_sorted && plan.scaled_down.last().is_none_or(|last| *last < seen);
    hold(are_seen, "trainers would go that are none of its own")?;
    let stay = seen - plan.scaled_down.len();
    hold(stay >= seen.min(least as usize), "trainers of its least would be taken")?;
    hold(stay <= placed, "more of its trainers would stay than have room")
}

/// What is new has nodes that take new pods, and on which it may be.
fn check_places(view: &ClusterView, job: &JobView, made: &JobState) -> Result<(), &'static str> {
    let suits = |ask: &Ask, node: usize| {
        let node = &view.nodes[node];
        node.is_open && ask.pools.has(node.pool)
    };
    let [masters, pservers] = &made.served;
    let trainers = without(&made.trainers, &job.trainers.nodes).into_iter().map(|at| made.trainers[at]);
    let is_suited = masters.iter().all(|node| suits(&job.master.ask, *node))
        && pservers.iter().all(|node| suits(&job.pservers.ask, *node))
        && trainers.into_iter().all(|node| suits(&job.trainers.ask, node));
    if is_suited { Ok(()) } else { Err("a pod would be placed where none may be") }
}

/// The places in `all` of what is left once each of `some` has been taken out of it.
pub(super) fn without(all: &[usize], some: &[usize]) -> Vec<usize> {
    let mut left: BTreeMap<usize, u32> = BTreeMap::new();
    some.iter().for_each(|one| *left.entry(*one).or_default() += 1);
    let is_taken = |one: &usize| match left.get_mut(one).filter(|count| **count > 0) {
        Some(count) => {
            *count -= 1;
            true
        }
        None => false,
    };
    let taken: Vec<bool> = all.iter().map(is_taken).collect();
    (0..all.len()).filter(|at| !taken[*at]).collect()
}

#[cfg(test)]
mod tests {
    use super::super::regressions::{carried_out, cluster, job, nodes};
    use super::super::*;
    use super::*;

    /// Why a plan is not used that was changed after it was made.
    fn refused(change: impl Fn(&mut State<'_>, &mut Vec<JobPlan>)) -> String {
        let settings = Settings::default();
        let view = cluster(nodes(2, 8, 64, 0), vec![job("in", 1, 0, 2, 10)]);
        let mut view = carried_out(&view, &settings, 0);
        view.jobs.push(job("late", 1, 0, 1, 4));
        view.nodes.push(Node { name: "shut".to_owned(), is_open: false, ..view.nodes[0].clone() });
        let mut state = planned(&view, &settings, 0);
        let mut plans = told(&state, 0);
        assert_eq!(check(&state, &plans), Ok(()));
        assert_eq!(plans.iter().map(|plan| plan.trainers).collect::<Vec<_>>(), [10, 4]);
        change(&mut state, &mut plans);
        check(&state, &plans).unwrap_err().0
    }

    #[test]
    fn a_plan_that_gives_a_node_more_than_it_has_is_none() {
        let beyond = refused(|state, plans| {
            state.jobs[1].trainers = vec![0; 4];
            state.jobs[0].trainers = vec![0; 10];
            plans[0].scaled_down = Vec::new();
        });
        assert!(beyond.contains("node n-0: it would be given more than it has of cpu"), "{beyond}");
        let forgotten = refused(|state, _| state.room.give(1, &Resources::of_pod(9000, 0)));
        assert!(forgotten.contains("node n-1: more was taken for free than is of cpu"), "{forgotten}");
    }

    #[test]
    fn a_plan_that_puts_out_who_is_in_or_breaks_its_bounds_is_none() {
        let out = refused(|_, plans| plans[0] = JobPlan::default());
        assert_eq!(out, "job in: it is in and would be put out");
        let few = refused(|_, plans| plans[0].trainers = 1);
        assert_eq!(few, "job in: it would have less than its least");
        let many = refused(|_, plans| plans[1].trainers = 5);
        assert_eq!(many, "job late: it would have more than its most");
        let bare = refused(|state, _| state.jobs[1].served = Default::default());
        assert_eq!(bare, "job late: it would be let in without room for all of its least");
        let none = refused(|state, plans| {
            state.jobs[0].trainers.truncate(1);
            plans[0].trainers = 2;
        });
        assert!(none.contains("nothing has room for its least"), "{none}");
        let shorter = refused(|_, plans| drop(plans.pop()));
        assert!(shorter.contains("other jobs"), "{shorter}");
    }

    #[test]
    fn a_plan_that_takes_of_a_jobs_least_or_what_is_not_there_is_none() {
        let least = refused(|_, plans| plans[0].scaled_down = (0..9).collect());
        assert_eq!(least, "job in: trainers of its least would be taken");
        for others in [vec![10], vec![1, 1], vec![2, 1]] {
            let unseen = refused(|_, plans| plans[0].scaled_down.clone_from(&others));
            assert_eq!(unseen, "job in: trainers would go that are none of its own", "{others:?}");
        }
        let waits = refused(|_, plans| plans[1] = JobPlan::default());
        assert!(waits.contains("job late: it waits, and would be given something"), "{waits}");
    }

    #[test]
    fn a_plan_that_places_pods_where_none_may_be_is_none() {
        let shut = refused(|state, _| {
            let from = state.jobs[1].trainers[0];
            state.room.give(from, &state.view.jobs[1].trainers.ask.request);
            state.room.take(2, &state.view.jobs[1].trainers.ask.request);
            state.jobs[1].trainers[0] = 2;
        });
        assert_eq!(shut, "job late: a pod would be placed where none may be");
    }
}
