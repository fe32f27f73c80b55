//! The planner's view of nodes, pods and jobs. Pure.

use super::suit::PoolMap;
use super::{Amounts, JobFacts, PodAsk, PodPlace, Site, Tenant, Wish};
use crate::decide::Role;
use shoal_planner::{
    Ask, ClusterView, DEVICES, JobView, KINDS, Node, Resources, Seconds, Servers, Trainers, WaitingPod,
};
use std::collections::BTreeMap;

/// A pod whose scheduler has said nothing for so long waits like one that it has found no node for: not every scheduler says so.
const UNHEARD_SECONDS: Seconds = 10;

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

/// The view of a cluster with these nodes, pods by their names, and jobs, so many seconds after 1970.
///
/// `is_kept_by_others` says of a pod's name whether the jobs of its namespace are another operator's.
///
/// A pod waits once its scheduler has looked at it. Before, it may still find a node with room, or have made room by preemption
/// without having said where: to make some elsewhere would take twice as much.
pub fn cluster_view<'a>(
    sites: &'a [Site],
    tenants: impl Iterator<Item = (String, &'a Tenant)>,
    jobs: &'a [JobFacts],
    is_kept_by_others: impl Fn(&str) -> bool,
    now: Seconds,
) -> Inventory {
    let places: BTreeMap<&str, usize> =
        sites.iter().enumerate().map(|(at, site)| (site.name.as_str(), at)).collect();
    let by_uid: BTreeMap<&str, usize> =
        jobs.iter().enumerate().map(|(at, job)| (job.uid.as_str(), at)).collect();
    let devices = devices(sites, jobs);
    let mut used = vec![Resources::default(); sites.len()];
    let mut waiting: Vec<(String, &Tenant, &Wish)> = Vec::new();
    let mut members: Vec<Members<'a>> = jobs.iter().map(|_| Members::default()).collect();
    for (name, tenant) in tenants.filter(|(_, tenant)| !tenant.is_leaving) {
        let job = tenant.member.as_ref().and_then(|member| Some((member, *by_uid.get(member.job.as_str())?)));
        match (&tenant.place, job) {
            (PodPlace::On(node), job) => {
                let Some(&node) = places.get(node.as_str()) else { continue };
                let asked = tenant.amounts.planned(&devices);
                let counted = job.map(|(member, job)| {
                    let (facts, uid) = (&jobs[job], tenant.uid.as_str());
                    let ask = note(&mut members[job], facts, (member.role, member.ordinal), node, uid);
                    ask.amounts.planned(&devices)
                });
                used[node].add(&beyond(&asked, &counted.unwrap_or_default()));
            }
            // The pods that wait of a job that is planned for are in what it wants; of others' jobs they are pods like any.
            (_, Some(_)) => {}
            (_, None) if tenant.member.is_some() && !is_kept_by_others(&name) => {}
            (PodPlace::Nominated(node, wish), _) => match places.get(node.as_str()) {
                Some(&node) => used[node].add(&tenant.amounts.planned(&devices)),
                None => waiting.push((name, tenant, wish)),
            },
            (PodPlace::Wants(wish), _) => {
                if tenant.is_unschedulable || now.saturating_sub(tenant.since) >= UNHEARD_SECONDS {
                    waiting.push((name, tenant, wish));
                }
            }
        }
    }
    let asks = jobs.iter().flat_map(|job| [&job.asks.master, &job.asks.pserver, &job.asks.trainer]);
    let pools = PoolMap::new(sites, asks.map(|ask| &ask.wish).chain(waiting.iter().map(|(.., wish)| *wish)));
    let ask = |amounts: &Amounts, wish: &Wish| Ask {
        request: amounts.planned(&devices),
        pools: pools.suiting(wish),
    };
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
        Role::Trainer if job.scaled_down.iter().any(|one| one == uid) => members.going.push(uid.to_owned()),
        Role::Trainer => members.trainers.push((ordinal, node, uid)),
    }
    job.asks.of(role)
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

#[cfg(test)]
mod tests {
    use super::super::{Asks, Member};
    use super::*;
    use serde_json::json;
    use shoal_planner::CPU;

    fn site(name: &str, cpu: i64) -> Site {
        let allocatable = Amounts { cpu_millis: cpu, pods: 10, ..Amounts::default() };
        Site { name: name.to_owned(), allocatable, is_open: true, ..Site::default() }
    }

    fn pod(node: Option<&str>, cpu: i64, member: Option<(Role, u32)>) -> Tenant {
        let wish = || Wish::of(&serde_json::from_value(json!({ "containers": [] })).unwrap());
        let uid = member.map_or_else(String::new, |(_, ordinal)| format!("u{ordinal}"));
        Tenant {
            amounts: Amounts { cpu_millis: cpu, pods: 1, ..Amounts::default() },
            place: node
                .map_or_else(|| PodPlace::Wants(Box::new(wish())), |node| PodPlace::On(node.to_owned())),
            priority: 0,
            since: 0,
            is_leaving: false,
            is_unschedulable: true,
            uid,
            member: member.map(|(role, ordinal)| Member { job: "job".to_owned(), role, ordinal }),
        }
    }

