//! The thread of a device that waits for what was launched, and says what is done.

use super::engine::Equipped;
use super::pool::PoolPage;
use super::stream::Stream;
use super::version::Outcome;
use super::{DeviceError, Shared};
use bytes::Bytes;
use shoal_runtime::cluster::BlockId;
use shoal_runtime::cluster::waits::WaitKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;
use tokio::time::Instant;

/// A flight that takes longer is told to the master.
const LATE: Duration = Duration::from_millis(250);

/// What a stream is under way with.
pub(super) struct Flight {
    pub(super) equipped: Equipped,
    pub(super) then: Then,
}

/// What is said of a flight once it has landed, and what becomes of its pages.
pub(super) enum Then {
    /// Updates are done; of those that are marked the first pages have the parameters, in their order.
    Made(Vec<(BlockId, Outcome, bool)>),
    /// The first pages have these parameters, in their order.
    Brought(Vec<(BlockId, Outcome)>),
    Given(Vec<Arc<AtomicU64>>),
    Answer(Sender<PoolPage>),
    Nothing,
}

/// Waits for flights in the order in which they were launched, and says what is done.
pub(super) fn land(
    shared: &Shared,
    landings: &Receiver<Flight>,
    idle: &Sender<Equipped>,
) -> Result<(), DeviceError> {
    while let Ok(Flight { mut equipped, then }) = landings.recv() {
        let mut pages = wait(shared, &mut equipped.stream)?.into_iter();
        match then {
            Then::Made(outcomes) => {
                for (_, outcome, is_brought) in &outcomes {
                    if let Some(page) = is_brought.then(|| pages.next()).flatten() {
                        outcome.brought(Bytes::from_owner(page));
                    }
                    outcome.made();
                }
                shared.finish(outcomes.iter().map(|(block, ..)| *block));
            }
            Then::Brought(outcomes) => {
                for ((_, outcome), page) in outcomes.iter().zip(pages.by_ref()) {
                    outcome.brought(Bytes::from_owner(page));
                }
                shared.finish(outcomes.iter().map(|(block, _)| *block));
            }
            Then::Given(given) => {
                for done in given {
                    done.fetch_add(1, Ordering::Release);
                }
                shared.changed.send();
            }
            // Whoever asked may be gone.
            Then::Answer(answer) => drop(pages.next().map(|page| answer.send(page))),
            Then::Nothing => {}
        }
        drop(pages);
        // The launcher may be gone.
        let _ = idle.send(equipped);
    }
    Ok(())
}

/// Looks often at first: most flights take some hundred microseconds.
fn wait(shared: &Shared, stream: &mut Stream) -> Result<Vec<PoolPage>, DeviceError> {
    let began = Instant::now();
    let mut pause = Duration::from_micros(10);
    let mut late = None;
    loop {
        if let Some(pages) = stream.finish()? {
            return Ok(pages);
        }
        let patience = Duration::from_millis(shared.patience_millis.load(Ordering::Relaxed));
        if began.elapsed() > LATE {
            late.get_or_insert_with(|| {
                shared.waits.begin(WaitKind::Device, "work that the device was given")
            });
        }
        if began.elapsed() > patience {
            return Err(DeviceError::Stalled { seconds: patience.as_secs() });
        }
        std::thread::park_timeout(pause);
        pause = (pause * 2).min(Duration::from_micros(200));
    }
}
