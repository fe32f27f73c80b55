//! The free slots of one step as maximal aligned nodes: a buddy allocator over the reduction tree (Knowlton 1965).
//!
//! Invariants: free nodes are disjoint; no two free siblings stand side by side (they are merged); a node is taken
//! whole or split along the tree. Pure.

use shoal_runtime::cluster::Node;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The free nodes of one step.
#[derive(Debug, Default)]
pub struct FreeNodes {
    by_first: BTreeMap<u32, Node>,
    by_size: BTreeSet<(Reverse<u8>, u32)>,
    slots: u32,
}

impl FreeNodes {
    /// Free nodes that cover exactly the slots of `nodes`.
    pub fn new(nodes: impl IntoIterator<Item = Node>) -> FreeNodes {
        let mut free = FreeNodes::default();
        for node in nodes {
            free.release(node);
        }
        free
    }

    /// The free nodes, in slot order.
    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = Node> {
        self.by_first.values().copied()
    }

    /// How many slots are free.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Makes a node free; slots that are free already stay so. Siblings merge.
    pub fn release(&mut self, node: Node) {
        if self.holding(node.first()).is_some_and(|held| held.covers(node)) {
            return;
        }
        let inside: Vec<u32> =
            self.by_first.range(node.first()..node.end()).map(|(first, _)| *first).collect();
        for first in inside {
            self.remove(first);
        }
        let mut node = node;
        while let Some(sibling) = self.by_first.get(&node.sibling().first()).copied()
            && sibling == node.sibling()
        {
            self.remove(sibling.first());
            node = node.parent();
        }
        self.insert(node);
    }

    /// Takes a free node of at most `width` slots, holding the first free slot of `wanted` if there is any.
    pub fn take_within(&mut self, wanted: Node, width: u32) -> Option<Node> {
        let slot = match self.holding(wanted.first()) {
            Some(_) => wanted.first(),
            None => *self.by_first.range(wanted.first()..wanted.end()).next()?.0,
        };
        self.take_at(slot, width)
    }

    /// Takes a node of at most `width` slots out of the largest free node.
    pub fn take_largest(&mut self, width: u32) -> Option<Node> {
        let (_, first) = *self.by_size.first()?;
        self.take_at(first, width)
    }

    /// Takes a node of at most `width` slots, all of which are `clear`; the largest, and of these the first.
    pub fn take_clear(&mut self, width: u32, clear: impl Fn(u32) -> bool) -> Option<Node> {
        let mut best: Option<Node> = None;
        let mut waiting: Vec<Node> = self.by_first.values().rev().copied().collect();
        while let Some(node) = waiting.pop() {
            let is_clear = node.width() <= width.max(1) && (node.first()..node.end()).all(&clear);
            match node.children().filter(|_| !is_clear) {
                Some((left, right)) => waiting.extend([right, left]),
                None if is_clear && best.is_none_or(|best| best.width() < node.width()) => best = Some(node),
                None => {}
            }
        }
        let best = best?;
        self.take_at(best.first(), best.width())
    }

    fn take_at(&mut self, slot: u32, width: u32) -> Option<Node> {
        let mut node = self.holding(slot)?;
        self.remove(node.first());
        while node.width() > width.max(1)
            && let Some((left, right)) = node.children()
        {
            let (keep, give_back) = if slot < right.first() { (left, right) } else { (right, left) };
            self.insert(give_back);
            node = keep;
        }
        Some(node)
    }

    fn holding(&self, slot: u32) -> Option<Node> {
        self.by_first.range(..=slot).next_back().map(|(_, node)| *node).filter(|node| slot < node.end())
    }

    fn insert(&mut self, node: Node) {
        self.by_first.insert(node.first(), node);
        self.by_size.insert((Reverse(node.level), node.first()));
        self.slots += node.width();
    }

    fn remove(&mut self, first: u32) {
        if let Some(node) = self.by_first.remove(&first) {
            self.by_size.remove(&(Reverse(node.level), first));
            self.slots -= node.width();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use shoal_runtime::cluster::StepTree;

    #[test]
    fn a_released_node_merges_up_to_where_it_was_split() {
        let mut free = FreeNodes::new(StepTree::new(16, 16).missing([]));
        let taken: Vec<Node> = (0..8).filter_map(|_| free.take_largest(2)).collect();
        assert_eq!((taken.len(), free.slots()), (8, 0));
        for node in taken {
            free.release(node);
        }
        assert_eq!(free.by_first.values().copied().collect::<Vec<_>>(), [Node { level: 4, index: 0 }]);
    }

    proptest! {
        #[test]
        fn free_slots_match_a_plain_set_under_any_calls(
            present in 1u32..70, calls in proptest::collection::vec((0u8..3, 0u32..70, 0u8..7), 0..200)
        ) {
            let mut free = FreeNodes::new(StepTree::new(present, present).missing([]));
            let mut model: BTreeSet<u32> = (0..present).collect();
            for (call, slot, level) in calls {
                let node = Node { level, index: slot >> level };
                let taken = match call {
                    0 => free.take_within(node, 1 << (slot % 4)),
                    1 => free.take_largest(1 << (slot % 4)),
                    _ => {
                        for node in StepTree::new(128, present).missing([]) {
                            if node.covers(Node::leaf(slot)) { free.release(Node::leaf(slot)); model.insert(slot); }
                        }
                        None
                    }
                };
                if let Some(taken) = taken {
                    prop_assert!(taken.width() <= 1 << (slot % 4));
                    for slot in taken.first()..taken.end() { prop_assert!(model.remove(&slot)); }
                }
                let listed: BTreeSet<u32> = free.by_first.values().flat_map(|n| n.first()..n.end()).collect();
                prop_assert_eq!(&listed, &model);
                prop_assert_eq!(free.slots() as usize, model.len());
                for node in free.by_first.values() {
                    prop_assert!(free.by_first.get(&node.sibling().first()) != Some(&node.sibling()));
                }
            }
        }
    }
}
