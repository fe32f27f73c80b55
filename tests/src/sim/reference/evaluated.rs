//! The definition of evaluations, written once more: sums of each, what they say, what follows from them.

use super::{Trained, sum_of};
use crate::sim::program::{AUC, METRICS, Program, QUALITY};
use shoal_runtime::cluster::{Declaration, Precision};
use shoal_trainer_sdk::{Batch, Target};

/// All evaluations of a job so far.
#[derive(Debug, Default)]
pub(super) struct Evaluations {
    /// Of each, the values of its metrics in the order of their declaration.
    pub(super) values: Vec<Vec<Option<f64>>>,
    best: Option<f64>,
    idle: u32,
    flat: u32,
    /// What learning rates are multiplied with.
    pub(super) rate: f32,
    pub(super) is_over: bool,
}

impl Evaluations {
    pub(super) fn new() -> Evaluations {
        Evaluations { rate: 1.0, ..Evaluations::default() }
    }

    /// One step of an evaluation: the sums of all microbatches are added to the metrics, from zero in the first.
    pub(super) fn step(
        program: Program,
        declaration: &Declaration,
        trained: &mut [Trained],
        batches: &[Batch<'_>],
        is_first: bool,
    ) {
        let read = trained.to_vec();
        let find = |name: &str| {
            let at = declaration.parameters.iter().position(|parameter| parameter.name == name);
            &read[at.expect("a parameter of the program")].values[..]
        };
        for name in METRICS {
            let leaves: Vec<Vec<f32>> =
                batches.iter().map(|batch| program.metric_of(name, batch, &find)).collect();
            let sum = sum_of(&leaves, leaves.len().next_power_of_two(), Precision::F32);
            let at = declaration.parameters.iter().position(|parameter| parameter.name == name);
            let values = &mut trained[at.expect("declared")].values;
            for (value, sum) in values.iter_mut().zip(sum) {
                *value = if is_first { 0.0 } else { *value } + sum;
            }
        }
    }

    /// An evaluation is whole.
    pub(super) fn judge(&mut self, declaration: &Declaration, trained: &[Trained], target: Option<Target>) {
        let sums = |name: &str| {
            let at = declaration.parameters.iter().position(|parameter| parameter.name == name);
            &trained[at.expect("declared")].values
        };
        let quality = f64::from(sums(QUALITY)[0]) / f64::from(sums(QUALITY)[1]);
        let quality = Some(quality).filter(|quality| quality.is_finite());
        let auc = area(sums(AUC));
        self.values.push(vec![quality, auc]);
        let Some(target) = target else { return };
        // The job aims at a large quality.
        let is_better = match (quality, self.best) {
            (Some(quality), Some(best)) => quality - best > f64::from(target.least_change),
            (quality, _) => quality.is_some() && self.best.is_none(),
        };
        if is_better {
            (self.best, self.idle, self.flat) = (quality, 0, 0);
            return;
        }
        (self.idle, self.flat) = (self.idle + 1, self.flat + 1);
        self.is_over = target.stop_after == Some(self.idle);
        if let Some(plateau) = target.plateau
            && self.flat == plateau.after
        {
            (self.rate, self.flat) = (self.rate * plateau.factor, 0);
        }
    }
}

/// Pair by pair of bins.
fn area(counts: &[f32]) -> Option<f64> {
    let bins = counts.len() / 2;
    let (mut ordered, mut pairs) = (0.0, 0.0);
    for (ours, positive) in counts[..bins].iter().enumerate() {
        for (theirs, negative) in counts[bins..].iter().enumerate() {
            let count = f64::from(*positive) * f64::from(*negative);
            pairs += count;
            ordered += count * [0.0, 0.5, 1.0][1 + usize::from(ours > theirs) - usize::from(ours < theirs)];
        }
    }
    Some(ordered / pairs).filter(|area| area.is_finite())
}
