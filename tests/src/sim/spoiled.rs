//! Trainers with a fault of their own: a program that fails on some records, or ends by them, a disk on which a chunk is damaged.

use super::data_set::DataSet;
use super::host::Host;
use super::program::Program;
use shoal_runtime::cluster::Slice;
use shoal_trainer_sdk::chunks::{ChunkSource, ReadError};
use shoal_trainer_sdk::{Batch, Declaration, Gradient, Job, Keys, Metrics, Model, Parameters, Unfit};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

/// The program, failing on records by their index in the data set.
#[derive(Clone, Debug)]
pub struct Poisoned {
    /// What it is otherwise.
    pub program: Program,
    /// The records.
    pub records: Vec<u64>,
    /// A record of the evaluated data.
    pub evaluated: Option<u64>,
    /// Whether it panics, instead of saying so.
    pub panics: bool,
}

impl Model for Poisoned {
    fn declare(&mut self, job: &Job) -> anyhow::Result<Declaration> {
        Ok(self.program.declaration(job.records))
    }

    fn keys(&mut self, batch: &Batch<'_>, keys: &mut Keys) -> anyhow::Result<()> {
        self.program.keys(batch, keys)
    }

    fn step(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        gradient: &mut Gradient,
    ) -> anyhow::Result<()> {
        if let Some(record) = batch.records.iter().find(|record| self.records.contains(&record.index)) {
            assert!(!self.panics, "record {} is poison", record.index);
            anyhow::bail!("record {} is poison", record.index);
        }
        self.program.step(batch, parameters, gradient)
    }

    fn evaluate(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        metrics: &mut Metrics,
    ) -> anyhow::Result<()> {
        let is_poison = batch.records.iter().any(|record| Some(record.index) == self.evaluated);
        anyhow::ensure!(!is_poison, "an evaluated record is poison");
        self.program.evaluate(batch, parameters, metrics)
    }
}

/// The program, whose gradients are not what they should be.
#[derive(Clone, Copy, Debug)]
pub struct Lying {
    /// What it is otherwise.
    pub program: Program,
    /// Steps in which it does not lie.
    pub honest: u64,
    /// What it adds: the next number above each value, or the number of its calls so far.
    pub lie: Lie,
}

/// What is added to gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// One bit.
    Bit,
    /// How often the program was called: state that no step function may have.
    Calls(u32),
}

/// The parameter that lies are about.
pub const LIED_ABOUT: &str = "sgd";

impl Model for Lying {
    fn declare(&mut self, job: &Job) -> anyhow::Result<Declaration> {
        Ok(self.program.declaration(job.records))
    }

    fn keys(&mut self, batch: &Batch<'_>, keys: &mut Keys) -> anyhow::Result<()> {
        self.program.keys(batch, keys)
    }

    fn step(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        gradient: &mut Gradient,
    ) -> anyhow::Result<()> {
        self.program.step(batch, parameters, gradient)?;
        if batch.step < self.honest {
            return Ok(());
        }
        let sums = gradient.slice_mut(LIED_ABOUT)?;
        match &mut self.lie {
            Lie::Bit => sums[0] = f32::from_bits(sums[0].to_bits() ^ 1),
            Lie::Calls(calls) => {
                *calls += 1;
                sums[0] += *calls as f32;
            }
        }
        Ok(())
    }

    fn evaluate(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        metrics: &mut Metrics,
    ) -> anyhow::Result<()> {
        self.program.evaluate(batch, parameters, metrics)
    }
}

/// The program, ending its process as soon as some records are in one batch: without a word, or because it says that it cannot.
#[derive(Clone, Debug)]
pub struct Killer {
    /// What it is otherwise.
    pub program: Program,
    /// The records, by their index in the data set.
    pub records: Vec<u64>,
    /// Whether all of them must be there, or one is enough.
    pub together: bool,
    /// Whether already the keys that they read do it.
    pub by_keys: bool,
    /// Whether it says that this trainer cannot.
    pub says_so: bool,
    /// The process, once it has been started.
    pub host: Arc<OnceLock<Arc<Host>>>,
}

impl Killer {
    fn ends(&self, batch: &Batch<'_>) -> anyhow::Result<()> {
        let has = |index: &u64| batch.records.iter().any(|record| record.index == *index);
        let mut records = self.records.iter();
        if if self.together { records.all(has) } else { records.any(has) } {
            if self.says_so {
                return Err(Unfit("no memory is left".to_owned()).into());
            }
            self.host.wait().crash();
            anyhow::bail!("nobody hears of it");
        }
        Ok(())
    }
}

impl Model for Killer {
    fn declare(&mut self, job: &Job) -> anyhow::Result<Declaration> {
        Ok(self.program.declaration(job.records))
    }

    fn keys(&mut self, batch: &Batch<'_>, keys: &mut Keys) -> anyhow::Result<()> {
        if self.by_keys {
            self.ends(batch)?;
        }
        self.program.keys(batch, keys)
    }

    fn step(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        gradient: &mut Gradient,
    ) -> anyhow::Result<()> {
        self.ends(batch)?;
        self.program.step(batch, parameters, gradient)
    }
}

/// The data set with one chunk damaged.
#[derive(Debug)]
pub struct Spoiled {
    /// What it is otherwise.
    pub data: Arc<DataSet>,
    /// The chunk, by its index in the data set.
    pub chunk: u32,
}

impl ChunkSource for Spoiled {
    fn read<'a>(
        &'a self,
        slice: &'a Slice,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, ReadError>> + Send + 'a>> {
        Box::pin(async move {
            let mut bytes = self.data.read(slice).await?;
            if slice.chunk == self.chunk
                && let Some(last) = bytes.last_mut()
            {
                *last ^= 1;
            }
            Ok(bytes)
        })
    }
}
