//! The local reduction: microbatch gradients, in slot order, summed up along the step's tree. Pure.
//!
//! The same tree as the pserver's: `sum(l, i) = sum(l - 1, 2i) + sum(l - 1, 2i + 1)`, absent = identity, leaves
//! canonicalised by `x + 0.0` so that 0.0 is a true identity.

use shoal_runtime::cluster::{Node, Rows, StepTree};

/// A gradient sum of one node: a vector for each parameter, and what the mean divides by.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NodeSum {
    /// Sums of dense parameters, indexed as declared.
    pub(crate) values: Vec<Vec<f32>>,
    /// Sums of rows of tables, indexed as declared; empty in evaluations.
    pub(crate) rows: Vec<Rows>,
    /// Records (or tokens).
    pub(crate) weight: u64,
    /// The lowest number of the exclusions that its leaves were computed with.
    pub(crate) exclusions: u64,
}

/// Sums up the leaves of one node as they come, holding at most one sum a level.
#[derive(Debug)]
pub(crate) struct LocalTree {
    tree: StepTree,
    node: Node,
    next: u32,
    held: Vec<(Node, NodeSum)>,
}

/// The first element of a leaf that is no finite number: (parameter, element).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NonFinite(pub(crate) usize, pub(crate) usize);

impl LocalTree {
    /// An empty sum of `node`, which must be a node of `tree`.
    pub(crate) fn new(tree: StepTree, node: Node) -> LocalTree {
        assert!(tree.contains(node), "node {node} is not of this step");
        LocalTree { tree, node, next: node.first(), held: Vec::new() }
    }

    /// The slot of the next leaf; none when all are there.
    pub(crate) fn next_slot(&self) -> Option<u32> {
        (self.next < self.node.end().min(self.tree.present())).then_some(self.next)
    }

    /// Adds the leaf of the next slot. Returns how many of its elements were -0.0.
    pub(crate) fn push(&mut self, mut leaf: NodeSum) -> u64 {
        let rows = leaf.rows.iter_mut().map(Rows::values_mut);
        let negative_zeros =
            leaf.values.iter_mut().map(Vec::as_mut_slice).chain(rows).map(canonicalise).sum();
        self.held.push((Node::leaf(self.next), leaf));
        self.next += 1;
        self.merge();
        negative_zeros
    }

    /// The node's sum, once every leaf is there.
    pub(crate) fn finish(mut self) -> Option<NodeSum> {
        if self.next_slot().is_some() || self.held.len() != 1 {
            return None;
        }
        self.held.pop().map(|(_, sum)| sum)
    }

    fn merge(&mut self) {
        while let Some((node, sum)) = self.held.pop() {
            if node == self.node {
                self.held.push((node, sum));
                return;
            }
            if node.is_left() && self.tree.is_absent(node.sibling()) {
                self.held.push((node.parent(), sum));
                continue;
            }
            let Some((left, mut left_sum)) = self.held.pop_if(|(held, _)| *held == node.sibling()) else {
                self.held.push((node, sum));
                return;
            };
            for (left, right) in left_sum.values.iter_mut().zip(&sum.values) {
                left.iter_mut().zip(right).for_each(|(left, right)| *left += right);
            }
            assert_eq!(left_sum.rows.len(), sum.rows.len(), "leaves of a training step and of an evaluation");
            for (left, right) in left_sum.rows.iter_mut().zip(sum.rows) {
                *left = std::mem::take(left).merge(right);
            }
            left_sum.weight += sum.weight;
            left_sum.exclusions = left_sum.exclusions.min(sum.exclusions);
            self.held.push((left.parent(), left_sum));
        }
    }
}

/// The first element that is no finite number, of values indexed as declared.
pub(crate) fn first_non_finite(values: &[Vec<f32>]) -> Option<NonFinite> {
    let first = |values: &Vec<f32>| {
        let is_finite = values.iter().fold(true, |all, value| all & value.is_finite());
        if is_finite { None } else { values.iter().position(|value| !value.is_finite()) }
    };
    values.iter().enumerate().find_map(|(parameter, values)| Some(NonFinite(parameter, first(values)?)))
}

