//! What an author of a training program writes: a [`Model`], and what it is given. Knows nothing of the network.

use crate::chunks::{KeptRecord, RecordBytes};
use crate::description::Description;
use crate::device::OnDevice;
use crate::gradient::Gradient;
use crate::metrics::Metrics;
use crate::parameters::Parameters;
use crate::tables::Keys;
use shoal_runtime::cluster::{Declaration, JobSettings, Mode, Precision};
use std::collections::BTreeMap;

/// A training program. All its functions are called on one thread, that of [`train`](crate::train) or [`main`](crate::main): it may
/// keep what belongs to a thread.
pub trait Model {
    /// The parameters, as a function of the job alone: every trainer must declare the same.
    ///
    /// # Errors
    /// Whatever makes a declaration impossible: the trainer ends before it has joined.
    fn declare(&mut self, job: &Job) -> anyhow::Result<Declaration>;

    /// What the program says of a job before that begins: values that its parameters begin at, where no distribution gives them (a
    /// model that was trained before, another framework's), and how many records there are, where it knows a record by its number.
    /// `shoal run` asks once, in a process of its own, before a job that is not resumed; what its flags name (`--warm-start`,
    /// `--data`, `--eval-data`) is not asked for. A function of the seed and the program's arguments alone.
    ///
    /// # Errors
    /// Whatever makes the job impossible: the run ends with it.
    fn describe(&mut self, _seed: u64) -> anyhow::Result<Description> {
        Ok(Description::default())
    }

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

    /// What the bits of this program's gradients depend on beside its arguments, by name: versions of libraries, the instruction
    /// set that they use, numbers of threads, flags, the device, hashes of constants. Asked once, after
    /// [`declare`](Self::declare). In synchronous jobs the first trainer's are the job's, and whoever has others is refused, unless
    /// the job is run with `--environment warn` or `any`. At most 128 entries, names of 64 bytes, values of 512.
    ///
    /// The SDK adds `processor`: the architecture, and whether it fuses multiplications with additions (`fma`). By that
    /// `ndarray`'s products and the C library's `exp` and `ln` choose their code, and give other bits. Whatever else the compiler
    /// makes of Rust has the same bits on every processor of an architecture. Nothing else is added: a program whose libraries choose by
    /// more than that (`candle`'s products do, by AVX-512 and the sizes of caches), or that computes on a device, says so here. An
    /// entry of the program's own that is called `processor` takes the place of the SDK's.
    ///
    /// # Errors
    /// As [`declare`](Self::declare).
    fn environment(&mut self) -> anyhow::Result<BTreeMap<String, String>> {
        Ok(BTreeMap::new())
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
    /// Passes over the data; 1 in a job that only evaluates or predicts.
    pub epochs: u64,
    /// Whether it trains, and not only evaluates or predicts.
    pub trains: bool,
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
    /// Whether parameters begin with values that the job was given, and not with those that are declared.
    pub is_warm_started: bool,
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
            trains: settings.epochs > 0,
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
            is_warm_started: settings.warm_start.is_some(),
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
