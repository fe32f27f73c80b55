//! Reads what one pod says: once, or as long as it lives, over however many streams that takes. What comes next is decided in
//! [`super::position`].

use super::Said;
use super::position::{Ended, Next, Position, Reopening};
use crate::cluster::{Cluster, explained, is_away};
use futures_util::{AsyncBufReadExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::LogParams;
use shoal_operator::manifest::program_of;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// A reader of one pod.
pub(super) struct Reader {
    pub(super) cluster: Cluster,
    pub(super) said: mpsc::Sender<Said>,
    pub(super) pod: String,
    /// Which of its containers: the role's own.
    pub(super) container: Option<String>,
    pub(super) uid: Option<String>,
    /// Whether it was asked for by its name: then it is an error that it is gone.
    pub(super) is_named: bool,
    pub(super) tail: Option<i64>,
}

/// How far the role's own container of a pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Runs,
    Over,
}

/// The state of a pod's own container; none before that can have said something.
pub(super) fn state(pod: &Pod) -> Option<State> {
    let name = program_of(pod)?;
    let containers = pod.status.as_ref()?.container_statuses.as_ref()?;
    let state = containers.iter().find(|one| one.name == name)?.state.as_ref()?;
    match (&state.running, &state.terminated) {
        (Some(_), _) => Some(State::Runs),
        (None, Some(_)) => Some(State::Over),
        (None, None) => None,
    }
}

/// Whoever prints what is said does not listen any more.
struct Closed;

impl Reader {
    /// Reads what it has said so far.
    pub(super) async fn read(&self) {
        let container = self.container.clone();
        let parameters = LogParams { container, tail_lines: self.tail, ..LogParams::default() };
        let read = async {
            let mut lines = self.cluster.pods().log_stream(&self.pod, &parameters).await?.lines();
            while let Some(line) = lines.try_next().await.map_err(kube::Error::ReadEvents)? {
                if self.tell(line).await.is_err() {
                    break;
                }
            }
            Ok(())
        };
        if let Err(error) = read.await {
            self.fail(error).await;
        }
    }

    /// Reads what it says until its container has ended and all of that is read, or the pod is gone.
    pub(super) async fn follow(&self) {
        let (mut position, mut reopening, began) =
            (Position::default(), Reopening::default(), Instant::now());
        loop {
            let mut new = 0;
            let (was_over, streamed) = match self.look().await {
                Ok(None) => return,
                Ok(Some(state)) => (state == State::Over, self.stream(&mut position, &mut new).await),
                Err(error) => (false, Err(error)),
            };
            let (ended, why) = match streamed {
                Ok(Ok(())) => (Ended::Whole, None),
                Ok(Err(Closed)) => return,
                Err(error) if is_away(&error) => (Ended::Torn, Some(error)),
                Err(error) => return self.fail(error).await,
            };
            match (reopening.next(ended, was_over, new > 0, began.elapsed()), why) {
                (Next::Again(pause), _) => tokio::time::sleep(pause).await,
                (Next::GiveUp, Some(error)) => return self.fail(error).await,
                (Next::Done | Next::GiveUp, _) => return,
            }
        }
    }

    /// How far its container is; none where the pod is gone, or another has its name.
    async fn look(&self) -> Result<Option<State>, kube::Error> {
        let pod = self.cluster.pods().get_opt(&self.pod).await?;
        Ok(pod.filter(|pod| pod.uid() == self.uid).map(|pod| state(&pod).unwrap_or(State::Runs)))
    }

    /// Reads one stream to its end, and counts the lines that were not seen before.
    async fn stream(
        &self,
        position: &mut Position,
        new: &mut u64,
    ) -> Result<Result<(), Closed>, kube::Error> {
        let since_time = position.since();
        let tail_lines = match since_time {
            None if position.is_unknown() => Some(0),
            None => self.tail,
            Some(_) => None,
        };
        let parameters = LogParams {
            container: self.container.clone(),
            follow: true,
            timestamps: true,
            since_time,
            tail_lines,
            ..LogParams::default()
        };
        let mut lines = self.cluster.pods().log_stream(&self.pod, &parameters).await?.lines();
        position.reopen();
        while let Some(line) = lines.try_next().await.map_err(kube::Error::ReadEvents)? {
            let Some(said) = position.take(&line) else { continue };
            *new += 1;
            if self.tell(said.to_owned()).await.is_err() {
                return Ok(Err(Closed));
            }
        }
        Ok(Ok(()))
    }

    async fn tell(&self, line: String) -> Result<(), Closed> {
        self.said.send((self.pod.clone(), Ok(line))).await.map_err(|_| Closed)
    }

    async fn fail(&self, error: kube::Error) {
        let why = match error {
            // It went between the list and this: a job that is over removes its pods.
            kube::Error::Api(status) if status.code == 404 && !self.is_named => return,
            kube::Error::Api(status) => status.message.clone(),
            other => format!("{:#}", explained(other)),
        };
        let _ = self.said.send((self.pod.clone(), Err(why))).await;
    }
}
