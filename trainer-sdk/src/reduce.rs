//! The local reduction: microbatch gradients, in slot order, summed up along the step's tree. Pure.
//!
//! The same tree as the pserver's: `sum(l, i) = sum(l - 1, 2i) + sum(l - 1, 2i + 1)`, absent = identity, leaves
//! canonicalised by `x + 0.0` so that 0.0 is a true identity. Where a job rounds gradients, leaves and every sum of two are
//! rounded to bf16, here as there.

use crate::device::Tensors;
use crate::device::areas::SumOnDevice;
use crate::flat::Flat;
use crate::names::Names;
use crate::sums::Sums;
use shoal_runtime::cluster::precision::round_bf16;
use shoal_runtime::cluster::{Node, Precision, Rows, StepTree};
use shoal_runtime::host::cuda::DeviceError;
use std::sync::Arc;

/// A gradient sum of one node: of each parameter, and what the mean divides by.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeSum {
    /// Sums of dense parameters, indexed as declared.
    pub(crate) values: Sums,
    /// Sums of rows of tables, indexed as declared; empty in evaluations.
    pub(crate) rows: Vec<Rows>,
    /// Sums of those dense parameters that are on a device; `None`: none of them are, or these are sums of an evaluation.
    pub(crate) there: Option<Arc<SumOnDevice>>,
    /// Records (or tokens).
    pub(crate) weight: u64,
    /// The lowest number of the exclusions that its leaves were computed with.
    pub(crate) exclusions: u64,
}

impl NodeSum {
    /// Bytes of its values and rows, in host and in device memory.
    pub(crate) fn bytes(&self) -> usize {
        let rows = self.rows.iter().map(|rows| 12 * rows.len() + 4 * rows.values().len());
        let there = self.there.iter().map(|there| there.tensors.bytes());
        self.values.iter().map(|values| 4 * values.len()).chain(rows).chain(there).sum()
    }

    /// Makes a leaf of sums: without -0.0, of each parameter the first `rounded` elements rounded. Returns how many were -0.0,
    /// beside those on a device, where it has been settled.
    pub(crate) fn settle(&mut self, rounded: &[usize]) -> u64 {
        assert_eq!(self.values.len(), rounded.len(), "one vector for each parameter");
        #[cfg(test)]
        crate::ran::note("reduce");
        let dense = self.values.iter_mut().zip(rounded).map(|(values, rounded)| {
            let (rounded, plain) = halves(values, *rounded);
            round(rounded) + canonicalise(plain)
        });
        let negative_zeros = dense.sum::<u64>();
        let rows = self.rows.iter_mut().map(Rows::values_mut);
        negative_zeros + rows.map(canonicalise).sum::<u64>()
    }

    /// Every block has applied the sum.
    pub(crate) fn applied(&self) {
        if let Some(there) = &self.there {
            there.applied();
        }
    }
}

/// Sums up the leaves of one node as they come, holding at most one sum a level.
#[derive(Debug)]
pub(crate) struct LocalTree {
    tree: StepTree,
    node: Node,
    next: u32,
    held: Vec<(Node, NodeSum)>,
    /// Of each parameter, how many of its first elements are rounded.
    rounded: Arc<[usize]>,
}

/// The first element of a leaf that is no finite number: (parameter, element).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NonFinite(pub(crate) usize, pub(crate) usize);

impl LocalTree {
    /// An empty sum of `node`, which must be a node of `tree`. Of each parameter the first `rounded` elements are rounded.
    pub(crate) fn new(tree: StepTree, node: Node, rounded: Arc<[usize]>) -> LocalTree {
        assert!(tree.contains(node), "node {node} is not of this step");
        LocalTree { tree, node, next: node.first(), held: Vec::new(), rounded }
    }

    /// The slot of the next leaf; `None`: all are there.
    pub(crate) fn next_slot(&self) -> Option<u32> {
        (self.next < self.node.end().min(self.tree.present())).then_some(self.next)
    }

    /// Settles and adds the leaf of the next slot. Returns how many of its elements were -0.0.
    #[cfg(test)]
    pub(crate) fn push(&mut self, mut leaf: NodeSum) -> Result<u64, DeviceError> {
        let negative_zeros = leaf.settle(&self.rounded);
        self.join(leaf)?;
        Ok(negative_zeros)
    }

