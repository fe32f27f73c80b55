//! What is heard of a transition, and what becomes of a block about which something does not hold.

use super::threads::{Busy, on_threads};
use super::*;
use crate::block::{GivenPiece, NamedCheckpoint};
use crate::credit_queue::Asked;
use shoal_runtime::cluster::checkpoint::{FileRecord, PieceRef, WrittenFile};
use shoal_runtime::cluster::{CheckpointId, StateName};
use std::time::Duration;

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

/// Nobody writes: the piece of a checkpoint that is given up frees its memory by being dropped.
#[tokio::test(start_paused = true)]
async fn blocks_that_wait_for_memory_go_on_when_the_checkpoint_that_holds_it_is_given_up() {
    let shard = Arc::new(Shard::new(job(5, 2), 16, ME).with_checkpoint_memory(0));
    let checkpoint = CheckpointId(1);
    let named = NamedCheckpoint { checkpoint, version: Some(Version(0)), since: None, named_at: 1 };
    host(&shard, Assignment { checkpoint: Some(named), ..assignment(3, &[0, 1]) });
    assert_eq!(both(&shard, 0, ROOT), [PushOutcome::Throttled; 2]);
    let asked = Asked { step: Step(0), node: ROOT, block: BlockId(0), rewind: Rewind(3), exclusions: 0 };
    let asking = shard.ask(asked).unwrap();
    let began = tokio::time::Instant::now();
    let given_up = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        for id in [0, 1] {
            shard.with(&block(&shard, id), |block| block.name_checkpoint(None)).unwrap();
        }
    };
    let answered = async { tokio::join!(asking.answer(began + Duration::from_secs(10)), given_up).0 };
    let answer = tokio::select! {
        refusal = shard.feed() => panic!("{refusal}"),
        answer = answered => answer,
    };
    assert_eq!((answer, began.elapsed().as_millis()), (Ok(()), 50));
}

/// An assignment that names this checkpoint, at the blocks' initial versions.
fn naming(checkpoint: u64, routing_version: u64) -> Assignment {
    let (checkpoint, version) = (CheckpointId(checkpoint), Some(Version(0)));
    let named = NamedCheckpoint { checkpoint, version, since: None, named_at: routing_version };
    Assignment { checkpoint: Some(named), ..assignment(routing_version, &[0, 1]) }
}

#[tokio::test]
async fn a_file_is_numbered_among_those_of_its_own_checkpoint_or_not_at_all() {
    let shard = on_threads(shard(), 1);
    shard.assign(naming(1, 4)).await.unwrap();
    let mut pieces = shard.pieces();
    let begun = |given: Option<(CheckpointId, u64, Vec<GivenPiece>)>| {
        given.map(|(checkpoint, file, pieces)| (checkpoint.0, file, pieces.len()))
    };
    assert_eq!(begun(shard.give_pieces(&mut pieces, 1).await.unwrap()), Some((1, 1, 1)));
    // A thread works on the other block until the next checkpoint is named.
    let busy = Busy::with(&shard, 1);
    let named = async {
        shard.begin_checkpoint(naming(2, 5).checkpoint);
        assert!(busy.end());
    };
    let (given, ()) = tokio::join!(shard.give_pieces(&mut pieces, usize::MAX), named);
    assert_eq!(begun(given.unwrap()), None, "nobody needs the pieces of the first any more");
    assert_eq!(shard.next_file(CheckpointId(1)), None);
    shard.assign(naming(2, 5)).await.unwrap();
    assert_eq!(begun(shard.give_pieces(&mut pieces, usize::MAX).await.unwrap()), Some((2, 1, 2)));
}

#[test]
fn a_report_tells_of_as_many_written_files_as_it_has_room_for() {
    let shard = shard();
    let checkpoint = CheckpointId(1);
    let named = NamedCheckpoint { checkpoint, version: Some(Version(9)), since: None, named_at: 4 };
    shard.assign_now(Assignment { checkpoint: Some(named), ..assignment(4, &[0, 1]) }).unwrap();
    let piece = PieceRef {
        block: BlockId(0),
        rewind: Rewind(3),
        name: StateName { term: Term(3), version: Version(9) },
        slots: 0..u32::MAX,
        is_delta: false,
        file: 0,
        offset: 1 << 30,
        bytes: 1 << 20,
        crc32: u32::MAX,
    };
    for (name, pieces) in [("a", 40_000), ("b", 20_000), ("c", 40_000), ("d", 100_000)] {
        let file = FileRecord { checkpoint, name: name.to_owned(), bytes: 1, crc32: 0 };
        shard.note_written(checkpoint, WrittenFile { file, pieces: vec![piece.clone(); pieces] });
    }
    let (mut from, mut told) = (0, Vec::new());
    while shard.has_more_than(from, usize::MAX) {
        let written = shard.checkpointing(from, 0).written;
        told.push(written.iter().map(|written| written.file.name.as_str()).collect::<String>());
        from += written.len();
    }
    // The last is larger than a report of several may be: files are not as large.
    assert_eq!(told, ["ab", "c", "d"]);
}
