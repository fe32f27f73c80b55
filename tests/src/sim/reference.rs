//! The definition of training, written once more without any code under test but the plan: one loop, no network.
//!
//! Per step: gradients of all microbatches at the version that it reads, the tree's sum by recursion, the rule once.

mod decided;
mod evaluated;
mod rows;

use super::data_set::DataSet;
use super::program::Program;
use evaluated::Evaluations;
pub use rows::{Row, Rows};
use rows::{RowSums, Update};
use shoal_runtime::cluster::permutation::key;
use shoal_runtime::cluster::plan::ChunkOrder;
use shoal_runtime::cluster::{
    Declaration, Exclusions, JobSettings, Node, Parameter, Plan, Precision, Rule, Stage, Step, Version,
};
use shoal_trainer_sdk::{Batch, Record};
use std::collections::VecDeque;

/// One parameter and its rule's state.
#[derive(Clone, Debug, PartialEq)]
pub struct Trained {
    /// The parameter.
    pub values: Vec<f32>,
    /// As many slots as the rule has.
    pub slots: Vec<Vec<f32>>,
    /// Of a table, which has neither.
    pub rows: Rows,
}

/// A microbatch with its records, ready for the step function.
struct Microbatch<'a> {
    index: u64,
    records: Vec<Record<'a>>,
}

impl Microbatch<'_> {
    /// As the program is given it.
    fn batch(&self, job: &JobSettings, step: Step) -> Batch<'_> {
        let (shape, index) = (job.shape(), self.index);
        let trained = shape.steps().trained(step.0);
        let seed =
            if shape.evaluates(step) { [job.seed, u64::MAX, index] } else { [job.seed, trained, index] };
        let epoch = trained / shape.training().steps();
        Batch { epoch, step: trained, microbatch: index, seed: key(&seed), records: &self.records }
    }
}

/// A job as it ends.
#[derive(Debug)]
pub struct Ending {
    /// One entry for each declared parameter.
    pub trained: Vec<Trained>,
    /// The values of all evaluations.
    pub evaluations: Vec<Vec<Option<f64>>>,
}

/// Trains the whole job.
pub fn train(program: Program, job: &JobSettings, data: &DataSet, exclusions: &Exclusions) -> Ending {
    train_until(program, job, data, exclusions, Step(job.steps()))
}

/// The records of one step by their indexes in the data set, microbatch by microbatch.
pub fn records_of(job: &JobSettings, data: &DataSet, step: Step) -> Vec<u64> {
    let mut plan = Plan::new(data.manifest().clone(), job.clone());
    let microbatches = microbatches(&mut plan, job, data, &Exclusions::default(), step);
    microbatches.iter().flat_map(|microbatch| microbatch.records.iter().map(|record| record.index)).collect()
}

/// The sum of one node's leaves at the version that its step reads, for each parameter, and its weight.
pub fn node_sum(
    program: Program,
    job: &JobSettings,
    data: &DataSet,
    step: Step,
    node: Node,
) -> (Vec<Vec<f32>>, u64) {
    let exclusions = Exclusions::default();
    let Ending { trained, .. } = train_until(program, job, data, &exclusions, Step(job.reads(step).0));
    let loss_scale = decided::loss_scale(&trained, program);
    let mut plan = Plan::new(data.manifest().clone(), job.clone());
    let mut microbatches = microbatches(&mut plan, job, data, &exclusions, step);
    microbatches.truncate(node.end() as usize);
    let microbatches = microbatches.split_off(node.first() as usize);
    let leaf = Leaf { program, job, step, loss_scale };
    let declaration = program.declaration(job.records);
    let sum = |(parameter, trained): (&Parameter, &Trained)| {
        let leaves = microbatches.iter().map(|microbatch| leaf.of(parameter, &trained.values, microbatch));
        sum_of(&leaves.collect::<Vec<_>>(), node.width() as usize, precision(parameter, job))
    };
    let sums = declaration.parameters.iter().zip(&trained).map(sum).collect();
    (sums, microbatches.iter().map(|microbatch| microbatch.records.len() as u64).sum())
}

/// Trains up to the version that `until` replaces, or to an early end.
pub fn train_until(
    program: Program,
    job: &JobSettings,
    data: &DataSet,
    exclusions: &Exclusions,
    until: Step,
) -> Ending {
    train_seen(program, job, data, exclusions, until, |_, _| {})
}

