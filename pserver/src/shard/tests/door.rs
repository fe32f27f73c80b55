//! What is heard of a transition, and what becomes of a block about which something does not hold.

use super::*;

fn block(shard: &Shard, id: u32) -> Arc<Hosted> {
    Arc::clone(shard.hosting().unwrap().block(BlockId(id)).unwrap())
}

#[test]
fn a_block_about_which_something_does_not_hold_is_served_no_more_and_its_pserver_ends() {
    let shard = shard();
    assert_eq!(shard.violated().now_or_never(), None);
    shard.with(&block(&shard, 0), |block| block.claim(Version(9))).unwrap();
    let violated = shard.violated().now_or_never().unwrap();
    assert!(violated.starts_with("block 0: invariant 16, "), "{violated}");
    let outcomes = both(&shard, 0, ROOT);
    assert!(matches!(outcomes[..], [PushOutcome::Applied { .. }, PushOutcome::Moved]), "{outcomes:?}");
}

#[test]
fn of_a_transition_that_changes_nothing_nobody_hears() {
    let shard = shard();
    let all = [Kind::Published, Kind::Logged, Kind::Undecided, Kind::Piece, Kind::Standing];
    let (told, urgent) = (all.map(|kind| shard.told(kind)), shard.urgent());
    shard.with(&block(&shard, 0), Block::go_on).unwrap();
    shard.hear_now(Vec::new()).unwrap();
    assert!(told.iter().all(|told| !told.has_changed()) && !urgent.has_changed());
    push(&shard, 0, Node::leaf(0), &[(0, &[1.0; 6])]).unwrap();
    assert_eq!(told.map(|told| told.has_changed()), [false, false, false, false, true]);
    assert!(!urgent.has_changed(), "a held node may wait");
    push(&shard, 0, ROOT, &[(0, &[1.0; 6])]).unwrap();
    assert!(urgent.has_changed());
}
