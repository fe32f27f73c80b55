//! Clusters for the planner: nodes of three kinds, jobs on cores and on devices, and what has happened to them.
//! It must never draw a cluster that another run would not draw: a size and a situation have one cluster.

use clap::ValueEnum;
use serde::Serialize;
use shoal_planner::{
    Ask, Broken, ClusterView, JobView, Node, PODS, Pools, Resources, Room, Seconds, Servers, Settings,
    SpeedSample, Trainers, WaitingPod, plan,
};
use std::fmt;

/// Nodes for each job.
pub(crate) const NODES_PER_JOB: usize = 5;
const GI: i64 = 1 << 30;
/// The moment of the plan that is measured.
pub(crate) const NOW: Seconds = 100_000;

/// What the planner meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Situation {
    /// Every job waits, nothing runs: the most that there can be to do
    Cold,
    /// The plan was carried out and nothing has changed
    Still,
    /// One node of a hundred is lost, one job of a hundred is new, and a pod with priority waits for every hundred nodes
    Changed,
}

impl fmt::Display for Situation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Situation::Cold => "cold",
            Situation::Still => "still",
            Situation::Changed => "changed",
        })
    }
}

/// A cluster of so many nodes, in a situation.
///
/// # Errors
/// A plan on the way there is broken.
pub(crate) fn cluster(nodes: usize, situation: Situation) -> Result<ClusterView, Broken> {
    let jobs = nodes / NODES_PER_JOB;
    let late = if situation == Situation::Changed { jobs.div_ceil(100) } else { 0 };
    let mut view = ClusterView {
        devices: vec!["nvidia.com/gpu".to_owned()],
        nodes: (0..nodes).map(node).collect(),
        waiting: Vec::new(),
        jobs: (0..jobs - late).map(job).collect(),
    };
    if situation == Situation::Cold {
        return Ok(view);
    }
    // Until it has settled: a job that was let in last may have been given its least alone.
    while carry_out(&mut view)? {}
    if situation == Situation::Changed {
        let is_lost = |index: usize| index % 100 == 50;
        (0..nodes).filter(|index| is_lost(*index)).for_each(|index| view.nodes[index].is_open = false);
        for job in &mut view.jobs {
            for placed in [&mut job.master.nodes, &mut job.pservers.nodes, &mut job.trainers.nodes] {
                placed.retain(|node| !is_lost(*node));
            }
        }
        view.jobs.extend((jobs - late..jobs).map(job));
        view.waiting = (0..nodes.div_ceil(100)).map(waiting).collect();
    }
    Ok(view)
}

/// Of ten nodes seven have 32 cores, one has 96, and two have 64 and 8 devices; each kind is a pool.
fn node(index: usize) -> Node {
    let (pool, cores, memory, devices) = match index % 10 {
        0..7 => (0, 32, 128, 0),
        7 => (1, 96, 768, 0),
        _ => (2, 64, 512, 8),
    };
    let mut allocatable = Resources::of_pod(cores * 1000, memory * GI).with_device(0, devices);
    allocatable.0[PODS] = 110;
    // A tenth is used by what runs on every node, and by others.
    let used = Resources::of_pod(cores * 100 + (index % 7) as i64 * 500, memory * GI / 10);
    Node { name: format!("node-{index}"), allocatable, used, pool, is_open: true }
}

/// Of four jobs three are on cores and one is on devices; one of eight may be on large nodes alone; half are measured.
fn job(index: usize) -> JobView {
    let is_deep = index % 4 == 3;
    let pools = if index % 8 == 1 { Pools::Of(vec![1, 2]) } else { Pools::Any };
    let ask = |cores: i64, memory: i64| Ask {
        request: Resources::of_pod(cores * 1000, memory * GI),
        pools: Pools::Any,
    };
    let (cores, memory, devices) = if is_deep { (6, 48, 1) } else { (2 + 2 * (index % 3) as i64, 8, 0) };
    let request = Resources::of_pod(cores * 1000, memory * GI).with_device(0, devices);
    let (min, max) = if is_deep { (4, 64) } else { (8, 160) };
    let speed = |trainers: u32| SpeedSample {
        trainers,
        per_second: 1.0
            / (8.0 / f64::from(trainers) + 0.01 + 0.000_2 * (index % 20) as f64 * f64::from(trainers)),
    };
    JobView {
        name: format!("team/job-{index}"),
        priority: (index % 16 == 5).into(),
        since: index as u64,
        master: Servers { ask: ask(1, 2), count: 1, nodes: Vec::new() },
        pservers: Servers { ask: ask(4, 16), count: if is_deep { 2 } else { 4 }, nodes: Vec::new() },
        trainers: Trainers {
            ask: Ask { request, pools },
            min,
            max,
            is_stated: true,
            speeds: if index.is_multiple_of(2) { [8, 16, 32].map(speed).to_vec() } else { Vec::new() },
            ..Trainers::default()
        },
        ..JobView::default()
    }
}

fn waiting(index: usize) -> WaitingPod {
    WaitingPod {
        name: format!("web/pod-{index}"),
        ask: Ask { request: Resources::of_pod(16_000, 32 * GI), pools: Pools::Any },
        priority: 100,
        since: NOW,
    }
}

/// Carries the plan out as a scheduler would: each pod on the first node that has room. Whether anything changed.
fn carry_out(view: &mut ClusterView) -> Result<bool, Broken> {
    let before = view.clone();
    let plans = plan(&before, &Settings::default(), NOW - 1000)?;
    for (job, planned) in view.jobs.iter_mut().zip(plans) {
        (job.is_admitted, job.trainers.wanted, job.trainers.yielded) =
            (planned.is_admitted, planned.trainers, planned.yielded);
        for place in planned.scaled_down.iter().rev() {
            job.trainers.nodes.remove(*place);
        }
    }
    let mut room = Room::new(&view.nodes);
    for job in &view.jobs {
        let master = (&job.master.ask, &job.master.nodes);
        for (ask, nodes) in
            [master, (&job.pservers.ask, &job.pservers.nodes), (&job.trainers.ask, &job.trainers.nodes)]
        {
            nodes.iter().for_each(|node| room.take(*node, &ask.request));
        }
    }
    let mut place = |ask: &Ask, nodes: &mut Vec<usize>, count: u32| {
        while (nodes.len() as u32) < count
            && let Some(node) = room.first_fit(ask)
        {
            room.take(node, &ask.request);
            nodes.push(node);
        }
    };
    for job in view.jobs.iter_mut().filter(|job| job.is_admitted) {
        place(&job.master.ask, &mut job.master.nodes, job.master.count);
        place(&job.pservers.ask, &mut job.pservers.nodes, job.pservers.count);
        place(&job.trainers.ask, &mut job.trainers.nodes, job.trainers.wanted);
    }
    Ok(*view != before)
}
