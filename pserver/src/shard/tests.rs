//! The shard over several blocks: whole messages, routing, pulls, reports, counters.

use super::*;
use crate::block::PushOutcome;
use crate::block::tests::{declaration, job};
use crate::counters::Counters;

const ROOT: Node = Node { level: 1, index: 0 };

pub(crate) fn assignment(routing_version: u64, blocks: &[u32]) -> Assignment {
    Assignment {
        routing_version,
        declaration: declaration(),
        blocks: blocks.iter().map(|b| BlockId(*b)).collect(),
    }
}

pub(crate) fn host(shard: &Shard, assignment: Assignment) {
    let mut construction = shard.assign(assignment).unwrap();
    while let Some(under_way) = construction {
        construction = shard.make_next(under_way);
    }
}

/// A shard that hosts block 0 (six elements) and block 1 (a metric), in steps of two of five microbatches.
fn shard() -> Shard {
    let shard = Shard::new(job(5, 2), 16);
    host(&shard, assignment(3, &[0, 1]));
    shard
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn push(
    shard: &Shard,
    step: u64,
    node: Node,
    gradients: &[(u32, &[f32])],
) -> Result<Vec<PushOutcome>, Refusal> {
    // One byte before the gradient, so that it is not aligned.
    let bytes: Vec<(u32, Vec<u8>)> =
        gradients.iter().map(|(id, values)| (*id, [vec![0], bytes(values)].concat())).collect();
    let gradients = bytes.iter().map(|(id, bytes)| (BlockId(*id), &bytes[1..])).collect();
    let weight = shard.epoch.tree(Step(step)).present_in(node).into();
    shard.push(&Push { routing_version: 3, step: Step(step), node, weight, gradients })
}

fn both(shard: &Shard, step: u64, node: Node) -> Vec<PushOutcome> {
    push(shard, step, node, &[(1, &[1.0]), (0, &[1.0; 6])]).unwrap()
}

fn pull(shard: &Shard, routing_version: u64, step: u64, blocks: &[u32]) -> Result<Pulled, Refusal> {
    let blocks = blocks.iter().map(|b| BlockId(*b)).collect();
    shard.pull(&Pull { routing_version, step: Step(step), blocks, without_data: vec![BlockId(1)] })
}

/// Everything a shard holds that a refusal might change.
fn digest(shard: &Shard) -> String {
    let hosting = shard.hosting().unwrap();
    let blocks: Vec<String> =
        hosting.blocks.values().map(|hosted| format!("{:?}", hosted.lock().unwrap())).collect();
    format!("{blocks:?} {:?} {}", shard.counters(), shard.routing_version())
}

#[test]
fn outcomes_come_in_the_order_of_the_message() {
    let shard = shard();
    push(&shard, 0, Node::leaf(0), &[(0, &[1.0; 6])]).unwrap();
    let outcomes = push(&shard, 0, Node::leaf(0), &[(1, &[1.0]), (0, &[1.0; 6])]).unwrap();
    assert_eq!(outcomes, [PushOutcome::Held { replaced: 0 }, PushOutcome::Covered]);
}

#[test]
fn a_message_refused_for_its_last_block_changes_none_of_the_others() {
    let shard = shard();
    both(&shard, 0, ROOT);
    push(&shard, 1, Node::leaf(1), &[(1, &[1.0])]).unwrap();
    let before = digest(&shard);
    let good: (u32, &[f32]) = (0, &[1.0; 6]);
    let refused = |last: (u32, &[f32])| {
        let kinds = [[good, last], [last, good]].map(|order| {
            let refusal = push(&shard, 1, Node::leaf(1), &order).unwrap_err();
            assert_eq!(digest(&shard), before, "{refusal}");
            refusal.kind
        });
        assert_eq!(kinds[0], kinds[1]);
        kinds[0]
    };
    assert_eq!(refused((1, &[1.0, 2.0])), RefusalKind::WrongShape);
    assert_eq!(refused((1, &[f32::NAN])), RefusalKind::NonFinite);
    assert_eq!(refused((1, &[1.5])), RefusalKind::Nondeterministic);
    assert_eq!(refused((2, &[1.0])), RefusalKind::UnknownBlock);
    assert_eq!(refused(good), RefusalKind::Malformed);
    push(&shard, 1, ROOT, &[(1, &[1.0])]).unwrap();
    let before = digest(&shard);
    assert_eq!(push(&shard, 2, ROOT, &[(1, &[1.0]), good]).unwrap_err().kind, RefusalKind::Ahead);
    assert_eq!(digest(&shard), before);
}

#[test]
fn half_a_word_is_a_wrong_shape() {
    let shard = shard();
    let gradients = vec![(BlockId(1), &[0u8; 5][..])];
    let push = Push { routing_version: 3, step: Step(0), node: ROOT, weight: 2, gradients };
    assert_eq!(shard.push(&push).unwrap_err().kind, RefusalKind::WrongShape);
}

#[test]
fn differing_bits_for_one_node_become_the_failure_that_is_reported() {
    let shard = shard();
    push(&shard, 0, Node::leaf(0), &[(0, &[1.0; 6])]).unwrap();
    assert_eq!(shard.failure(), None);
    let mut told = shard.published();
    let refusal = push(&shard, 0, Node::leaf(0), &[(0, &[1.0, 1.0, 1.0, 1.0, 1.0, 2.0])]).unwrap_err();
    assert_eq!(shard.failure(), Some(refusal.to_string()));
    assert!(refusal.to_string().contains("\"adam\"") && told.has_changed().unwrap());
    told.mark_unchanged();
    assert!(!told.has_changed().unwrap());
}

#[test]
fn a_pull_gives_what_is_published_and_says_when_waiting_can_help() {
    let shard = shard();
    push(&shard, 0, ROOT, &[(0, &[1.0; 6])]).unwrap();
    let pulled = pull(&shard, 3, 1, &[0]).unwrap();
    assert!(!pulled.is_final);
    assert_eq!(pulled.blocks.iter().map(|(id, bytes)| (id.0, bytes.len())).collect::<Vec<_>>(), [(0, 24)]);
    push(&shard, 0, ROOT, &[(1, &[1.0])]).unwrap();
    let pulled = pull(&shard, 3, 1, &[0]).unwrap();
    assert!(pulled.is_final);
    assert_eq!(
        pulled.blocks.iter().map(|(id, bytes)| (id.0, bytes.len())).collect::<Vec<_>>(),
        [(0, 24), (1, 0)]
    );
}

#[test]
fn a_pull_of_a_step_that_is_gone_or_beyond_the_job_is_refused() {
    let shard = shard();
    both(&shard, 0, ROOT);
    both(&shard, 1, ROOT);
    let before = digest(&shard);
    assert_eq!(pull(&shard, 3, 0, &[0]).unwrap_err().kind, RefusalKind::StepGone);
    assert_eq!(pull(&shard, 3, 10, &[0]).unwrap_err().kind, RefusalKind::OutOfRange);
    assert!(pull(&shard, 3, 9, &[0]).is_ok());
    assert_eq!(push(&shard, 9, ROOT, &[(1, &[1.0])]).unwrap_err().kind, RefusalKind::OutOfRange);
    assert_eq!(digest(&shard), before);
}

#[test]
fn callers_behind_learn_the_routing_and_callers_ahead_wait() {
    let shard = shard();
    assert_eq!(pull(&shard, 2, 0, &[0]).unwrap_err().kind, RefusalKind::StaleRouting);
    assert_eq!(pull(&shard, 4, 0, &[0]).unwrap_err().kind, RefusalKind::NotReady);
    assert_eq!(pull(&Shard::new(job(5, 2), 16), 1, 0, &[0]).unwrap_err().kind, RefusalKind::NotReady);
}

#[test]
fn the_same_assignment_again_changes_nothing_and_one_that_moves_blocks_is_refused() {
    let shard = shard();
    both(&shard, 0, ROOT);
    let before = digest(&shard);
    assert!(shard.assign(assignment(3, &[0, 1])).unwrap().is_none());
    assert!(shard.assign(assignment(2, &[0])).unwrap().is_none());
    assert!(shard.assign(assignment(4, &[0])).is_err());
    assert_eq!(digest(&shard), before);
    assert!(shard.assign(assignment(4, &[0, 1])).unwrap().is_none());
    assert_eq!((shard.routing_version(), shard.progress().unwrap()[0].version), (4, Version(1)));
}

#[test]
fn an_assignment_of_a_block_that_was_not_declared_is_refused() {
    assert!(Shard::new(job(5, 2), 16).assign(assignment(1, &[0, 2])).is_err());
}

#[test]
fn two_pservers_that_share_a_model_publish_what_one_would() {
    let whole = shard();
    let parts = [0, 1].map(|block| {
        let part = Shard::new(job(5, 2), 16);
        host(&part, assignment(3, &[block]));
        part
    });
    let gradients: [&[f32]; 2] = [&[0.1, 0.2, 0.3, 0.4, 0.5, 0.6], &[7.0]];
    for step in 0..4 {
        push(&whole, step, ROOT, &[(0, gradients[0]), (1, gradients[1])]).unwrap();
        for (block, part) in parts.iter().enumerate() {
            push(part, step, Node::leaf(0), &[(block as u32, gradients[block])]).unwrap();
            push(part, step, ROOT, &[(block as u32, gradients[block])]).unwrap();
        }
    }
    for block in 0..2 {
        let ids = [BlockId(block)];
        let (ours, theirs) =
            (whole.read_state(Version(4), &ids), parts[block as usize].read_state(Version(4), &ids));
        let (ours, theirs) = (&ours.unwrap()[0].1, &theirs.unwrap()[0].1);
        assert_eq!((&ours.parameters, &ours.slots), (&theirs.parameters, &theirs.slots));
    }
}

#[test]
fn blocks_that_stand_alike_are_reported_together() {
    let shard = shard();
    let group = |blocks: &[u32], version, held: &[Node]| Progress {
        blocks: blocks.iter().map(|b| BlockId(*b)).collect(),
        version: Version(version),
        held: held.to_vec(),
    };
    assert_eq!(shard.progress().unwrap(), [group(&[0, 1], 0, &[])]);
    both(&shard, 0, Node::leaf(1));
    assert_eq!(shard.progress().unwrap(), [group(&[0, 1], 0, &[Node::leaf(1)])]);
    push(&shard, 0, ROOT, &[(0, &[1.0; 6])]).unwrap();
    assert_eq!(shard.progress().unwrap(), [group(&[1], 0, &[Node::leaf(1)]), group(&[0], 1, &[])]);
}

#[test]
fn counters_count_messages_and_count_a_nodes_records_once() {
    let shard = shard();
    both(&shard, 0, Node::leaf(0));
    both(&shard, 0, Node::leaf(0));
    both(&shard, 0, ROOT);
    both(&shard, 0, ROOT);
    both(&shard, 1, ROOT);
    both(&shard, 2, ROOT);
    let expected = Counters {
        pushes: 6,
        duplicates_refused: 1,
        late_pushes: 1,
        records_refused: 3,
        replaced_by_ancestor: 1,
        busy: 0,
        short_steps: 1,
        bytes_in: 6 * 28,
        bytes_out: 0,
        levels: 0b11,
    };
    assert_eq!(shard.counters(), expected);
}

#[test]
fn holding_and_publishing_are_told_apart() {
    let shard = shard();
    let (published, held) = (shard.published(), shard.held());
    both(&shard, 0, Node::leaf(0));
    assert!(held.has_changed().unwrap() && !published.has_changed().unwrap());
    both(&shard, 0, ROOT);
    assert!(published.has_changed().unwrap());
}

#[test]
fn messages_that_name_blocks_in_opposite_orders_do_not_block_one_another() {
    let shard = Arc::new(shard());
    let (done, finished) = std::sync::mpsc::channel();
    for order in [[0, 1], [1, 0]] {
        let (shard, done) = (Arc::clone(&shard), done.clone());
        std::thread::spawn(move || {
            for _ in 0..20_000 {
                let gradients = order.map(|block| (block, [&[1.0; 6][..], &[1.0][..]][block as usize]));
                push(&shard, 0, Node::leaf(0), &gradients).unwrap();
            }
            done.send(()).unwrap();
        });
    }
    for _ in 0..2 {
        finished.recv_timeout(std::time::Duration::from_secs(20)).expect("two pushes wait for each other");
    }
}
