//! Hashes that are recorded are written beside the checkpoints. Training never waits for them; the job's end does.

use super::{Keeper, look};
use crate::service::MasterService;
use shoal_runtime::host::backoff::Backoff;
use shoal_runtime::host::random::Random;
use shoal_runtime::host::recorded;
use std::convert::Infallible;
use std::time::Duration;

/// Pauses between attempts to write an object of hashes.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(10)];

impl Keeper<'_> {
    /// Writes whatever is to be recorded, for ever.
    pub(super) async fn record(&self, service: &MasterService, random: &mut Random) -> Infallible {
        let [first, cap] = PAUSES;
        let mut backoff = Backoff::new(first, cap);
        let mut attempt = 0;
        loop {
            attempt += 1;
            let (by, steps) = loop {
                let changed = service.changed().notified();
                let due = service.with(|machine, now| {
                    let steps = machine.hashes_to_write(now)?;
                    let document = machine.document();
                    let (job, identity) = (document.job.job.0.clone(), document.identity.clone());
                    Some((
                        recorded::Writer { job, identity, master_term: document.master_term, attempt },
                        steps,
                    ))
                });
                match due.flatten() {
                    Some(due) => break due,
                    None => drop(tokio::time::timeout(look(service), changed).await),
                }
            };
            let written = self.answered("writing hashes", recorded::write(self.storage, &by, &steps)).await;
            service.with(|machine, now| machine.hashes_written(written.is_ok(), now));
            match written {
                Ok(()) => backoff.succeed(),
                Err(error) => {
                    tracing::warn!(%error, "hashes cannot be recorded; trying again");
                    tokio::time::sleep(backoff.pause(random)).await;
                }
            }
            service.changed().notify_waiters();
        }
    }
}
