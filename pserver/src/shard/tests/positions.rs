//! Asynchronous jobs over several blocks: pushes of positions, ledgers in reports, pulls of the newest.

use super::*;
use crate::block::primary::PlacedCopy;
use crate::block::tests::async_job;
use shoal_runtime::cluster::{Fill, Ledger};

const OTHER: Incarnation = Incarnation(2);

/// Ten positions in each of three epochs, in blocks 0 and 1; block 1 has an in-sync follower that is silent.
fn shard() -> Arc<Shard> {
    let shard = empty(async_job(10, 2, false), 16, ME);
    host(&shard, assignment(3, &[0, 1]));
    let copy = PlacedCopy { pserver: OTHER, fill: Fill(4), is_in_sync: true };
    let followed = Placement { copies: vec![copy], ..alone(3) };
    shard.assign_now(assigned(1, 4, [(0, alone(3)), (1, followed)])).unwrap();
    shard
}

fn push(shard: &Arc<Shard>, position: u64, gradients: &[(u32, &[f32])]) -> Result<Vec<PushOutcome>, Refusal> {
    let bytes: Vec<(u32, Vec<u8>)> = gradients.iter().map(|(id, values)| (*id, bytes(values))).collect();
    let gradients = bytes.iter().map(|(id, bytes)| gradient(*id, bytes)).collect();
    shard.push(&message(Pushed::Position(position), 1, gradients))
}

fn applied(is_published: bool) -> PushOutcome {
    PushOutcome::Applied { replaced: 0, is_short: false, is_published }
}

fn ledger(positions: &[u64]) -> Ledger {
    let mut ledger = Ledger::default();
    positions.iter().for_each(|position| assert!(ledger.insert(*position)));
    ledger
}

#[test]
fn each_block_answers_a_position_by_its_own_ledger_and_copies() {
    let shard = shard();
    let both: [(u32, &[f32]); 2] = [(1, &[1.0]), (0, &[1.0; 6])];
    let (published, logged) = (shard.told(Kind::Published), shard.told(Kind::Logged));
    assert_eq!(push(&shard, 7, &[both[0]]).unwrap(), [applied(false)]);
    assert!(logged.has_changed() && !published.has_changed());
    assert_eq!(push(&shard, 7, &both).unwrap(), [PushOutcome::Held { replaced: 0 }, applied(true)]);
    assert!(published.has_changed());
    assert_eq!(push(&shard, 7, &both).unwrap(), [PushOutcome::Held { replaced: 0 }, PushOutcome::Late]);
    let is_published = |block, rewind| shard.is_published(BlockId(block), Rewind(rewind), 7).unwrap();
    assert_eq!(
        [(0, 3), (0, 2), (1, 3), (2, 3)].map(|(block, rewind)| is_published(block, rewind)),
        [true, false, false, false]
    );
    assert!(!shard.is_published(BlockId(0), Rewind(3), 6).unwrap());
}

#[test]
fn positions_that_the_job_has_not_and_gradients_that_no_block_has_are_refused() {
    let shard = shard();
    push(&shard, 29, &[(0, &[1.0; 6])]).unwrap();
    let before = digest(&shard);
    assert_eq!(push(&shard, 30, &[(0, &[1.0; 6])]).unwrap_err().kind, RefusalKind::OutOfRange);
    assert_eq!(push(&shard, 3, &[(0, &[1.0; 6]), (1, &[1.0; 2])]).unwrap_err().kind, RefusalKind::WrongShape);
    assert_eq!(
        push(&shard, 3, &[(0, &[1.0; 6]), (1, &[f32::NAN])]).unwrap_err().kind,
        RefusalKind::NonFinite
    );
    let value = 1.0f32.to_le_bytes();
    let node = message(Pushed::Node(Step(0), ROOT), 1, vec![gradient(1, &value)]);
    assert_eq!(shard.push(&node).unwrap_err().kind, RefusalKind::Malformed);
    assert_eq!(digest(&shard), before);
}

#[test]
fn blocks_with_the_same_ledger_are_reported_together() {
    let shard = empty(async_job(10, 2, false), 16, ME);
    host(&shard, assignment(3, &[0, 1]));
    let group = |blocks: &[u32], version, positions: &[u64]| {
        let (blocks, ledger) = (blocks.to_vec(), Some((&ledger(positions)).into()));
        proto::BlockProgress { blocks, term: 3, version, held: Vec::new(), ledger }
    };
    let progress = || shard.whole_standing().unwrap().0;
    assert_eq!(progress(), [group(&[0, 1], 0, &[])]);
    push(&shard, 4, &[(0, &[1.0; 6]), (1, &[1.0])]).unwrap();
    assert_eq!(progress(), [group(&[0, 1], 1, &[4])]);
    push(&shard, 5, &[(0, &[1.0; 6])]).unwrap();
    push(&shard, 9, &[(1, &[1.0])]).unwrap();
    assert_eq!(progress(), [group(&[0], 2, &[4, 5]), group(&[1], 2, &[4, 9])]);
    push(&shard, 9, &[(0, &[1.0; 6])]).unwrap();
    push(&shard, 5, &[(1, &[1.0])]).unwrap();
    assert_eq!(progress(), [group(&[0, 1], 3, &[4, 5, 9])]);
}

#[test]
fn a_pull_gives_the_newest_that_is_published_and_says_of_which_history() {
    let shard = shard();
    let pull = || {
        let pull = proto::PullRequest { blocks: vec![0, 1], ..Default::default() };
        let pulled = shard.pull(&pull, true).unwrap();
        assert!(pulled.is_final && pulled.moved.is_empty());
        let found = pulled.blocks.iter().map(|block| (block.block, block.version, block.rewind));
        (found.collect::<Vec<_>>(), pulled.blocks[1].parameters.clone())
    };
    let (found, before) = pull();
    assert_eq!(found, [(0, 0, 3), (1, 0, 3)]);
    push(&shard, 4, &[(0, &[1.0; 6]), (1, &[1.0])]).unwrap();
    // Block 1's follower does not have it.
    assert_eq!(pull(), (vec![(0, 1, 3), (1, 0, 3)], before));
}

#[test]
fn each_applied_update_counts_once_by_how_far_its_block_had_moved_on() {
    let shard = shard();
    let both: [(u32, &[f32]); 2] = [(1, &[1.0]), (0, &[1.0; 6])];
    // All of them were computed from version 0.
    for position in 0..3 {
        push(&shard, position, &both[1..]).unwrap();
    }
    // Held for its follower, and said twice; block 0 has it already.
    push(&shard, 2, &both).unwrap();
    push(&shard, 2, &both).unwrap();
    let staleness = shard.staleness();
    let counts: Vec<u64> = staleness.buckets().iter().take(4).map(|(_, _, updates)| *updates).collect();
    assert_eq!((counts, staleness.count(), staleness.sum()), (vec![2, 1, 1, 0], 4, 3));
}
