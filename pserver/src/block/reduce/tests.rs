//! Held nodes against an independent reference, over random covers, orders, repetitions and short steps, in both precisions
//! of gradients.

use super::*;
use bytes::Bytes;
use proptest::prelude::*;
use shoal_runtime::cluster::Precision;
use shoal_runtime::cluster::precision::{bf16_to_bytes, round_bf16};

const ELEMENTS: usize = 3;

/// Deterministic leaf gradients with magnitudes that make the order of additions visible in the bits, and some so small that
/// bf16 has nothing but zeros and its first subnormals for them.
fn leaf(slot: u32, element: usize) -> f32 {
    let scale = [1.0, 1e7, 1e-6, -3e3, 1e-40][(slot as usize * 7 + element) % 5];
    (libm::sin(f64::from(slot) * 1.7 + element as f64) * scale) as f32
}

/// What a node's value is made of one f32 addition, or of a leaf.
fn settled(value: f32, precision: Precision) -> f32 {
    match precision {
        Precision::F32 => value + 0.0,
        Precision::Bf16 => round_bf16(value),
    }
}

/// The reference: recursion from the node down, absent halves left out, written without the code under test.
fn reference(present: u32, level: u32, index: u32, precision: Precision) -> Option<Vec<f32>> {
    if u64::from(index) << level >= u64::from(present) {
        return None;
    }
    if level == 0 {
        return Some((0..ELEMENTS).map(|element| settled(leaf(index, element), precision)).collect());
    }
    let left = reference(present, level - 1, 2 * index, precision)?;
    match reference(present, level - 1, 2 * index + 1, precision) {
        None => Some(left),
        Some(right) => Some(left.iter().zip(&right).map(|(l, r)| settled(l + r, precision)).collect()),
    }
}

/// As they travel.
fn came(values: &[f32], precision: Precision) -> Gradient {
    let bytes: Bytes = match precision {
        Precision::F32 => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        Precision::Bf16 => values.iter().flat_map(|value| bf16_to_bytes(*value)).collect(),
    };
    Gradient::Words(bytes, precision)
}

