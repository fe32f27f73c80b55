//! Nodes and pods of a simulated cluster, and the scheduler that places pods that wait.

use super::scenario::{Amounts, Scenario};
use shoal_planner::{Ask, CPU, DEVICES, MEMORY, Node, PODS, Pools, Resources, Room};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Whose a pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Master(usize),
    Pserver(usize),
    Trainer(usize),
    Service(usize),
}

/// How a pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PodState {
    Waiting,
    Starting,
    Running,
    Stopping,
    Gone,
}

/// A pod.
#[derive(Clone, Debug)]
pub(super) struct Pod {
    pub(super) owner: Owner,
    pub(super) request: Resources,
    pub(super) priority: i32,
    pub(super) state: PodState,
    pub(super) node: Option<usize>,
    pub(super) created: f64,
}

/// Nodes and pods.
#[derive(Clone, Debug)]
pub(super) struct Cluster {
    pub(super) nodes: Vec<Node>,
    pub(super) pods: Vec<Pod>,
    pub(super) room: Room,
    waiting: BTreeSet<(Reverse<i32>, usize)>,
    whole: Resources,
    used: Resources,
    placed: u32,
}

fn kind(resource: &str) -> usize {
    match resource {
        "memory" => MEMORY,
        "gpu" => DEVICES,
        _ => CPU,
    }
}

/// What is asked for, in the planner's units.
pub(super) fn resources(amounts: &Amounts) -> Resources {
    let memory = (amounts.memory * (1u64 << 30) as f64).round() as i64;
    Resources::of_pod((amounts.cpu * 1000.0).round() as i64, memory).with_device(0, amounts.gpu)
}

impl Cluster {
    pub(super) fn new(scenario: &Scenario) -> Cluster {
        let mut nodes = Vec::new();
        for (pool, group) in scenario.nodes.iter().enumerate() {
            let mut allocatable = resources(&group.amounts);
            allocatable.0[PODS] = group.pods;
            let node = |index| Node {
                name: format!("{}-{index}", group.name),
                allocatable,
                used: Resources::default(),
                pool: pool as u32,
                is_open: true,
            };
            nodes.extend((0..group.count).map(node));
        }
        let room = Room::new(&nodes);
        let whole = *room.whole();
        let (pods, waiting) = (Vec::new(), BTreeSet::new());
        Cluster { nodes, pods, room, waiting, whole, used: Resources::default(), placed: 0 }
    }

    /// Makes a pod that waits for a node.
    pub(super) fn create(&mut self, owner: Owner, request: Resources, priority: i32, now: f64) -> usize {
        let pod = self.pods.len();
        self.pods.push(Pod { owner, request, priority, state: PodState::Waiting, node: None, created: now });
        self.waiting.insert((Reverse(priority), pod));
        pod
    }

    /// Puts a pod that waits on a node that has room for it.
    pub(super) fn place(&mut self, pod: usize, node: usize) {
        let (request, priority) = (self.pods[pod].request, self.pods[pod].priority);
        self.waiting.remove(&(Reverse(priority), pod));
        self.room.take(node, &request);
        self.used.add(&request);
        self.placed += 1;
        (self.pods[pod].node, self.pods[pod].state) = (Some(node), PodState::Starting);
    }

    /// Places what waits and has room. Returns the pods that were placed.
    pub(super) fn schedule(&mut self) -> Vec<usize> {
        let mut placed = Vec::new();
        let mut refused: Vec<Resources> = Vec::new();
        for (_, pod) in self.waiting.clone() {
            let request = self.pods[pod].request;
            // Who asks for no less than one that was refused is refused as well.
            if refused.iter().any(|other| request.fits(other)) {
                continue;
            }
            match self.room.first_fit(&Ask { request, pools: Pools::Any }) {
                Some(node) => {
                    self.place(pod, node);
                    placed.push(pod);
                }
                None => refused.push(request),
            }
        }
        placed
    }

    /// A pod is no more.
    pub(super) fn remove(&mut self, pod: usize) {
        let (request, priority) = (self.pods[pod].request, self.pods[pod].priority);
        match self.pods[pod].node.take() {
            Some(node) => {
                self.room.give(node, &request);
                self.used.take(&request);
                self.placed -= 1;
            }
            None => {
                self.waiting.remove(&(Reverse(priority), pod));
            }
        }
        self.pods[pod].state = PodState::Gone;
    }

    /// A node is lost, or comes back. Returns the pods that were on it.
    pub(super) fn set_lost(&mut self, node: usize, is_lost: bool) -> Vec<usize> {
        if self.nodes[node].is_open != is_lost {
            return Vec::new();
        }
        self.nodes[node].is_open = !is_lost;
        let on_it = |pod: &usize| self.pods[*pod].node == Some(node);
        let pods: Vec<usize> = (0..self.pods.len()).filter(on_it).collect();
        pods.iter().for_each(|pod| self.remove(*pod));
        let all = self.nodes[node].allocatable;
        if is_lost {
            self.room.take(node, &all);
        } else {
            self.room.give(node, &all);
        }
        pods
    }

    /// What those of some pods that are placed ask for of a resource: cores, GiB or devices.
    pub(super) fn asked_by(&self, pods: impl Iterator<Item = usize>, resource: &str) -> f64 {
        let kind = kind(resource);
        let unit = match kind {
            MEMORY => (1u64 << 30) as f64,
            CPU => 1000.0,
            _ => 1.0,
        };
        let placed = pods.filter(|pod| self.pods[*pod].node.is_some());
        placed.map(|pod| self.pods[pod].request.0[kind]).sum::<i64>() as f64 / unit
    }

    /// The share of a resource that placed pods ask for.
    pub(super) fn utilisation(&self, resource: &str) -> f64 {
        let kind = kind(resource);
        self.used.0[kind] as f64 / self.whole.0[kind].max(1) as f64
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = usize> {
        self.waiting.iter().map(|(_, pod)| *pod)
    }

    pub(super) fn placed(&self) -> u32 {
        self.placed
    }

    /// What pods ask for that are there, with a node or without.
    pub(super) fn asked(&self) -> Resources {
        let mut asked = self.used;
        self.waiting().for_each(|pod| asked.add(&self.pods[pod].request));
        asked
    }

    pub(super) fn whole(&self) -> &Resources {
        &self.whole
    }
}
