//! Watching one job of a cluster until something is so. An API server that is away for a while is waited for.

use super::{Cluster, explained};
use crate::silence::Silence;
use futures_util::StreamExt;
use kube::runtime::{WatchStreamExt, watcher};
use shoal_operator::api::TrainingJob;
use shoal_runner::exit::Exit;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How long an API server may be away.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// What "no deadline" is.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// How following a job ended.
pub(crate) enum Followed<T> {
    /// What was waited for.
    Seen(T),
    /// The job is not there, or is there no more.
    Gone,
    /// The deadline came first.
    TimedOut,
}

/// Shows every state of a job to `seen`, until it says something.
///
/// # Errors
/// The cluster refuses, or does not answer for a minute.
pub(crate) async fn follow<T>(
    cluster: &Cluster,
    name: &str,
    timeout: Option<Duration>,
    mut seen: impl FnMut(&TrainingJob) -> Option<T>,
) -> anyhow::Result<Followed<T>> {
    let deadline = Instant::now() + timeout.unwrap_or(FOR_EVER);
    let mut states = std::pin::pin!(watcher::watch_object(cluster.jobs(), name).default_backoff());
    let mut silence = Silence::of_at_most(PATIENCE);
    loop {
        let Ok(state) = timeout_at(deadline, states.next()).await else { return Ok(Followed::TimedOut) };
        match state {
            Some(Ok(Some(job))) => {
                silence.end();
                if let Some(found) = seen(&job) {
                    return Ok(Followed::Seen(found));
                }
            }
            Some(Ok(None)) | None => return Ok(Followed::Gone),
            Some(Err(error)) => silence.bear(of_watch(error), true)?,
        }
    }
}

/// What an error of a watch means.
pub(super) fn of_watch(error: watcher::Error) -> anyhow::Error {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => explained(error),
        watcher::Error::WatchError(status) => explained(kube::Error::Api(status)),
        other => Exit::Unreachable(other.to_string()).into(),
    }
}
