//! One block over many steps: exactly-once application, retained versions, refusals that change nothing.

use super::*;
use crate::kernel::sum::Word;
use proptest::prelude::*;
use shoal_runtime::cluster::initial::Initial;
use shoal_runtime::cluster::schedule::Schedule;
use shoal_runtime::cluster::{BlockId, Declaration, JobId, Layout, Parameter, Rule};

pub(crate) fn job(records: u64, slots: u32) -> JobSettings {
    JobSettings {
        job: JobId("test".into()),
        seed: 7,
        epochs: 3,
        microbatch_records: 1,
        microbatches_per_step: slots,
        shuffle_run: 1,
        records,
        manifest_fingerprint: [0; 32],
        lease_ttl_millis: 1000,
    }
}

/// Four small parameters of different rules; the first three share block 0, the metric is block 1.
pub(crate) fn declaration() -> Declaration {
    let normal = Initial::Normal { deviation: 0.5 };
    let parameter = |name: &str, rule| Parameter::new(name, &[2], rule, Schedule::constant(0.1), normal);
    let parameters = vec![
        parameter("plain", Rule::Sgd),
        parameter("heavy", Rule::Momentum { momentum: 0.5 }),
        parameter("adam", Rule::ADAM),
        Parameter::sum("loss", &[1]),
    ];
    Declaration { parameters, block_elements: 64 }
}

fn block_of(job: &JobSettings, declaration: &Declaration, id: BlockId) -> Block {
    let layout = Layout::new(declaration);
    let shape = BlockShape::new(id, layout.block(id).unwrap(), declaration);
    Block::new(Arc::new(shape), job, 16)
}

fn words(values: &[f32]) -> Vec<Word> {
    values.iter().map(|value| value.to_le_bytes()).collect()
}

fn values(bytes: &Bytes) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|word| f32::from_le_bytes(*word)).collect()
}

