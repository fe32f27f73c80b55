//! Work of synchronous jobs: pull one exact step, reduce a node of its tree, keep it to be pushed. A node of a history that is no
//! more is dropped wherever that is noticed.

use super::{Stop, Trainer};
use crate::activities::Activity;
use crate::desk::Ready;
use crate::error::TrainError;
use crate::flat::Flat;
use crate::hashes;
use crate::origin::StepNode;
use crate::parameters::Parameters;
use crate::pull::{PullEnd, PullVersion, pull, pull_rows};
use crate::reduce::{LocalTree, NodeSum};
use crate::tables::Keys;
use futures_util::StreamExt;
use shoal_runtime::cluster::{Step, Task, Verified, Work};
use shoal_runtime::host::cuda::DeviceError;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

impl Trainer {
    pub(super) async fn node_loop(&self) -> Result<Infallible, Stop> {
        let mut pulled: Option<(PullVersion, Parameters)> = None;
        loop {
            let ready = self.next_ready().await;
            let Work::Node { step, node, rewind } = ready.task.work else {
                self.change(|desk| desk.finished(&ready.task));
                continue;
            };
            let Some(keys) = self.keys(&ready, 0..ready.records.len()).await? else { continue };
            let at = PullVersion::Step(step, rewind);
            let (known, earlier) = match pulled.take() {
                Some((of, parameters)) if of == at => (Some(parameters), None),
                earlier => (None, earlier.map(|(_, parameters)| parameters.values)),
            };
            let parameters = match known.clone() {
                // Dense parameters serve all tasks of their step.
                Some(parameters) if !self.session.names.has_tables() => parameters,
                _ => match self.pull_step(&ready, step, at, keys, known, earlier).await? {
                    None => continue,
                    Some(parameters) => parameters,
                },
            };
            pulled = Some((at, parameters.clone()));
            self.do_node(&ready, StepNode { step, node, rewind }, parameters).await?;
        }
    }

    /// The parameters that `step` reads; `None`: a task of an earlier step goes first, or the step is done, or of an older
    /// history. Where its dense parameters are `known`, only rows are pulled; else values are pulled into those of an `earlier`
    /// step, if nobody reads them any more.
    async fn pull_step(
        &self,
        ready: &Ready,
        step: Step,
        at: PullVersion,
        keys: Keys,
        known: Option<Parameters>,
        earlier: Option<Arc<Flat>>,
    ) -> Result<Option<Parameters>, TrainError> {
        let is_held_up = self.desk().holds_up(step);
        self.session.meter.enter(if is_held_up { Activity::Push } else { Activity::Pull });
        // A task of an earlier step goes first, or this one may wait for ever.
        let is_earlier =
            |ready: &Ready| matches!(ready.task.work, Work::Node { step: earlier, .. } if earlier < step);
        let pulled = tokio::select! {
            biased;
            pulled = async {
                match known {
                    Some(_) => pull_rows(&self.session, at, keys).await,
                    None => pull(&self.session, at, keys, earlier).await,
                }
            } => pulled?,
            _ = self.wait_for(|desk| desk.ready().filter(is_earlier)) => PullEnd::Rewound,
        };
        Ok(match pulled {
            PullEnd::Rewound => None,
            PullEnd::Gone => {
                self.change(|desk| {
                    desk.finished(&ready.task);
                    desk.published(step.next());
                });
                None
            }
            PullEnd::Parameters { values, rows, areas, .. } => {
                // Every block has published what this step reads.
                let published = self.session.master.job.reads(step);
                self.change(|desk| desk.published(Step(published.0)));
                if let Some(known) = known {
                    return Ok(Some(Parameters { rows: Arc::new(rows), ..known }));
                }
                let (parameters, areas) = self.pulled(values, rows, areas).await?;
                let PullVersion::Step(step, rewind) = at else { return Ok(Some(parameters)) };
                // If not, the task is still there.
                areas.confirm(&self.session, step, rewind).await.then_some(parameters)
            }
        })
    }

    async fn do_node(&self, ready: &Ready, of: StepNode, parameters: Parameters) -> Result<(), Stop> {
        let tree = self.session.master.job.shape().tree(of.step);
        let local = LocalTree::new(tree, of.node, self.session.names.rounded.clone());
        // On the program's thread leaves are joined, here the whole is taken.
        let local = Arc::new(Mutex::new(local));
        let mut at = 0;
        while at < ready.records.len() {
            let row = self.in_a_row(ready, at, &parameters).await?;
            if row.is_empty() {
                return Ok(());
            }
            let (task, local, end) = (ready.task.clone(), local.clone(), row.end);
            let join = move |at: usize, leaf: NodeSum| {
                let told = verified(&task, of, at, &leaf)?;
                lock(&local).join(leaf)?;
                Ok(told)
            };
            let mut computed = pin!(self.compute(ready, row, &parameters, join));
            loop {
                let outcome = computed.next().await.transpose()?;
                if !self.desk().is_present(of.rewind) {
                    // The job went back meanwhile.
                    return Ok(());
                }
                let Some(told) = self.done(ready, outcome)? else { return Ok(()) };
                at += 1;
                self.change(|desk| {
                    desk.advanced(&ready.task, at as u32);
                    desk.tell(told.as_ref());
                });
                if at == end {
                    break;
                }
            }
        }
        if ready.task.is_second {
            self.change(|desk| desk.finished(&ready.task));
            return Ok(());
        }
        let Some(sum) = lock(&local).finish() else {
            let what = format!("{} came with {} microbatches", ready.task.work, ready.records.len());
            return Err(TrainError::Settings(format!("{what}: build all roles from the same version")).into());
        };
        let (acks, routing) = (self.session.names.no_acks(), self.session.routes.present());
        self.change(|desk| desk.kept.keep(of, Arc::new(sum), acks, &routing));
        Ok(())
    }
}

fn lock(local: &Mutex<LocalTree>) -> MutexGuard<'_, LocalTree> {
    local.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the master is told of a leaf that is computed twice; `None`: this one is not.
fn verified(task: &Task, of: StepNode, at: usize, leaf: &NodeSum) -> Result<Option<Verified>, DeviceError> {
    let StepNode { step, node, rewind } = of;
    let (slot, exclusions) = (node.first() + at as u32, leaf.exclusions);
    if !task.verified.contains(&slot) {
        return Ok(None);
    }
    let hashes = hashes::of(leaf)?;
    Ok(Some(Verified { lease: task.lease, step, slot, rewind, exclusions, hashes }))
}
