//! One microbatch through the program: its batch, and what comes of it.

use super::function::Function;
use super::{Stop, Trainer};
use crate::activities::Activity;
use crate::complaint::Complaint;
use crate::desk::Ready;
use crate::device::Tensors;
use crate::device::areas::SumOnDevice;
use crate::error::{Leave, TrainError, Unfit, panic_words};
use crate::gradient::Gradient;
use crate::metrics::Metrics;
use crate::model::{Batch, Model, Record};
use crate::names::Names;
use crate::outputs;
use crate::parameters::Parameters;
use crate::place::MicrobatchPlace;
use crate::reduce::{NodeSum, not_finite};
use crate::sums::Sums;
use crate::tables::Keys;
use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt};
use shoal_runtime::cluster::{Exclusions, Rows};
use shoal_runtime::host::cuda::DeviceError;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The most that a microbatch may weigh: sums of steps stay far below what a number holds.
const WEIGHT_MAX: u64 = 1 << 40;

/// How a call of the program with a microbatch ended.
pub(super) enum Outcome<T> {
    Done(T),
    /// The microbatch cannot be computed here; the trainer goes on with other tasks.
    Refused(Complaint),
    /// The step function panicked: nobody knows what state the model is in.
    Panicked(Complaint),
    /// The device on which the program computes has failed: no record is to blame.
    Lost(DeviceError),
    /// The program says that this trainer cannot: no record is to blame.
    Unfit(String),
    /// The program was asked to stop: no record is to blame, nor anything else.
    Left,
}

/// Why the step function gave no gradient.
pub(super) enum StepError {
    Said(String),
    Panicked(String),
    Lost(DeviceError),
    Unfit(String),
    Left,
}

impl StepError {
    /// The words of an error that records may be to blame for, and whether it is a panic.
    ///
    /// # Errors
    /// What it comes to where none is.
    pub(super) fn of_records<T>(self) -> Result<(String, bool), Outcome<T>> {
        match self {
            StepError::Said(why) => Ok((why, false)),
            StepError::Panicked(why) => Ok((why, true)),
            StepError::Lost(lost) => Err(Outcome::Lost(lost)),
            StepError::Unfit(why) => Err(Outcome::Unfit(why)),
            StepError::Left => Err(Outcome::Left),
        }
    }
}

impl From<DeviceError> for StepError {
    fn from(lost: DeviceError) -> StepError {
        StepError::Lost(lost)
    }
}

/// The sums of gradients or of metrics over a microbatch, and an output for each record where the program predicts.
struct ProgramSums {
    values: Sums,
    rows: Vec<Rows>,
    there: Option<Tensors>,
    weight: u64,
    outputs: Vec<Vec<u8>>,
}

/// What came of a microbatch.
struct Computed<T> {
    outcome: Outcome<T>,
    /// Elements of its sums that were -0.0.
    negative_zeros: u64,
    /// Of outputs the part that is to be written before anything is pushed.
    part: Option<Bytes>,
}

/// One microbatch, ready for the step function.
pub(super) struct Attempt {
    function: Function,
    /// The index in the data set of the first record of its part: of what is trained on, or of what is evaluated.
    pub(super) first_record: u64,
    ready: Ready,
    pub(super) at: usize,
    place: MicrobatchPlace,
    names: Arc<Names>,
    exclusions: Arc<Exclusions>,
    takes_non_finite: bool,
}

impl Trainer {
    /// The keys of tables that microbatches `range` of the task read; without tables nobody is asked. `None`: they cannot be had, and
    /// the task has left the desk.
    pub(super) async fn keys(&self, ready: &Ready, range: Range<usize>) -> Result<Option<Keys>, Stop> {
        let mut keys = Keys::new(&self.session.names);
        for at in range.filter(|_| self.session.names.has_tables()) {
            if !self.with_care(ready, at, None).await? {
                return Ok(None);
            }
            let attempt = self.attempt(ready, at);
            let named = self.program.call(move |model| attempt.named(model)).await;
            match self.done(ready, Some(named))? {
                Some(named) => keys.join(named),
                None => return Ok(None),
            }
        }
        Ok(Some(keys))
    }

