//! The training program of the simulation: counts every record it sees, and learns values whose bits tell which
//! version each gradient was taken at and in which order gradients were summed up.

use super::tables::{self, ROW_COUNTS, ROWS, Tables};
use shoal_runtime::cluster::parameter::DECISIONS;
use shoal_runtime::cluster::permutation::key;
use shoal_trainer_sdk::{
    Batch, Better, Decay, Decisions, Declaration, Gradient, Initial, Job, Keys, Metric, Metrics, Model,
    Parameter, Parameters, Record, Rule, Schedule, Target,
};

use std::collections::{BTreeMap, BTreeSet};

/// The counters: record `i` adds `4^epoch` to element `i` of each.
pub const COUNTS: [&str; 3] = ["count.first", "count.middle", "count.last"];
/// A metric whose sum depends on the order of its terms.
pub const METRIC: &str = "metric";
const METRIC_ELEMENTS: usize = 3;
/// What evaluations find: a mean at which jobs aim, and an area.
pub const QUALITY: &str = "quality";
/// See [`QUALITY`].
pub const AUC: &str = "auc";
/// All that evaluations find, in the order of declaration.
pub const METRICS: [&str; 2] = [QUALITY, AUC];
/// So few that the area's block is small; a power of two, so that bins have exact bounds.
const AUC_BINS: u32 = 8;
/// Parameters that are read by steps.
const LEARNT: [(&str, u64); 3] = [("amsgrad", 6), ("sgd", 7), ("momentum", 5)];
/// A parameter whose velocity shows the sign of a zero: every other step its gradient is -0.0 and nothing else.
const ZEROS: &str = "zeros";
const ZEROS_ELEMENTS: usize = 2;

/// The program.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// See [`Declaration::block_elements`].
    pub block_elements: u64,
    /// What is decided over all blocks. Where steps may be skipped, some of them have gradients that are not finite.
    pub decisions: Option<Decisions>,
    /// Whether it has metrics.
    pub evaluates: bool,
    /// What the job aims at with the first of them.
    pub target: Option<Target>,
    /// Its tables.
    pub tables: Option<Tables>,
    /// Whether it says that its bits depend on something that others do not name.
    pub is_odd: bool,
}

impl Program {
    /// What the program declares for a data set of `records` records.
    pub fn declaration(&self, records: u64) -> Declaration {
        let mut declaration = declaration(records, self.block_elements);
        if self.evaluates {
            let quality = Parameter::metric(QUALITY, Metric::Mean { better: Better::Larger });
            let quality = match self.target {
                Some(target) => quality.aiming(target),
                None => quality,
            };
            // Not behind one another, nor at the end.
            declaration.parameters.insert(1, quality);
            declaration.parameters.insert(4, Parameter::metric(AUC, Metric::Auc { bins: AUC_BINS }));
        }
        if let Some([counts, rows]) = self.tables.map(|tables| tables.parameters()) {
            declaration.parameters.insert(3, counts);
            declaration.parameters.insert(1, rows);
        }
        match self.decisions {
            Some(decisions) => declaration.deciding(decisions),
            None => declaration,
        }
    }

    /// Whether a batch has a gradient that is not finite.
    fn breaks(&self, batch: &Batch<'_>) -> bool {
        let is_broken = key(&[batch.step, 0xBAD]).is_multiple_of(5) && batch.microbatch.is_multiple_of(2);
        is_broken && self.decisions.is_some_and(|decisions| decisions.takes_non_finite())
    }
}

