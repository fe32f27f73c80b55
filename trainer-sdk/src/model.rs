//! What an author of a training program writes: a [`Model`], and what it is given. Knows nothing of the network.

use crate::access::AccessError;
use crate::chunks::{KeptRecord, RecordBytes};
use crate::device::{Device, DeviceSlice, OnDevice, Tensors};
use crate::flat::Flat;
use crate::metrics::Metrics;
use crate::names::Names;
use crate::share::InAreas;
use crate::sums::Sums;
use crate::tables::{EmbeddingGradients, Embeddings, Keys, TableRows};
use ndarray::{ArrayViewD, ArrayViewMutD};
use shoal_runtime::cluster::parameter::DECISIONS;
use shoal_runtime::cluster::{Decision, Declaration, JobSettings, Mode, Precision, Rows};
use shoal_runtime::host::cuda::DeviceError;
use std::ops::Range;
use std::sync::Arc;

/// A training program. All its functions are called on one thread, that of [`train`](crate::train) or [`main`](crate::main): it may
/// keep what belongs to a thread.
pub trait Model {
    /// The parameters, as a function of the job alone: every trainer must declare the same.
    ///
    /// # Errors
    /// Whatever makes a declaration impossible: the trainer ends before it has joined.
    fn declare(&mut self, job: &Job) -> anyhow::Result<Declaration>;

    /// The parameters that this program has on a CUDA device, if any: [`Parameters::on_device`] and
    /// [`Gradient::on_device_mut`] say where. Asked once, after [`declare`](Self::declare). It changes no bit.
    ///
    /// ```
    /// # use shoal_trainer_sdk::{Batch, Declaration, Gradient, Initial, Job, Model, Parameter, Parameters, Rule, Schedule};
    /// use shoal_trainer_sdk::OnDevice;
    /// # struct Mine;
    /// impl Model for Mine {
    ///     fn on_device(&mut self) -> Option<OnDevice> {
    ///         Some(OnDevice { ordinal: 0, parameters: vec!["weight".to_owned()] })
    ///     }
    ///     fn step(&mut self, _: &Batch<'_>, parameters: &Parameters, gradient: &mut Gradient) -> anyhow::Result<()> {
    ///         let weight = parameters.on_device("weight")?;
    ///         let sums = gradient.on_device_mut("weight")?;
    ///         launch(weight.address(), sums.address(), weight.elements())
    ///     }
    /// #   fn declare(&mut self, _: &Job) -> anyhow::Result<Declaration> { Ok(Declaration { parameters: Vec::new(), block_elements: 0 }) }
    /// }
    /// # fn launch(_: u64, _: u64, _: usize) -> anyhow::Result<()> { Ok(()) }
    /// ```
    fn on_device(&mut self) -> Option<OnDevice> {
        None
    }

    /// The keys of embedding tables that the batch reads: their rows are pulled before [`step`](Self::step),
    /// [`evaluate`](Self::evaluate) or [`predict`](Self::predict) is called with it, and after a step are those that it has changed. To
    /// be written by programs that declare tables; as `step`, a function of its arguments alone.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    fn keys(&mut self, _batch: &Batch<'_>, _keys: &mut Keys) -> anyhow::Result<()> {
        Ok(())
    }

    /// Adds the **sum** (not the mean) of the gradients over the batch's records to `gradient`.
    ///
    /// Must be a function of its arguments alone: the same batch and parameters give the same bits on every trainer.
    /// Randomness (dropout, augmentation) comes from [`Batch::seed`].
    ///
    /// # Errors
    /// Whatever makes the batch impossible. Each of its records is tried alone, the master is told which fail, and the trainer
    /// goes on with other tasks; the job fails, or leaves those records out (`--exclude-max`), once three trainers agree. A panic
    /// is told likewise, but ends the trainer: nobody knows what state the program is in.
    fn step(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        gradient: &mut Gradient,
    ) -> anyhow::Result<()>;

    /// Adds what the batch's records, of the evaluated data, come to with these parameters to the metrics that were
    /// declared. As [`step`](Self::step), a function of its arguments alone. Called in jobs with `--eval-data`.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    fn evaluate(
        &mut self,
        _batch: &Batch<'_>,
        _parameters: &Parameters,
        _metrics: &mut Metrics,
    ) -> anyhow::Result<()> {
        anyhow::bail!("the program evaluates nothing: write `Model::evaluate`, or run it without --eval-data")
    }

    /// What the model says of the batch's records: one output for each, in their order. As [`step`](Self::step), a function
    /// of its arguments alone. Called in jobs with `--predict`.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    fn predict(
        &mut self,
        _batch: &Batch<'_>,
        _parameters: &Parameters,
        _outputs: &mut Vec<Vec<u8>>,
    ) -> anyhow::Result<()> {
        anyhow::bail!("the program predicts nothing: write `Model::predict`, or run it without --predict")
    }
}

