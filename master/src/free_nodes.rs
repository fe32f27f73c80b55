//! The free slots of one step as maximal aligned nodes: a buddy allocator over the reduction tree (Knowlton 1965), held as that
//! tree, one byte a node. Whatever is asked is one way down and up again, however many trainers share the step. Pure.
//!
//! Invariants: free nodes are disjoint; no two free siblings stand side by side (they are merged); a node is taken
//! whole or split along the tree.

use shoal_runtime::cluster::Node;

/// The free nodes of one step.
#[derive(Debug)]
pub struct FreeNodes {
    /// The level of the root.
    height: u8,
    /// For each node, at `2^(height - level) + index`: one more than the level of the largest free node in it, 0 if there is
    /// none. Below a node that is free as a whole, or not at all, nothing is said.
    largest: Vec<u8>,
    slots: u32,
}

impl FreeNodes {
    /// Free nodes that cover exactly the slots of `nodes`, of a step with so many present slots.
    pub fn new(present: u32, nodes: impl IntoIterator<Item = Node>) -> FreeNodes {
        let height = present.next_power_of_two().trailing_zeros() as u8;
        let mut free = FreeNodes { height, largest: vec![0; 2 << height], slots: 0 };
        for node in nodes {
            free.release(node);
        }
        free
    }

    /// The free nodes, in slot order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Node> {
        self.within(self.root())
    }

    /// How many slots are free.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Makes a node free; slots that are free already stay so. Siblings merge. A node that is none of the step's is let be.
    pub fn release(&mut self, node: Node) {
        if self.contains(node) {
            self.say_below_ancestors(node);
            self.slots += node.width() - self.within(node).map(Node::width).sum::<u32>();
            self.set(node, node.level + 1);
        }
    }

    /// Takes a free node of at most `width` slots, holding the first free slot of `wanted` if there is any.
    pub fn take_within(&mut self, wanted: Node, width: u32) -> Option<Node> {
        let wanted = if wanted.covers(self.root()) { self.root() } else { wanted };
        if !self.contains(wanted) {
            return None;
        }
        let mut node = self.root();
        loop {
            let (left, right) = match self.state(node) {
                State::Taken => return None,
                State::Free => return Some(self.take(part(node, node.first().max(wanted.first()), width))),
                State::Split(left, right) => (left, right),
            };
            let goes_right =
                if node.level > wanted.level { right.covers(wanted) } else { self.largest(left) == 0 };
            node = if goes_right { right } else { left };
        }
    }

    /// Takes a node of at most `width` slots out of the largest free node.
    pub fn take_largest(&mut self, width: u32) -> Option<Node> {
        let (mut node, largest) = (self.root(), self.largest(self.root()));
        loop {
            match self.state(node) {
                State::Taken => return None,
                State::Free => return Some(self.take(part(node, node.first(), width))),
                State::Split(left, right) => node = if self.largest(left) == largest { left } else { right },
            }
        }
    }

    /// Takes a node of at most `width` slots, all of which are `clear`; the largest, and of these the first.
    pub fn take_clear(&mut self, width: u32, clear: impl Fn(u32) -> bool) -> Option<Node> {
        let mut best: Option<Node> = None;
        let mut waiting: Vec<Node> = self.iter().collect();
        waiting.reverse();
        while let Some(node) = waiting.pop() {
            let is_clear = node.width() <= width.max(1) && (node.first()..node.end()).all(&clear);
            match node.children().filter(|_| !is_clear) {
                Some((left, right)) => waiting.extend([right, left]),
                None if is_clear && best.is_none_or(|best| best.width() < node.width()) => best = Some(node),
                None => {}
            }
        }
        best.map(|best| self.take(best))
    }

    /// Takes a node that is free, by itself or in a larger one.
    fn take(&mut self, node: Node) -> Node {
        self.say_below_ancestors(node);
        self.slots -= node.width();
        self.set(node, 0);
        node
    }

    /// The free nodes in `node`, above which all is said.
    fn within(&self, node: Node) -> impl Iterator<Item = Node> {
        let mut waiting = vec![node];
        std::iter::from_fn(move || {
            while let Some(node) = waiting.pop() {
                match self.state(node) {
                    State::Taken => {}
                    State::Free => return Some(node),
                    State::Split(left, right) => waiting.extend([right, left]),
                }
            }
            None
        })
    }

    /// What is said below every ancestor of `node` holds, so that `node` can be told from what is beside it.
    fn say_below_ancestors(&mut self, node: Node) {
        for level in (node.level + 1..=self.height).rev() {
            let ancestor = Node { level, index: node.index >> (level - node.level) };
            let Some((left, right)) = ancestor.children() else { continue };
            let said = match self.state(ancestor) {
                State::Taken => 0,
                State::Free => level,
                State::Split(..) => continue,
            };
            for child in [left, right] {
                let at = self.at(child);
                self.largest[at] = said;
            }
        }
    }

    /// Says it of `node`, and of the nodes above what follows.
    fn set(&mut self, node: Node, largest: u8) {
        let (mut node, mut largest) = (node, largest);
        loop {
            let at = self.at(node);
            if std::mem::replace(&mut self.largest[at], largest) == largest || node == self.root() {
                return;
            }
            let beside = self.largest(node.sibling());
            node = node.parent();
            let are_free = largest == node.level && beside == node.level;
            largest = if are_free { node.level + 1 } else { largest.max(beside) };
        }
    }

    fn state(&self, node: Node) -> State {
        match (self.largest(node), node.children()) {
            (0, _) => State::Taken,
            (largest, Some((left, right))) if largest <= node.level => State::Split(left, right),
            _ => State::Free,
        }
    }

    fn root(&self) -> Node {
        Node { level: self.height, index: 0 }
    }
    fn contains(&self, node: Node) -> bool {
        node.level <= self.height && node.index < 1 << (self.height - node.level)
    }
    fn at(&self, node: Node) -> usize {
        (1 << (self.height - node.level)) + node.index as usize
    }
    fn largest(&self, node: Node) -> u8 {
        self.largest[self.at(node)]
    }
}