    fn facts(wanted: u32, scaled_down: &[&str]) -> JobFacts {
        let ask = |cpu: i64| PodAsk {
            amounts: Amounts { cpu_millis: cpu, pods: 1, ..Amounts::default() },
            wish: Wish::default(),
        };
        JobFacts {
            uid: "job".to_owned(),
            is_admitted: true,
            asks: Asks { master: ask(100), pserver: ask(200), trainer: ask(1000) },
            pservers: 1,
            least: 1,
            most: 9,
            wanted,
            scaled_down: scaled_down.iter().map(|uid| (*uid).to_owned()).collect(),
            ..JobFacts::default()
        }
    }

    fn seen(pods: &[Tenant], job: JobFacts) -> Inventory {
        let named = pods.iter().enumerate().map(|(at, pod)| (format!("p{at}"), pod));
        cluster_view(&[site("a", 8000), site("b", 8000)], named, &[job], |_| false, 9)
    }

    #[test]
    fn others_use_room_and_a_jobs_own_pods_are_its_own() {
        let trainer = |node, ordinal| pod(Some(node), 1000, Some((Role::Trainer, ordinal)));
        let pods = [
            pod(Some("a"), 500, None),
            pod(Some("a"), 100, Some((Role::Master, 0))),
            pod(Some("b"), 200, Some((Role::Pserver, 3))),
            trainer("b", 4),
            trainer("a", 0),
            trainer("a", 2),
            pod(None, 1000, Some((Role::Trainer, 5))),
            pod(None, 700, None),
            pod(Some("gone"), 700, None),
        ];
        let inventory = seen(&pods, facts(4, &["u2"]));
        let view = &inventory.view;
        assert_eq!(view.nodes.iter().map(|node| node.used.0[CPU]).collect::<Vec<_>>(), [500, 0]);
        let job = &view.jobs[0];
        assert_eq!((&job.master.nodes, &job.pservers.nodes), (&vec![0], &vec![1]));
        assert_eq!(job.trainers.nodes, [0, 1], "in the order of ordinals, without the one that goes");
        assert_eq!(inventory.trainers, [["u0", "u4"]]);
        assert_eq!(inventory.going, [["u2"]]);
        let waiting: Vec<&str> = view.waiting.iter().map(|pod| pod.name.as_str()).collect();
        assert_eq!(waiting, ["p7"], "a job's own pods that wait are in what it wants");
    }

    #[test]
    fn what_is_leaving_or_too_much_has_no_room_and_what_has_more_uses_more() {
        let mut leaving = pod(Some("a"), 3000, None);
        leaving.is_leaving = true;
        let grown = pod(Some("a"), 1500, Some((Role::Trainer, 0)));
        let surplus = pod(Some("b"), 1000, Some((Role::Trainer, 1)));
        let inventory = seen(&[leaving, grown, surplus], facts(1, &[]));
        assert_eq!(inventory.view.nodes.iter().map(|node| node.used.0[CPU]).collect::<Vec<_>>(), [500, 0]);
        assert_eq!(inventory.view.jobs[0].trainers.nodes, [0]);
    }

    #[test]
    fn a_pod_for_which_the_scheduler_makes_room_has_it_there_and_waits_for_none() {
        let nominated = |node: &str| {
            let waits = pod(None, 700, None);
            let PodPlace::Wants(wish) = waits.place else { unreachable!() };
            Tenant { place: PodPlace::Nominated(node.to_owned(), wish), ..pod(None, 700, None) }
        };
        let view = seen(&[nominated("b"), nominated("gone")], facts(1, &[])).view;
        assert_eq!(view.nodes.iter().map(|node| node.used.0[CPU]).collect::<Vec<_>>(), [0, 700]);
        let waiting: Vec<&str> = view.waiting.iter().map(|pod| pod.name.as_str()).collect();
        assert_eq!(waiting, ["p1"], "its node is no more");
    }

    #[test]
    fn a_pod_waits_once_its_scheduler_has_looked_at_it_or_has_long_said_nothing() {
        let waiting = |is_unschedulable: bool, since: Seconds| {
            let pod = Tenant { is_unschedulable, since, ..pod(None, 700, None) };
            let pods = [("p".to_owned(), &pod)].into_iter();
            cluster_view(&[site("a", 8000)], pods, &[facts(1, &[])], |_| false, 100).view.waiting.len()
        };
        assert_eq!([waiting(false, 99), waiting(true, 99), waiting(false, 90)], [0, 1, 1]);
        assert_eq!(waiting(false, 101), 0, "the clock of the API server is ahead");
    }

    #[test]
    fn the_pods_of_a_job_that_is_not_planned_for_are_others() {
        let mut other = facts(1, &[]);
        other.uid = "another".to_owned();
        let pods = [pod(Some("a"), 1000, Some((Role::Trainer, 0))), pod(None, 1, Some((Role::Trainer, 1)))];
        let view = seen(&pods, other.clone()).view;
        assert_eq!((view.nodes[0].used.0[CPU], view.waiting.len()), (1000, 0), "it may be going");
        let named = pods.iter().enumerate().map(|(at, pod)| (format!("theirs/p{at}"), pod));
        let is_theirs = |name: &str| name.starts_with("theirs/");
        let view = cluster_view(&[site("a", 8000)], named, &[other], is_theirs, 9).view;
        assert_eq!((view.nodes[0].used.0[CPU], view.waiting.len()), (1000, 1), "another operator wants it");
    }
}