    /// Adds the leaf of the next slot, which is settled.
    ///
    /// # Errors
    /// The device has failed.
    pub(crate) fn join(&mut self, leaf: NodeSum) -> Result<(), DeviceError> {
        self.held.push((Node::leaf(self.next), leaf));
        self.next += 1;
        self.merge()
    }

    /// The node's sum, once every leaf is there.
    pub(crate) fn finish(&mut self) -> Option<NodeSum> {
        if self.next_slot().is_some() || self.held.len() != 1 {
            return None;
        }
        self.held.pop().map(|(_, sum)| sum)
    }

    fn merge(&mut self) -> Result<(), DeviceError> {
        while let Some((node, sum)) = self.held.pop() {
            if node == self.node {
                self.held.push((node, sum));
                return Ok(());
            }
            if node.is_left() && self.tree.is_absent(node.sibling()) {
                self.held.push((node.parent(), sum));
                continue;
            }
            let Some((left, mut left_sum)) = self.held.pop_if(|(held, _)| *held == node.sibling()) else {
                self.held.push((node, sum));
                return Ok(());
            };
            if let (Some(left), Some(right)) = (&left_sum.there, &sum.there) {
                left.tensors.add(&right.tensors, &self.rounded)?;
            }
            for ((left, right), rounded) in
                left_sum.values.iter_mut().zip(sum.values.iter()).zip(self.rounded.iter())
            {
                add(left, right, *rounded);
            }
            assert_eq!(left_sum.rows.len(), sum.rows.len(), "leaves of a training step and of an evaluation");
            for (left, right) in left_sum.rows.iter_mut().zip(sum.rows) {
                *left = std::mem::take(left).merge(right);
            }
            left_sum.weight += sum.weight;
            left_sum.exclusions = left_sum.exclusions.min(sum.exclusions);
            self.held.push((left.parent(), left_sum));
        }
        Ok(())
    }
}

/// The elements that are rounded, and the others. Those that take no part in an evaluation, or in a step, are none.
fn halves(values: &mut [f32], rounded: usize) -> (&mut [f32], &mut [f32]) {
    let rounded = values.len().min(rounded);
    values.split_at_mut(rounded)
}

/// `left[i] = left[i] + right[i]`, of which the first `rounded` are rounded.
fn add(left: &mut [f32], right: &[f32], rounded: usize) {
    let (rounded_left, plain_left) = halves(left, rounded);
    let (rounded_right, plain_right) = right.split_at(right.len().min(rounded));
    let rounded = rounded_left.iter_mut().zip(rounded_right);
    rounded.for_each(|(left, right)| *left = round_bf16(*left + right));
    plain_left.iter_mut().zip(plain_right).for_each(|(left, right)| *left += right);
}

/// The first element that is no finite number in the precision in which it travels, of values indexed as declared. Of each
/// parameter the first `rounded` elements travel as bf16.
pub(crate) fn first_non_finite(values: &Flat, rounded: &[usize]) -> Option<NonFinite> {
    let first = |values: &[f32], precision: Precision| {
        let is_finite = values.iter().fold(true, |all, value| all & precision.is_finite(*value));
        if is_finite { None } else { values.iter().position(|value| !precision.is_finite(*value)) }
    };
    let element = |values: &[f32], rounded: usize| {
        let (rounded, plain) = values.split_at(values.len().min(rounded));
        let of_plain = || Some(rounded.len() + first(plain, Precision::F32)?);
        first(rounded, Precision::Bf16).or_else(of_plain)
    };
    let named = |(parameter, (values, rounded)): (usize, (&[f32], &usize))| {
        Some(NonFinite(parameter, element(values, *rounded)?))
    };
    values.iter().zip(rounded).enumerate().find_map(named)
}

