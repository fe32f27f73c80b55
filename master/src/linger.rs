//! How long a master stays once its job is over, where somebody waits for its end: an operator, or a script. Decides
//! nothing else.

use crate::machine::Phase;
use crate::service::MasterService;
use std::time::Duration;

/// How often the job is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Waits until the job is over, and for as long again as late trainers are given to hear of it. Without that, for ever.
///
/// # Errors
/// The job has failed; the message says why.
pub(crate) async fn over(service: &MasterService, linger: Option<Duration>) -> anyhow::Result<()> {
    let Some(linger) = linger else { return std::future::pending().await };
    loop {
        let failure = match service.with(|machine, _| machine.phase()) {
            Some(Phase::Done) => None,
            Some(Phase::Failed(why)) => Some(why),
            Some(Phase::Waiting | Phase::Training) | None => {
                tokio::time::sleep(LOOK).await;
                continue;
            }
        };
        tracing::info!(?linger, "the job is over: staying for those who have not heard of it");
        tokio::time::sleep(linger).await;
        return match failure {
            None => Ok(()),
            Some(why) => Err(failed(&why)),
        };
    }
}

/// A master that was to stay to the end and was told to stop before. Whoever waits for it must not take that for the end.
///
/// # Errors
/// The job is not over, or has failed.
pub(crate) fn stopped(service: &MasterService, linger: Option<Duration>) -> anyhow::Result<()> {
    match service.with(|machine, _| machine.phase()) {
        _ if linger.is_none() => Ok(()),
        Some(Phase::Done) => Ok(()),
        Some(Phase::Failed(why)) => Err(failed(&why)),
        Some(Phase::Waiting | Phase::Training) | None => {
            Err(anyhow::anyhow!("stopped before the job was over"))
        }
    }
}

fn failed(why: &str) -> anyhow::Error {
    anyhow::anyhow!("the job failed: {why}")
}
