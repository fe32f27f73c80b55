//! Threads of a shard: neither computing nor a wait for a locked block keeps the task that serves all blocks.

use super::*;
use shoal_runtime::cluster::decisions::DECISION_ELEMENTS;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// A thread that holds a block's lock, as one that runs a rule does, until [`end`](Busy::end).
pub(crate) struct Busy {
    end: Sender<()>,
    thread: JoinHandle<bool>,
}

impl Busy {
    pub(crate) fn with(shard: &Arc<Shard>, block: u32) -> Busy {
        let (end, ended) = channel();
        let (begun, began) = channel();
        let hosted = Arc::clone(shard.hosting().unwrap().block(BlockId(block)).unwrap());
        let thread = std::thread::spawn(move || {
            let _block = hosted.locked();
            begun.send(()).unwrap();
            ended.recv_timeout(Duration::from_secs(5)).is_ok()
        });
        began.recv().unwrap();
        Busy { end, thread }
    }

    /// Ends the work. Whether it could be: a thread that was to say so may have waited for it, until that was given up.
    pub(crate) fn end(self) -> bool {
        let _ = self.end.send(());
        self.thread.join().unwrap()
    }
}

/// A shard with threads of its own, as outside of tests.
pub(crate) fn on_threads(shard: Arc<Shard>, threads: usize) -> Arc<Shard> {
    Arc::new(Arc::into_inner(shard).unwrap().with_processors(Processors::of(threads)))
}

/// Returns true if a report is made while `work` waits for block 0, which another thread holds.
async fn is_told_during(shard: &Arc<Shard>, work: impl Future<Output = ()>) -> bool {
    let mut untold = shard.untold();
    let (_, told) = shard.standing(&mut untold).unwrap();
    untold.told(&told);
    let busy = Busy::with(shard, 0);
    let report = async {
        shard.standing(&mut untold).unwrap();
        busy.end()
    };
    tokio::join!(work, report).1
}

#[tokio::test]
async fn a_decision_for_a_block_that_is_at_work_does_not_keep_reports() {
    let shard = on_threads(shard(), 2);
    let decision = vec![0; 4 * DECISION_ELEMENTS];
    let blocks = vec![BlockId(0), BlockId(1)];
    let decided = async { shard.decide(Rewind(3), Step(0), blocks, &decision).await.unwrap() };
    assert!(is_told_during(&shard, decided).await);
}

#[tokio::test]
async fn what_follows_a_copy_that_is_at_work_does_not_keep_reports() {
    let (leader, follower) = copies::pair();
    both(&leader, 0, ROOT);
    let given = leader.follow_now(copies::OTHER, &follower.following_now(ME).unwrap()).unwrap();
    let follower = on_threads(follower, 2);
    assert!(is_told_during(&follower, async { follower.hear(given).await.unwrap() }).await);
    assert!(follower.following_of(ME, &[BlockId(0)]).unwrap()[&BlockId(0)].cursor.is_some());
}
