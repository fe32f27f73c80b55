//! What nodes have left: finds the first node that has room for a pod without looking at each. Pure.
//!
//! The nodes of a pool are the leaves of a tree whose inner nodes know the most that any below has of each kind, so that a pod
//! finds its place, and gives it back, in about log2(nodes) looks. The order of nodes is fixed (first fit), and pools without
//! devices come first: a pod that needs none must not sit where the devices are.

use super::resources::{DEVICES, Resources};
use super::view::{Ask, Node};

/// The nodes' room.
#[derive(Clone, Debug)]
pub struct Room {
    free: Vec<Resources>,
    /// For a node that takes new pods: its pool's place in `pools`, and its leaf there.
    places: Vec<Option<(usize, usize)>>,
    pools: Vec<Pool>,
    /// What nodes that take new pods have altogether, and what of it is free.
    whole: Resources,
    whole_free: Resources,
}

#[derive(Clone, Debug)]
struct Pool {
    number: u32,
    /// By leaf, the node.
    nodes: Vec<usize>,
    /// A binary tree in an array: the root is 1, the children of `i` are `2i` and `2i + 1`.
    most: Vec<Resources>,
}

impl Room {
    /// The room of nodes.
    pub fn new(nodes: &[Node]) -> Room {
        let free: Vec<Resources> = nodes
            .iter()
            .map(|node| {
                let mut free = node.allocatable;
                free.take(&node.used);
                free
            })
            .collect();
        let devices = |node: &Node| node.allocatable.0[DEVICES..].iter().sum::<i64>();
        let mut order: Vec<usize> = (0..nodes.len()).filter(|index| nodes[*index].is_open).collect();
        order.sort_by_key(|index| (devices(&nodes[*index]), nodes[*index].pool, *index));
        let mut room = Room {
            free,
            places: vec![None; nodes.len()],
            pools: Vec::new(),
            whole: Resources::default(),
            whole_free: Resources::default(),
        };
        for index in order {
            let number = nodes[index].pool;
            let place = room.pools.iter().position(|pool| pool.number == number).unwrap_or_else(|| {
                room.pools.push(Pool { number, nodes: Vec::new(), most: Vec::new() });
                room.pools.len() - 1
            });
            room.places[index] = Some((place, room.pools[place].nodes.len()));
            room.pools[place].nodes.push(index);
            room.whole.add(&nodes[index].allocatable);
            room.whole_free.add(&room.free[index]);
        }
        room.pools.iter_mut().for_each(|pool| pool.build(&room.free));
        room
    }

    /// Whether there is a node on which it may be, with or without room.
    pub(super) fn has_suiting(&self, ask: &Ask) -> bool {
        self.pools.iter().any(|pool| ask.pools.has(pool.number))
    }

    /// How many nodes take pods.
    pub(super) fn open_nodes(&self) -> usize {
        self.pools.iter().map(|pool| pool.nodes.len()).sum()
    }

    /// The first node that has room for it.
    pub fn first_fit(&self, ask: &Ask) -> Option<usize> {
        let suiting = self.pools.iter().filter(|pool| ask.pools.has(pool.number));
        suiting.into_iter().find_map(|pool| pool.first_fit(&ask.request))
    }

    /// The first nodes that have room for it, at most so many.
    pub(super) fn fits(&self, ask: &Ask, most: usize) -> Vec<usize> {
        let suiting = self.pools.iter().filter(|pool| ask.pools.has(pool.number));
        suiting.flat_map(|pool| pool.fits(&ask.request)).take(most).collect()
    }

    /// Whether this node would have room for it with so much more.
    pub(super) fn would_fit(&self, node: usize, ask: &Ask, more: &Resources) -> bool {
        let Some((place, _)) = self.places[node] else { return false };
        let mut free = self.free[node];
        free.add(more);
        ask.pools.has(self.pools[place].number) && free.fits(&ask.request)
    }

