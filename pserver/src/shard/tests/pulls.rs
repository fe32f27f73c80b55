//! Pulls, and what assignments change about them.

use super::*;

/// Asks for these blocks with their parameters and for block 1 without, in the history that begins at version 3.
fn pull(shard: &Arc<Shard>, step: u64, blocks: &[u32]) -> Result<Pulled, Refusal> {
    pull_of(shard, 3, step, blocks)
}

fn pull_of(shard: &Arc<Shard>, rewind: u64, step: u64, blocks: &[u32]) -> Result<Pulled, Refusal> {
    let (blocks, without_data) = (blocks.to_vec(), vec![1]);
    shard.pull(&proto::PullRequest { step, rewind, blocks, without_data, ..Default::default() }, true)
}

/// Blocks and the bytes that came of them.
fn lengths(pulled: &Pulled) -> Vec<(u32, usize)> {
    pulled.blocks.iter().map(|pulled| (pulled.block, pulled.parameters.len())).collect()
}

#[test]
fn a_pull_gives_what_is_published_and_says_when_waiting_can_help() {
    let shard = shard();
    push(&shard, 0, ROOT, &[(0, &[1.0; 6])]).unwrap();
    let pulled = pull(&shard, 1, &[0]).unwrap();
    assert!(!pulled.is_final);
    assert_eq!(lengths(&pulled), [(0, 24)]);
    assert_eq!((pulled.blocks[0].version, pulled.blocks[0].rewind), (1, 3));
    push(&shard, 0, ROOT, &[(1, &[1.0])]).unwrap();
    let pulled = pull(&shard, 1, &[0]).unwrap();
    assert!(pulled.is_final && pulled.moved.is_empty());
    assert_eq!(lengths(&pulled), [(0, 24), (1, 0)]);
}

#[test]
fn a_pull_of_a_step_that_is_gone_or_beyond_the_job_is_refused() {
    let shard = shard();
    both(&shard, 0, ROOT);
    both(&shard, 1, ROOT);
    let before = digest(&shard);
    assert_eq!(pull(&shard, 0, &[0]).unwrap_err().kind, RefusalKind::StepGone);
    assert_eq!(pull(&shard, 10, &[0]).unwrap_err().kind, RefusalKind::OutOfRange);
    assert!(pull(&shard, 9, &[0]).is_ok());
    assert_eq!(pull(&shard, 2, &[7]).unwrap_err().kind, RefusalKind::OutOfRange);
    assert_eq!(digest(&shard), before);
}

#[test]
fn blocks_that_are_elsewhere_or_have_gone_back_are_named_and_end_the_wait() {
    let empty = empty(job(5, 2), 16, ME);
    let pulled = pull(&empty, 0, &[0]).unwrap();
    assert_eq!((pulled.moved, pulled.is_final), (vec![0, 1], true));
    host(&empty, assignment(3, &[1]));
    let pulled = pull(&empty, 1, &[0]).unwrap();
    assert_eq!((pulled.moved, pulled.is_final), (vec![0], true));
    let shard = shard();
    let pulled = pull_of(&shard, 2, 0, &[0]).unwrap();
    assert_eq!((pulled.moved, pulled.is_final), (vec![0, 1], true));
    // A caller that knows a later history than this pserver waits for it to learn of it.
    let pulled = pull_of(&shard, 4, 0, &[0]).unwrap();
    assert_eq!((pulled.moved.len(), pulled.blocks.len(), pulled.is_final), (0, 0, false));
}

#[test]
fn a_primary_that_is_still_to_be_restored_is_waited_for() {
    let shard = empty(job(5, 2), 16, ME);
    shard.assign_now(assignment(3, &[0, 1])).unwrap();
    let pulled = pull(&shard, 0, &[0]).unwrap();
    assert_eq!((pulled.moved.len(), pulled.blocks.len(), pulled.is_final), (0, 0, false));
    assert_eq!(push(&shard, 0, ROOT, &[(1, &[1.0])]).unwrap(), [PushOutcome::Busy]);
    host(&shard, assignment(4, &[0, 1]));
    assert_eq!(lengths(&pull(&shard, 0, &[0]).unwrap()), [(0, 24), (1, 0)]);
}

#[test]
fn state_is_read_whole_or_refused() {
    let shard = empty(job(5, 2), 16, ME);
    let read = |version, blocks: &[u32]| {
        let ids: Vec<BlockId> = blocks.iter().map(|block| BlockId(*block)).collect();
        shard.read_state(Version(version), &ids, 0)
    };
    assert_eq!(read(0, &[1]).unwrap_err().kind, RefusalKind::NotReady);
    host(&shard, assignment(3, &[1]));
    assert_eq!(read(0, &[1, 0]).unwrap_err().kind, RefusalKind::UnknownBlock);
    assert_eq!(read(0, &[1, 2]).unwrap_err().kind, RefusalKind::OutOfRange);
    assert_eq!(read(1, &[1]).unwrap_err().kind, RefusalKind::NotReady);
    push(&shard, 0, ROOT, &[(1, &[1.0])]).unwrap();
    assert_eq!(read(0, &[1]).unwrap_err().kind, RefusalKind::StepGone);
    // What is read for export is one version, not the one before it too.
    let copies = read(1, &[1]).unwrap();
    assert_eq!((copies.len(), copies[0].earlier.len()), (1, 0));
    assert_eq!(shard.counters().bytes_out, 8, "a counter and its remainder");
}