/// The same; `see` is shown the model at each version.
pub fn train_seen(
    program: Program,
    job: &JobSettings,
    data: &DataSet,
    exclusions: &Exclusions,
    until: Step,
    mut see: impl FnMut(Version, &[Trained]),
) -> Ending {
    let declaration = program.declaration(job.records);
    let mut plan = Plan::new(data.manifest().clone(), job.clone());
    let mut trained: Vec<Trained> =
        declaration.parameters.iter().map(|parameter| initial(parameter, job)).collect();
    let mut evaluations = Evaluations::new();
    // The newest versions, oldest first: as many as a step's gradients may lie back.
    let mut kept = VecDeque::from([trained.clone()]);
    see(Version(0), &trained);
    for step in (0..until.0).map(Step) {
        if evaluations.is_over {
            break;
        }
        let microbatches = microbatches(&mut plan, job, data, exclusions, step);
        match job.shape().steps().stage(step.0) {
            Some(Stage::Evaluation { number, unit }) => {
                let batches = microbatches.iter().map(|microbatch| microbatch.batch(job, step));
                let batches: Vec<Batch<'_>> = batches.collect();
                Evaluations::step(program, &declaration, &mut trained, &batches, unit == 0);
                decided::go_by(&declaration, &mut trained);
                if step.0 + 1 == job.shape().steps().evaluation(number).end {
                    evaluations.judge(&declaration, &trained, program.target);
                }
            }
            _ => {
                let weight: u64 = microbatches.iter().map(|microbatch| microbatch.records.len() as u64).sum();
                let leaf = Leaf { program, job, step, loss_scale: decided::loss_scale(&kept[0], program) };
                let sum = |(parameter, read): (&Parameter, &Trained)| {
                    let leaves: Vec<Vec<f32>> = microbatches
                        .iter()
                        .map(|microbatch| leaf.of(parameter, &read.values, microbatch))
                        .collect();
                    sum_of(&leaves, leaves.len().next_power_of_two(), precision(parameter, job))
                };
                let sums: Vec<Vec<f32>> = declaration.parameters.iter().zip(&kept[0]).map(sum).collect();
                let row_sums = leaf.row_sums(&declaration, &kept[0], &microbatches);
                let sums = Sums { dense: sums, rows: row_sums };
                let decided = decided::decide(&declaration, &mut trained, &sums, weight, leaf.loss_scale);
                let step = Step(job.shape().steps().trained(step.0));
                for (at, (parameter, trained)) in declaration.parameters.iter().zip(&mut trained).enumerate()
                {
                    let Some(factor) = decided else { continue };
                    let (weight, number) = (weight as f32 / factor, step.0 as u32 + 1);
                    let rate = evaluations.rate * parameter.learning_rate.at(step);
                    if let Some(table) = parameter.table {
                        let update = Update { parameter, table, job, number, weight, rate };
                        update.apply(&mut trained.rows, &sums.rows[at]);
                        continue;
                    }
                    update(parameter, trained, &sums.dense[at], weight, rate, step);
                }
            }
        }
        see(Version(step.0 + 1), &trained);
        kept.push_back(trained.clone());
        if kept.len() as u64 > job.mode.delay() + 1 {
            kept.pop_front();
        }
    }
    Ending { trained, evaluations: evaluations.values }
}

fn initial(parameter: &Parameter, job: &JobSettings) -> Trained {
    let elements = if parameter.table.is_some() { 0 } else { parameter.elements() };
    let mut values = vec![0.0; elements as usize];
    parameter.initial.fill(job.seed, &parameter.name, 0, &mut values);
    if let Rule::Decide(decisions) = parameter.rule {
        // Nothing scaled, skipped or clipped yet.
        values =
            vec![1.0, 0.0, 0.0, decisions.loss_scale.map_or(1.0, |scale| scale.initial), 0.0, 0.0, 0.0, 0.0];
    }
    let slots = vec![vec![0.0; values.len()]; parameter.slots().len()];
    Trained { values, slots, rows: Rows::default() }
}

fn microbatches<'a>(
    plan: &mut Plan,
    job: &JobSettings,
    data: &'a DataSet,
    exclusions: &Exclusions,
    step: Step,
) -> Vec<Microbatch<'a>> {
    let present = plan.shape().tree(step).present();
    let shape = plan.shape();
    let first = if shape.evaluates(step) { job.records } else { 0 };
    let filled = (0..present).map(|slot| (slot, plan.microbatch(step, slot))).map(|(slot, microbatch)| {
        let (pass, _) = shape.microbatch(step, slot);
        let records = microbatch.slices.iter().flat_map(|slice| {
            let order = ChunkOrder::new(job, pass, slice.chunk, slice.chunk_records);
            let positions = slice.first_position..slice.first_position + slice.records;
            positions.map(move |position| slice.chunk_first_record + u64::from(order.record(position)))
        });
        let records = records.filter(|index| !exclusions.excludes(*index, step));
        let records = records.map(|index| Record::new(index - first, data.record(index))).collect();
        Microbatch { index: microbatch.index, records }
    });
    filled.collect()
}

/// What the gradients of one step's microbatches have in common.
struct Leaf<'a> {
    program: Program,
    job: &'a JobSettings,
    step: Step,
    loss_scale: f32,
}

/// A step's gradient sums, indexed as declared.
struct Sums {
    /// Of tables empty.
    dense: Vec<Vec<f32>>,
    /// Of dense parameters empty.
    rows: Vec<RowSums>,
}