/// What is free of a node.
enum State {
    Taken,
    Free,
    /// Some of its halves.
    Split(Node, Node),
}

/// The part of at most `width` slots that holds `slot`.
fn part(mut node: Node, slot: u32, width: u32) -> Node {
    while node.width() > width.max(1)
        && let Some((left, right)) = node.children()
    {
        node = if slot < right.first() { left } else { right };
    }
    node
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use shoal_runtime::cluster::StepTree;
    use std::cmp::Reverse;
    use std::collections::BTreeSet;

    #[test]
    fn a_released_node_merges_up_to_where_it_was_split() {
        let mut free = FreeNodes::new(16, StepTree::new(16, 16).missing([]));
        let taken: Vec<Node> = (0..8).filter_map(|_| free.take_largest(2)).collect();
        assert_eq!((taken.len(), free.slots()), (8, 0));
        for node in taken {
            free.release(node);
        }
        assert_eq!(free.iter().collect::<Vec<_>>(), [Node { level: 4, index: 0 }]);
    }

    proptest! {
        #[test]
        fn free_slots_match_a_plain_set_under_any_calls(
            present in 1u32..70, calls in proptest::collection::vec((0u8..3, 0u32..70, 0u8..7), 0..200)
        ) {
            let mut free = FreeNodes::new(present, StepTree::new(present, present).missing([]));
            let mut model: BTreeSet<u32> = (0..present).collect();
            for (call, slot, level) in calls {
                let (node, width) = (Node { level, index: slot >> level }, 1 << (slot % 4));
                let (wanted, largest) = match call {
                    0 => {
                        let wanted = model.range(node.first()..node.end()).next().copied();
                        (wanted, free.iter().find(|free| wanted.is_some_and(|slot| free.covers(Node::leaf(slot)))))
                    }
                    1 => {
                        let largest = free.iter().max_by_key(|node| (node.level, Reverse(node.first())));
                        (largest.map(Node::first), largest)
                    }
                    _ => {
                        let is_present = node.level < 3 && node.end() <= present;
                        if is_present { free.release(node); model.extend(node.first()..node.end()); }
                        (None, None)
                    }
                };
                let taken = match call {
                    0 => free.take_within(node, width),
                    1 => free.take_largest(width),
                    _ => None,
                };
                prop_assert_eq!(taken.map(|taken| taken.covers(Node::leaf(wanted.unwrap_or(u32::MAX)))), wanted.map(|_| true));
                prop_assert_eq!(taken.map(Node::width), largest.map(|largest| largest.width().min(width)));
                for slot in taken.into_iter().flat_map(|taken| taken.first()..taken.end()) {
                    prop_assert!(model.remove(&slot));
                }
                let listed: BTreeSet<u32> = free.iter().flat_map(|n| n.first()..n.end()).collect();
                prop_assert_eq!(&listed, &model);
                prop_assert_eq!(free.slots() as usize, model.len());
                let nodes: Vec<Node> = free.iter().collect();
                prop_assert!(nodes.is_sorted_by_key(|node| node.first()));
                prop_assert!(nodes.iter().all(|node| !nodes.contains(&node.sibling())));
            }
        }
    }
}
