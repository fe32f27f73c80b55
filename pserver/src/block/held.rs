//! The nodes of one step that one block holds until they make the root. A pure state machine.
//!
//! Held nodes never cover one another, and complete siblings are always merged. So those below the *lowest missing*
//! slot are the binary digits of that slot, at most `root_level` of them; beyond it at most `window` nodes are held,
//! and an arrival that would exceed that is `Busy`. An arrival that covers the lowest missing slot only ever lowers
//! the number beyond it, so it is never `Busy` and the step can always go on. Held: at most `root_level + window`.
//!
//! Nothing here may depend on the order of arrivals but which arrivals were refused: not one bit of the sum.

use super::sum::{Came, Sum};
use crate::device::DeviceError;
use shoal_runtime::cluster::rows::RowDifference;
use shoal_runtime::cluster::{Node, StepTree};
use std::collections::BTreeMap;

/// The sum of a node's present slots.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldNode {
    /// The node, raised over absent siblings: the highest that covers the same present slots.
    pub node: Node,
    /// Records (or tokens) in the sum.
    pub weight: u64,
    /// Of the block.
    pub sum: Sum,
}

/// The nodes held for one step, keyed by first slot.
#[derive(Debug)]
pub struct HeldNodes {
    tree: StepTree,
    window: usize,
    nodes: BTreeMap<u32, HeldNode>,
}

/// What became of an arrival.
#[derive(Debug, PartialEq)]
pub enum Arrival {
    /// Held, in place of `replaced` descendants.
    Held {
        /// How many held nodes it covered.
        replaced: usize,
    },
    /// It made the root, which is held, unread in part; told once in a step.
    Complete {
        /// How many held nodes it covered.
        replaced: usize,
    },
    /// Dropped: a held node covers it.
    Covered,
    /// Refused, to be sent again later: there are too many nodes beyond the lowest missing slot.
    Busy,
    /// Dropped: the same node is held with other content.
    Nondeterministic(Difference),
}

/// How two results for one node differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Difference {
    /// In their weights.
    Weight {
        /// The weight that is held.
        held: u64,
        /// The weight that came.
        came: u64,
    },
    /// In their values, first at `element` of the block.
    Element {
        /// Index in the block.
        element: usize,
        /// The value that is held.
        held: f32,
        /// The value that came.
        came: f32,
    },
    /// Of a bucket: in their rows.
    Row(RowDifference),
}

/// Whether there is room for a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// None is needed: a held node covers it.
    Covered,
    /// There always is: it covers the lowest missing slot.
    Lowest,
    /// Were it taken in, so many nodes would be held beyond the lowest missing slot.
    Beyond(usize),
}

/// What `arrive` would do, without doing it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Judgement {
    /// Hold it, or complete the root with it.
    Take,
    /// Drop it: a held node covers it.
    Covered,
    /// Refuse it; it is to be sent again later.
    Busy,
    /// Drop it: it contradicts what is held.
    Nondeterministic(Difference),
}

impl HeldNodes {
    /// Nothing held of a step; at most `window` nodes will be held beyond the lowest missing slot.
    pub fn new(tree: StepTree, window: usize) -> HeldNodes {
        HeldNodes { tree, window, nodes: BTreeMap::new() }
    }

    /// The step's tree.
    pub fn tree(&self) -> StepTree {
        self.tree
    }

    /// What is held, in slot order.
    pub fn nodes(&self) -> impl Iterator<Item = &HeldNode> {
        self.nodes.values()
    }

    /// Rows of a bucket that are held, or more.
    pub fn rows(&self) -> usize {
        self.nodes().map(|held| held.sum.rows()).sum()
    }

    /// The root, once it is whole.
    pub fn root(&self) -> Option<&HeldNode> {
        self.nodes.get(&0).filter(|held| self.tree.covers_all(held.node))
    }

    /// The same, for good.
    pub fn into_root(mut self) -> Option<HeldNode> {
        self.root()?;
        self.nodes.remove(&0)
    }

    /// What would become of an arrival. `node` must be in the tree.
    pub fn judge(&self, node: Node, weight: u64, gradient: &Came<'_>) -> Judgement {
        let node = self.raised(node);
        if let Some(held) = self.root().or_else(|| self.covering(node)) {
            let is_same = held.node == node || self.tree.covers_all(node);
            let difference = if is_same { held.difference(weight, gradient) } else { None };
            return difference.map_or(Judgement::Covered, Judgement::Nondeterministic);
        }
        match self.room(node) {
            Room::Beyond(held) if held > self.window => Judgement::Busy,
            Room::Covered | Room::Lowest | Room::Beyond(_) => Judgement::Take,
        }
    }