/// The message for sums that are no finite numbers as they travel, those on a device (`there`) first: parameter, element or
/// key, and value. `None`: all are finite.
pub(crate) fn not_finite(
    names: &Names,
    there: Option<&Tensors>,
    values: &Flat,
    rows: &[Rows],
) -> Result<Option<String>, DeviceError> {
    let name = |at: usize| &names.declaration.parameters[at].name;
    let dense = |at: usize, element: usize, value: f32| {
        let precision = names.gradients.name();
        format!("the sum for {:?} is not finite at element {element}: {value:e}, as {precision}", name(at))
    };
    if let Some(tensors) = there
        && let Some((at, element)) = tensors.first_non_finite()?
    {
        return Ok(Some(dense(at, element, tensors.read(at, element..element + 1)?[0])));
    }
    if let Some(NonFinite(at, element)) = first_non_finite(values, &names.rounded) {
        return Ok(Some(dense(at, element, values[at][element])));
    }
    let row = first_non_finite_row(rows);
    Ok(row.map(|(at, key)| format!("the sum for key {key} of {:?} is not finite", name(at))))
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

/// Leaves that are rounded. Returns how many of them were -0.0.
fn round(values: &mut [f32]) -> u64 {
    let mut negative_zeros = 0;
    for value in values {
        negative_zeros += u64::from(value.to_bits() == (-0.0f32).to_bits());
        *value = round_bf16(*value);
    }
    negative_zeros
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use shoal_runtime::cluster::initial::Initial;
    use shoal_runtime::cluster::{Declaration, Parameter, Rule, Schedule};

    /// Of two parameters: nothing is rounded; the first element of the first and all of the second; everything.
    const ROUNDED: [[usize; 2]; 3] = [[0, 0], [1, 5], [3, 2]];

    fn leaf(slot: u32) -> NodeSum {
        // Values whose sum depends on the order of addition, and a tiny one that is rounded to a negative zero.
        let value = 1.0f32 / (slot as f32 + 3.0) * if slot.is_multiple_of(3) { -1e4 } else { 1.0 };
        let tiny = f32::from_bits(0x8000_0000 + slot * 0x2000);
        let values = vec![vec![value, -0.0, tiny], vec![value * 7.0, tiny + value * 1e-39]];
        let mut of = Rows::zeros(1, [u64::from(slot % 3), u64::from(slot % 7)]);
        of.values_mut().fill(value);
        of.values_mut()[0] = -0.0;
        // One of two tables.
        let mut rows = vec![Rows::default(), Rows::default()];
        rows[slot as usize % 2] = of;
        NodeSum {
            values: values.into(),
            rows,
            there: None,
            weight: u64::from(slot) + 1,
            exclusions: 9 - u64::from(slot % 5),
        }
    }

    /// What is rounded of a node's values, as the design says.
    fn settled(mut values: Sums, rounded: [usize; 2]) -> Sums {
        for (values, rounded) in values.iter_mut().zip(rounded) {
            for (at, value) in values.iter_mut().enumerate() {
                *value = if at < rounded { round_bf16(*value) } else { *value + 0.0 };
            }
        }
        values
    }

    /// The definition, read off the design.
    fn reference(tree: StepTree, node: Node, rounded: [usize; 2]) -> Option<NodeSum> {
        let Some((left, right)) = node.children() else {
            let mut sum = leaf(node.index);
            sum.values = settled(sum.values, rounded);
            sum.rows.iter_mut().for_each(|rows| rows.values_mut().iter_mut().for_each(|x| *x += 0.0));
            return (!tree.is_absent(node)).then_some(sum);
        };
        match (reference(tree, left, rounded), reference(tree, right, rounded)) {
            (Some(left), Some(right)) => Some(NodeSum {
                values: settled(
                    left.values
                        .iter()
                        .zip(right.values.iter())
                        .map(|(l, r)| l.iter().zip(r).map(|(l, r)| l + r).collect())
                        .collect::<Vec<Vec<f32>>>()
                        .into(),
                    rounded,
                ),
                rows: left.rows.into_iter().zip(right.rows).map(|(l, r)| l.merge(r)).collect(),
                there: None,
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

    fn sum_of(tree: StepTree, node: Node, rounded: [usize; 2]) -> NodeSum {
        let mut local = LocalTree::new(tree, node, Arc::from(rounded));
        while let Some(slot) = local.next_slot() {
            assert!(local.held.len() <= usize::from(node.level) + 1);
            let is_first = u64::from(slot == 0);
            assert_eq!(local.push(leaf(slot)), Ok(2 + is_first));
        }
        local.finish().unwrap()
    }

    proptest! {
        #[test]
        fn a_local_sum_has_the_bits_of_the_definition(
            slots in 1u32..70, cut in 0.0f64..1.0, level in 0u8..8, at in 0u32..70, which in 0usize..3
        ) {
            let tree = StepTree::new(slots, 1 + (f64::from(slots - 1) * cut) as u32);
            let node = Node { level: level.min(tree.root_level()), index: at >> level.min(tree.root_level()) };
            prop_assume!(tree.contains(node));
            let rounded = ROUNDED[which];
            let (ours, theirs) = (sum_of(tree, node, rounded), reference(tree, node, rounded).unwrap());
            prop_assert_eq!(bits(&ours), bits(&theirs));
            prop_assert_eq!((ours.weight, ours.exclusions), (theirs.weight, theirs.exclusions));
        }
    }

    #[test]
    fn rounding_changes_the_elements_that_are_rounded_and_no_others() {
        let tree = StepTree::new(16, 16);
        let [plain, some, all] = ROUNDED.map(|rounded| sum_of(tree, tree.root(), rounded));
        assert_ne!(plain.values[0][0].to_bits(), all.values[0][0].to_bits());
        assert_eq!(some.values[0][0].to_bits(), all.values[0][0].to_bits());
        assert_eq!(bits(&some)[1..3], bits(&plain)[1..3], "the first element alone");
        assert_eq!(some.values[1], all.values[1]);
        assert_eq!(some.rows, plain.rows, "rows of tables are never rounded");
        assert!(all.values.iter().flatten().all(|value| value.to_bits() & 0xFFFF == 0), "{all:?}");
    }

    #[test]
    fn the_first_element_that_is_not_finite_is_named() {
        let first = |values: &[Vec<f32>]| first_non_finite(&values.to_vec().into(), &[0, 0, 0]);
        assert_eq!(first(&[vec![1.0], vec![0.0, f32::NAN]]), Some(NonFinite(1, 1)));
        assert_eq!(first(&[vec![f32::NEG_INFINITY], vec![f32::NAN]]), Some(NonFinite(0, 0)));
        assert_eq!(first(&[vec![f32::MAX], vec![], vec![1e-45]]), None);
    }

    #[test]
    fn what_is_rounded_to_an_infinity_is_named_too() {
        let values: Flat = vec![vec![1.0], vec![0.0, f32::MAX, f32::MAX]].into();
        assert_eq!(first_non_finite(&values, &[1, 0]), None);
        assert_eq!(first_non_finite(&values, &[1, 1]), None);
        assert_eq!(first_non_finite(&values, &[1, 2]), Some(NonFinite(1, 1)));
        assert_eq!(first_non_finite(&vec![vec![1.0, f32::INFINITY]].into(), &[1]), Some(NonFinite(0, 1)));
    }

    #[test]
    fn what_is_said_names_the_parameter_the_place_the_value_and_the_precision() {
        let dense =
            |name: &str| Parameter::new(name, &[2], Rule::Sgd, Schedule::constant(0.1), Initial::Zeros);
        let parameters = vec![dense("v"), dense("w"), Parameter::sum("loss", &[1])];
        let declaration = Declaration { parameters, block_elements: 0 };
        let said = |gradients| {
            let names = Names::new(declaration.clone(), 7, gradients);
            let values = vec![vec![1.0, 2.0], vec![0.0, f32::MAX], vec![f32::MAX]];
            not_finite(&names, None, &values.into(), &[]).unwrap()
        };
        assert_eq!(said(Precision::F32), None);
        let words = said(Precision::Bf16).unwrap();
        assert_eq!(words, "the sum for \"w\" is not finite at element 1: 3.4028235e38, as bf16");
    }

    #[test]
    fn an_unfinished_sum_is_none() {
        let mut local = LocalTree::new(StepTree::new(4, 4), Node { level: 1, index: 0 }, Arc::from([0, 0]));
        local.push(leaf(0)).unwrap();
        assert!(local.finish().is_none());
    }
}