fn declaration(records: u64, block_elements: u64) -> Declaration {
    let count = |name| Parameter::sum(name, &[records]);
    let learnt = |at: usize, rule, decay, initial| {
        let (name, elements) = LEARNT[at];
        let schedule = Schedule { base: 0.01, warmup_steps: at as u64, decay };
        Parameter::new(name, &[elements], rule, schedule, initial)
    };
    let parameters = vec![
        count(COUNTS[0]),
        learnt(0, Rule::AMSGRAD, Decay::Cosine { floor: 0.001, over: 9 }, Initial::Uniform { limit: 1.0 }),
        learnt(1, Rule::Sgd, Decay::Step { factor: 0.5, every: 3 }, Initial::Normal { deviation: 1.0 }),
        count(COUNTS[1]),
        Parameter::sum(METRIC, &[METRIC_ELEMENTS as u64]),
        learnt(2, Rule::Momentum { momentum: 0.9 }, Decay::Constant, Initial::Zeros),
        Parameter::new(
            ZEROS,
            &[ZEROS_ELEMENTS as u64],
            Rule::Momentum { momentum: 0.0 },
            Schedule::constant(0.1),
            Initial::Zeros,
        ),
        count(COUNTS[2]),
    ];
    Declaration { parameters, block_elements }
}

impl Model for Program {
    fn declare(&mut self, job: &Job) -> anyhow::Result<Declaration> {
        Ok(self.declaration(job.records))
    }

    fn environment(&mut self) -> anyhow::Result<BTreeMap<String, String>> {
        let odd = self.is_odd.then(|| ("threads".to_owned(), "2".to_owned()));
        Ok(odd.into_iter().collect())
    }

    fn keys(&mut self, batch: &Batch<'_>, keys: &mut Keys) -> anyhow::Result<()> {
        for table in self.tables.iter().flat_map(|_| [ROW_COUNTS, ROWS]) {
            batch.records.iter().try_for_each(|record| keys.extend(table, tables::keys(table, record)))?;
        }
        Ok(())
    }

    fn evaluate(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        metrics: &mut Metrics,
    ) -> anyhow::Result<()> {
        let read = |name: &str| parameters.slice(name).expect("a parameter of the program");
        for record in batch.records {
            let (value, score, is_positive) = judged(record, batch, &read);
            metrics.add(QUALITY, value, 1.0)?;
            metrics.score(AUC, score, is_positive)?;
        }
        Ok(())
    }

    fn step(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        gradient: &mut Gradient,
    ) -> anyhow::Result<()> {
        for name in COUNTS {
            add_counts(batch, gradient.slice_mut(name)?);
        }
        add_metric(batch, gradient.slice_mut(METRIC)?);
        add_zeros(batch, gradient.slice_mut(ZEROS)?);
        for (name, _) in LEARNT {
            let sums = gradient.slice_mut(name)?;
            add_learnt(batch, parameters.slice(name)?, sums);
            self.scale(name, batch, parameters.loss_scale(), sums);
        }
        for table in self.tables.iter().flat_map(|_| [ROW_COUNTS, ROWS]) {
            add_rows(table, batch, parameters, gradient)?;
        }
        Ok(())
    }
}

fn add_rows(
    table: &str,
    batch: &Batch<'_>,
    parameters: &Parameters,
    gradient: &mut Gradient,
) -> anyhow::Result<()> {
    let (rows, mut sums) = (parameters.embeddings(table)?, gradient.embeddings_mut(table)?);
    let mut named = BTreeSet::new();
    for record in batch.records {
        for key in tables::keys(table, record) {
            tables::give(table, batch, record, key, rows.row(key)?, sums.row_mut(key)?);
            named.insert(key);
        }
    }
    let scale = if table == ROWS { parameters.loss_scale() } else { 1.0 };
    for key in named {
        sums.row_mut(key)?.iter_mut().for_each(|sum| *sum *= scale);
    }
    Ok(())
}

impl Program {
    /// The gradient of one parameter, for the reference, which has no trainer.
    pub fn gradient_of(&self, name: &str, batch: &Batch<'_>, parameter: &[f32], loss_scale: f32) -> Vec<f32> {
        let mut gradient = vec![0.0; parameter.len()];
        match name {
            METRIC => add_metric(batch, &mut gradient),
            ZEROS => add_zeros(batch, &mut gradient),
            DECISIONS => {}
            _ if COUNTS.contains(&name) => add_counts(batch, &mut gradient),
            _ => {
                add_learnt(batch, parameter, &mut gradient);
                self.scale(name, batch, loss_scale, &mut gradient);
            }
        }
        gradient
    }

