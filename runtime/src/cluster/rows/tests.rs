//! Sums over rows against the definition: a tree sum of each key by itself.

use super::*;
use crate::cluster::{Node, StepTree};
use proptest::prelude::*;
use std::collections::BTreeMap;

const DIMENSION: usize = 3;

/// What a slot's microbatch has: values whose sum depends on the order of addition.
fn leaf(slot: u32, keys: &[u64]) -> Rows {
    let mut rows = Rows::zeros(DIMENSION, keys.iter().copied());
    let keys = rows.keys.clone();
    for (at, value) in rows.values_mut().iter_mut().enumerate() {
        let sign = if (slot + at as u32).is_multiple_of(3) { -1e4 } else { 1.0 };
        *value = sign / (slot as f32 + keys[at / DIMENSION] as f32 + 3.0);
    }
    rows
}

/// The sum of one key over a node, read off the design; none where no leaf has it.
fn reference(leaves: &[Rows], node: Node, key: u64) -> Option<(u32, Vec<f32>)> {
    let Some((left, right)) = node.children() else {
        let leaf = leaves.get(node.index as usize)?;
        let at = leaf.keys().iter().position(|other| *other == key)?;
        return Some((leaf.counts()[at], leaf.values()[at * DIMENSION..][..DIMENSION].to_vec()));
    };
    match (reference(leaves, left, key), reference(leaves, right, key)) {
        (Some((l, left)), Some((r, right))) => {
            Some((l + r, left.iter().zip(right).map(|(l, r)| l + r).collect()))
        }
        (left, right) => left.or(right),
    }
}

fn sum(leaves: &[Rows], node: Node) -> Rows {
    match node.children() {
        None => leaves.get(node.index as usize).cloned().unwrap_or_default(),
        Some((left, right)) => sum(leaves, left).merge(sum(leaves, right)),
    }
}

proptest! {
    #[test]
    fn every_key_is_summed_as_if_it_were_alone(
        keys in proptest::collection::vec(proptest::collection::vec(0u64..9, 0..7), 1..13)
    ) {
        let leaves: Vec<Rows> = keys.iter().zip(0..).map(|(keys, slot)| leaf(slot, keys)).collect();
        let root = StepTree::new(leaves.len() as u32, leaves.len() as u32).root();
        let root_sum = sum(&leaves, root);
        let mut expected: BTreeMap<u64, u32> = BTreeMap::new();
        keys.iter().flatten().for_each(|key| *expected.entry(*key).or_default() += 1);
        prop_assert_eq!(root_sum.keys(), expected.keys().copied().collect::<Vec<_>>());
        prop_assert_eq!(root_sum.counts(), expected.values().copied().collect::<Vec<_>>());
        for (key, row) in root_sum.keys().iter().zip(root_sum.values().chunks(DIMENSION)) {
            let (_, expected) = reference(&leaves, root, *key).unwrap();
            let bits = |row: &[f32]| row.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(row), bits(&expected));
        }
    }
}

#[test]
fn the_first_difference_is_named_with_its_key() {
    let rows = |keys: &[u64], value: f32| {
        let values = vec![value; keys.len() * DIMENSION];
        Rows::new(DIMENSION, keys.to_vec(), vec![1; keys.len()], values).unwrap()
    };
    let difference = |left: &Rows, right: &Rows| left.first_difference(right);
    let ours = rows(&[2, 5, 9], 1.0);
    assert_eq!(difference(&ours, &ours.clone()), None);
    assert_eq!(difference(&ours, &rows(&[2, 5], 1.0)), Some(RowDifference::Key { key: 9 }));
    assert_eq!(difference(&rows(&[2, 5], 1.0), &ours), Some(RowDifference::Key { key: 9 }));
    assert_eq!(difference(&ours, &rows(&[2, 4, 9], 1.0)), Some(RowDifference::Key { key: 4 }));
    let mut theirs = ours.clone();
    theirs.values_mut()[4] = 1.5;
    let element = RowDifference::Element { key: 5, element: 1, ours: 1.0, theirs: 1.5 };
    assert_eq!(difference(&ours, &theirs), Some(element));
    let twice = Rows::zeros(DIMENSION, [5, 5]);
    let once = Rows::zeros(DIMENSION, [5]);
    assert_eq!(difference(&once, &twice), Some(RowDifference::Count { key: 5, ours: 1, theirs: 2 }));
    let nan = |bits| Rows::new(1, vec![1], vec![1], vec![f32::from_bits(bits)]).unwrap();
    assert_eq!(nan(0x7fc0_0000).first_difference(&nan(0xffc0_0001)), None);
}

#[test]
fn what_is_no_sum_is_not_taken() {
    let new = |keys: &[u64], counts: &[u32], values: usize| {
        Rows::new(2, keys.to_vec(), counts.to_vec(), vec![-0.0; values])
    };
    assert_eq!(new(&[1, 2], &[1, 1], 4).unwrap().values()[0].to_bits(), 0, "-0.0 is no identity");
    assert!(new(&[], &[], 0).is_some_and(|rows| rows.is_empty()));
    assert_eq!(new(&[2, 1], &[1, 1], 4), None, "descending");
    assert_eq!(new(&[1, 1], &[1, 1], 4), None, "twice");
    assert_eq!(new(&[1, 2], &[1, 0], 4), None, "never occurred");
    assert_eq!(new(&[1, 2], &[1], 4), None);
    assert_eq!(new(&[1, 2], &[1, 1], 5), None);
}

#[test]
fn counts_stay_at_the_top() {
    let most = Rows::new(1, vec![3], vec![u32::MAX], vec![1.0]).unwrap();
    assert_eq!(most.merge(Rows::zeros(1, [3, 3])).counts(), [u32::MAX]);
}