    /// The microbatches of the task, from `at` on, that are computed in a row: one, after the trainer's pause, where there is one, or
    /// where the master asks for care and hears of each before; else all. None: the task has left the desk.
    pub(super) async fn in_a_row(
        &self,
        ready: &Ready,
        at: usize,
        parameters: &Parameters,
    ) -> Result<Range<usize>, Stop> {
        self.session.meter.enter(Activity::Compute);
        if !self.settings.pace.is_zero() {
            tokio::time::sleep(self.settings.pace).await;
        }
        if !self.with_care(ready, at, Some(parameters)).await? {
            return Ok(at..at);
        }
        let is_alone = ready.task.is_careful || !self.settings.pace.is_zero();
        Ok(at..if is_alone { at + 1 } else { ready.records.len() })
    }

    /// Computes microbatches `range` of the task, up to the first that comes to nothing. On the program's thread, whose caches have
    /// the sums, it goes on with them: with gradients without -0.0, and rounded where the job says so.
    pub(super) fn compute<T: Send + 'static>(
        &self,
        ready: &Ready,
        range: Range<usize>,
        parameters: &Parameters,
        mut go_on: impl FnMut(usize, NodeSum) -> Result<T, DeviceError> + Send + 'static,
    ) -> impl Stream<Item = Result<Outcome<T>, Stop>> {
        let attempts: Vec<Attempt> = range.clone().map(|at| self.attempt(ready, at)).collect();
        let mut rest = Some((attempts.into_iter(), parameters.clone()));
        let compute = move |model: &mut dyn Model| {
            let (mut attempts, parameters) = rest.take()?;
            let attempt = attempts.next()?;
            let computed = attempt.compute(model, &parameters, |sum| go_on(attempt.at, sum));
            // With the last one nobody reads the parameters any more, before it is heard of: their memory is used again.
            let goes_on = matches!(computed.outcome, Outcome::Done(_)) && attempts.len() > 0;
            rest = goes_on.then_some((attempts, parameters));
            Some(computed)
        };
        let computed = self.program.each(compute).zip(stream::iter(range));
        computed.then(async |(computed, at)| self.computed(ready, at, computed).await)
    }

    /// Counts a microbatch, and writes its outputs.
    async fn computed<T>(&self, ready: &Ready, at: usize, computed: Computed<T>) -> Result<Outcome<T>, Stop> {
        let Computed { outcome, negative_zeros, part } = computed;
        self.session.meter.microbatches.fetch_add(1, Relaxed);
        self.session.meter.negative_zeros.fetch_add(negative_zeros, Relaxed);
        self.session.meter.records.fetch_add(ready.records[at].iter().len() as u64, Relaxed);
        if let (Some(part), Some(outputs)) = (part, &self.session.outputs) {
            let may_differ = self.session.exclusions.present().number > 0;
            outputs.write(ready.task.microbatches[at].index, part, may_differ).await?;
        }
        Ok(outcome)
    }

    /// Tries each record alone first, where the master asks for care. False if the task has left the desk.
    async fn with_care(
        &self,
        ready: &Ready,
        at: usize,
        parameters: Option<&Parameters>,
    ) -> Result<bool, Stop> {
        match ready.task.is_careful {
            true => self.try_each(ready, at, parameters).await,
            false => Ok(true),
        }
    }

    pub(super) fn attempt(&self, ready: &Ready, at: usize) -> Attempt {
        let job = &self.session.master.job;
        let place = MicrobatchPlace::of(job, &ready.task, at);
        let function = Function::of(place.pass, self.session.outputs.is_some());
        Attempt {
            function,
            first_record: if function == Function::Step { 0 } else { job.records },
            place,
            ready: ready.clone(),
            at,
            names: self.session.names.clone(),
            exclusions: self.session.exclusions.present(),
            takes_non_finite: self.session.names.pushes_non_finite(),
        }
    }
}