    /// The sums of one metric, for the reference; `read` gives parameters by name.
    pub fn metric_of<'a>(&self, name: &str, batch: &Batch<'_>, read: &dyn Fn(&str) -> &'a [f32]) -> Vec<f32> {
        let mut sums = vec![0.0; if name == QUALITY { 2 } else { 2 * AUC_BINS as usize }];
        for record in batch.records {
            let (value, score, is_positive) = judged(record, batch, read);
            if name == QUALITY {
                sums[0] += value;
                sums[1] += 1.0;
            } else {
                let bin = (0..AUC_BINS as usize).rev().find(|bin| score * AUC_BINS as f32 >= *bin as f32);
                sums[bin.unwrap_or(0) + if is_positive { 0 } else { AUC_BINS as usize }] += 1.0;
            }
        }
        sums
    }

    /// What a loss scale does to learnt gradients, and what breaks.
    fn scale(&self, name: &str, batch: &Batch<'_>, loss_scale: f32, gradient: &mut [f32]) {
        gradient.iter_mut().for_each(|sum| *sum *= loss_scale);
        if name == LEARNT[1].0 && self.breaks(batch) {
            gradient[1] = if batch.microbatch.is_multiple_of(4) { f32::NEG_INFINITY } else { f32::NAN };
        }
    }
}

fn add_counts(batch: &Batch<'_>, gradient: &mut [f32]) {
    for record in batch.records {
        gradient[record.index as usize] += (1u32 << (2 * batch.epoch)) as f32;
    }
}

fn add_metric(batch: &Batch<'_>, gradient: &mut [f32]) {
    for record in batch.records {
        gradient[0] += 1e5 * value(record, 0);
        gradient[1] += 1e-3 * value(record, 1);
    }
    gradient[2] = -0.0;
}

/// Negative velocities at even steps; times a momentum of 0.0 they are -0.0, to which -0.0 adds up to another bit
/// than 0.0 does.
fn add_zeros(batch: &Batch<'_>, gradient: &mut [f32]) {
    gradient.fill(if batch.step.is_multiple_of(2) { -1.0 } else { -0.0 });
}

fn add_learnt(batch: &Batch<'_>, parameter: &[f32], gradient: &mut [f32]) {
    // A part of the batch's own randomness, as dropout would have.
    let luck = (batch.seed % 1000) as f32 * 1e-3;
    // Stale gradients make values swing, ever more so where a window is wide; none must grow beyond all bounds.
    let bounded = |value: f32| value.clamp(-100.0, 100.0);
    for (element, (sum, value_now)) in gradient.iter_mut().zip(parameter).enumerate() {
        let scale = [1.0, 37.0, 1e-4, 0.3][element % 4];
        for record in batch.records {
            *sum += scale * (bounded(*value_now) - luck * value(record, element as u64));
        }
    }
    if batch.microbatch.is_multiple_of(2)
        && let Some(last) = gradient.last_mut()
    {
        *last = -0.0;
    }
}

/// What an evaluation finds of a record: a value whose sum depends on the order of its terms and on every parameter, a
/// score, and what it was.
fn judged<'a>(record: &Record<'_>, batch: &Batch<'_>, read: &dyn Fn(&str) -> &'a [f32]) -> (f32, f32, bool) {
    let learnt: f32 = LEARNT.iter().map(|(name, _)| read(name)[1]).sum();
    let scale = [1.0, 3e4, 1e-3][(batch.microbatch % 3) as usize];
    let score = (learnt * value(record, 5)).abs().fract();
    (scale * learnt * value(record, 7), score, value(record, 11) > 0.0)
}

/// A number in -1..1 made of a record's bytes.
pub(super) fn value(record: &Record<'_>, which: u64) -> f32 {
    let bits = record.bytes.iter().take(8).fold(0, |bits, byte| bits << 8 | u64::from(*byte));
    (key(&[bits, which]) >> 40) as f32 / (1 << 23) as f32 - 1.0
}
