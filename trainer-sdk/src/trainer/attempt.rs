//! One microbatch through the program: its batch, and what comes of it.

use super::Stop;
use super::compute::Outcome;
use super::function::Function;
use crate::desk::Ready;
use crate::device::Tensors;
use crate::device::areas::SumOnDevice;
use crate::error::{Leave, TrainError, Unfit, panic_words};
use crate::gradient::Gradient;
use crate::inspection::Inspection;
use crate::metrics::Metrics;
use crate::model::{Batch, Model, Record};
use crate::names::Names;
use crate::outputs;
use crate::parameters::Parameters;
use crate::place::MicrobatchPlace;
use crate::reduce::{NodeSum, not_finite};
use crate::session::Session;
use crate::sums::Sums;
use crate::tables::Keys;
use bytes::Bytes;
use shoal_runtime::cluster::{Exclusions, Rows};
use shoal_runtime::host::cuda::DeviceError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The most that a microbatch may weigh: sums of steps stay far below what a number holds.
const WEIGHT_MAX: u64 = 1 << 40;

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

impl StepError {
    /// What it says.
    pub(super) fn words(self) -> String {
        match self {
            StepError::Said(why) | StepError::Panicked(why) | StepError::Unfit(why) => why,
            StepError::Lost(lost) => lost.to_string(),
            StepError::Left => "the program was asked to stop".to_owned(),
        }
    }
}

impl From<DeviceError> for StepError {
    fn from(lost: DeviceError) -> StepError {
        StepError::Lost(lost)
    }
}

/// The sums of gradients or of metrics over a microbatch, and an output for each record where the program predicts.
pub(super) struct ProgramSums {
    pub(super) values: Sums,
    pub(super) rows: Vec<Rows>,
    pub(super) there: Option<Tensors>,
    pub(super) weight: u64,
    outputs: Vec<Vec<u8>>,
}

/// What came of a microbatch.
pub(super) struct Computed<T> {
    pub(super) outcome: Outcome<T>,
    /// Records that were put through the function; what is evaluated does not count.
    pub(super) records: u64,
    /// Elements of its sums that were -0.0.
    pub(super) negative_zeros: u64,
    /// Of outputs the part that is to be written before anything is pushed.
    pub(super) part: Option<Bytes>,
    /// The number of the exclusions that it was computed under.
    pub(super) list: u64,
}

/// One microbatch, ready for the step function.
pub(super) struct Attempt {
    function: Function,
    /// The index in the data set of the first record of its part: of what is trained on, or of what is evaluated.
    pub(super) first_record: u64,
    pub(super) ready: Ready,
    pub(super) at: usize,
    pub(super) place: MicrobatchPlace,
    pub(super) names: Arc<Names>,
    exclusions: Arc<Exclusions>,
    takes_non_finite: bool,
    /// Microbatches of its step.
    pub(super) microbatches: u32,
    /// The step, counted from 1, that made the parameters that it reads; 0 for the initial values.
    pub(super) reads: u64,
    inspection: Option<Arc<Inspection>>,
}

impl Attempt {
    /// Microbatch `at` of the task.
    pub(super) fn of(
        session: &Session,
        ready: Ready,
        at: usize,
        inspection: Option<Arc<Inspection>>,
    ) -> Attempt {
        let job = &session.master.job;
        let place = MicrobatchPlace::of(job, &ready.task, at);
        let function = Function::of(place.pass, session.outputs.is_some());
        Attempt {
            function,
            first_record: if function == Function::Step { 0 } else { job.records },
            microbatches: job.shape().tree(place.unit).present(),
            reads: place.step.saturating_sub(job.mode.delay()),
            inspection: inspection.filter(|_| function == Function::Step),
            place,
            ready,
            at,
            names: session.names.clone(),
            exclusions: session.exclusions.present(),
            takes_non_finite: session.names.pushes_non_finite(),
        }
    }

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
    pub(super) fn named(&self, model: &mut dyn Model) -> Outcome<Keys> {
        let records = self.records();
        match self.keys(model, &records) {
            Ok(keys) => Outcome::Done(keys),
            Err(fault) => self.complained(fault, &records, |records| self.keys(model, records).err()),
        }
    }

    /// What came of the microbatch.
    pub(super) fn compute<T>(
        &self,
        model: &mut dyn Model,
        parameters: &Parameters,
        go_on: impl FnOnce(NodeSum) -> Result<T, DeviceError>,
    ) -> Computed<T> {
        let records = self.records();
        let count = if self.function == Function::Evaluate { 0 } else { records.len() as u64 };
        let sums = self.call(model, parameters, &records);
        if let (Some(inspection), Ok(sums)) = (&self.inspection, &sums) {
            self.inspect(inspection, model, parameters, &records, sums);
        }
        let sums = sums.and_then(|sums| self.finished(sums, &records));
        let list = self.exclusions.number;
        let (mut sum, part) = match sums {
            Ok(finished) => finished,
            Err(fault) => {
                let outcome =
                    self.complained(fault, &records, |records| self.call(model, parameters, records).err());
                return Computed { outcome, records: count, negative_zeros: 0, part: None, list };
            }
        };
        let negative_zeros = sum.settle(&self.names.rounded);
        let outcome = go_on(sum).map_or_else(Outcome::Lost, Outcome::Done);
        Computed { outcome, records: count, negative_zeros, part, list }
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
    pub(super) fn call(
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
