//! Push messages over several blocks: refused whole, or answered block by block; reports and counters of them.

use super::*;
use shoal_runtime::cluster::Ledger;

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
    assert_eq!(refused((2, &[1.0])), RefusalKind::OutOfRange);
    assert_eq!(refused(good), RefusalKind::Malformed);
    push(&shard, 1, ROOT, &[(1, &[1.0])]).unwrap();
    let before = digest(&shard);
    assert_eq!(push(&shard, 2, ROOT, &[(1, &[1.0]), good]).unwrap_err().kind, RefusalKind::Ahead);
    assert_eq!(digest(&shard), before);
}

#[test]
fn a_node_that_the_step_has_not_and_a_step_that_the_job_has_not_are_refused() {
    let shard = shard();
    both(&shard, 0, Node::leaf(0));
    let before = digest(&shard);
    // Steps 0 and 1 have two microbatches, step 2 has one.
    let beyond = [(0, Node::leaf(2)), (0, Node { level: 2, index: 0 }), (2, Node::leaf(1)), (9, ROOT)];
    for (step, node) in beyond {
        let refusal = push(&shard, step, node, &[(1, &[1.0])]).unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::OutOfRange, "step {step}, node {node}");
    }
    assert_eq!(digest(&shard), before);
}

#[test]
fn half_a_word_is_a_wrong_shape() {
    let shard = shard();
    let what = Pushed::Node(Step(0), ROOT);
    let push = message(what, 2, vec![gradient(1, &[0u8; 5])]);
    assert_eq!(shard.push(&push).unwrap_err().kind, RefusalKind::WrongShape);
}

#[test]
fn blocks_that_are_elsewhere_are_answered_moved_and_the_others_take_their_gradients() {
    let shard = empty(job(5, 2), 16, ME);
    let everything: [(u32, &[f32]); 2] = [(0, &[1.0; 6]), (1, &[1.0])];
    assert_eq!(push(&shard, 0, ROOT, &everything).unwrap(), [PushOutcome::Moved; 2]);
    assert_eq!(shard.counters().moved, 1);
    host(&shard, assignment(3, &[1]));
    let outcomes = push(&shard, 0, ROOT, &everything).unwrap();
    let applied = PushOutcome::Applied { replaced: 0, is_short: false, is_published: true };
    assert_eq!(outcomes, [PushOutcome::Moved, applied]);
    assert_eq!(shard.counters().moved, 2);
}

#[test]
fn a_gradient_of_an_older_history_is_rewound_and_one_of_a_later_history_waits() {
    let shard = shard();
    let value = 1.0f32.to_le_bytes();
    let push = |rewind| {
        let gradients = vec![proto::BlockGradient { rewind, ..gradient(1, &value) }];
        shard.push(&message(Pushed::Node(Step(0), ROOT), 2, gradients)).unwrap()[0]
    };
    let before = format!("{:?}", shard.whole_standing());
    assert_eq!((push(2), push(4)), (PushOutcome::Rewound, PushOutcome::Busy));
    assert_eq!(format!("{:?}", shard.whole_standing()), before);
    assert_eq!((shard.counters().rewound, shard.counters().busy), (1, 1));
    assert!(matches!(push(3), PushOutcome::Applied { .. }));
}

#[test]
fn a_gradient_of_the_other_mode_is_refused() {
    let shard = shard();
    let value = 1.0f32.to_le_bytes();
    let push = message(Pushed::Position(0), 1, vec![gradient(1, &value)]);
    assert_eq!(shard.push(&push).unwrap_err().kind, RefusalKind::Malformed);
}

#[test]
fn differing_bits_for_one_node_become_the_failure_that_is_reported() {
    let shard = shard();
    push(&shard, 0, Node::leaf(0), &[(0, &[1.0; 6])]).unwrap();
    assert_eq!(shard.failure(), None);
    let mut told = shard.urgent();
    let refusal = push(&shard, 0, Node::leaf(0), &[(0, &[1.0, 1.0, 1.0, 1.0, 1.0, 2.0])]).unwrap_err();
    assert_eq!(shard.failure(), Some(refusal.to_string()));
    assert!(refusal.to_string().contains("\"adam\"") && told.has_changed());
    told.mark_heard();
    assert!(!told.has_changed());
}

#[test]
fn two_pservers_that_share_a_model_publish_what_one_would() {
    let whole = shard();
    let parts = [0, 1].map(|block| {
        let part = empty(job(5, 2), 16, ME);
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
            (whole.read_state(Version(4), &ids, 0), parts[block as usize].read_state(Version(4), &ids, 0));
        let (ours, theirs) = (&ours.unwrap()[0], &theirs.unwrap()[0]);
        assert_eq!((&ours.parameters, &ours.slots), (&theirs.parameters, &theirs.slots));
    }
}

#[test]
fn blocks_that_stand_alike_are_reported_together() {
    let shard = shard();
    let group = |blocks: &[u32], version, held: &[Node]| {
        let nodes: Vec<_> = held.iter().map(|node| (*node).into()).collect();
        let held = Some(proto::HeldStep { step: version, nodes }).filter(|held| !held.nodes.is_empty());
        let (blocks, ledger) = (blocks.to_vec(), Some((&Ledger::default()).into()));
        proto::BlockProgress { blocks, term: 3, version, held: held.into_iter().collect(), ledger }
    };
    let progress = || shard.whole_standing().unwrap().0;
    assert_eq!(progress(), [group(&[0, 1], 0, &[])]);
    both(&shard, 0, Node::leaf(1));
    assert_eq!(progress(), [group(&[0, 1], 0, &[Node::leaf(1)])]);
    push(&shard, 0, ROOT, &[(0, &[1.0; 6])]).unwrap();
    assert_eq!(progress(), [group(&[1], 0, &[Node::leaf(1)]), group(&[0], 1, &[])]);
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
    let expected = PserverCounters {
        pushes: 6,
        duplicates_refused: 1,
        late_pushes: 1,
        records_refused: 3,
        replaced_by_ancestor: 1,
        short_steps: 1,
        bytes_in: 6 * 28,
        levels: 0b11,
        ..PserverCounters::default()
    };
    assert_eq!(shard.counters(), expected);
}

#[test]
fn holding_and_publishing_are_told_apart() {
    let shard = shard();
    let (published, held) = (shard.told(Kind::Published), shard.told(Kind::Standing));
    both(&shard, 0, Node::leaf(0));
    assert!(held.has_changed() && !published.has_changed());
    both(&shard, 0, ROOT);
    assert!(published.has_changed());
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
