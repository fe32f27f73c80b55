//! The loop that pushes sums of nodes, the lowest first, while others are computed: those that are new, and those that a block
//! lost with its primary. It repeats pushes only, so that it may be stopped anywhere.

use super::Trainer;
use crate::error::TrainError;
use crate::push::{Push, PushEnd};
use std::convert::Infallible;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A pserver that has room says so within this time.
const ROOM_SOON: Duration = Duration::from_millis(10);

impl Trainer {
    /// Pushes kept sums to the blocks that lack them.
    pub(super) async fn push_loop(&self) -> TrainError {
        loop {
            let kept = self.wait_for(|desk| desk.kept.due().cloned()).await;
            let of = kept.of;
            let mut push = match Push::of_node(&self.session, of, kept.sum, kept.acks).await {
                Ok(push) => push,
                Err(error) => return error,
            };
            let pushed = tokio::select! {
                biased;
                pushed = push.run() => pushed,
                never = self.watch_room() => match never {},
                // Published meanwhile, or the job went back; or a lower one is there, which this one may wait for.
                () = self.wait_for(|desk| {
                    desk.kept.due().is_none_or(|due| due.of != of).then_some(())
                }) => Ok(PushEnd::Done),
            };
            let (acks, routing) = (push.acks, self.session.routes.present());
            self.desk().waits = false;
            match pushed {
                Ok(PushEnd::Done) => {
                    let (finished, is_all) =
                        self.change(|desk| (desk.pushed(of, acks, &routing), desk.kept.due().is_none()));
                    self.session.meter.count(|counters| counters.tasks += finished);
                    if is_all {
                        self.session.meter.pushed();
                    }
                }
                // The sum is computed again, if at all.
                Ok(PushEnd::Rewound) => self.change(|desk| desk.kept.forget(of)),
                Err(error) => return error,
            }
        }
    }

    /// Notes on the desk whether the sum that is pushed waits for room. A question that is answered at once is not worth a call
    /// to the master.
    async fn watch_room(&self) -> Infallible {
        loop {
            tokio::time::sleep((self.session.master.ttl() / 128).max(ROOM_SOON)).await;
            let waits = self.session.is_waiting_for_room.load(Relaxed);
            if self.desk().waits != waits {
                self.change(|desk| desk.waits = waits);
            }
        }
    }
}
