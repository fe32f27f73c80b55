//! One block over many steps, without copies: exactly-once application, retained versions, refusals that change
//! nothing.

use super::*;
use proptest::prelude::*;

const ROOT: Node = Node { level: 1, index: 0 };

/// The root was made and nobody else had to have it.
fn applied(is_short: bool) -> PushOutcome {
    PushOutcome::Applied { replaced: 0, is_short, is_published: true }
}

#[test]
fn pieces_of_one_block_follow_their_own_rules() {
    let mut block = block_of(&job(4, 2), &declaration(), BlockId(0));
    let before = current(&block);
    push(&mut block, 0, ROOT, 2, &[2.0; 6]).unwrap();
    push(&mut block, 1, ROOT, 2, &[2.0; 6]).unwrap();
    let after = current(&block);
    let moved: Vec<f32> = before.iter().zip(&after).map(|(before, after)| before - after).collect();
    for (moved, expected) in moved.iter().zip([0.2, 0.2, 0.25, 0.25, 0.2, 0.2]) {
        assert!((moved - expected).abs() < 1e-5, "{moved} instead of {expected}");
    }
    let state = block.copy_at(Version(2), 0).unwrap();
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
    assert_eq!(current(&block), [7.0]);
}

#[test]
fn a_root_of_weight_zero_advances_the_version_and_runs_no_rule() {
    let mut block = block_of(&job(4, 2), &declaration(), BlockId(0));
    push(&mut block, 0, ROOT, 2, &[1.0; 6]).unwrap();
    let before = state(&block);
    let outcome = push(&mut block, 1, ROOT, 0, &[5.0; 6]).unwrap();
    assert_eq!(outcome, applied(false));
    let after = state(&block);
    assert_eq!((after.name.version, block.published()), (Version(2), Version(2)));
    assert_eq!((after.parameters, after.slots), (before.parameters, before.slots));
    assert_eq!(parameters(&block, 1), parameters(&block, 2));
}

#[test]
fn the_previous_version_is_kept_until_the_next_root_and_then_gone() {
    let mut block = block_of(&job(8, 2), &declaration(), BlockId(0));
    let first = parameters(&block, 0);
    assert_eq!(read(&block, 1), Reading::NotYet);
    push(&mut block, 0, ROOT, 2, &[1.0; 6]).unwrap();
    assert_eq!(parameters(&block, 0), first);
    let second = parameters(&block, 1);
    push(&mut block, 1, Node::leaf(0), 1, &[1.0; 6]).unwrap();
    assert_eq!(parameters(&block, 0), first);
    push(&mut block, 1, Node::leaf(1), 1, &[1.0; 6]).unwrap();
    assert_eq!(read(&block, 0), Reading::Gone(Version(2)));
    assert_eq!(parameters(&block, 1), second);
    assert_eq!(read(&block, 3), Reading::NotYet);
}

#[test]
fn a_published_buffer_is_not_copied_and_never_changes() {
    let mut block = block_of(&job(8, 2), &declaration(), BlockId(0));
    let pulled = parameters(&block, 0);
    let kept = block.state.as_ref().unwrap().parameters(Version(0)).unwrap();
    assert_eq!(pulled.as_ptr(), kept.values().as_ptr().cast());
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
    assert_eq!(block.copy_at(Version(0), 0).unwrap_err().kind, RefusalKind::StepGone);
    assert_eq!(block.copy_at(Version(2), 0).unwrap_err().kind, RefusalKind::NotReady);
    let copy = block.copy_at(Version(1), 0).unwrap();
    assert_eq!((copy.name, copy.published), (StateName { term: Term(1), version: Version(1) }, Version(1)));
    assert_eq!((copy.block, copy.rewind), (BlockId(0), Rewind(1)));
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn whatever_arrives_the_run_ends_in_the_bits_of_the_undisturbed_one(
        records in 1u64..40, slots in 1u32..9, noise in proptest::collection::vec((0u32..64, 0u8..4, 0u64..4), 0..40),
        gradients in proptest::sample::select(Precision::ALL.to_vec())
    ) {
        let job = JobSettings { gradients, ..job(records, slots) };
        let (mut plain, mut disturbed) =
            (block_of(&job, &declaration(), BlockId(0)), block_of(&job, &declaration(), BlockId(0)));
        let root = job.shape().tree(Step(0)).root();
        for step in 0..job.steps() {
            let tree = job.shape().tree(Step(step));
            let (weight, gradient) = node_gradient(&job, step, root).unwrap();
            let outcome = push(&mut plain, step, root, weight, &gradient).unwrap();
            prop_assert_eq!(outcome, applied(tree.present() < slots));
            let leaves = (0..tree.present()).rev().map(|slot| (slot, 0, 0));
            for (slot, level, back) in noise.iter().copied().chain(leaves) {
                let step = step.saturating_sub(back);
                let level = level.min(root.level);
                let node = Node { level, index: (slot % job.shape().tree(Step(step)).present()) >> level };
                let (weight, gradient) = node_gradient(&job, step, node).unwrap();
                push(&mut disturbed, step, node, weight, &gradient).unwrap();
                prop_assert!(disturbed.published() <= plain.published());
            }
            prop_assert_eq!(digest(&disturbed), digest(&plain));
        }
    }
}

