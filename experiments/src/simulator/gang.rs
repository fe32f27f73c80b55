//! Static jobs: each starts when all of it has room, the highest priority and the oldest first; who fits goes ahead of who
//! does not. This is what a gang scheduler does with jobs that are not elastic.

use super::world::World;
use shoal_planner::{Ask, Pools, Resources};

pub(super) fn look(world: &mut World<'_>) {
    if !std::mem::take(&mut world.is_changed) {
        return;
    }
    let mut waiting: Vec<usize> = (0..world.jobs.len())
        .filter(|job| world.jobs[*job].is_live() && !world.jobs[*job].is_admitted)
        .collect();
    waiting.sort_by_key(|job| (-world.jobs[*job].priority, *job));
    let mut refused: Vec<[(Resources, u32); 3]> = Vec::new();
    for job in waiting {
        let one = &world.jobs[job];
        let parts = [(one.master, 1), (one.pserver, one.pservers_wanted), (one.trainer, one.fixed)];
        let is_no_less = |other: &[(Resources, u32); 3]| {
            let pairs = parts.iter().zip(other);
            pairs.into_iter().all(|((mine, many), (theirs, some))| mine.fits(theirs) && many >= some)
        };
        if refused.iter().any(is_no_less) || !has_room(world, &parts) {
            refused.push(parts);
            continue;
        }
        world.admit(job, world.jobs[job].fixed);
        // What it was let in for is its own: nobody else gets it in the meantime.
        let one = &world.jobs[job];
        let pods: Vec<usize> =
            [&one.masters, &one.pservers, &one.trainers].into_iter().flatten().copied().collect();
        for pod in pods {
            let request = world.cluster.pods[pod].request;
            if let Some(node) = world.cluster.room.first_fit(&Ask { request, pools: Pools::Any }) {
                world.cluster.place(pod, node);
                world.will_start(pod);
            }
        }
    }
}

/// Whether all parts fit at once.
fn has_room(world: &mut World<'_>, parts: &[(Resources, u32)]) -> bool {
    let room = &mut world.cluster.room;
    let mut taken = Vec::new();
    let mut pods = parts.iter().flat_map(|(request, count)| (0..*count).map(move |_| *request));
    let fits = pods.all(|request| {
        let node = room.first_fit(&Ask { request, pools: Pools::Any });
        if let Some(node) = node {
            room.take(node, &request);
            taken.push((node, request));
        }
        node.is_some()
    });
    taken.into_iter().rev().for_each(|(node, request)| room.give(node, &request));
    fits
}