/// What a model may know of the job before it declares.
#[derive(Clone, Debug)]
pub struct Job {
    /// The job's name.
    pub name: String,
    /// Its seed.
    pub seed: u64,
    /// Records in the data that are trained on; in a job that only evaluates or predicts, in those.
    pub records: u64,
    /// Passes over the data.
    pub epochs: u64,
    /// How often the model is evaluated; 0 without `--eval-data`.
    pub evaluations: u64,
    /// Steps in one epoch.
    pub steps_per_epoch: u64,
    /// Records in a full step: microbatch records times microbatches.
    pub global_batch: u64,
    /// Records in a full microbatch: the largest that any function is given. The last ones of a pass have fewer, and those of which
    /// records are left out.
    pub microbatch_records: u64,
    /// Microbatches in a full step.
    pub microbatches_per_step: u64,
    /// How updates follow one another.
    pub mode: Mode,
    /// How precise gradients are on their way.
    pub gradients: Precision,
}

impl Job {
    pub(crate) fn of(settings: &JobSettings) -> Job {
        // Where nothing is trained a model is declared as if its data were.
        let shape = settings.shape();
        let (records, epochs, cut) = match settings.epochs {
            0 => (settings.all_records(), 1, shape.evaluation()),
            epochs => (settings.records, epochs, shape.training()),
        };
        Job {
            name: settings.job.0.clone(),
            seed: settings.seed,
            records,
            epochs,
            evaluations: if settings.evaluated.as_ref().is_some_and(|evaluated| evaluated.outputs.is_none()) {
                settings.course().evaluations()
            } else {
                0
            },
            steps_per_epoch: cut.steps(),
            global_batch: u64::from(settings.microbatch_records) * u64::from(settings.microbatches_per_step),
            microbatch_records: settings.microbatch_records.into(),
            microbatches_per_step: settings.microbatches_per_step.into(),
            mode: settings.mode,
            gradients: settings.gradients,
        }
    }
}

/// One training sample.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Its index in the data that are trained on, or in those that are evaluated or predicted: the same in every epoch, whatever the shuffle.
    pub index: u64,
    /// Its bytes, as they were packed: as many as the record has, which may be none. Records of one job may differ in length.
    pub bytes: &'a [u8],
    place: Option<&'a RecordBytes>,
}

impl<'a> Record<'a> {
    /// A record of the program's own, for its tests.
    pub fn new(index: u64, bytes: &'a [u8]) -> Record<'a> {
        Record { index, bytes, place: None }
    }

    /// A record of a chunk.
    pub(crate) fn of(index: u64, place: &'a RecordBytes) -> Record<'a> {
        Record { index, bytes: place.bytes(), place: Some(place) }
    }

    /// The record's bytes for longer than the step: shared, not copied.
    pub fn keep(&self) -> KeptRecord {
        self.place.map_or_else(|| self.bytes.into(), RecordBytes::keep)
    }
}

/// The records of one microbatch.
#[derive(Debug)]
pub struct Batch<'a> {
    /// The pass over the data, from 0; in an evaluation, how many were begun before it.
    pub epoch: u64,
    /// The step, from 0, among those that train; in an evaluation, how many steps were trained before it. Asynchronous jobs
    /// have no steps: the microbatch's place among those that train (in an evaluation, how many there were before it)
    /// divided by `microbatches_per_step`. For schedules of the program's own.
    pub step: u64,
    /// The microbatch's index in the pass.
    pub microbatch: u64,
    /// For randomness: a function of the job's seed and the microbatch's place in training, in an evaluation of its place in
    /// that: the same whoever computes it, when it is computed again, and in every evaluation.
    pub seed: u64,
    /// The records in order: the job's microbatch records, fewer at the end of a pass and where some are left out. Never none.
    pub records: &'a [Record<'a>],
}

