//! A device that is busy for long: copies from it are asked for, and neither a thread nor a block's lock waits.

use super::areas::{TRAINER, from_area, shared, with_device};
use super::threads::on_threads;
use super::*;
use crate::block::NamedCheckpoint;
use crate::block::primary::PlacedCopy;
use shoal_runtime::cluster::{BlockCopy, CheckpointId, Fill};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// The deadline of work on a free thread.
const SOON: Duration = Duration::from_secs(5);

const FOLLOWER: Incarnation = Incarnation(2);

/// Returns true if the shard's only thread works and block 0 can be locked.
async fn is_free(shard: &Arc<Shard>) -> bool {
    let looks = Arc::clone(shard);
    let look = shard.processors.run(move || looks.whole_standing().unwrap());
    timeout(SOON, look).await.is_ok()
}

/// Takes in the device's finished work until `is_so`.
async fn until(shard: &Arc<Shard>, mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        shard.note_done(&shard.device().unwrap().take_finished()).await.unwrap();
        sleep(Duration::from_millis(1)).await;
    }
}

fn named(version: u64) -> Assignment {
    let version = Some(Version(version));
    let checkpoint = Some(NamedCheckpoint { checkpoint: CheckpointId(1), version, since: None, named_at: 4 });
    Assignment { checkpoint, ..assignment(4, &[0, 1]) }
}

/// The pieces of both blocks, by block, once they are there.
async fn pieces(shard: &Arc<Shard>) -> Vec<BlockCopy> {
    let (mut waiting, mut given) = (shard.pieces(), Vec::new());
    while given.len() < 2 {
        if shard.device().is_some() {
            shard.note_done(&shard.device().unwrap().take_finished()).await.unwrap();
        }
        let more = shard.give_pieces(&mut waiting, usize::MAX).await.unwrap();
        given.extend(more.into_iter().flat_map(|(_, _, pieces)| pieces).map(|piece| piece.copy));
        sleep(Duration::from_millis(1)).await;
    }
    given.sort_by_key(|copy| copy.block);
    given
}

/// With one processor all computing of a pserver stood still until the device had given every block's piece.
#[tokio::test]
async fn pieces_of_blocks_on_a_busy_device_keep_no_thread_and_no_block() {
    let here = shard();
    let (fake, _folder, there) = with_device();
    let there = on_threads(there, 1);
    both(&here, 0, ROOT);
    both(&there, 0, ROOT);
    let version = |shard: &Shard| shard.hosting().unwrap().block(BlockId(0)).unwrap().locked().published();
    until(&there, || version(&there) == Version(1)).await;
    fake.set("STALL_AFTER", "0");
    let assigned = timeout(SOON, there.assign(named(1))).await;
    let is_free = assigned.is_ok() && is_free(&there).await;
    // The piece is of the version that was named, whatever comes before the device has given it.
    let outcomes = is_free.then(|| both(&there, 1, ROOT));
    fake.set("STALL_AFTER", "");
    assert!(is_free && matches!(outcomes.unwrap()[1], PushOutcome::Applied { is_published: false, .. }));
    here.assign_now(named(1)).unwrap();
    assert_eq!(pieces(&there).await, pieces(&here).await);
    until(&there, || version(&there) == Version(2)).await;
}

/// An update whose sum followers are to be given, which came in an area.
#[tokio::test]
async fn the_root_of_a_followed_block_on_a_busy_device_keeps_no_thread_and_no_block() {
    let (fake, _folder, shard) = with_device();
    let copies = vec![PlacedCopy { pserver: FOLLOWER, fill: Fill(4), is_in_sync: false }];
    host(&shard, assigned(1, 4, [(0, Placement { copies, ..alone(3) }), (1, alone(3))]));
    let (area, _lock) = shared(&shard, TRAINER).unwrap();
    let follower = empty(job(5, 2), 16, FOLLOWER);
    follower.assign_now(assigned(1, 4, [(0, Placement { fill: Fill(4), ..alone(3) })])).unwrap();
    let follow = |shard: &Arc<Shard>| {
        let given = shard.follow_now(FOLLOWER, &follower.following_now(ME).unwrap()).unwrap();
        let has_news = !given.is_empty();
        follower.hear_now(given).unwrap();
        has_news
    };
    while !follow(&shard) {}
    assert!(!follow(&shard), "it is level");
    let shard = on_threads(shard, 1);
    fake.set("STALL_AFTER", "0");
    let gradients = vec![from_area((area, 0))];
    let pushed = message(Pushed::Node(Step(0), ROOT), 2, gradients);
    let beside = timeout(SOON, shard.beside(move |shard| shard.push(&pushed).unwrap())).await;
    let is_free = beside.is_ok() && is_free(&shard).await;
    fake.set("STALL_AFTER", "");
    assert!(is_free && matches!(beside.unwrap()[..], [PushOutcome::Whole { .. }]));
    let version = |shard: &Shard| shard.hosting().unwrap().block(BlockId(0)).unwrap().locked().version();
    until(&shard, || version(&shard) == Some(Version(1))).await;
    assert!(follow(&shard) && version(&follower) == Some(Version(1)));
}
