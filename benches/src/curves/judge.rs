//! What follows from the curves of a set: whether the synchronous ones are equal bit for bit, and how far the asynchronous
//! ones of several seeds lie apart. Pure.

use super::results::{Curve, Mode, OfSet, Results, Trainers};
use super::sets::Set;
use serde::Serialize;

/// Of one set.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Judged {
    set: Set,
    /// What the synchronous jobs have in common, where there are any.
    pub(crate) sync: Option<Sync>,
    /// For each number of trainers that asynchronous jobs had.
    #[serde(rename = "async")]
    pub(crate) spreads: Vec<Spread>,
}

/// Of the synchronous jobs of a set.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Sync {
    pub(crate) jobs: usize,
    /// Whether all have the same parameters at the end and the same figures after every epoch, each by its bits.
    /// (A metric is a quotient of f32 sums: what reading it from text may lose is far less than their last bit.)
    pub(crate) is_equal: bool,
    /// What differs first.
    pub(crate) difference: Option<String>,
}

/// Of the asynchronous jobs with as many trainers, after each epoch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) trainers: Trainers,
    pub(crate) seeds: usize,
    pub(crate) accuracy: Vec<Range>,
}

/// The least, the mean and the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Range {
    pub(crate) min: f64,
    pub(crate) mean: f64,
    pub(crate) max: f64,
}

/// Of each set in turn.
pub(crate) fn all(results: &Results) -> Vec<Judged> {
    results.sets.iter().map(judged).collect()
}

fn judged(set: &OfSet) -> Judged {
    let curves: Vec<&Curve> =
        Trainers::ALL.into_iter().flat_map(|trainers| set.of(Mode::Sync, trainers)).collect();
    let difference = first_difference(&curves);
    let is_equal = difference.is_none();
    let sync = (!curves.is_empty()).then_some(Sync { jobs: curves.len(), is_equal, difference });
    let spread = |trainers: Trainers| {
        let curves: Vec<&Curve> = set.of(Mode::Async, trainers).collect();
        let epochs = curves.iter().map(|curve| curve.evaluations.len()).min().unwrap_or(0);
        let range =
            |epoch: usize| Range::of(curves.iter().map(|curve| curve.evaluations[epoch].accuracy).collect());
        let accuracy = (0..epochs).map(range).collect();
        (!curves.is_empty()).then_some(Spread { trainers, seeds: curves.len(), accuracy })
    };
    Judged { set: set.set, sync, spreads: Trainers::ALL.into_iter().filter_map(spread).collect() }
}

/// What the first two curves of one seed that are not equal differ in.
fn first_difference(curves: &[&Curve]) -> Option<String> {
    let differs = |one: &Curve, other: &Curve| {
        let bits = |curve: &Curve, epoch: usize| {
            curve.evaluations.get(epoch).map(|e| (e.accuracy.to_bits(), e.log_loss.to_bits()))
        };
        let epochs = one.evaluations.len().max(other.evaluations.len());
        let what = match (0..epochs).find(|epoch| bits(one, *epoch) != bits(other, *epoch)) {
            Some(epoch) => format!("the evaluation after epoch {}", epoch + 1),
            None if one.parameters_sha256 != other.parameters_sha256 => "the parameters' sha256".to_owned(),
            None => return None,
        };
        Some(format!("with {} and with {} trainers, seed {}: {what}", one.trainers, other.trainers, one.seed))
    };
    curves.iter().find_map(|other| {
        let first = curves.iter().find(|curve| curve.seed == other.seed)?;
        differs(first, other)
    })
}

impl Judged {
    pub(crate) fn set(&self) -> &'static str {
        self.set.title()
    }

    /// Also where there is nothing to compare.
    pub(crate) fn sync_is_equal(&self) -> bool {
        self.sync.as_ref().is_none_or(|sync| sync.is_equal)
    }
}

impl Range {
    /// Of at least one figure.
    pub(crate) fn of(figures: Vec<f64>) -> Range {
        let min = figures.iter().copied().fold(f64::INFINITY, f64::min);
        let max = figures.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Range { min, mean: figures.iter().sum::<f64>() / figures.len() as f64, max }
    }
}

#[cfg(test)]
mod tests {
    use super::super::results::samples;
    use super::*;

    fn difference(change: impl Fn(&mut Curve)) -> Option<String> {
        let mut set = samples::results().sets.remove(0);
        let elastic = |curve: &&mut Curve| curve.mode == Mode::Sync && curve.trainers == Trainers::Elastic;
        change(set.curves.iter_mut().find(elastic).unwrap());
        let sync = judged(&set).sync.unwrap();
        assert_eq!((sync.jobs, sync.is_equal), (3, sync.difference.is_none()));
        sync.difference
    }

    #[test]
    fn equal_is_every_bit_of_every_evaluation_and_of_the_parameters() {
        assert_eq!(difference(|_| ()), None);
        let last_bit = |value: f64| f64::from_bits(value.to_bits() + 1);
        let accuracy = difference(|curve| {
            let evaluation = &mut curve.evaluations[1];
            evaluation.accuracy = last_bit(evaluation.accuracy);
        });
        assert!(accuracy.unwrap().ends_with("2-4 elastic trainers, seed 7: the evaluation after epoch 2"));
        let loss = difference(|curve| {
            let evaluation = &mut curve.evaluations[0];
            evaluation.log_loss = last_bit(evaluation.log_loss);
        });
        assert!(loss.unwrap().ends_with("after epoch 1"));
        let hash = difference(|curve| curve.parameters_sha256.replace_range(..1, "f"));
        assert!(hash.unwrap().contains("sha256"));
        assert!(difference(|curve| curve.evaluations.truncate(1)).is_some());
    }

    #[test]
    fn another_seed_is_another_model_and_no_difference() {
        assert_eq!(
            difference(|curve| {
                curve.seed = 8;
                curve.parameters_sha256.clear();
            }),
            None
        );
    }

    #[test]
    fn a_spread_is_over_the_seeds_epoch_by_epoch() {
        let judged = all(&samples::results()).remove(0);
        assert_eq!(judged.spreads.len(), 3);
        assert_eq!(judged.spreads[2].seeds, 2);
        let last = judged.spreads[2].accuracy[1];
        assert_eq!((last.min, last.max), (0.95, 0.97));
        assert!((last.mean - 0.96).abs() < 1e-12);
    }

    #[test]
    fn nothing_synchronous_is_nothing_to_judge() {
        let mut results = samples::results();
        results.sets[0].curves.retain(|curve| curve.mode == Mode::Async);
        let judged = all(&results).remove(0);
        assert!(judged.sync.is_none() && judged.sync_is_equal());
    }
}
