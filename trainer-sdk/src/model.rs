//! What an author of a training program writes: a [`Model`], and what it is given. Knows nothing of the network.

use crate::metrics::Metrics;
use crate::tables::{EmbeddingGradients, Embeddings, Keys, TableRows};
use crate::taken::Taken;
use shoal_runtime::cluster::initial::RowInitial;
use shoal_runtime::cluster::layout::BlockLayout;
use shoal_runtime::cluster::parameter::DECISIONS;
use shoal_runtime::cluster::{
    BlockId, Decision, Declaration, JobSettings, Layout, Parameter, Precision, Rows,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A training program.
pub trait Model: Send + 'static {
    /// The parameters, as a function of the job alone: every trainer must declare the same.
    fn declare(&mut self, job: &Job) -> Declaration;

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
    /// Whatever makes the batch impossible; the trainer gives up with the place of the batch in the message.
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
        }
    }
}

/// One training sample.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Its index in the data that are trained on, or in those that are evaluated or predicted: the same in every epoch, whatever the shuffle.
    pub index: u64,
    /// Its bytes, as they were packed.
    pub bytes: &'a [u8],
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
    /// The records in order.
    pub records: &'a [Record<'a>],
}

/// The names and places of a job's parameters.
#[derive(Debug)]
pub(crate) struct Names {
    pub(crate) declaration: Declaration,
    pub(crate) layout: Layout,
    index: BTreeMap<String, usize>,
    /// Of tables the first block, and the rows of keys that have none; indexed as declared.
    tables: Vec<Option<(BlockId, RowInitial)>>,
    /// In which precision gradients travel, where a block's may be rounded.
    pub(crate) gradients: Precision,
    /// Of each parameter, as declared, how many of its first elements have gradients that are rounded.
    pub(crate) rounded: Arc<[usize]>,
}

impl Names {
    pub(crate) fn new(declaration: Declaration, seed: u64, gradients: Precision) -> Names {
        let layout = Layout::new(&declaration);
        let index = declaration.parameters.iter().enumerate().map(|(i, p)| (p.name.clone(), i)).collect();
        let mut tables = vec![None; declaration.parameters.len()];
        let firsts =
            layout.iter().filter_map(|(id, block)| Some((id, block.bucket.filter(|b| b.number == 0)?)));
        for (id, bucket) in firsts {
            let table = &declaration.parameters[bucket.parameter];
            tables[bucket.parameter] = Some((id, table.initial.of_rows(seed, &table.name)));
        }
        let rounded = rounded(&declaration, &layout, gradients);
        Names { declaration, layout, index, tables, gradients, rounded }
    }
    /// One zeroed vector for each dense parameter.
    pub(crate) fn zeros(&self) -> Vec<Vec<f32>> {
        self.declaration.parameters.iter().map(|p| vec![0.0; dense_elements(p)]).collect()
    }
    /// Whether there are embedding tables.
    pub(crate) fn has_tables(&self) -> bool {
        self.tables.iter().any(Option::is_some)
    }
    /// Which parameter a table is.
    pub(crate) fn table(&self, name: &str) -> anyhow::Result<usize> {
        let at = self.index.get(name).copied().filter(|at| self.tables[*at].is_some());
        at.ok_or_else(|| anyhow::anyhow!("no embedding table {name:?} was declared"))
    }
    /// The places of each bucket's keys among these of a table; nothing of what is no table.
    pub(crate) fn places(&self, parameter: usize, keys: &[u64]) -> Vec<(BlockId, Vec<u32>)> {
        let table = self.tables[parameter].as_ref().zip(self.declaration.parameters[parameter].table);
        let places = table.map(|((first, _), table)| (first.0.., table.places(keys)));
        places.into_iter().flat_map(|(blocks, places)| blocks.map(BlockId).zip(places)).collect()
    }
    /// The row of a key that has none.
    pub(crate) fn unborn(&self, parameter: usize, key: u64, row: &mut [f32]) {
        if let Some((_, initial)) = &self.tables[parameter] {
            initial.fill(key, row);
        }
    }
    /// One zeroed vector for each parameter that takes part in evaluations, or in steps that train; an empty one for others.
    pub(crate) fn sums(&self, evaluates: bool) -> Vec<Vec<f32>> {
        let parameters = self.declaration.parameters.iter();
        let elements = |p: &Parameter| if p.rule.is_metric() == evaluates { dense_elements(p) } else { 0 };
        parameters.map(|parameter| vec![0.0; elements(parameter)]).collect()
    }
    /// A gradient that no block has been given; the scalar block takes none.
    pub(crate) fn untaken(&self) -> Taken {
        let mut taken = Taken::by_none(self.layout.len());
        if let Some(scalars) = self.layout.scalars() {
            taken.applied(scalars);
        }
        taken
    }
    /// Whether gradients that are not finite are pushed: the step is then skipped.
    pub(crate) fn pushes_non_finite(&self) -> bool {
        self.declaration.decisions().is_some_and(|decisions| decisions.takes_non_finite())
    }
    /// What a block adds to a message.
    pub(crate) fn bytes(&self, block: BlockId) -> usize {
        4 * self.layout.block(block).map_or(0, |block| block.elements)
    }
    /// In which precision a block's gradient travels.
    pub(crate) fn precision(&self, block: &BlockLayout) -> Precision {
        block.precision(self.gradients)
    }
    /// What a block's gradient adds to a message.
    pub(crate) fn gradient_bytes(&self, block: BlockId) -> usize {
        self.layout.block(block).map_or(0, |block| self.precision(block).bytes() * block.elements)
    }
    pub(crate) fn find(&self, name: &str) -> anyhow::Result<usize> {
        self.index.get(name).copied().ok_or_else(|| anyhow::anyhow!("no parameter {name:?} was declared"))
    }
}