fn singles(values: &[f32]) -> Gradient {
    came(values, Precision::F32)
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn gradient(tree: StepTree, node: Node, precision: Precision) -> Vec<f32> {
    reference(tree.present(), node.level.into(), node.index, precision).unwrap()
}

fn weight(tree: StepTree, node: Node) -> u64 {
    (node.first()..node.end().min(tree.present())).map(|slot| u64::from(slot) % 3 + 1).sum()
}

/// What becomes of a gradient that is offered.
#[derive(Debug, PartialEq)]
enum Arrival {
    Held { replaced: usize },
    Complete { replaced: usize },
    Covered,
    Busy,
    Nondeterministic(Difference),
}

/// Does with a gradient what a block does.
fn offer(held: &mut HeldNodes, node: Node, weight: u64, gradient: Gradient) -> Arrival {
    match held.judge(node, weight, &gradient) {
        Err(difference) => Arrival::Nondeterministic(difference),
        Ok(Credit::Covered) => Arrival::Covered,
        Ok(credit) if !held.takes(credit) => Arrival::Busy,
        Ok(_) => match held.take(node, weight, gradient) {
            Merge { replaced, is_whole: true } => Arrival::Complete { replaced },
            Merge { replaced, is_whole: false } => Arrival::Held { replaced },
        },
    }
}

fn send(held: &mut HeldNodes, node: Node) -> Arrival {
    send_in(held, node, Precision::F32)
}

fn send_in(held: &mut HeldNodes, node: Node, precision: Precision) -> Arrival {
    let tree = held.tree();
    let values = gradient(tree, node, precision);
    let arrival = offer(held, node, weight(tree, node), came(&values, precision));
    assert_sound(held, precision);
    // As a block does with a root that has to wait.
    held.settle();
    arrival
}

/// What must hold at all times, whatever arrived.
fn assert_sound(held: &HeldNodes, precision: Precision) {
    let tree = held.tree();
    let nodes: Vec<Node> = held.nodes().map(|held| held.node).collect();
    for pair in nodes.windows(2) {
        assert!(pair[0].end() <= pair[1].first(), "held nodes overlap or are out of order: {nodes:?}");
        assert!(pair[0].sibling() != pair[1], "siblings not merged: {nodes:?}");
    }
    // The root is held until its turn has come.
    let most = usize::from(tree.root_level()) + held.window;
    assert!(nodes.len() <= most.max(1), "{} nodes held", nodes.len());
    for held in held.nodes() {
        let expected = gradient(tree, held.node, precision);
        assert_eq!(bits(&held.sum.dense()), bits(&expected), "sum of {}", held.node);
        assert_eq!(held.weight, weight(tree, held.node), "weight of {}", held.node);
    }
}

fn lowest_missing(held: &HeldNodes) -> Option<u32> {
    let tree = held.tree();
    (0..tree.present()).find(|slot| !held.nodes().any(|held| held.node.covers(Node::leaf(*slot))))
}

fn node_of(tree: StepTree, slot: u32, level: u8) -> Node {
    let level = level.min(tree.root_level());
    Node { level, index: (slot % tree.present()) >> level }
}

#[derive(Debug, Clone)]
struct Run {
    slots: u32,
    present: u32,
    window: usize,
    precision: Precision,
    arrivals: Vec<(u32, u8)>,
}

fn runs() -> impl Strategy<Value = Run> {
    let sizes = (1u32..40).prop_flat_map(|slots| (Just(slots), 1..=slots));
    let arrivals =
        proptest::collection::vec((0u32..64, prop_oneof![4 => Just(0u8), 3 => 1u8..3, 1 => 3u8..7]), 0..150);
    let precision = proptest::sample::select(Precision::ALL.to_vec());
    (sizes, 0usize..12, precision, arrivals).prop_map(|((slots, present), window, precision, arrivals)| Run {
        slots,
        present,
        window,
        precision,
        arrivals,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn any_cover_in_any_order_gives_the_reference_bits_exactly_once(run in runs()) {
        let tree = StepTree::new(run.slots, run.present);
        let mut held = HeldNodes::new(tree, run.window);
        let mut completed = Vec::new();
        let mut arrive = |held: &mut HeldNodes, node: Node| {
            let lowest = lowest_missing(held).filter(|_| completed.is_empty());
            let before: Vec<HeldNode> = held.nodes().cloned().collect();
            let arrival = send_in(held, node, run.precision);
            if let Some(lowest) = lowest && node.covers(Node::leaf(lowest)) {
                assert!(!matches!(arrival, Arrival::Busy | Arrival::Covered), "{node} with {lowest} missing");
            }
            let is_covered = before.iter().any(|held| held.node.covers(node));
            match arrival {
                Arrival::Covered => assert!(is_covered || !completed.is_empty()),
                Arrival::Held { replaced } | Arrival::Complete { replaced } => {
                    assert!(!is_covered);
                    assert_eq!(replaced, before.iter().filter(|held| node.covers(held.node)).count());
                }
                Arrival::Busy => assert!(!is_covered),
                Arrival::Nondeterministic(difference) => panic!("{difference:?}"),
            }
            if matches!(arrival, Arrival::Busy | Arrival::Covered) {
                assert_eq!(before, held.nodes().cloned().collect::<Vec<_>>());
            }
            assert_sound(held, run.precision);
            if let Arrival::Complete { .. } = arrival {
                let root = held.root().unwrap();
                completed.push((root.weight, root.sum.clone()));
            }
        };
        for (slot, level) in &run.arrivals {
            arrive(&mut held, node_of(tree, *slot, *level));
        }
        for slot in 0..run.present {
            arrive(&mut held, Node::leaf(slot));
        }
        for (slot, level) in &run.arrivals {
            arrive(&mut held, node_of(tree, *slot, *level));
        }
        prop_assert_eq!(completed.len(), 1);
        let expected = gradient(tree, tree.root(), run.precision);
        prop_assert_eq!(bits(&completed[0].1.dense()), bits(&expected));
        prop_assert_eq!(completed[0].0, weight(tree, tree.root()));
    }
}

#[test]
fn a_covered_arrival_is_dropped_and_a_covering_one_replaces() {
    let mut held = HeldNodes::new(StepTree::new(8, 8), 8);
    assert_eq!(send(&mut held, Node::leaf(1)), Arrival::Held { replaced: 0 });
    assert_eq!(send(&mut held, Node::leaf(2)), Arrival::Held { replaced: 0 });
    assert_eq!(send(&mut held, Node { level: 2, index: 0 }), Arrival::Held { replaced: 2 });
    assert_eq!(send(&mut held, Node::leaf(1)), Arrival::Covered);
    assert_eq!(send(&mut held, Node { level: 1, index: 1 }), Arrival::Covered);
    assert_eq!(held.nodes().count(), 1);
}

#[test]
fn a_repeat_with_other_bits_is_nondeterministic_and_changes_nothing() {
    let tree = StepTree::new(8, 8);
    let mut held = HeldNodes::new(tree, 8);
    let node = Node { level: 1, index: 2 };
    send(&mut held, node);
    let before: Vec<HeldNode> = held.nodes().cloned().collect();
    let mut other = before[0].sum.dense();
    other[2] = f32::from_bits(other[2].to_bits() ^ 1);
    let difference = Difference::Element { element: 2, held: before[0].sum.dense()[2], came: other[2] };
    assert_eq!(
        offer(&mut held, node, weight(tree, node), singles(&other)),
        Arrival::Nondeterministic(difference)
    );
    let came = weight(tree, node) + 1;
    let difference = Difference::Weight { held: weight(tree, node), came };
    assert_eq!(
        offer(&mut held, node, came, singles(&gradient(tree, node, Precision::F32))),
        Arrival::Nondeterministic(difference)
    );
    assert_eq!(held.nodes().cloned().collect::<Vec<_>>(), before);
}

#[test]
fn rounded_gradients_give_other_sums_and_a_repeat_that_differs_in_the_last_bit_is_found() {
    let tree = StepTree::new(8, 8);
    let root = |precision| gradient(tree, tree.root(), precision);
    assert_ne!(bits(&root(Precision::F32)), bits(&root(Precision::Bf16)));
    let mut held = HeldNodes::new(tree, 8);
    let node = Node { level: 1, index: 2 };
    send_in(&mut held, node, Precision::Bf16);
    let mut other = gradient(tree, node, Precision::Bf16);
    let before = other[1];
    other[1] = f32::from_bits(before.to_bits() ^ 0x1_0000);
    let difference = Difference::Element { element: 1, held: before, came: other[1] };
    let arrival = offer(&mut held, node, weight(tree, node), came(&other, Precision::Bf16));
    assert_eq!(arrival, Arrival::Nondeterministic(difference));
}

#[test]
fn a_node_and_its_ancestor_over_absent_slots_are_the_same_node() {
    let tree = StepTree::new(8, 5);
    let mut held = HeldNodes::new(tree, 8);
    assert_eq!(send(&mut held, Node::leaf(4)), Arrival::Held { replaced: 0 });
    assert_eq!(held.nodes().next().unwrap().node, Node { level: 2, index: 1 });
    assert_eq!(send(&mut held, Node { level: 1, index: 2 }), Arrival::Covered);
    let mut other = gradient(tree, Node::leaf(4), Precision::F32);
    other[0] = 77.0;
    let arrival = offer(&mut held, Node { level: 2, index: 1 }, weight(tree, Node::leaf(4)), singles(&other));
    assert!(matches!(arrival, Arrival::Nondeterministic(Difference::Element { element: 0, .. })));
    assert!(matches!(send(&mut held, Node { level: 2, index: 0 }), Arrival::Complete { .. }));
}

#[test]
fn with_no_window_only_the_lowest_missing_slot_is_taken() {
    let mut held = HeldNodes::new(StepTree::new(8, 8), 0);
    assert_eq!(send(&mut held, Node::leaf(1)), Arrival::Busy);
    assert_eq!(send(&mut held, Node { level: 1, index: 0 }), Arrival::Held { replaced: 0 });
    assert_eq!(send(&mut held, Node::leaf(3)), Arrival::Busy);
    assert_eq!(send(&mut held, Node::leaf(2)), Arrival::Held { replaced: 0 });
    assert_eq!(send(&mut held, Node::leaf(3)), Arrival::Held { replaced: 0 });
    assert!(matches!(send(&mut held, Node { level: 2, index: 1 }), Arrival::Complete { .. }));
}

#[test]
fn an_arrival_that_merges_or_replaces_needs_no_room() {
    let mut held = HeldNodes::new(StepTree::new(16, 16), 1);
    assert_eq!(send(&mut held, Node::leaf(9)), Arrival::Held { replaced: 0 });
    assert_eq!(send(&mut held, Node::leaf(5)), Arrival::Busy);
    assert_eq!(send(&mut held, Node::leaf(8)), Arrival::Held { replaced: 0 });
    assert_eq!(send(&mut held, Node { level: 3, index: 1 }), Arrival::Held { replaced: 1 });
}

/// Sends the covers of a tree with two present slots of three, leaf 2 being -0.0 everywhere.
#[test]
fn a_negative_zero_sums_like_zero_whoever_padded_the_tree() {
    let tree = StepTree::new(4, 3);
    let root = |nodes: &[(Node, f32)]| {
        let mut held = HeldNodes::new(tree, 8);
        let arrivals: Vec<Arrival> =
            nodes.iter().map(|(node, x)| offer(&mut held, *node, 1, singles(&[*x]))).collect();
        match arrivals.into_iter().last() {
            Some(Arrival::Complete { .. }) => held.into_root().unwrap().sum.dense()[0].to_bits(),
            other => panic!("{other:?}"),
        }
    };
    let leaves = root(&[(Node::leaf(0), -0.0), (Node::leaf(1), -0.0), (Node::leaf(2), -0.0)]);
    // A trainer that added the identity for the absent slot 3, and one that added a leaf of nothing.
    let padded =
        root(&[(Node { level: 1, index: 0 }, -0.0 + -0.0), (Node { level: 1, index: 1 }, -0.0 + 0.0)]);
    assert_eq!((leaves, padded), (0, 0));
}

#[test]
fn weights_that_overflow_saturate() {
    let mut held = HeldNodes::new(StepTree::new(2, 2), 2);
    offer(&mut held, Node::leaf(0), u64::MAX, singles(&[1.0]));
    let arrival = offer(&mut held, Node::leaf(1), 5, singles(&[1.0]));
    assert_eq!(arrival, Arrival::Complete { replaced: 0 });
    assert_eq!(held.root().unwrap().weight, u64::MAX);
}
