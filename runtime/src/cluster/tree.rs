//! The reduction tree of one step: which node covers which microbatch slots, and which slots are absent.
//!
//! `sum(l, i) = sum(l - 1, 2i) + sum(l - 1, 2i + 1)`, elementwise, absent = identity. The tree is a
//! function of the slot number alone, so the bits of its root do not depend on who computed what, or when. This
//! file decides shapes only; it must never touch a gradient.

use std::fmt;

/// A node of the tree. It covers the slots `index << level .. (index + 1) << level`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node {
    /// Height above the leaves; a leaf (one microbatch) is at level 0.
    pub level: u8,
    /// Position among the nodes of its level.
    pub index: u32,
}

impl Node {
    /// The leaf of one microbatch slot.
    #[inline]
    pub fn leaf(slot: u32) -> Node {
        Node { level: 0, index: slot }
    }
    /// The first slot it covers.
    #[inline]
    pub fn first(self) -> u32 {
        self.index << self.level
    }
    /// One past the last slot it covers, absent ones included.
    #[inline]
    pub fn end(self) -> u32 {
        (self.index + 1) << self.level
    }
    /// How many slots it covers, absent ones included.
    #[inline]
    pub fn width(self) -> u32 {
        1 << self.level
    }
    /// The node above.
    #[inline]
    pub fn parent(self) -> Node {
        Node { level: self.level + 1, index: self.index >> 1 }
    }
    /// The other child of the node above.
    #[inline]
    pub fn sibling(self) -> Node {
        Node { level: self.level, index: self.index ^ 1 }
    }
    /// Its two halves; none for a leaf.
    #[inline]
    pub fn children(self) -> Option<(Node, Node)> {
        let level = self.level.checked_sub(1)?;
        Some((Node { level, index: self.index << 1 }, Node { level, index: (self.index << 1) | 1 }))
    }
    /// Whether it is the left operand of its parent's sum.
    #[inline]
    pub fn is_left(self) -> bool {
        self.index & 1 == 0
    }
    /// Whether every slot of `other` is a slot of this node (a node covers itself).
    #[inline]
    pub fn covers(self, other: Node) -> bool {
        self.first() <= other.first() && other.end() <= self.end()
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, {})", self.level, self.index)
    }
}

/// The most microbatches a step may have: keeps every node within `u32` arithmetic.
pub use shoal_job::spec::MICROBATCHES_PER_STEP_MAX;

/// The tree of one step: `slots` microbatch slots of which the first `present` exist.
///
/// Only an epoch's last step has fewer present slots than slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepTree {
    slots: u32,
    present: u32,
}

impl StepTree {
    /// A tree over `slots` slots of which the first `present` hold a microbatch; `1 <= present <= slots`.
    pub fn new(slots: u32, present: u32) -> StepTree {
        assert!((1..=MICROBATCHES_PER_STEP_MAX).contains(&slots), "slots {slots} out of range");
        assert!((1..=slots).contains(&present), "present {present} of {slots} slots");
        StepTree { slots, present }
    }
    /// Slots that hold a microbatch.
    pub fn present(self) -> u32 {
        self.present
    }
    /// The level of the root: slots padded to a power of two.
    pub fn root_level(self) -> u8 {
        self.slots.next_power_of_two().trailing_zeros() as u8
    }
    /// The node that covers everything.
    pub fn root(self) -> Node {
        Node { level: self.root_level(), index: 0 }
    }
    /// Whether `node` is a node of this tree that covers at least one present slot.
    pub fn contains(self, node: Node) -> bool {
        node.level <= self.root_level()
            && node.index < (1 << (self.root_level() - node.level))
            && node.first() < self.present
    }
    /// Whether no slot of `node` holds a microbatch, so that its sum is the identity.
    pub fn is_absent(self, node: Node) -> bool {
        node.first() >= self.present
    }
    /// How many present slots `node` covers.
    pub fn present_in(self, node: Node) -> u32 {
        node.end().min(self.present).saturating_sub(node.first())
    }
    /// Whether `node` covers every present slot that exists.
    pub fn covers_all(self, node: Node) -> bool {
        node.first() == 0 && node.end() >= self.present
    }
    /// The slots of `0..present` that no node of `held` covers, as maximal aligned nodes in slot order.
    ///
    /// `held` must be disjoint and in slot order.
    pub fn missing(self, held: impl IntoIterator<Item = Node>) -> Vec<Node> {
        let mut missing = Vec::new();
        let mut next = 0;
        for node in held {
            debug_assert!(next <= node.first(), "held nodes overlap or are out of order");
            aligned(next, node.first(), &mut missing);
            next = node.end();
        }
        if next < self.present {
            aligned(next, self.present, &mut missing);
        }
        missing
    }
}

/// Cuts the slots `from..to` into the fewest aligned nodes, in slot order.
pub fn aligned(mut from: u32, to: u32, nodes: &mut Vec<Node>) {
    while from < to {
        let by_alignment = if from == 0 { 31 } else { from.trailing_zeros() };
        let level = by_alignment.min((to - from).ilog2());
        nodes.push(Node { level: level as u8, index: from >> level });
        from += 1 << level;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_node_covers_its_descendants_and_not_its_sibling() {
        let node = Node { level: 2, index: 3 };
        let (left, right) = node.children().unwrap();
        assert_eq!((node.first(), node.end()), (12, 16));
        assert!(node.covers(node) && node.covers(left) && node.covers(right));
        assert!(!left.covers(node) && !left.covers(right));
        assert_eq!(left.sibling(), right);
        assert_eq!(right.parent(), node);
    }

    #[test]
    fn a_short_step_pads_to_the_same_root_level_as_a_full_one() {
        assert_eq!(StepTree::new(12, 12).root(), StepTree::new(12, 1).root());
        assert_eq!(StepTree::new(1, 1).root_level(), 0);
        assert!(StepTree::new(12, 3).is_absent(Node { level: 2, index: 1 }));
        assert!(!StepTree::new(12, 12).contains(Node { level: 2, index: 3 }));
        assert!(!StepTree::new(12, 12).contains(Node { level: 5, index: 0 }));
    }

    proptest! {
        #[test]
        fn missing_and_held_nodes_cover_every_present_slot_once(
            slots in 1u32..200, cut in 0.0f64..1.0, taken in proptest::collection::btree_set(0u32..200, 0..40)
        ) {
            let present = 1 + (f64::from(slots - 1) * cut) as u32;
            let tree = StepTree::new(slots, present);
            let held: Vec<Node> = taken.iter().filter(|s| **s < present).map(|s| Node::leaf(*s)).collect();
            let mut count = vec![0; present as usize];
            for node in held.iter().copied().chain(tree.missing(held.iter().copied())) {
                prop_assert!(tree.contains(node));
                for slot in node.first()..node.end() { count[slot as usize] += 1; }
            }
            prop_assert!(count.iter().all(|c| *c == 1));
        }
    }
}
