//! Losses that a job counts, read from its pservers while it trains, beside whoever looks after it.

use crate::client::Client;
use crate::losses::{self, Losses};
use std::time::Duration;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::time::Instant;

/// Between two readings. Each reads one parameter of at most 4 MiB.
const PAUSE: Duration = Duration::from_secs(5);
/// So long one reading may take: a job whose steps are faster than a reading lets none succeed, and the next one may.
const PATIENCE: Duration = Duration::from_secs(10);

/// What was counted in the steps that the model had.
type Counted = (u64, Losses);

/// Reads now and then.
#[derive(Debug)]
pub(crate) struct Counting {
    /// One reading, which answers whether the job counts losses at all.
    reading: Option<oneshot::Receiver<Option<Counted>>>,
    /// When the next may begin; never where the job counts none.
    due: Option<Instant>,
    /// The model's steps at the newest reading.
    read: u64,
}

impl Counting {
    pub(crate) fn new() -> Counting {
        Counting { reading: None, due: Some(Instant::now() + PAUSE), read: 0 }
    }

    /// What was read since this was asked last. Begins another reading when it is time and the model, with `step` steps, has moved.
    pub(crate) fn news(&mut self, client: &Client, step: u64) -> Option<Counted> {
        if let Some(reading) = &mut self.reading {
            let told = reading.try_recv();
            if matches!(told, Err(TryRecvError::Empty)) {
                return None;
            }
            let counts_none = matches!(told, Ok(None));
            (self.reading, self.due) = (None, (!counts_none).then(|| Instant::now() + PAUSE));
            let counted = told.ok().flatten();
            self.read = counted.as_ref().map_or(self.read, |(step, _)| *step);
            return counted;
        }
        if step > self.read && self.due.is_some_and(|due| Instant::now() >= due) {
            self.reading = Some(begin(client.clone()));
        }
        None
    }
}

/// Reads on a thread of its own, as the live page does: nobody who runs the job waits for it, and no run ends later for it. A reading
/// that fails tells nothing.
fn begin(client: Client) -> oneshot::Receiver<Option<Counted>> {
    let (tell, reading) = oneshot::channel();
    let work = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        let counted = runtime.block_on(async { tokio::time::timeout(PATIENCE, read(client)).await });
        tell.send(counted.ok()?.ok()?).ok()
    };
    // Without a thread the sender is dropped: the next may have one.
    let _ = std::thread::Builder::new().name("losses".to_owned()).spawn(work);
    reading
}

/// What the job has counted; none where it counts nothing, or is not synchronous.
async fn read(mut client: Client) -> anyhow::Result<Option<Counted>> {
    let status = client.status().await?;
    let counted = losses::at_pservers(&status, client.dial()).await?;
    Ok(counted.map(|losses| (status.step, losses)))
}