/// The parameters at the version that a step reads. Counters (rule `Sum`) and metrics are not pulled: they read as 0.
#[derive(Clone, Debug)]
pub struct Parameters {
    pub(crate) names: Arc<Names>,
    pub(crate) values: Arc<Flat>,
    /// Of tables the rows that were pulled, indexed as declared.
    pub(crate) rows: Arc<Vec<TableRows>>,
    /// Parameters that are on a device; `None`: none are.
    pub(crate) there: Option<Arc<Tensors>>,
    pub(crate) version: u64,
}

impl Parameters {
    /// Parameters of values and rows that were pulled; some are put on the device.
    ///
    /// # Errors
    /// The device has failed, or has no memory for them.
    pub(crate) fn pulled(
        names: &Arc<Names>,
        mut values: Flat,
        rows: Vec<TableRows>,
        areas: &InAreas,
    ) -> Result<Parameters, DeviceError> {
        let device = names.device.as_ref();
        let there = device.map(|device| areas.settle(names, device, &mut values)).transpose()?;
        let (values, rows, there) = (Arc::new(values), Arc::new(rows), there.map(Arc::new));
        Ok(Parameters { names: names.clone(), values, rows, there, version: names.next_version() })
    }

    /// Which values of dense parameters these are: two of one trainer with the same number have the same. So a program may load
    /// them once for all microbatches of a step, as into the memory of a framework.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// All dense parameters in one stretch of memory, where [`place`](Self::place) says; each begins at a multiple of 64 bytes. What
    /// lies between them is of no meaning.
    pub fn all(&self) -> &[f32] {
        self.values.all()
    }

    /// Where a dense parameter's values lie in [`all`](Self::all), in elements.
    ///
    /// # Errors
    /// As [`slice`](Self::slice).
    pub fn place(&self, name: &str) -> Result<Range<usize>, AccessError> {
        Ok(self.values.place(self.names.dense_here(name)?))
    }

    /// A dense parameter's values in row-major order: as many as it has elements (the product of its declared dimensions; 1 of a
    /// scalar).
    ///
    /// # Errors
    /// No such parameter, a table, or one that [`Model::on_device`] has named.
    pub fn slice(&self, name: &str) -> Result<&[f32], AccessError> {
        Ok(&self.values[self.names.dense_here(name)?])
    }

    /// The same values in the shape that was declared.
    ///
    /// ```
    /// # use shoal_trainer_sdk::{Batch, Gradient, Parameters, ndarray};
    /// use ndarray::{Array1, Ix1, Ix2};
    ///
    /// // Declared: "weight" of shape [classes, features], "bias" of shape [classes].
    /// fn logits(parameters: &Parameters, features: &Array1<f32>) -> anyhow::Result<Array1<f32>> {
    ///     let weight = parameters.array("weight")?.into_dimensionality::<Ix2>()?;
    ///     let bias = parameters.array("bias")?.into_dimensionality::<Ix1>()?;
    ///     Ok(weight.dot(features) + bias)
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`slice`](Self::slice).
    pub fn array(&self, name: &str) -> Result<ArrayViewD<'_, f32>, AccessError> {
        let at = self.names.dense_here(name)?;
        self.names.shaped(at, &self.values[at])
    }

    /// A dense parameter's values in device memory, to be read, in row-major order: as many as it has elements. They are ready when
    /// the step begins.
    ///
    /// # Errors
    /// No such parameter, a table, or one that [`Model::on_device`] has not named.
    pub fn on_device(&self, name: &str) -> Result<DeviceSlice<'_>, AccessError> {
        let at = self.names.dense(name)?;
        let slice = self.there.as_ref().and_then(|there| there.slice(at));
        slice.ok_or_else(|| AccessError::NotOnDevice { name: name.to_owned() })
    }

    /// The rows of an embedding table: those of the keys that [`Model::keys`] has named.
    ///
    /// # Errors
    /// No such table.
    pub fn embeddings(&self, table: &str) -> Result<Embeddings<'_>, AccessError> {
        let at = self.names.table(table)?;
        let parameter = &self.names.declaration.parameters[at];
        Ok(Embeddings::new(&parameter.name, parameter.elements() as usize, &self.rows[at]))
    }

    /// What the program multiplies its loss with, and so its gradients, before it computes in a narrow number format:
    /// pservers divide by it again. A power of two from 2^-16 to 2^24; 1 unless a loss scale was declared
    /// ([`crate::Decisions`]). Counters and metrics stay unscaled.
    pub fn loss_scale(&self) -> f32 {
        let decisions = self.names.layout.scalars().and(self.names.find(DECISIONS).ok());
        let decision = decisions.and_then(|at| Decision::from_values(&self.values[at]));
        decision.map_or(1.0, |decision| decision.loss_scale)
    }
}