    /// Whether a node takes new pods, and counts.
    pub(super) fn is_open(&self, node: usize) -> bool {
        self.places[node].is_some()
    }

    /// A pod comes to a node, whether it has room or not.
    pub fn take(&mut self, node: usize, request: &Resources) {
        self.change(node, |free| free.take(request));
    }

    /// A pod leaves a node.
    pub fn give(&mut self, node: usize, request: &Resources) {
        self.change(node, |free| free.add(request));
    }

    fn change(&mut self, node: usize, how: impl Fn(&mut Resources)) {
        how(&mut self.free[node]);
        if let Some((place, leaf)) = self.places[node] {
            how(&mut self.whole_free);
            self.pools[place].update(leaf, self.free[node]);
        }
    }

    /// What the nodes that take new pods have.
    pub fn whole(&self) -> &Resources {
        &self.whole
    }

    /// What of it is free.
    pub(super) fn whole_free(&self) -> &Resources {
        &self.whole_free
    }

    /// The most of each kind that any node has free of those where it may be: not of one node.
    pub(super) fn most_free(&self, ask: &Ask) -> Resources {
        let suiting = self.pools.iter().filter(|pool| ask.pools.has(pool.number));
        suiting.fold(Resources::default(), |most, pool| most.most(&pool.most[1]))
    }

    /// What a node has free; less than nothing for one that has given more than it has.
    pub(super) fn free(&self, node: usize) -> &Resources {
        &self.free[node]
    }
}

impl Pool {
    fn leaves(&self) -> usize {
        self.nodes.len().next_power_of_two()
    }

    fn build(&mut self, free: &[Resources]) {
        let leaves = self.leaves();
        // What is no node has less than nothing.
        self.most = vec![Resources([i64::MIN; super::resources::KINDS]); 2 * leaves];
        for (leaf, node) in self.nodes.iter().enumerate() {
            self.most[leaves + leaf] = free[*node];
        }
        for inner in (1..leaves).rev() {
            self.most[inner] = self.most[2 * inner].most(&self.most[2 * inner + 1]);
        }
    }

    fn update(&mut self, leaf: usize, free: Resources) {
        let mut at = self.leaves() + leaf;
        self.most[at] = free;
        while at > 1 {
            at /= 2;
            let now = self.most[2 * at].most(&self.most[2 * at + 1]);
            if now == self.most[at] {
                break;
            }
            self.most[at] = now;
        }
    }

    fn first_fit(&self, request: &Resources) -> Option<usize> {
        self.next_fit(1, request).map(|leaf| self.nodes[leaf - self.leaves()])
    }

    /// All nodes that fit, from the left.
    fn fits(&self, request: &Resources) -> impl Iterator<Item = usize> {
        let after = |leaf: &usize| self.right_of(*leaf).and_then(|next| self.next_fit(next, request));
        let leaves = std::iter::successors(self.next_fit(1, request), after);
        leaves.map(|leaf| self.nodes[leaf - self.leaves()])
    }

    /// The first leaf that fits, from this subtree on: down where something may fit, else on to the right.
    fn next_fit(&self, from: usize, request: &Resources) -> Option<usize> {
        let (leaves, mut at) = (self.leaves(), from);
        loop {
            if !self.most[at].fits(request) {
                at = self.right_of(at)?;
            } else if at >= leaves {
                // Leaves beyond the last node fit nothing but what asks for nothing.
                return Some(at).filter(|at| at - leaves < self.nodes.len());
            } else {
                at *= 2;
            }
        }
    }