/// Everything a block holds, to tell whether a call has changed it.
fn digest(block: &Block) -> String {
    let previous = block.previous.as_ref().map(|previous| bits(previous.values()));
    let slots: Vec<Vec<u32>> = block.slots.iter().map(|slot| bits(slot)).collect();
    let held: Vec<String> = block
        .held
        .nodes()
        .map(|held| format!("{} {} {:?}", held.node, held.weight, bits(&held.sum)))
        .collect();
    format!("{:?} {:?} {previous:?} {slots:?} {held:?}", block.version, bits(block.current.values()))
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// What the shard does with one block: both checks, then the push.
fn push(
    block: &mut Block,
    step: u64,
    node: Node,
    weight: u64,
    gradient: &[f32],
) -> Result<PushOutcome, Refusal> {
    let words = words(gradient);
    let arriving = NodeGradient { step: Step(step), node, weight, words: &words };
    block.shape.check(&arriving, block.epoch.tree(Step(step)))?;
    block.push(&arriving)
}

const ROOT: Node = Node { level: 1, index: 0 };

#[test]
fn pieces_of_one_block_follow_their_own_rules() {
    let mut block = block_of(&job(4, 2), &declaration(), BlockId(0));
    let before = block.current.values().to_vec();
    push(&mut block, 0, ROOT, 2, &[2.0; 6]).unwrap();
    push(&mut block, 1, ROOT, 2, &[2.0; 6]).unwrap();
    let after = block.current.values();
    let moved: Vec<f32> = before.iter().zip(after).map(|(before, after)| before - after).collect();
    for (moved, expected) in moved.iter().zip([0.2, 0.2, 0.25, 0.25, 0.2, 0.2]) {
        assert!((moved - expected).abs() < 1e-5, "{moved} instead of {expected}");
    }
    let state = block.state(Version(2)).unwrap();
    assert_eq!(values(&state.parameters), after);
    assert_eq!(state.slots.len(), 2);
    assert_eq!(values(&state.slots[0])[..4], [0.0, 0.0, 1.5, 1.5]);
    assert_eq!(values(&state.slots[1])[..4], [0.0; 4]);
}

#[test]
fn a_metric_adds_up_and_is_not_divided() {
    let mut block = block_of(&job(4, 2), &declaration(), BlockId(1));
    push(&mut block, 0, ROOT, 2, &[3.0]).unwrap();
    push(&mut block, 1, ROOT, 2, &[4.0]).unwrap();
    assert_eq!(block.current.values(), [7.0]);
}

#[test]
fn a_root_of_weight_zero_advances_the_version_and_runs_no_rule() {
    let mut block = block_of(&job(4, 2), &declaration(), BlockId(0));
    push(&mut block, 0, ROOT, 2, &[1.0; 6]).unwrap();
    let (parameters, slots) = (block.current.values().to_vec(), block.slots.clone());
    let outcome = push(&mut block, 1, ROOT, 0, &[5.0; 6]).unwrap();
    assert_eq!(outcome, PushOutcome::Published { replaced: 0, is_short: false });
    assert_eq!(block.version(), Version(2));
    assert_eq!((bits(block.current.values()), &block.slots), (bits(&parameters), &slots));
    assert_eq!(block.published(Step(1)).unwrap(), block.published(Step(2)).unwrap());
}

#[test]
fn the_previous_version_is_kept_until_the_next_root_and_then_gone() {
    let mut block = block_of(&job(8, 2), &declaration(), BlockId(0));
    let first = block.published(Step(0)).unwrap().unwrap();
    assert_eq!(block.published(Step(1)), Ok(None));
    push(&mut block, 0, ROOT, 2, &[1.0; 6]).unwrap();
    assert_eq!(block.published(Step(0)).unwrap().unwrap(), first);
    let second = block.published(Step(1)).unwrap().unwrap();
    push(&mut block, 1, Node::leaf(0), 1, &[1.0; 6]).unwrap();
    assert_eq!(block.published(Step(0)).unwrap().unwrap(), first);
    push(&mut block, 1, Node::leaf(1), 1, &[1.0; 6]).unwrap();
    assert_eq!(block.published(Step(0)).unwrap_err().kind, RefusalKind::StepGone);
    assert_eq!(block.published(Step(1)).unwrap().unwrap(), second);
    assert_eq!(block.published(Step(3)), Ok(None));
}

#[test]
fn a_published_buffer_is_not_copied_and_never_changes() {
    let mut block = block_of(&job(8, 2), &declaration(), BlockId(0));
    let pulled = block.published(Step(0)).unwrap().unwrap();
    assert_eq!(pulled.as_ptr(), block.current.values().as_ptr().cast());
    let copy = pulled.to_vec();
    for step in 0..3 {
        push(&mut block, step, ROOT, 2, &[1.0; 6]).unwrap();
    }
    assert_eq!(pulled, copy);
}

#[test]
fn state_is_read_at_exactly_the_present_version() {
    let mut block = block_of(&job(8, 2), &declaration(), BlockId(0));
    push(&mut block, 0, ROOT, 2, &[1.0; 6]).unwrap();
    assert_eq!(block.state(Version(0)).unwrap_err().kind, RefusalKind::StepGone);
    assert_eq!(block.state(Version(2)).unwrap_err().kind, RefusalKind::NotReady);
    assert!(block.state(Version(1)).is_ok());
}

#[test]
fn a_late_push_is_applied_already_and_one_ahead_is_refused() {
    let mut block = block_of(&job(8, 2), &declaration(), BlockId(0));
    push(&mut block, 0, ROOT, 2, &[1.0; 6]).unwrap();
    let before = digest(&block);
    assert_eq!(push(&mut block, 0, Node::leaf(1), 1, &[9.0; 6]), Ok(PushOutcome::Late));
    assert_eq!(push(&mut block, 2, ROOT, 2, &[1.0; 6]).unwrap_err().kind, RefusalKind::Ahead);
    assert_eq!(digest(&block), before);
}

#[test]
fn a_refusal_names_the_parameter_and_changes_nothing() {
    let mut block = block_of(&job(9, 4), &declaration(), BlockId(0));
    push(&mut block, 0, Node { level: 2, index: 0 }, 4, &[1.0; 6]).unwrap();
    push(&mut block, 1, Node::leaf(2), 1, &[1.0; 6]).unwrap();
    let before = digest(&block);
    let mut refused = |node: Node, gradient: &[f32]| {
        let refusal = push(&mut block, 1, node, 1, gradient).unwrap_err();
        assert_eq!(digest(&block), before, "{refusal}");
        refusal
    };
    let wrong_shape = refused(Node::leaf(0), &[1.0; 5]);
    assert_eq!(wrong_shape.kind, RefusalKind::WrongShape);
    let text = wrong_shape.to_string();
    assert!(text.contains("block 0") && text.contains("\"plain\"") && text.contains("6 elements"), "{text}");
    let text = refused(Node::leaf(0), &[1.0, 1.0, 1.0, f32::NAN, 1.0, f32::INFINITY]).to_string();
    assert!(
        text.contains("\"heavy\"") && text.contains("element 1 is NaN") && text.contains("(0, 0)"),
        "{text}"
    );
    let text = refused(Node::leaf(2), &[1.0, 1.0, 1.0, 1.0, 1.5, 1.0]).to_string();
    assert!(
        text.contains("nondeterministic") && text.contains("\"adam\"") && text.contains("element 0"),
        "{text}"
    );
    assert_eq!(refused(Node { level: 3, index: 0 }, &[1.0; 6]).kind, RefusalKind::OutOfRange);
    assert_eq!(refused(Node::leaf(4), &[1.0; 6]).kind, RefusalKind::OutOfRange);
}

#[test]
fn an_element_is_named_by_its_index_in_the_parameter_not_in_the_block() {
    let normal = Initial::Zeros;
    let parameters = vec![Parameter::new("w", &[100], Rule::Sgd, Schedule::constant(0.1), normal)];
    let declaration = Declaration { parameters, block_elements: 40 };
    let mut block = block_of(&job(8, 2), &declaration, BlockId(2));
    let mut gradient = vec![1.0; 20];
    gradient[7] = f32::NAN;
    let text = push(&mut block, 0, ROOT, 2, &gradient).unwrap_err().to_string();
    assert!(text.contains("element 87 "), "{text}");
}

fn leaf_gradient(step: u64, slot: u32) -> Vec<f32> {
    (0..6).map(|e| libm::sinf((step * 31 + u64::from(slot) * 7 + e) as f32) * 3.0).collect()
}

/// The node's gradient by recursion, absent slots left out.
fn node_gradient(block: &Block, step: u64, node: Node) -> Option<(u64, Vec<f32>)> {
    if block.epoch.tree(Step(step)).is_absent(node) {
        return None;
    }
    let Some((left, right)) = node.children() else { return Some((1, leaf_gradient(step, node.index))) };
    let left = node_gradient(block, step, left)?;
    let Some(right) = node_gradient(block, step, right) else { return Some(left) };
    Some((left.0 + right.0, left.1.iter().zip(&right.1).map(|(l, r)| l + r).collect()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn whatever_arrives_the_run_ends_in_the_bits_of_the_undisturbed_one(
        records in 1u64..40, slots in 1u32..9, noise in proptest::collection::vec((0u32..64, 0u8..4, 0u64..4), 0..40)
    ) {
        let job = job(records, slots);
        let (mut plain, mut disturbed) =
            (block_of(&job, &declaration(), BlockId(0)), block_of(&job, &declaration(), BlockId(0)));
        let root = plain.epoch.tree(Step(0)).root();
        for step in 0..job.steps() {
            let tree = plain.epoch.tree(Step(step));
            let (weight, gradient) = node_gradient(&plain, step, root).unwrap();
            let outcome = push(&mut plain, step, root, weight, &gradient).unwrap();
            prop_assert_eq!(outcome, PushOutcome::Published { replaced: 0, is_short: tree.present() < slots });
            let leaves = (0..tree.present()).rev().map(|slot| (slot, 0, 0));
            for (slot, level, back) in noise.iter().copied().chain(leaves) {
                let step = step.saturating_sub(back);
                let level = level.min(root.level);
                let node = Node { level, index: (slot % disturbed.epoch.tree(Step(step)).present()) >> level };
                let (weight, gradient) = node_gradient(&disturbed, step, node).unwrap();
                push(&mut disturbed, step, node, weight, &gradient).unwrap();
                prop_assert!(disturbed.version().0 <= plain.version().0);
            }
            prop_assert_eq!(digest(&disturbed), digest(&plain));
        }
    }
}