/// The gradient sums of one microbatch, zero at first.
#[derive(Debug)]
pub struct Gradient {
    pub(crate) names: Arc<Names>,
    pub(crate) values: Sums,
    /// Of tables, indexed as declared.
    pub(crate) rows: Vec<Rows>,
    /// Sums of parameters that are on a device; `None`: none are.
    pub(crate) there: Option<Tensors>,
    pub(crate) weight: u64,
}

impl Gradient {
    /// Of a batch in which these keys occur.
    ///
    /// # Errors
    /// Some are on a device, which has failed or has no memory for them.
    pub(crate) fn zeros(names: &Arc<Names>, keys: Keys, weight: u64) -> Result<Gradient, DeviceError> {
        let there = names.device.as_ref().map(Device::zeros).transpose()?;
        Ok(Gradient { names: names.clone(), values: names.gradient_sums(), rows: keys.rows(), there, weight })
    }

    /// A dense parameter's gradient sums in device memory, in row-major order, as many as it has elements: zero at first, to be
    /// added to on whatever streams; when the step returns all that the program has queued on the device is waited for.
    ///
    /// # Errors
    /// No such parameter, a table, or one that [`Model::on_device`] has not named.
    pub fn on_device_mut(&mut self, name: &str) -> Result<DeviceSlice<'_>, AccessError> {
        let at = self.names.dense(name)?;
        let slice = self.there.as_ref().and_then(|there| there.slice(at));
        slice.ok_or_else(|| AccessError::NotOnDevice { name: name.to_owned() })
    }

    /// Refuses what steps add nothing to, and what is not here.
    fn find_here(&self, name: &str) -> Result<usize, AccessError> {
        let at = self.names.summed_here(name)?;
        if self.is_taken() { Err(AccessError::Taken { name: name.to_owned() }) } else { Ok(at) }
    }

    /// Takes all dense sums out, to be filled where a reference to them cannot go, as in another language: until they are
    /// [given back](Self::give), which must be before the step returns, nothing else is had of them.
    pub fn take(&mut self) -> GradientSums {
        GradientSums { names: self.names.clone(), values: std::mem::take(&mut self.values) }
    }

    /// Gives sums back that were taken: those of this gradient, or of an earlier one of the same trainer.
    pub fn give(&mut self, sums: GradientSums) {
        assert!(Arc::ptr_eq(&self.names, &sums.names), "sums of another trainer");
        self.values = sums.values;
    }

    /// Whether the sums were taken and not given back.
    pub(crate) fn is_taken(&self) -> bool {
        self.values.len() != self.names.declaration.parameters.len()
    }

    /// The gradient sums of an embedding table's rows: those of the keys that [`Model::keys`] has named.
    ///
    /// # Errors
    /// No such table.
    pub fn embeddings_mut(&mut self, table: &str) -> Result<EmbeddingGradients<'_>, AccessError> {
        let at = self.names.table(table)?;
        let parameter = &self.names.declaration.parameters[at];
        let dimension = parameter.elements() as usize;
        Ok(EmbeddingGradients::new(&parameter.name, dimension, &mut self.rows[at]))
    }

    /// A dense parameter's gradient sums in row-major order, to be looked at: as many as it has elements.
    ///
    /// # Errors
    /// As [`slice_mut`](Self::slice_mut).
    pub fn slice(&self, name: &str) -> Result<&[f32], AccessError> {
        Ok(&self.values[self.find_here(name)?])
    }

    /// A dense parameter's gradient sums in row-major order, as many as it has elements: to be added to.
    ///
    /// # Errors
    /// No such parameter, a table, a metric, or one that [`Model::on_device`] has named.
    pub fn slice_mut(&mut self, name: &str) -> Result<&mut [f32], AccessError> {
        let at = self.find_here(name)?;
        Ok(&mut self.values[at])
    }

    /// The same sums in the shape that was declared, to be looked at.
    ///
    /// # Errors
    /// As [`slice_mut`](Self::slice_mut).
    pub fn array(&self, name: &str) -> Result<ArrayViewD<'_, f32>, AccessError> {
        let at = self.find_here(name)?;
        self.names.shaped(at, &self.values[at])
    }

    /// The same sums in the shape that was declared, to be added to.
    ///
    /// ```
    /// # use shoal_trainer_sdk::{Batch, Gradient, Parameters, ndarray};
    /// use ndarray::{Array2, Ix2, linalg::general_mat_mul};
    ///
    /// // Declared: "weight" of shape [outputs, inputs]. A row of `errors` and of `inputs` is a record.
    /// fn add(gradient: &mut Gradient, errors: &Array2<f32>, inputs: &Array2<f32>) -> anyhow::Result<()> {
    ///     let mut weight = gradient.array_mut("weight")?.into_dimensionality::<Ix2>()?;
    ///     general_mat_mul(1.0, &errors.t(), inputs, 1.0, &mut weight);
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`slice_mut`](Self::slice_mut).
    pub fn array_mut(&mut self, name: &str) -> Result<ArrayViewMutD<'_, f32>, AccessError> {
        let at = self.find_here(name)?;
        self.names.shaped_mut(at, &mut self.values[at])
    }

    /// Adds `values`, in row-major order, to a parameter's gradient sums.
    ///
    /// # Errors
    /// As [`slice_mut`](Self::slice_mut); another number of values than it has elements.
    pub fn add(&mut self, name: &str, values: &[f32]) -> Result<(), AccessError> {
        let at = self.find_here(name)?;
        let sums = &mut self.values[at];
        if sums.len() != values.len() {
            return Err(self.names.wrong_length(at, values.len()));
        }
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        Ok(())
    }

    /// What the step's mean divides by, with those of the step's other microbatches: the number of the batch's records unless it is
    /// stated here (tokens, say).
    ///
    /// With 0 the microbatch's sums are taken, and divided by the weight of the others. Where all of them have 0, nobody divides: the
    /// step changes nothing at all, running statistics and counters included, and what was added to them is lost. In an
    /// asynchronous job a microbatch is a step.
    pub fn set_weight(&mut self, weight: u64) {
        self.weight = weight;
    }
}

/// The dense gradient sums of one microbatch, apart from their [`Gradient`]. Their memory is used for a later one when they are dropped.
#[derive(Debug)]
pub struct GradientSums {
    names: Arc<Names>,
    values: Sums,
}

impl GradientSums {
    /// All of them in one stretch of memory, where [`place`](Self::place) says; each parameter begins at a multiple of 64 bytes.
    pub fn all(&self) -> &[f32] {
        self.values.all()
    }

    /// The same, to be added to.
    pub fn all_mut(&mut self) -> &mut [f32] {
        self.values.all_mut()
    }

    /// Where a dense parameter's sums lie in [`all`](Self::all), in elements: as many as it has.
    ///
    /// # Errors
    /// As [`Gradient::slice_mut`].
    pub fn place(&self, name: &str) -> Result<Range<usize>, AccessError> {
        let at = self.names.summed_here(name)?;
        Ok(self.values.place(at))
    }

    /// A copy, in memory of a gradient that was dropped where there is some.
    #[must_use]
    pub fn copy(&self) -> GradientSums {
        let mut copy = GradientSums { names: self.names.clone(), values: self.names.gradient_sums() };
        copy.all_mut().copy_from_slice(self.all());
        copy
    }
}