    /// The subtree on the right of this one.
    fn right_of(&self, mut at: usize) -> Option<usize> {
        while at % 2 == 1 {
            at /= 2;
        }
        (at > 0).then_some(at + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::super::view::Pools;
    use super::*;
    use proptest::prelude::*;

    fn node(cpu: i64, gpus: i64, pool: u32, is_open: bool) -> Node {
        let mut allocatable = Resources::of_pod(cpu, 1 << 30).with_device(0, gpus);
        allocatable.0[super::super::resources::PODS] = 110;
        Node { name: String::new(), allocatable, used: Resources::default(), pool, is_open }
    }

    fn ask(cpu: i64, gpus: i64, pools: Pools) -> Ask {
        Ask { request: Resources::of_pod(cpu, 0).with_device(0, gpus), pools }
    }

    #[test]
    fn a_pod_without_devices_leaves_the_nodes_that_have_them() {
        let room = Room::new(&[node(8, 4, 0, true), node(8, 0, 1, true), node(8, 0, 1, true)]);
        assert_eq!(room.first_fit(&ask(8, 0, Pools::Any)), Some(1));
        assert_eq!(room.first_fit(&ask(8, 1, Pools::Any)), Some(0));
        assert_eq!(room.first_fit(&ask(8, 0, Pools::Of(vec![0]))), Some(0));
        assert_eq!(room.first_fit(&ask(9, 0, Pools::Any)), None);
    }

    #[test]
    fn a_closed_node_takes_nothing_and_counts_for_nothing() {
        let mut room = Room::new(&[node(8, 0, 0, false), node(2, 0, 0, true)]);
        assert_eq!((room.first_fit(&ask(4, 0, Pools::Any)), room.whole().0[0]), (None, 2));
        room.give(0, &Resources::of_pod(100, 0));
        assert!(!room.would_fit(0, &ask(1, 0, Pools::Any), &Resources::default()));
        assert_eq!(room.whole_free().0[0], 2);
    }

    proptest! {
        /// The tree finds what looking at each node finds, whatever is taken and given back.
        #[test]
        fn the_first_node_that_fits_is_found(
            nodes in proptest::collection::vec((0_i64..20, 0_i64..3, 0_u32..3, prop::bool::weighted(0.9)), 0..40),
            steps in proptest::collection::vec((0_i64..12, 0_i64..3, 0_u32..8, any::<bool>()), 0..60),
        ) {
            let nodes: Vec<Node> =
                nodes.into_iter().map(|(cpu, gpus, pool, is_open)| node(cpu, gpus, pool, is_open)).collect();
            let mut room = Room::new(&nodes);
            let mut taken = Vec::new();
            for (cpu, gpus, pools, is_given) in steps {
                let pools = if pools == 7 { Pools::Any } else { Pools::Of((0..3).filter(|bit| pools & (1 << bit) != 0).collect()) };
                let ask = ask(cpu, gpus, pools);
                let suits = |index: &usize| {
                    nodes[*index].is_open && ask.pools.has(nodes[*index].pool) && room.free(*index).fits(&ask.request)
                };
                let gpus = |index: &usize| nodes[*index].allocatable.0[DEVICES];
                // First by the pools' fewest devices, then by pool, then by node: as pools were met in that order.
                let mut seen: Vec<u32> = Vec::new();
                let mut order: Vec<usize> = (0..nodes.len()).filter(|index| nodes[*index].is_open).collect();
                order.sort_by_key(|index| (gpus(index), nodes[*index].pool, *index));
                order.iter().for_each(|index| if !seen.contains(&nodes[*index].pool) { seen.push(nodes[*index].pool) });
                let place = |index: &usize| seen.iter().position(|pool| *pool == nodes[*index].pool);
                order.sort_by_key(place);
                let wanted = order.iter().copied().find(suits);
                let all: Vec<usize> = order.iter().copied().filter(suits).collect();
                prop_assert_eq!(room.fits(&ask, 5), all[..all.len().min(5)].to_vec());
                prop_assert_eq!(room.first_fit(&ask), wanted);
                if let Some(node) = wanted {
                    room.take(node, &ask.request);
                    taken.push((node, ask.request));
                }
                if is_given && let Some((node, request)) = taken.pop() {
                    room.give(node, &request);
                }
            }
        }
    }
}