/// How many first elements of each parameter are rounded: only its last block may have other things than gradients in it.
fn rounded(declaration: &Declaration, layout: &Layout, gradients: Precision) -> Arc<[usize]> {
    let mut rounded = vec![0; declaration.parameters.len()];
    for (_, block) in layout.iter().filter(|(_, block)| block.precision(gradients) == Precision::Bf16) {
        for piece in &block.pieces {
            debug_assert_eq!(rounded[piece.parameter], piece.first as usize);
            rounded[piece.parameter] += piece.range.len();
        }
    }
    rounded.into()
}

fn dense_elements(parameter: &Parameter) -> usize {
    if parameter.table.is_none() { parameter.elements() as usize } else { 0 }
}

/// The parameters at the version that a step reads. Counters (rule `Sum`) and metrics are not pulled: they read as 0.
#[derive(Clone, Debug)]
pub struct Parameters {
    pub(crate) names: Arc<Names>,
    pub(crate) values: Arc<Vec<Vec<f32>>>,
    /// Of tables the rows that were pulled, indexed as declared.
    pub(crate) rows: Arc<Vec<TableRows>>,
}

impl Parameters {
    /// A dense parameter's values in row-major order.
    ///
    /// # Errors
    /// No such parameter.
    pub fn slice(&self, name: &str) -> anyhow::Result<&[f32]> {
        Ok(&self.values[self.names.find(name)?])
    }

    /// The rows of an embedding table: those of the keys that [`Model::keys`] has named.
    ///
    /// # Errors
    /// No such table.
    pub fn embeddings(&self, table: &str) -> anyhow::Result<Embeddings<'_>> {
        let at = self.names.table(table)?;
        let parameter = &self.names.declaration.parameters[at];
        Ok(Embeddings::new(&parameter.name, parameter.elements() as usize, &self.rows[at]))
    }

    /// What the program multiplies its loss with, and so its gradients, before it computes in a narrow number format:
    /// pservers divide by it again. 1 unless a loss scale was declared ([`crate::Decisions`]). Metrics stay unscaled.
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
    pub(crate) values: Vec<Vec<f32>>,
    /// Of tables, indexed as declared.
    pub(crate) rows: Vec<Rows>,
    pub(crate) weight: u64,
}

impl Gradient {
    /// Of a batch in which these keys occur.
    pub(crate) fn zeros(names: &Arc<Names>, keys: Keys, weight: u64) -> Gradient {
        Gradient { names: names.clone(), values: names.sums(false), rows: keys.rows(), weight }
    }

    /// The gradient sums of an embedding table's rows: those of the keys that [`Model::keys`] has named.
    ///
    /// # Errors
    /// No such table.
    pub fn embeddings_mut(&mut self, table: &str) -> anyhow::Result<EmbeddingGradients<'_>> {
        let at = self.names.table(table)?;
        let parameter = &self.names.declaration.parameters[at];
        let dimension = parameter.elements() as usize;
        Ok(EmbeddingGradients::new(&parameter.name, dimension, &mut self.rows[at]))
    }

    /// A dense parameter's gradient sums in row-major order, to be looked at.
    ///
    /// # Errors
    /// No such parameter.
    pub fn slice(&self, name: &str) -> anyhow::Result<&[f32]> {
        Ok(&self.values[self.names.find(name)?])
    }

    /// A dense parameter's gradient sums in row-major order.
    ///
    /// # Errors
    /// No such parameter.
    pub fn slice_mut(&mut self, name: &str) -> anyhow::Result<&mut [f32]> {
        let at = self.names.find(name)?;
        let is_metric = self.names.declaration.parameters[at].rule.is_metric();
        anyhow::ensure!(!is_metric, "metric {name:?}: evaluations add to it, steps have `Parameter::sum`");
        Ok(&mut self.values[at])
    }

    /// Adds `values` to a parameter's gradient sums.
    ///
    /// # Errors
    /// No such parameter, or another number of values than it has elements.
    pub fn add(&mut self, name: &str, values: &[f32]) -> anyhow::Result<()> {
        let sums = self.slice_mut(name)?;
        anyhow::ensure!(
            sums.len() == values.len(),
            "parameter {name:?} has {} elements, the gradient {}",
            sums.len(),
            values.len()
        );
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        Ok(())
    }

    /// What the step's mean divides by: the number of records unless stated otherwise (tokens, say).
    pub fn set_weight(&mut self, weight: u64) {
        self.weight = weight;
    }
}