impl Attempt {
    /// The records that are not left out.
    fn records(&self) -> Vec<Record<'_>> {
        let records = self.ready.records[self.at].places();
        let kept = records.filter(|(index, _)| !self.exclusions.excludes(*index, self.place.unit));
        kept.map(|(index, place)| Record::of(index - self.first_record, place)).collect()
    }

    /// The indexes of the records that are not left out, in the whole data set.
    pub(super) fn indexes(&self) -> Vec<u64> {
        self.records().iter().map(|record| record.index + self.first_record).collect()
    }

    /// Computes one record, or without parameters its keys, for nothing but to see whether the trainer outlives it.
    ///
    /// # Errors
    /// What ends the trainer.
    pub(super) fn alone(
        &self,
        model: &mut dyn Model,
        parameters: Option<&Parameters>,
        index: u64,
    ) -> Result<(), Stop> {
        let records = self.records();
        let mut tried = Ok(());
        for record in records.iter().filter(|record| record.index + self.first_record == index) {
            let record = std::slice::from_ref(record);
            tried = match parameters {
                Some(parameters) => self.call(model, parameters, record).map(drop),
                None => self.keys(model, record).map(drop),
            };
        }
        match tried {
            Err(StepError::Unfit(why)) => Err(TrainError::Unfit(why).into()),
            Err(StepError::Lost(lost)) => Err(TrainError::from(lost).into()),
            Err(StepError::Left) => Err(Stop::Left),
            // What is wrong with it is found when all are computed together.
            Err(StepError::Said(_) | StepError::Panicked(_)) | Ok(()) => Ok(()),
        }
    }

    /// The keys that the microbatch reads.
    fn named(&self, model: &mut dyn Model) -> Outcome<Keys> {
        let records = self.records();
        match self.keys(model, &records) {
            Ok(keys) => Outcome::Done(keys),
            Err(fault) => self.complained(fault, &records, |records| self.keys(model, records).err()),
        }
    }

    /// What came of the microbatch.
    fn compute<T>(
        &self,
        model: &mut dyn Model,
        parameters: &Parameters,
        go_on: impl FnOnce(NodeSum) -> Result<T, DeviceError>,
    ) -> Computed<T> {
        let records = self.records();
        let sums = self.call(model, parameters, &records).and_then(|sums| self.finished(sums, &records));
        let (mut sum, part) = match sums {
            Ok(finished) => finished,
            Err(fault) => {
                let outcome =
                    self.complained(fault, &records, |records| self.call(model, parameters, records).err());
                return Computed { outcome, negative_zeros: 0, part: None };
            }
        };
        let negative_zeros = sum.settle(&self.names.rounded);
        let outcome = go_on(sum).map_or_else(Outcome::Lost, Outcome::Done);
        Computed { outcome, negative_zeros, part }
    }

    fn finished(
        &self,
        sums: ProgramSums,
        records: &[Record<'_>],
    ) -> Result<(NodeSum, Option<Bytes>), StepError> {
        let ProgramSums { values, rows, there, weight, outputs } = sums;
        let there = there.map(|tensors| Arc::new(SumOnDevice::new(tensors)));
        let sum = NodeSum { values, rows, there, weight, exclusions: self.exclusions.number };
        if self.function != Function::Predict {
            return Ok((sum, None));
        }
        let indexes: Vec<u64> = records.iter().map(|record| record.index + self.first_record).collect();
        let part = outputs::encode(&self.ready.task.microbatches[self.at], &indexes, &outputs);
        let part = part.map_err(|error| StepError::Said(format!("an output cannot be written: {error}")))?;
        Ok((sum, Some(part)))
    }

    fn batch<'a>(&self, records: &'a [Record<'a>]) -> Batch<'a> {
        let MicrobatchPlace { epoch, step, seed, .. } = self.place;
        let microbatch = self.ready.records[self.at].microbatch;
        Batch { epoch, step, microbatch, seed, records }
    }

    /// Calls a function of the program, unless all records are left out.
    fn guarded(
        &self,
        what: impl std::fmt::Display,
        records: &[Record<'_>],
        function: impl FnOnce(&Batch<'_>) -> anyhow::Result<()>,
    ) -> Result<(), StepError> {
        if records.is_empty() && self.exclusions.number > 0 {
            return Ok(());
        }
        let ended = catch_unwind(AssertUnwindSafe(|| function(&self.batch(records))));
        if let Some(device) = &self.names.device {
            // A failure of the device is none of the records', whatever the program says of it.
            device.synchronize()?;
        }
        match ended {
            Err(panic) => {
                Err(StepError::Panicked(format!("the {what} function panicked: {}", panic_words(&*panic))))
            }
            Ok(Err(error)) if Leave::is_said_by(&error) => Err(StepError::Left),
            Ok(Err(error)) => {
                let why = format!("the {what} function failed: {error:#}");
                Err(if Unfit::is_said_by(&error) { StepError::Unfit(why) } else { StepError::Said(why) })
            }
            Ok(Ok(())) => Ok(()),
        }
    }

    /// The keys that records read.
    fn keys(&self, model: &mut dyn Model, records: &[Record<'_>]) -> Result<Keys, StepError> {
        let mut keys = Keys::new(&self.names);
        if self.names.has_tables() {
            self.guarded("keys", records, |batch| model.keys(batch, &mut keys))?;
        }
        Ok(keys)
    }

    /// The program's sums over records, and its outputs. Where all records are left out the sums are zero.
    fn call(
        &self,
        model: &mut dyn Model,
        parameters: &Parameters,
        records: &[Record<'_>],
    ) -> Result<ProgramSums, StepError> {
        match self.function {
            Function::Step => self.step(model, parameters, records),
            Function::Evaluate | Function::Predict => self.judge(model, parameters, records),
        }
    }

    /// The sums of the records' gradients.
    fn step(
        &self,
        model: &mut dyn Model,
        parameters: &Parameters,
        records: &[Record<'_>],
    ) -> Result<ProgramSums, StepError> {
        let keys = self.keys(model, records)?;
        let mut gradient = Gradient::zeros(&self.names, keys, records.len() as u64)?;
        self.guarded(self.function, records, |batch| model.step(batch, parameters, &mut gradient))?;
        if gradient.is_taken() {
            return Err(StepError::Said(
                "the step function took the gradient sums and did not give them back".to_owned(),
            ));
        }
        let Gradient { values, rows, there, weight, .. } = gradient;
        if weight > WEIGHT_MAX {
            return Err(StepError::Said(format!(
                "the step function set a weight of {weight}: at most 2^40 are taken"
            )));
        }
        if let Some(tensors) = &there {
            tensors.settle(&self.names.rounded)?;
        }
        if !self.takes_non_finite
            && let Some(why) = not_finite(&self.names, there.as_ref(), &values, &rows)?
        {
            return Err(StepError::Said(why));
        }
        Ok(ProgramSums { values, rows, there, weight, outputs: Vec::new() })
    }

    /// The sums of the records' metrics, or what the model says of each record. No step reads a metric: one that is no number is
    /// told as what it is.
    fn judge(
        &self,
        model: &mut dyn Model,
        parameters: &Parameters,
        records: &[Record<'_>],
    ) -> Result<ProgramSums, StepError> {
        let (mut metrics, mut outputs) = (Metrics::zeros(&self.names), Vec::new());
        self.guarded(self.function, records, |batch| match self.function {
            Function::Predict => model.predict(batch, parameters, &mut outputs),
            Function::Step | Function::Evaluate => model.evaluate(batch, parameters, &mut metrics),
        })?;
        if self.function == Function::Predict && outputs.len() != records.len() {
            let why = format!("{} outputs for {} records: give one for each", outputs.len(), records.len());
            return Err(StepError::Said(why));
        }
        let (values, weight) = (metrics.values.into(), records.len() as u64);
        Ok(ProgramSums { values, rows: Vec::new(), there: None, weight, outputs })
    }
}
