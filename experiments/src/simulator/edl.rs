//! The rules of PaddlePaddle EDL's autoscaler, with their faults: every 30 s the requests of all pods are summed and compared
//! with what all nodes have; jobs are sorted by fulfilment, (now - min) / (max - min), and swept over, one trainer up or down
//! each, until a sweep changes nothing.
//!
//! A job is made at once, with its least trainers, whether there is room or not. The ceiling of 0.97 holds for cpu on the way
//! up, for cpu and GPUs on the way down; so some sweeps never end, and are given up here after a thousand.

use super::world::World;
use shoal_planner::{Ask, CPU, DEVICES, MEMORY, Pools, Resources};

/// The share of what all nodes have that it fills.
const CEILING: f64 = 0.97;
const SWEEPS_MAX: u32 = 1000;

/// What is known of the cluster while numbers are tried out.
struct Tally {
    asked: Resources,
    whole: Resources,
}

pub(super) fn look(world: &mut World<'_>) {
    let live: Vec<usize> = (0..world.jobs.len()).filter(|job| world.jobs[*job].is_live()).collect();
    let is_pending = |job: &usize| world.jobs[*job].running == [0; 3];
    let has_pending = live.iter().any(is_pending);
    let mut candidates: Vec<usize> = live
        .into_iter()
        // A job whose author states nothing has no least and most that it could go by.
        .filter(|job| world.jobs[*job].is_stated && world.jobs[*job].most > world.jobs[*job].least)
        .filter(|job| has_pending || !is_pending(job))
        .collect();
    let mut tally = Tally { asked: world.cluster.asked(), whole: *world.cluster.whole() };
    let mut planned: Vec<u32> = world.jobs.iter().map(|job| job.wanted).collect();
    let mut placed: Vec<(usize, usize, Resources)> = Vec::new();
    let mut sweeps = 0;
    loop {
        let fulfilment = |job: &usize| {
            let one = &world.jobs[*job];
            f64::from(planned[*job].saturating_sub(one.least)) / f64::from((one.most - one.least).max(1))
        };
        candidates.sort_by(|a, b| fulfilment(a).total_cmp(&fulfilment(b)));
        let mut is_quiet = true;
        for job in &candidates {
            if goes_up(world, &tally, *job, planned[*job], &mut placed) {
                planned[*job] += 1;
                tally.asked.add(&world.jobs[*job].trainer);
                is_quiet = false;
            }
        }
        for job in candidates.iter().rev() {
            if goes_down(world, &tally, *job, planned[*job]) {
                planned[*job] -= 1;
                tally.asked.take(&world.jobs[*job].trainer);
                if let Some(last) = placed.iter().rposition(|(of, ..)| of == job) {
                    let (_, node, request) = placed.remove(last);
                    world.cluster.room.give(node, &request);
                }
                is_quiet = false;
            }
        }
        sweeps += 1;
        if is_quiet || sweeps == SWEEPS_MAX {
            break;
        }
    }
    world.unsettled += u32::from(sweeps == SWEEPS_MAX);
    // What was put on nodes in order to find one was only thought.
    placed.into_iter().for_each(|(_, node, request)| world.cluster.room.give(node, &request));
    for job in candidates {
        apply(world, job, planned[job]);
    }
}

fn goes_up(
    world: &mut World<'_>,
    tally: &Tally,
    job: usize,
    now: u32,
    placed: &mut Vec<(usize, usize, Resources)>,
) -> bool {
    let one = &world.jobs[job];
    let trainer = one.trainer;
    if now >= one.most || tally.whole.0[MEMORY] - tally.asked.0[MEMORY] <= trainer.0[MEMORY] {
        return false;
    }
    let has_cpu = tally.whole.0[CPU] as f64 * CEILING - tally.asked.0[CPU] as f64 >= trainer.0[CPU] as f64;
    let has_devices = tally.whole.0[DEVICES] - tally.asked.0[DEVICES] >= trainer.0[DEVICES];
    if !has_cpu || !has_devices {
        return false;
    }
    // It looks for a node with cpu and memory, and not for one with GPUs.
    let mut asked = trainer;
    asked.0[DEVICES..].fill(0);
    let Some(node) = world.cluster.room.first_fit(&Ask { request: asked, pools: Pools::Any }) else {
        return false;
    };
    world.cluster.room.take(node, &asked);
    placed.push((job, node, asked));
    true
}

fn goes_down(world: &World<'_>, tally: &Tally, job: usize, now: u32) -> bool {
    let one = &world.jobs[job];
    let is_above = |kind: usize| tally.asked.0[kind] as f64 > tally.whole.0[kind] as f64 * CEILING;
    now > one.most || ((is_above(CPU) || is_above(DEVICES)) && now > one.least)
}

/// Makes pods, or deletes some: those that wait first, of the others any.
fn apply(world: &mut World<'_>, job: usize, wanted: u32) {
    world.jobs[job].wanted = wanted;
    while world.jobs[job].trainers.len() > wanted as usize {
        let pods = &world.jobs[job].trainers;
        let waiting = pods.iter().rev().find(|pod| world.cluster.pods[**pod].node.is_none()).copied();
        let victim = waiting.unwrap_or_else(|| {
            let count = pods.len() as u64;
            pods[(world.random.bits() % count) as usize]
        });
        world.take(victim);
    }
    world.keep(job);
}