impl Leaf<'_> {
    /// The sums of all tables.
    fn row_sums(
        &self,
        declaration: &Declaration,
        trained: &[Trained],
        microbatches: &[Microbatch<'_>],
    ) -> Vec<RowSums> {
        let sum = |(parameter, trained): (&Parameter, &Trained)| {
            let leaf = |microbatch: &Microbatch<'_>| {
                let batch = microbatch.batch(self.job, self.step);
                rows::leaf(parameter, self.job, &trained.rows, &batch, self.loss_scale)
            };
            let leaves: Vec<RowSums> = match parameter.table {
                Some(_) => microbatches.iter().map(leaf).collect(),
                None => Vec::new(),
            };
            rows::sum_of(&leaves, leaves.len().next_power_of_two())
        };
        declaration.parameters.iter().zip(trained).map(sum).collect()
    }

    /// One microbatch's gradient of one parameter, as a leaf.
    fn of(&self, parameter: &Parameter, values: &[f32], microbatch: &Microbatch<'_>) -> Vec<f32> {
        let Leaf { program, job, step, loss_scale } = *self;
        if microbatch.records.is_empty() || parameter.table.is_some() {
            // All are left out: nobody asks the program.
            return vec![0.0; values.len()];
        }
        let batch = microbatch.batch(job, step);
        let gradient = program.gradient_of(&parameter.name, &batch, values, loss_scale);
        let precision = precision(parameter, job);
        gradient.into_iter().map(|gradient| settled(gradient, precision)).collect()
    }
}

/// In which precision the gradients of a dense parameter are summed: what only counts is never rounded.
fn precision(parameter: &Parameter, job: &JobSettings) -> Precision {
    match parameter.rule {
        Rule::Sum | Rule::Metric { .. } | Rule::Decide(_) => Precision::F32,
        _ => job.gradients,
    }
}

/// What is a node's value of a leaf, or of an addition; -0.0 counts as 0.0.
fn settled(value: f32, precision: Precision) -> f32 {
    match precision {
        Precision::F32 => value + 0.0,
        Precision::Bf16 => bf16(value) + 0.0,
    }
}

/// To the nearer of the two numbers of 8 bits that are next to it, by arithmetic alone; of two equally near the even one.
fn bf16(value: f32) -> f32 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let value = f64::from(value);
    // The distance of two neighbours in its binade, or among the subnormals.
    let exponent = libm::ilogb(value).max(-126);
    let quantum = libm::ldexp(1.0, exponent - 7);
    // 2^128 is no f32, but becomes an infinity as one.
    (libm::rint(value / quantum) * quantum) as f32
}

/// The sum of `leaves` padded to `width`, a power of two, with absent leaves.
fn sum_of(leaves: &[Vec<f32>], width: usize, precision: Precision) -> Vec<f32> {
    if leaves.len() <= 1 {
        return leaves.first().cloned().unwrap_or_default();
    }
    let (left, right) = leaves.split_at((width / 2).min(leaves.len()));
    let left = sum_of(left, width / 2, precision);
    if right.is_empty() {
        return left;
    }
    let right = sum_of(right, width / 2, precision);
    left.iter().zip(&right).map(|(left, right)| settled(left + right, precision)).collect()
}

/// Adds to a counter, and keeps what rounding leaves out.
fn count(value: &mut f32, remainder: &mut f32, sum: f32) {
    let rounded = |a: f32, b: f32| (a + b, (f64::from(a) + f64::from(b) - f64::from(a + b)) as f32);
    let (plain, lost) = rounded(*value, sum);
    (*value, *remainder) = rounded(plain, lost + *remainder);
}

fn update(parameter: &Parameter, trained: &mut Trained, sum: &[f32], weight: f32, rate: f32, step: Step) {
    for (element, sum) in sum.iter().enumerate() {
        let value = &mut trained.values[element];
        let mean = sum / weight;
        match parameter.rule {
            Rule::Decide(_) | Rule::Metric { .. } => {}
            Rule::Sum => count(value, &mut trained.slots[0][element], *sum),
            Rule::Sgd => *value -= rate * mean,
            Rule::Momentum { momentum } => {
                let velocity = momentum * trained.slots[0][element] + mean;
                trained.slots[0][element] = velocity;
                *value -= rate * velocity;
            }
            Rule::AmsGrad { beta1, beta2, epsilon } => {
                let first = beta1 * trained.slots[0][element] + (1.0 - beta1) * mean;
                let second = beta2 * trained.slots[1][element] + (1.0 - beta2) * (mean * mean);
                let largest = second.max(trained.slots[2][element]);
                for (slot, moment) in trained.slots.iter_mut().zip([first, second, largest]) {
                    slot[element] = moment;
                }
                let correction = |beta: f32| (1.0 - libm::pow(f64::from(beta), (step.0 + 1) as f64)) as f32;
                let deviation = (largest / correction(beta2)).sqrt() + epsilon;
                *value -= (rate * (first / correction(beta1))) / deviation;
            }
            rule => unreachable!("the simulation's program uses no {rule:?}"),
        }
    }
}
