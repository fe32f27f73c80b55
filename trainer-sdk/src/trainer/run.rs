//! Work of asynchronous jobs: microbatch by microbatch, pull the latest parameters, compute, push until every block has
//! applied it. A gradient is computed again only for blocks that have gone back; a change of primary alone keeps it.

use super::{Stop, Trainer};
use crate::activities::Activity;
use crate::desk::Ready;
use crate::error::TrainError;
use crate::flat::Flat;
use crate::origin::BaseState;
use crate::parameters::Parameters;
use crate::pull::{PullEnd, PullVersion, pull};
use crate::push::{Push, PushEnd};
use crate::tables::Keys;
use futures_util::StreamExt;
use shoal_runtime::cluster::Work;
use shoal_runtime::host::backoff::Backoff;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

impl Trainer {
    pub(super) async fn run_loop(&self) -> Result<Infallible, Stop> {
        let mut earlier = None;
        'tasks: loop {
            let ready = self.next_ready().await;
            if let Work::Run { first } = ready.task.work {
                for at in 0..ready.records.len() {
                    let position = first + at as u64;
                    if !self.do_microbatch(&ready, position, at, &mut earlier).await? {
                        continue 'tasks;
                    }
                    self.change(|desk| desk.advanced(&ready.task, at as u32 + 1));
                }
                self.session.meter.count(|counters| counters.tasks += 1);
            }
            self.change(|desk| desk.finished(&ready.task));
        }
    }

    /// Brings the microbatch at `position` into every block; false if it cannot be done here. Parameters are pulled into
    /// those of an `earlier` one, which are its own at the end.
    async fn do_microbatch(
        &self,
        ready: &Ready,
        position: u64,
        at: usize,
        earlier: &mut Option<Arc<Flat>>,
    ) -> Result<bool, Stop> {
        let mut acks = self.session.names.no_acks();
        let mut backoff = Backoff::new(Duration::from_millis(2), self.session.master.ttl() / 8);
        loop {
            let Some(keys) = self.keys(ready, at..at + 1).await? else { return Ok(false) };
            let (parameters, bases) = self.pull_latest(keys, earlier.take()).await?;
            if self.in_a_row(ready, at, &parameters).await?.is_empty() {
                return Ok(false);
            }
            let computed = self.compute(ready, at..at + 1, &parameters, |_, sum| Ok(sum));
            let computed = pin!(computed).next().await.transpose()?;
            *earlier = Some(parameters.values);
            let Some(sum) = self.done(ready, computed)? else { return Ok(false) };
            self.session.meter.enter(Activity::Push);
            let mut push = Push::of_microbatch(&self.session, position, sum, bases, acks).await?;
            let pushed = push.run().await?;
            if pushed == PushEnd::Done {
                return Ok(true);
            }
            acks = push.acks;
            tokio::time::sleep(self.session.master.leaders.caller.pause(&mut backoff)).await;
        }
    }

    /// The latest parameters of every block, in the memory of `earlier` ones if nobody reads them any more.
    async fn pull_latest(
        &self,
        keys: Keys,
        mut earlier: Option<Arc<Flat>>,
    ) -> Result<(Parameters, Vec<BaseState>), TrainError> {
        self.session.meter.enter(Activity::Pull);
        loop {
            let pulled = pull(&self.session, PullVersion::Latest, keys.clone(), earlier.take()).await?;
            if let PullEnd::Parameters { values, rows, bases, areas } = pulled {
                return Ok((self.pulled(values, rows, areas).await?.0, bases));
            }
            // No pserver says that the latest is gone; one that does is asked again.
            tokio::time::sleep(self.session.master.ttl() / 8).await;
        }
    }
}
