//! The definition of training, written once more without any code under test but the plan: one loop, no network.
//!
//! Per step: gradients of all microbatches at the step's version, the tree's sum by recursion, the rule once.

use super::data_set::DataSet;
use super::program::gradient_of;
use shoal_runtime::cluster::permutation::key;
use shoal_runtime::cluster::plan::ChunkOrder;
use shoal_runtime::cluster::{Declaration, JobSettings, Node, Parameter, Plan, Rule, Step};
use shoal_trainer_sdk::{Batch, Record};

/// One parameter and its rule's state.
#[derive(Clone, Debug, PartialEq)]
pub struct Trained {
    /// The parameter.
    pub values: Vec<f32>,
    /// As many slots as the rule has.
    pub slots: Vec<Vec<f32>>,
}

/// A microbatch with its records, ready for the step function.
struct Microbatch<'a> {
    index: u64,
    records: Vec<Record<'a>>,
}

/// Trains the whole job; one entry for each declared parameter.
pub fn train(declaration: &Declaration, job: &JobSettings, data: &DataSet) -> Vec<Trained> {
    train_until(declaration, job, data, Step(job.steps()))
}

/// The sum of one node's leaves at its step's version, for each parameter, and its weight.
pub fn node_sum(
    declaration: &Declaration,
    job: &JobSettings,
    data: &DataSet,
    step: Step,
    node: Node,
) -> (Vec<Vec<f32>>, u64) {
    let trained = train_until(declaration, job, data, step);
    let mut plan = Plan::new(data.manifest().clone(), job.clone());
    let mut microbatches = microbatches(&mut plan, job, data, step);
    microbatches.truncate(node.end() as usize);
    let microbatches = microbatches.split_off(node.first() as usize);
    let sum = |(parameter, trained): (&Parameter, &Trained)| {
        let leaves =
            microbatches.iter().map(|microbatch| leaf(parameter, &trained.values, microbatch, job, step));
        sum_of(&leaves.collect::<Vec<_>>(), node.width() as usize)
    };
    let sums = declaration.parameters.iter().zip(&trained).map(sum).collect();
    (sums, microbatches.iter().map(|microbatch| microbatch.records.len() as u64).sum())
}

/// Trains up to the version that `until` reads.
pub fn train_until(
    declaration: &Declaration,
    job: &JobSettings,
    data: &DataSet,
    until: Step,
) -> Vec<Trained> {
    let mut plan = Plan::new(data.manifest().clone(), job.clone());
    let mut trained: Vec<Trained> =
        declaration.parameters.iter().map(|parameter| initial(parameter, job)).collect();
    for step in (0..until.0).map(Step) {
        let microbatches = microbatches(&mut plan, job, data, step);
        let weight: u64 = microbatches.iter().map(|microbatch| microbatch.records.len() as u64).sum();
        for (parameter, trained) in declaration.parameters.iter().zip(&mut trained) {
            let leaves: Vec<Vec<f32>> = microbatches
                .iter()
                .map(|microbatch| leaf(parameter, &trained.values, microbatch, job, step))
                .collect();
            let sum = sum_of(&leaves, leaves.len().next_power_of_two());
            update(parameter, trained, &sum, weight as f32, step);
        }
    }
    trained
}

fn initial(parameter: &Parameter, job: &JobSettings) -> Trained {
    let mut values = vec![0.0; parameter.elements() as usize];
    parameter.initial.fill(job.seed, &parameter.name, 0, &mut values);
    let slots = vec![vec![0.0; values.len()]; parameter.slots().len()];
    Trained { values, slots }
}

fn microbatches<'a>(
    plan: &mut Plan,
    job: &JobSettings,
    data: &'a DataSet,
    step: Step,
) -> Vec<Microbatch<'a>> {
    let epoch = plan.shape().epoch(step);
    let present = plan.shape().tree(step).present();
    let filled = (0..present).map(|slot| plan.microbatch(step, slot)).map(|microbatch| {
        let records = microbatch.slices.iter().flat_map(|slice| {
            let order = ChunkOrder::new(job, epoch, slice.chunk, slice.chunk_records);
            let positions = slice.first_position..slice.first_position + slice.records;
            positions.map(move |position| slice.chunk_first_record + u64::from(order.record(position)))
        });
        let records = records.map(|index| Record { index, bytes: data.record(index) }).collect();
        Microbatch { index: microbatch.index, records }
    });
    filled.collect()
}

/// One microbatch's gradient of one parameter; -0.0 counts as 0.0.
fn leaf(
    parameter: &Parameter,
    values: &[f32],
    microbatch: &Microbatch<'_>,
    job: &JobSettings,
    step: Step,
) -> Vec<f32> {
    let batch = Batch {
        epoch: job.shape().epoch(step),
        step: step.0,
        microbatch: microbatch.index,
        seed: key(&[job.seed, step.0, microbatch.index]),
        records: &microbatch.records,
    };
    gradient_of(&parameter.name, &batch, values).into_iter().map(|gradient| gradient + 0.0).collect()
}

/// The sum of `leaves` padded to `width`, a power of two, with absent leaves.
fn sum_of(leaves: &[Vec<f32>], width: usize) -> Vec<f32> {
    if leaves.len() <= 1 {
        return leaves.first().cloned().unwrap_or_default();
    }
    let (left, right) = leaves.split_at((width / 2).min(leaves.len()));
    let left = sum_of(left, width / 2);
    if right.is_empty() {
        return left;
    }
    let right = sum_of(right, width / 2);
    left.iter().zip(&right).map(|(left, right)| left + right).collect()
}

fn update(parameter: &Parameter, trained: &mut Trained, sum: &[f32], weight: f32, step: Step) {
    let rate = parameter.learning_rate.at(step);
    for (element, sum) in sum.iter().enumerate() {
        let value = &mut trained.values[element];
        let mean = sum / weight;
        match parameter.rule {
            Rule::Sum => *value += sum,
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
