//! The life of one trainer: three loops over one desk (lease, read, work), joined in one future.
//!
//! Nothing is spawned, so that a simulation can pause or end a whole trainer at any await. The loops stop when the
//! job is done, when the trainer is asked to leave, or when one of them fails; then it leaves with a word to the
//! master.

use crate::chunks::{ChunkCache, ChunkSource, MicrobatchRecords};
use crate::desk::{Desk, Ready};
use crate::error::TrainError;
use crate::model::{Batch, Gradient, Model, Parameters, Record};
use crate::reduce::{LocalTree, NodeSum, NonFinite};
use crate::session::{Leased, Master, Pulled, Session};
use crate::settings::{Compute, TrainerSettings};
use shoal_runtime::cluster::permutation::key;
use shoal_runtime::cluster::{Step, Task};
use shoal_runtime::host::backoff::Backoff;
use shoal_runtime::host::random::Random;
use shoal_runtime::host::rpc::Dial;
use shoal_runtime::host::shutdown::Shutdown;
use shoal_runtime::wire::proto;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How a trainer ended without a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Every step of the job is applied.
    JobDone,
    /// It was asked to leave, and handed back what it had not finished.
    Left,
}

/// The doors of one trainer.
pub struct World {
    /// How roles are reached.
    pub dial: Arc<dyn Dial>,
    /// Where chunks come from.
    pub source: Arc<dyn ChunkSource>,
    /// For jitter and the trainer's identity.
    pub random: Random,
    /// When to leave.
    pub shutdown: Shutdown,
}

/// Trains `model` until the job is done or `world.shutdown` is due.
///
/// # Errors
/// See [`TrainError`]; the master is told of it where that helps.
pub async fn train_in(
    model: Box<dyn Model>,
    settings: TrainerSettings,
    world: World,
) -> Result<Ended, TrainError> {
    let mut shutdown = world.shutdown.clone();
    let mut model = model;
    let joined = async {
        let master = Master::find(&settings, &*world.dial, world.random).await?;
        let declaration = model.declare(&master.job());
        master.join(declaration, &*world.dial).await
    };
    let session = tokio::select! {
        biased;
        () = shutdown.wait() => return Ok(Ended::Left),
        session = joined => session?,
    };
    tracing::info!(incarnation = %session.incarnation, "joined");
    let trainer = Trainer {
        desk: Mutex::new(Desk::default()),
        changed: Notify::new(),
        counters: Counters::default(),
        settings,
        session,
    };
    let outcome = trainer.run(model, ChunkCache::new(world.source), shutdown).await;
    trainer.leave(&outcome).await;
    outcome
}

#[derive(Debug, Default)]
struct Counters {
    microbatches: AtomicU64,
    records: AtomicU64,
    bytes_read: AtomicU64,
    negative_zeros: AtomicU64,
    tasks: AtomicU64,
    compute_micros: AtomicU64,
    pull_micros: AtomicU64,
    push_micros: AtomicU64,
}

struct Trainer {
    session: Session,
    settings: TrainerSettings,
    desk: Mutex<Desk>,
    changed: Notify,
    counters: Counters,
}

impl Trainer {
    async fn run(
        &self,
        model: Box<dyn Model>,
        chunks: ChunkCache,
        mut shutdown: Shutdown,
    ) -> Result<Ended, TrainError> {
        tokio::select! {
            biased;
            () = shutdown.wait() => Ok(Ended::Left),
            ended = self.lease_loop() => ended,
            failed = self.read_loop(chunks) => Err(failed),
            failed = self.work_loop(model) => Err(failed),
        }
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the desk and wakes the loops that wait for it.
    fn change<T>(&self, change: impl FnOnce(&mut Desk) -> T) -> T {
        let changed = change(&mut self.desk());
        self.changed.notify_waiters();
        changed
    }

    /// Waits until `find` finds something on the desk.
    async fn wait_for<T>(&self, find: impl Fn(&Desk) -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            if let Some(found) = find(&self.desk()) {
                return found;
            }
            changed.await;
        }
    }