    /// What room there is for a node of the tree.
    pub fn room(&self, node: Node) -> Room {
        let node = self.raised(node);
        if self.root().is_some() || self.covering(node).is_some() {
            return Room::Covered;
        }
        let lowest_missing = self.lowest_missing();
        if node.first() <= lowest_missing && lowest_missing < node.end() {
            return Room::Lowest;
        }
        Room::Beyond(self.beyond_after(node, lowest_missing))
    }

    /// What is held and what comes must be in one place to be added up: on a device if all of it is there, otherwise here.
    ///
    /// # Errors
    /// The device has failed; nothing of what was there is lost.
    pub fn meet(&mut self, came: &mut Came<'_>) -> Result<(), DeviceError> {
        let is_there = matches!(came, Came::There(..));
        if self.nodes.values().all(|held| held.sum.is_there() == is_there) {
            return Ok(());
        }
        came.bring()?;
        self.nodes.values_mut().try_for_each(|held| held.sum.bring())
    }

    /// Copies the root here, if it is whole and on a device.
    ///
    /// # Errors
    /// The device has failed; it is there still.
    pub fn bring_root(&mut self) -> Result<(), DeviceError> {
        self.nodes.get_mut(&0).map_or(Ok(()), |held| held.sum.bring())
    }

    /// Takes an arrival in. `node` must be in the tree and `gradient` of the block's shape.
    pub fn arrive(&mut self, node: Node, weight: u64, gradient: Came<'_>) -> Arrival {
        match self.judge(node, weight, &gradient) {
            Judgement::Take => self.take(self.raised(node), weight, gradient),
            Judgement::Covered => Arrival::Covered,
            Judgement::Busy => Arrival::Busy,
            Judgement::Nondeterministic(difference) => Arrival::Nondeterministic(difference),
        }
    }

    fn take(&mut self, mut node: Node, mut weight: u64, gradient: Came<'_>) -> Arrival {
        let covered: Vec<u32> = self.nodes.range(node.first()..node.end()).map(|(first, _)| *first).collect();
        for first in &covered {
            self.nodes.remove(first);
        }
        let mut sum = gradient.into_sum();
        while let Some(sibling) = self.remove_sibling(node) {
            weight = weight.saturating_add(sibling.weight);
            sum = sum.merge(sibling.sum, node.is_left());
            node = self.raised(node.parent());
        }
        let (is_whole, replaced) = (self.tree.covers_all(node), covered.len());
        if !is_whole {
            sum.settle();
        }
        self.nodes.insert(node.first(), HeldNode { node, weight, sum });
        if is_whole { Arrival::Complete { replaced } } else { Arrival::Held { replaced } }
    }

    /// The root has to wait: it is to let go of the message that made it.
    pub fn settle(&mut self) {
        if let Some(held) = self.nodes.get_mut(&0) {
            held.sum.settle();
        }
    }

    fn remove_sibling(&mut self, node: Node) -> Option<HeldNode> {
        if !self.has_sibling(node) {
            return None;
        }
        self.nodes.remove(&node.sibling().first())
    }

    fn has_sibling(&self, node: Node) -> bool {
        let sibling = node.sibling();
        !self.tree.covers_all(node)
            && self.nodes.get(&sibling.first()).is_some_and(|held| held.node == sibling)
    }

    /// The highest node that covers the same present slots: an absent sibling is the identity.
    fn raised(&self, mut node: Node) -> Node {
        while !self.tree.covers_all(node) && self.tree.is_absent(node.sibling()) {
            node = node.parent();
        }
        node
    }

    fn covering(&self, node: Node) -> Option<&HeldNode> {
        let (_, held) = self.nodes.range(..=node.first()).next_back()?;
        held.node.covers(node).then_some(held)
    }

    /// The first slot that no held node covers.
    fn lowest_missing(&self) -> u32 {
        let mut next = 0;
        for held in self.nodes.values() {
            if held.node.first() != next {
                break;
            }
            next = held.node.end();
        }
        next
    }

    /// How many nodes would be held beyond the lowest missing slot, once `node` has replaced and merged.
    fn beyond_after(&self, node: Node, lowest_missing: u32) -> usize {
        let before = self.nodes.range(lowest_missing..).count();
        let replaced = self.nodes.range(node.first()..node.end()).count();
        let (mut merged, mut at) = (0, node);
        while self.has_sibling(at) {
            merged += 1;
            at = self.raised(at.parent());
        }
        before - replaced - merged + 1
    }
}

impl HeldNode {
    fn difference(&self, weight: u64, gradient: &Came<'_>) -> Option<Difference> {
        if self.weight != weight {
            return Some(Difference::Weight { held: self.weight, came: weight });
        }
        self.sum.first_difference(gradient)
    }
}

#[cfg(test)]
mod tests;
