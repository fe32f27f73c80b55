//! The planner's view of nodes, pods and jobs. Pure.

use super::suit::PoolMap;
use super::{Amounts, JobFacts, Place, PodAsk, Site, Tenant, Wish};
use crate::decide::Role;
use crate::plan::{
    Ask, ClusterView, DEVICES, JobView, KINDS, Node, Resources, Servers, Trainers, WaitingPod,
};
use std::collections::BTreeMap;

/// A cluster for the planner, with what is needed to carry its plan out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inventory {
    /// What the planner sees.
    pub view: ClusterView,
    /// By job, the uids of the trainers in the view, in its order.
    pub trainers: Vec<Vec<String>>,
    /// By job, the uids of trainers that are there and are to go.
    pub going: Vec<Vec<String>>,
}

/// A job's pods: by role, with what tells them apart.
#[derive(Debug, Default)]
struct Members<'a> {
    servers: [Vec<usize>; 2],
    /// By ordinal, the node and the uid.
    trainers: Vec<(u32, usize, &'a str)>,
    going: Vec<String>,
}

/// The view of a cluster with these nodes, pods by their names, and jobs.
pub fn cluster_view<'a>(
    sites: &'a [Site],
    tenants: impl Iterator<Item = (String, &'a Tenant)>,
    jobs: &'a [JobFacts],
) -> Inventory {
    let places: BTreeMap<&str, usize> = sites.iter().enumerate().map(|(at, site)| (site.name.as_str(), at)).collect();
    let by_uid: BTreeMap<&str, usize> = jobs.iter().enumerate().map(|(at, job)| (job.uid.as_str(), at)).collect();
    let devices = devices(sites, jobs);
    let mut used = vec![Resources::default(); sites.len()];
    let mut waiting: Vec<(String, &Tenant, &Wish)> = Vec::new();
    let mut members: Vec<Members<'a>> = jobs.iter().map(|_| Members::default()).collect();
    for (name, tenant) in tenants.filter(|(_, tenant)| !tenant.is_leaving) {
        let job = tenant.member.as_ref().and_then(|member| Some((member, *by_uid.get(member.job.as_str())?)));
        match (&tenant.place, job) {
            (Place::On(node), job) => {
                let Some(&node) = places.get(node.as_str()) else { continue };
                let asked = tenant.amounts.planned(&devices);
                let counted = job.map(|(member, job)| {
                    let (facts, uid) = (&jobs[job], tenant.uid.as_str());
                    let ask = note(&mut members[job], facts, (member.role, member.ordinal), node, uid);
                    ask.amounts.planned(&devices)
                });
                used[node].add(&beyond(&asked, &counted.unwrap_or_default()));
            }
            // A job's own pods that wait are in what the job wants.
            (Place::Wants(wish), None) if tenant.member.is_none() => waiting.push((name, tenant, wish)),
            (Place::Wants(_), _) => {}
        }
    }
    let asks = jobs.iter().flat_map(|job| [&job.asks.master, &job.asks.pserver, &job.asks.trainer]);
    let pools = PoolMap::new(sites, asks.map(|ask| &ask.wish).chain(waiting.iter().map(|(.., wish)| *wish)));
    let ask = |amounts: &Amounts, wish: &Wish| Ask { request: amounts.planned(&devices), pools: pools.suiting(wish) };
    let going = members.iter_mut().map(|members| std::mem::take(&mut members.going)).collect();
    let trainers = members.iter_mut().zip(jobs).map(|(members, job)| chosen(members, job)).collect();
    let jobs = jobs.iter().zip(members).map(|(job, members)| job_view(job, members, &ask)).collect();
    let waiting = waiting
        .into_iter()
        .map(|(name, tenant, wish)| WaitingPod {
            name,
            ask: ask(&tenant.amounts, wish),
            priority: tenant.priority,
            since: tenant.since,
        })
        .collect();
    let nodes = sites.iter().zip(used).zip(&pools.pools).map(|((site, used), pool)| Node {
        name: site.name.clone(),
        allocatable: site.allocatable.planned(&devices),
        used,
        pool: *pool,
        is_open: site.is_open,
    });
    let view = ClusterView { nodes: nodes.collect(), waiting, jobs, devices: devices.clone() };
    Inventory { view, trainers, going }
}

/// Devices that are planned: those that jobs ask for first, for there is room for few.
fn devices(sites: &[Site], jobs: &[JobFacts]) -> Vec<String> {
    let asked = jobs.iter().flat_map(|job| [&job.asks.trainer, &job.asks.pserver, &job.asks.master]);
    let asked = asked.flat_map(|ask| &ask.amounts.devices);
    let all = asked.chain(sites.iter().flat_map(|site| &site.allocatable.devices));
    let mut names: Vec<String> = Vec::new();
    for (name, _) in all {
        if names.len() < KINDS - DEVICES && !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// Notes a job's pod that has a node, and says what the planner counts for it.
fn note<'a, 'j>(
    members: &mut Members<'a>,
    job: &'j JobFacts,
    (role, ordinal): (Role, u32),
    node: usize,
    uid: &'a str,
) -> &'j PodAsk {
    match role {
        Role::Master => members.servers[0].push(node),
        Role::Pserver => members.servers[1].push(node),
        Role::Trainer if job.let_go.iter().any(|one| one == uid) => members.going.push(uid.to_owned()),
        Role::Trainer => members.trainers.push((ordinal, node, uid)),
    }
    match role {
        Role::Master => &job.asks.master,
        Role::Pserver => &job.asks.pserver,
        Role::Trainer => &job.asks.trainer,
    }
}

/// What a pod asks for beyond what the planner counts: one that was given more memory, or moved to more.
fn beyond(asked: &Resources, counted: &Resources) -> Resources {
    let mut more = *asked;
    more.take(counted);
    Resources(more.0.map(|amount| amount.max(0)))
}

/// Leaves the trainers that are wanted, the lowest ordinals first, and names them.
fn chosen(members: &mut Members<'_>, job: &JobFacts) -> Vec<String> {
    members.trainers.sort_unstable();
    members.trainers.truncate(job.wanted as usize);
    members.trainers.iter().map(|(.., uid)| (*uid).to_owned()).collect()
}

fn job_view(job: &JobFacts, members: Members<'_>, ask: &impl Fn(&Amounts, &Wish) -> Ask) -> JobView {
    let asked = |of: &PodAsk| ask(&of.amounts, &of.wish);
    let [masters, pservers] = members.servers;
    JobView {
        name: job.name.clone(),
        priority: job.priority,
        since: job.since,
        is_admitted: job.is_admitted,
        master: Servers { ask: asked(&job.asks.master), count: 1, nodes: masters },
        pservers: Servers { ask: asked(&job.asks.pserver), count: job.pservers, nodes: pservers },
        trainers: Trainers {
            ask: asked(&job.asks.trainer),
            min: job.least,
            max: job.most,
            wanted: if job.is_admitted { job.wanted } else { 0 },
            nodes: members.trainers.iter().map(|(_, node, _)| *node).collect(),
            is_stated: job.is_stated,
            speeds: job.speeds.clone(),
            yielded: job.yielded,
        },
        allows_new_nodes: job.allows_new_nodes,
    }
}