    /// Keeps the master informed and the desk filled. Ends when the job does.
    async fn lease_loop(&self) -> Result<Ended, TrainError> {
        let ttl = Duration::from_millis(self.session.master.job.lease_ttl_millis);
        let mut silent_since = None;
        let mut backoff = Backoff::new(Duration::from_millis(20), ttl / 4);
        for call in 1.. {
            // With nothing to ask for, a heartbeat every quarter of a TTL is enough.
            let _ =
                tokio::time::timeout(ttl / 4, self.wait_for(|desk| (desk.room() > 0).then_some(()))).await;
            let (want, progress) = {
                let desk = self.desk();
                (desk.room(), desk.progress())
            };
            let wait_millis = if want > 0 { ttl.as_millis() as u32 / 4 } else { 0 };
            match self.session.lease(self.request(call, want, wait_millis, progress.clone())).await {
                Ok(Leased::Done) => return Ok(Ended::JobDone),
                Ok(Leased::Tasks(tasks)) => {
                    (silent_since, backoff) = (None, Backoff::new(Duration::from_millis(20), ttl / 4));
                    self.change(|desk| {
                        desk.heard(&progress);
                        desk.add(tasks);
                    });
                }
                Err(TrainError::Unreachable { role, address, last, .. }) => {
                    let since = *silent_since.get_or_insert_with(Instant::now);
                    let seconds = since.elapsed().as_secs();
                    if since.elapsed() >= self.settings.patience {
                        return Err(TrainError::Unreachable { role, address, seconds, last });
                    }
                    tokio::time::sleep(self.session.master.caller.pause(&mut backoff)).await;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Ended::JobDone)
    }

    fn request(
        &self,
        call: u64,
        want: u32,
        wait_millis: u32,
        progress: Vec<proto::Progress>,
    ) -> proto::LeaseRequest {
        proto::LeaseRequest {
            job: self.session.master.job.job.0.clone(),
            incarnation: self.session.incarnation.0,
            progress,
            want,
            counters: Some(self.counters()),
            wait_millis,
            call,
        }
    }

    fn counters(&self) -> proto::TrainerCounters {
        let counters = &self.counters;
        proto::TrainerCounters {
            microbatches: counters.microbatches.load(Relaxed),
            records: counters.records.load(Relaxed),
            bytes_read: counters.bytes_read.load(Relaxed),
            negative_zeros: counters.negative_zeros.load(Relaxed),
            tasks: counters.tasks.load(Relaxed),
            retries: self.session.master.caller.retries(),
            compute_micros: counters.compute_micros.load(Relaxed),
            pull_micros: counters.pull_micros.load(Relaxed),
            push_micros: counters.push_micros.load(Relaxed),
        }
    }

    /// Reads the records of leased tasks, lowest step first, while others are being computed.
    async fn read_loop(&self, mut chunks: ChunkCache) -> TrainError {
        loop {
            let task = self.wait_for(Desk::unread).await;
            match self.read(&mut chunks, &task).await {
                Ok(records) => self.change(|desk| desk.was_read(&task, records)),
                Err(error) => return error,
            }
            self.counters.bytes_read.store(chunks.bytes_read, Relaxed);
        }
    }

    async fn read(&self, chunks: &mut ChunkCache, task: &Task) -> Result<Vec<MicrobatchRecords>, TrainError> {
        let job = &self.session.master.job;
        let epoch = job.shape().epoch(task.step);
        let mut records = Vec::new();
        for microbatch in &task.microbatches {
            let read = chunks.records(job, epoch, microbatch).await;
            records.push(read.map_err(|source| TrainError::Read { step: task.step.0, source })?);
        }
        Ok(records)
    }

    /// Pulls, computes, pushes: the lowest step first.
    async fn work_loop(&self, mut model: Box<dyn Model>) -> TrainError {
        let mut pulled: Option<(Step, Parameters)> = None;
        loop {
            let ready = self.wait_for(Desk::ready).await;
            let step = ready.task.step;
            let parameters = match &pulled {
                Some((at, parameters)) if *at == step => parameters.clone(),
                _ => match self.pull_unless_overtaken(step).await {
                    Err(error) => return error,
                    // A task of an earlier step has come: it goes first, or this one may wait for ever.
                    Ok(None) => continue,
                    Ok(Some(Pulled::Gone)) => {
                        self.change(|desk| desk.finished(&ready.task));
                        continue;
                    }
                    Ok(Some(Pulled::Parameters(values))) => {
                        Parameters { names: self.session.names.clone(), values: Arc::new(values) }
                    }
                },
            };
            pulled = Some((step, parameters.clone()));
            model = match self.do_task(model, &ready, parameters).await {
                Ok(model) => model,
                Err(error) => return error,
            };
        }
    }

    async fn pull_unless_overtaken(&self, step: Step) -> Result<Option<Pulled>, TrainError> {
        let started = Instant::now();
        let is_earlier = |desk: &Desk| desk.ready().filter(|ready| ready.task.step < step).map(|_| ());
        let pulled = tokio::select! {
            biased;
            pulled = self.session.pull(step) => Some(pulled?),
            () = self.wait_for(is_earlier) => None,
        };
        self.counters.pull_micros.fetch_add(started.elapsed().as_micros() as u64, Relaxed);
        Ok(pulled)
    }

    async fn do_task(
        &self,
        mut model: Box<dyn Model>,
        ready: &Ready,
        parameters: Parameters,
    ) -> Result<Box<dyn Model>, TrainError> {
        let Ready { task, records } = ready;
        let tree = self.session.master.job.shape().tree(task.step);
        let mut local = LocalTree::new(tree, task.node);
        for at in 0..records.len() {
            if !self.settings.pace.is_zero() {
                tokio::time::sleep(self.settings.pace).await;
            }
            let started = Instant::now();
            let gradient;
            (model, gradient) = self.compute(model, ready, at, &parameters).await?;
            let sum = NodeSum { values: gradient.values, weight: gradient.weight };
            let zeros = local.push(sum).map_err(|place| self.non_finite(task, &records[at], place))?;
            self.counters.compute_micros.fetch_add(started.elapsed().as_micros() as u64, Relaxed);
            self.counters.negative_zeros.fetch_add(zeros, Relaxed);
            self.counters.microbatches.fetch_add(1, Relaxed);
            self.counters.records.fetch_add(records[at].iter().len() as u64, Relaxed);
            self.change(|desk| desk.computed(task, at as u32 + 1));
        }
        let Some(sum) = local.finish() else {
            let what =
                format!("task {} of step {} came with {} microbatches", task.node, task.step, records.len());
            return Err(TrainError::Settings(format!("{what}: build all roles from the same version")));
        };
        let started = Instant::now();
        let is_taken = self.session.push(task.step, task.node, &sum).await?;
        self.counters.push_micros.fetch_add(started.elapsed().as_micros() as u64, Relaxed);
        if is_taken {
            self.counters.tasks.fetch_add(1, Relaxed);
            self.change(|desk| desk.finished(task));
        } else {
            self.change(|desk| desk.put_off(task));
        }
        Ok(model)
    }

    /// Runs the step function on microbatch `at` of the task.
    async fn compute(
        &self,
        mut model: Box<dyn Model>,
        ready: &Ready,
        at: usize,
        parameters: &Parameters,
    ) -> Result<(Box<dyn Model>, Gradient), TrainError> {
        let (job, task) = (&self.session.master.job, ready.task.clone());
        let (epoch, seed) = (job.shape().epoch(task.step), job.seed);
        let (records, parameters) = (ready.records.clone(), parameters.clone());
        let fail = {
            let (step, microbatch) = (task.step.0, records[at].microbatch);
            let first = records[at].iter().next().map_or(0, |(index, _)| index);
            move |source| TrainError::Step { step, microbatch, first, source }
        };
        let step = move || {
            let records_at = &records[at];
            let batch_records: Vec<Record<'_>> =
                records_at.iter().map(|(index, bytes)| Record { index, bytes }).collect();
            let batch = Batch {
                epoch,
                step: task.step.0,
                microbatch: records_at.microbatch,
                seed: key(&[seed, task.step.0, records_at.microbatch]),
                records: &batch_records,
            };
            let mut gradient = Gradient::zeros(&parameters.names, batch_records.len() as u64);
            model.step(&batch, &parameters, &mut gradient).map(|()| (model, gradient))
        };
        let computed = match self.settings.compute {
            Compute::InPlace => step(),
            Compute::Thread => match tokio::task::spawn_blocking(step).await {
                Ok(computed) => computed,
                Err(panic) => Err(anyhow::Error::new(panic).context("the step function panicked")),
            },
        };
        computed.map_err(fail)
    }

    fn non_finite(&self, task: &Task, records: &MicrobatchRecords, place: NonFinite) -> TrainError {
        TrainError::NonFinite {
            step: task.step.0,
            microbatch: records.microbatch,
            first: records.iter().next().map_or(0, |(index, _)| index),
            parameter: self.session.names.declaration.parameters[place.0].name.clone(),
            element: place.1,
        }
    }

    async fn leave(&self, outcome: &Result<Ended, TrainError>) {
        self.desk().is_closed = true;
        let failure = match outcome {
            Ok(_) => String::new(),
            Err(error) if error.is_known_to_master() => return,
            Err(error) => format!("trainer {:?}: {error}", self.settings.name),
        };
        let progress = self.desk().progress();
        let counters = Some(self.counters());
        self.session.leave(proto::LeaveRequest { progress, counters, failure, ..Default::default() }).await;
    }
}
