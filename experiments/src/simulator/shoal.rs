//! Our planner, asked as the operator asks it.

use super::cluster::{Owner, PodState};
use super::world::World;
use shoal_planner::{
    Ask, ClusterView, JobView, Pools, Resources, Servers, Settings, Trainers, WaitingPod, plan,
};

pub(super) fn look(world: &mut World<'_>) {
    let now = world.now as u64;
    let settings = Settings { headroom: world.scenario.headroom, ..Settings::default() };
    for job in &mut world.jobs {
        if job.is_live() {
            job.measure(world.now);
        }
    }
    let recently = |at: u64| now <= at + settings.regrow_seconds + 60;
    let is_waiting =
        |job: &super::job::Job| !job.is_admitted || !job.is_stated || job.yielded.is_some_and(recently);
    let is_due = world.jobs.iter().any(|job| job.is_live() && is_waiting(job));
    // Speeds are measured now and then without anything else that changes.
    let is_time = now.is_multiple_of(60);
    if !std::mem::take(&mut world.is_changed) && !is_due && !is_time {
        return;
    }
    let live: Vec<usize> = (0..world.jobs.len()).filter(|job| world.jobs[*job].is_live()).collect();
    let view = view(world, &live);
    let plans = match plan(&view, &settings, now) {
        Ok(plans) => plans,
        // An operator goes on with its last plan; an experiment that did would show what no planner has planned.
        Err(broken) => panic!("{} s: {broken}", world.now),
    };
    for (job, planned) in live.into_iter().zip(plans) {
        if !planned.is_admitted {
            continue;
        }
        let one = &mut world.jobs[job];
        one.is_admitted = true;
        one.yielded = planned.yielded;
        one.wanted = planned.trainers;
        let placed = with_nodes(world, job);
        let mut goes: Vec<usize> =
            planned.scaled_down.iter().filter_map(|place| placed.get(*place).copied()).collect();
        // Those without a node go first, if there are still too many.
        let waiting = |pod: &&usize| world.cluster.pods[**pod].node.is_none();
        let unplaced: Vec<usize> = world.jobs[job].trainers.iter().filter(waiting).copied().collect();
        let too_many =
            (world.jobs[job].trainers.len() - goes.len()).saturating_sub(planned.trainers as usize);
        goes.extend(unplaced.into_iter().rev().take(too_many));
        goes.into_iter().for_each(|pod| world.take(pod));
        world.keep(job);
    }
}

/// A job's trainers that have a node.
fn with_nodes(world: &World<'_>, job: usize) -> Vec<usize> {
    let has_node = |pod: &&usize| world.cluster.pods[**pod].node.is_some();
    world.jobs[job].trainers.iter().filter(has_node).copied().collect()
}

fn view(world: &World<'_>, live: &[usize]) -> ClusterView {
    let mut nodes = world.cluster.nodes.clone();
    let mut waiting = Vec::new();
    for pod in world.services() {
        let pod = &world.cluster.pods[pod];
        match (pod.node, pod.state) {
            (_, PodState::Stopping | PodState::Gone) => {}
            (Some(node), _) => nodes[node].used.add(&pod.request),
            (None, _) => waiting.push(WaitingPod {
                name: match pod.owner {
                    Owner::Service(service) => world.scenario.serving[service].name.clone(),
                    _ => String::new(),
                },
                ask: ask(pod.request),
                priority: pod.priority,
                since: pod.created as u64,
            }),
        }
    }
    let jobs = live.iter().map(|job| seen(world, *job)).collect();
    ClusterView { devices: vec!["gpu".to_owned()], nodes, waiting, jobs }
}

fn ask(request: Resources) -> Ask {
    Ask { request, pools: Pools::Any }
}

fn seen(world: &World<'_>, job: usize) -> JobView {
    let one = &world.jobs[job];
    let nodes = |pods: &[usize]| pods.iter().filter_map(|pod| world.cluster.pods[*pod].node).collect();
    JobView {
        name: one.name.clone(),
        priority: one.priority,
        since: one.submit as u64,
        is_admitted: one.is_admitted,
        master: Servers { ask: ask(one.master), count: 1, nodes: nodes(&one.masters) },
        pservers: Servers { ask: ask(one.pserver), count: one.pservers_wanted, nodes: nodes(&one.pservers) },
        trainers: Trainers {
            ask: ask(one.trainer),
            min: one.least,
            max: one.most,
            wanted: one.wanted,
            nodes: nodes(&one.trainers),
            is_stated: one.is_stated,
            speeds: one.speeds.clone(),
            yielded: one.yielded,
        },
        allows_new_nodes: false,
    }
}
