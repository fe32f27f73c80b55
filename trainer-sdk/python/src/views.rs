//! What a program's functions are given, as Python has it. All of it is the program's to keep: nothing refers to a step's memory
//! without owning it.

use crate::memory::Memory;
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use shoal_trainer_sdk::{self as sdk, KeptRecord, Mode, Precision};

/// What a program may know of its job before it declares.
#[pyclass(frozen, get_all, module = "shoal._core")]
pub(crate) struct Job {
    name: String,
    seed: u64,
    records: u64,
    epochs: u64,
    /// Whether it trains, and not only evaluates or predicts.
    trains: bool,
    evaluations: u64,
    steps_per_epoch: u64,
    global_batch: u64,
    microbatch_records: u64,
    microbatches_per_step: u64,
    /// `"sync"` or `"async"`.
    mode: &'static str,
    /// Versions between the one that gradients are taken at and the one that they update; 0 in asynchronous jobs.
    delay: u64,
    /// `"f32"` or `"bf16"`.
    gradients: &'static str,
    /// Whether parameters begin with values that the job was given.
    is_warm_started: bool,
}

impl From<&sdk::Job> for Job {
    fn from(job: &sdk::Job) -> Job {
        let mode = if matches!(job.mode, Mode::Sync { .. }) { "sync" } else { "async" };
        let gradients = match job.gradients {
            Precision::F32 => "f32",
            Precision::Bf16 => "bf16",
        };
        Job {
            name: job.name.clone(),
            seed: job.seed,
            records: job.records,
            epochs: job.epochs,
            trains: job.trains,
            evaluations: job.evaluations,
            steps_per_epoch: job.steps_per_epoch,
            global_batch: job.global_batch,
            microbatch_records: job.microbatch_records,
            microbatches_per_step: job.microbatches_per_step,
            mode,
            delay: job.mode.delay(),
            gradients,
            is_warm_started: job.is_warm_started,
        }
    }
}

#[pymethods]
impl Job {
    fn __repr__(&self) -> String {
        let Job { name, seed, records, epochs, steps_per_epoch, .. } = self;
        format!(
            "Job({name:?}, seed={seed}, records={records}, epochs={epochs}, steps_per_epoch={steps_per_epoch})"
        )
    }
}

/// The records of one microbatch.
#[pyclass(frozen, module = "shoal._core")]
pub(crate) struct Batch {
    #[pyo3(get)]
    epoch: u64,
    #[pyo3(get)]
    step: u64,
    #[pyo3(get)]
    microbatch: u64,
    #[pyo3(get)]
    seed: u64,
    records: Vec<(u64, KeptRecord)>,
}

impl From<&sdk::Batch<'_>> for Batch {
    fn from(batch: &sdk::Batch<'_>) -> Batch {
        let sdk::Batch { epoch, step, microbatch, seed, records } = *batch;
        let records = records.iter().map(|record| (record.index, record.keep())).collect();
        Batch { epoch, step, microbatch, seed, records }
    }
}

#[pymethods]
impl Batch {
    fn __len__(&self) -> usize {
        self.records.len()
    }

    /// The records' indexes in the data set.
    #[getter]
    fn indices(&self) -> Vec<u64> {
        self.records.iter().map(|(index, _)| *index).collect()
    }

    /// The records, each shared and not copied.
    #[getter]
    fn records(&self) -> Vec<Record> {
        let record = |(index, record): &(u64, KeptRecord)| Record { index: *index, bytes: record.clone() };
        self.records.iter().map(record).collect()
    }

    /// The bytes of all records, one after the other, and of each how many: the same in all.
    fn stacked(&self) -> PyResult<(Memory, usize)> {
        let length = self.records.first().map_or(0, |(_, record)| record.len());
        if let Some((index, record)) = self.records.iter().find(|(_, record)| record.len() != length) {
            let why = format!(
                "records of one microbatch differ in length: record {index} has {} bytes, another one {length}; take `batch.records`",
                record.len()
            );
            return Err(PyValueError::new_err(why));
        }
        let mut bytes = Vec::with_capacity(length * self.records.len());
        self.records.iter().for_each(|(_, record)| bytes.extend_from_slice(record));
        Ok((Memory::of_bytes(bytes), length))
    }

    fn __repr__(&self) -> String {
        let Batch { epoch, step, microbatch, records, .. } = self;
        format!("Batch(epoch={epoch}, step={step}, microbatch={microbatch}, {} records)", records.len())
    }
}

/// One record.
#[pyclass(frozen, module = "shoal._core")]
pub(crate) struct Record {
    /// Its index in the data set.
    #[pyo3(get)]
    index: u64,
    bytes: KeptRecord,
}

#[pymethods]
impl Record {
    /// A copy of its bytes.
    fn __bytes__(&self) -> &[u8] {
        &self.bytes
    }

    fn __len__(&self) -> usize {
        self.bytes.len()
    }

    /// Its bytes, shared and not copied, to be read.
    fn memory(&self) -> Memory {
        Memory::of_record(self.bytes.clone())
    }

    fn __repr__(&self) -> String {
        format!("Record({}, {} bytes)", self.index, self.bytes.len())
    }
}

/// The dense parameters of one version.
#[pyclass(frozen, module = "shoal._core")]
pub(crate) struct Parameters(pub(crate) sdk::Parameters);

#[pymethods]
impl Parameters {
    /// Two with the same number, of one trainer, have the same values.
    #[getter]
    fn version(&self) -> u64 {
        self.0.version()
    }

    /// What the loss is multiplied with.
    #[getter]
    fn loss_scale(&self) -> f32 {
        self.0.loss_scale()
    }

    /// All of them, to be read.
    fn memory(&self) -> Memory {
        Memory::of_parameters(self.0.clone())
    }

    /// Where a parameter lies in the memory, in elements: first, and one past the last.
    fn place(&self, name: &str) -> PyResult<(usize, usize)> {
        let place = self.0.place(name).map_err(|error| PyKeyError::new_err(error.to_string()))?;
        Ok((place.start, place.end))
    }
}