#[test]
fn a_counter_is_not_rounded_and_a_gradient_is() {
    let bf16 = JobSettings { gradients: Precision::Bf16, ..job(4, 2) };
    let trained = |job: &JobSettings, id| {
        let mut block = block_of(job, &declaration(), BlockId(id));
        let elements = block.shape.elements;
        push(&mut block, 0, Node::leaf(1), 1, &vec![1.0 / 3.0; elements]).unwrap();
        push(&mut block, 0, Node::leaf(0), 1, &vec![16_777_215.0; elements]).unwrap();
        bits(&current(&block))
    };
    assert_ne!(trained(&bf16, 0), trained(&job(4, 2), 0), "the option does something");
    assert_eq!(trained(&bf16, 1), trained(&job(4, 2), 1), "and nothing to what counts");
}

#[test]
fn a_rounded_gradient_has_two_bytes_an_element_and_any_other_length_is_refused_with_a_way_out() {
    let bf16 = JobSettings { gradients: Precision::Bf16, ..job(4, 2) };
    let block = block_of(&bf16, &declaration(), BlockId(0));
    let refused = |bytes: usize| block.shape.check_values(&vec![0; bytes], false, "step 0").unwrap_err();
    assert_eq!(block.shape.check_values(&[0; 12], false, "step 0"), Ok(()));
    // Of another number of elements, of f32, of half an element.
    for bytes in [0, 2, 10, 14, 24, 11, 13] {
        let refusal = refused(bytes);
        assert_eq!(refusal.kind, RefusalKind::WrongShape, "{bytes} bytes");
        let text = refusal.to_string();
        for word in ["block 0", "2 bytes (bf16)", &format!("{bytes} bytes"), "step 0", "same version"] {
            assert!(text.contains(word), "{text}: {word}");
        }
    }
    let counter = block_of(&bf16, &declaration(), BlockId(1));
    assert_eq!(counter.shape.check_values(&[0; 4], false, "step 0"), Ok(()), "a counter's are f32");
    let infinite = [&[0; 6][..], &[0x80, 0x7F], &[0; 4]].concat();
    let refusal = block.shape.check_values(&infinite, false, "step 0").unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::NonFinite);
    assert!(
        refusal.to_string().contains("\"heavy\"") && refusal.to_string().contains("1 is inf (bf16"),
        "{refusal}"
    );
}

/// One parameter of two elements in `group` after a step whose gradient is 3 and -1, and its slots.
fn trained_in(group: Group) -> (Vec<f32>, usize) {
    let normal = Initial::Normal { deviation: 0.5 };
    let momentum = Rule::Momentum { momentum: 0.5 };
    let parameter = Parameter::new("w", &[2], momentum, Schedule::constant(0.1), normal).in_group(group);
    let declaration = Declaration { parameters: vec![parameter], block_elements: 0 };
    let mut block = block_of(&job(1, 1), &declaration, BlockId(0));
    push(&mut block, 0, Node::leaf(0), 1, &[3.0, -1.0]).unwrap();
    let state = block.copy_at(Version(1), 0).unwrap();
    (values(&state.parameters), state.slots.len())
}

#[test]
fn a_frozen_parameter_stays_and_is_published_without_slots() {
    let mut initial = [0.0; 2];
    Initial::Normal { deviation: 0.5 }.fill(job(1, 1).seed, "w", 0, &mut initial);
    assert_eq!(trained_in(Group::FROZEN), (initial.to_vec(), 0));
    assert_ne!(trained_in(Group::default()), (initial.to_vec(), 1));
}

#[test]
fn a_groups_rate_multiplier_and_weight_decay_reach_the_rule() {
    let mut initial = [0.0; 2];
    Initial::Normal { deviation: 0.5 }.fill(job(1, 1).seed, "w", 0, &mut initial);
    let group = Group { rate_multiplier: 0.5, weight_decay: 2.0, is_frozen: false };
    let expected: Vec<f32> = initial.iter().zip([3.0, -1.0]).map(|(w, g)| w - 0.05 * (g + 2.0 * w)).collect();
    let (made, _) = trained_in(group);
    assert!(
        made.iter().zip(&expected).all(|(ours, theirs)| (ours - theirs).abs() < 1e-6),
        "{made:?} {expected:?}"
    );
}