/// The first row with an element that is no finite number, of rows indexed as declared: (parameter, key).
pub(crate) fn first_non_finite_row(rows: &[Rows]) -> Option<(usize, u64)> {
    rows.iter().enumerate().find_map(|(parameter, rows)| {
        let at = rows.values().iter().position(|value| !value.is_finite())?;
        let dimension = rows.values().len() / rows.len().max(1);
        Some((parameter, *rows.keys().get(at / dimension.max(1))?))
    })
}

fn canonicalise(values: &mut [f32]) -> u64 {
    let mut negative_zeros = 0;
    for value in values {
        negative_zeros += u64::from(value.to_bits() == (-0.0f32).to_bits());
        *value += 0.0;
    }
    negative_zeros
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn leaf(slot: u32) -> NodeSum {
        // Values whose sum depends on the order of addition.
        let value = 1.0f32 / (slot as f32 + 3.0) * if slot.is_multiple_of(3) { -1e4 } else { 1.0 };
        let values = vec![vec![value, -0.0], vec![value * 7.0]];
        let mut of = Rows::zeros(1, [u64::from(slot % 3), u64::from(slot % 7)]);
        of.values_mut().fill(value);
        of.values_mut()[0] = -0.0;
        // One of two tables.
        let mut rows = vec![Rows::default(), Rows::default()];
        rows[slot as usize % 2] = of;
        NodeSum { values, rows, weight: u64::from(slot) + 1, exclusions: 9 - u64::from(slot % 5) }
    }

    /// The definition, read off the design.
    fn reference(tree: StepTree, node: Node) -> Option<NodeSum> {
        let Some((left, right)) = node.children() else {
            let mut sum = leaf(node.index);
            sum.values.iter_mut().flatten().for_each(|x| *x += 0.0);
            sum.rows.iter_mut().for_each(|rows| rows.values_mut().iter_mut().for_each(|x| *x += 0.0));
            return (!tree.is_absent(node)).then_some(sum);
        };
        match (reference(tree, left), reference(tree, right)) {
            (Some(left), Some(right)) => Some(NodeSum {
                values: left
                    .values
                    .iter()
                    .zip(&right.values)
                    .map(|(l, r)| l.iter().zip(r).map(|(l, r)| l + r).collect())
                    .collect(),
                rows: left.rows.into_iter().zip(right.rows).map(|(l, r)| l.merge(r)).collect(),
                weight: left.weight + right.weight,
                exclusions: left.exclusions.min(right.exclusions),
            }),
            (left, right) => left.or(right),
        }
    }

    fn bits(sum: &NodeSum) -> Vec<u32> {
        let rows = sum.rows.iter().flat_map(Rows::values);
        sum.values.iter().flatten().chain(rows).map(|x| x.to_bits()).collect()
    }

    proptest! {
        #[test]
        fn a_local_sum_has_the_bits_of_the_definition(slots in 1u32..70, cut in 0.0f64..1.0, level in 0u8..8, at in 0u32..70) {
            let tree = StepTree::new(slots, 1 + (f64::from(slots - 1) * cut) as u32);
            let node = Node { level: level.min(tree.root_level()), index: at >> level.min(tree.root_level()) };
            prop_assume!(tree.contains(node));
            let mut local = LocalTree::new(tree, node);
            while let Some(slot) = local.next_slot() {
                prop_assert!(local.held.len() <= usize::from(node.level) + 1);
                prop_assert_eq!(local.push(leaf(slot)), 2);
            }
            let (ours, theirs) = (local.finish().unwrap(), reference(tree, node).unwrap());
            prop_assert_eq!(bits(&ours), bits(&theirs));
            prop_assert_eq!((ours.weight, ours.exclusions), (theirs.weight, theirs.exclusions));
        }
    }

    #[test]
    fn the_first_element_that_is_not_finite_is_named() {
        assert_eq!(first_non_finite(&[vec![1.0], vec![0.0, f32::NAN]]), Some(NonFinite(1, 1)));
        assert_eq!(first_non_finite(&[vec![f32::NEG_INFINITY], vec![f32::NAN]]), Some(NonFinite(0, 0)));
        assert_eq!(first_non_finite(&[vec![f32::MAX], vec![], vec![1e-45]]), None);
    }

    #[test]
    fn an_unfinished_sum_is_none() {
        let mut local = LocalTree::new(StepTree::new(4, 4), Node { level: 1, index: 0 });
        local.push(leaf(0));
        assert_eq!(local.finish(), None);
    }
}
