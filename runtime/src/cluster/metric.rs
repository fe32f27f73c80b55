//! Metrics of an evaluation: what trainers add up, and what its sums say. Pure.
//!
//! Sums are reduced like gradients, in the step's tree: in synchronous jobs their bits depend on nobody. What they say is
//! worked out once, from whole sums.

use super::rule::Rule;
use super::target::Target;
use super::{Declaration, Parameter, Schedule, initial::Initial};
use serde::{Deserialize, Serialize};

/// A metric of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Metric {
    /// The share of records that were told right: a mean of zeros and ones. Larger is better.
    Accuracy,
    /// The mean of -ln of the probability that was given to what happened, in nats. Smaller is better.
    LogLoss,
    /// Any other mean.
    Mean {
        /// Which values are better.
        better: Better,
    },
    /// The area under the receiver operating characteristic: the probability that a positive record is scored above a
    /// negative one. Scores from 0 to 1 are counted in bins of equal width; those of one bin count as ties (by the
    /// trapezoidal rule; Fawcett 2006). Larger is better.
    Auc {
        /// How many bins: off by less than the share of pairs in one bin.
        bins: u32,
    },
}

/// Which values of a metric are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Better {
    /// Larger ones.
    Larger,
    /// Smaller ones.
    Smaller,
}

/// The most bins of an area under the curve.
pub const BINS_MAX: u32 = 1 << 16;

/// A metric as it was declared.
#[derive(Clone, Copy, Debug)]
pub struct Declared<'a> {
    /// Index of its parameter in the declaration.
    pub parameter: usize,
    /// Its name.
    pub name: &'a str,
    /// What it is.
    pub metric: Metric,
    /// What the job aims at with it.
    pub target: Option<Target>,
}

impl Metric {
    /// How many sums trainers add up: of values and of weights; of positive and of negative records by bin.
    pub fn elements(self) -> u64 {
        match self {
            Metric::Accuracy | Metric::LogLoss | Metric::Mean { .. } => 2,
            Metric::Auc { bins } => 2 * u64::from(bins),
        }
    }

    /// Which values are better.
    pub fn better(self) -> Better {
        match self {
            Metric::Accuracy | Metric::Auc { .. } => Better::Larger,
            Metric::LogLoss => Better::Smaller,
            Metric::Mean { better } => better,
        }
    }

    /// What its sums say; none where they are of nothing. What a program has added that is no number makes none of it, and its
    /// infinities make infinities or none. Never -0.0.
    pub fn value(self, sums: &[f32]) -> Option<f64> {
        let (value, weight) = match (self, sums) {
            (Metric::Auc { .. }, counts) => area(counts),
            (_, [sum, weight]) => (f64::from(*sum), f64::from(*weight)),
            _ => return None,
        };
        let value = value / weight + 0.0;
        (weight != 0.0).then_some(if value.is_nan() { f64::NAN } else { value })
    }

    pub(super) fn fault(self) -> Option<&'static str> {
        match self {
            Metric::Auc { bins } if !(2..=BINS_MAX).contains(&bins) => {
                Some("an area under the curve needs 2 to 65,536 bins (1,000 is usual)")
            }
            _ => None,
        }
    }
}

/// Pairs in order, and all of them, of positive counts by bin, then negative ones.
fn area(counts: &[f32]) -> (f64, f64) {
    let (positive, negative) = counts.split_at(counts.len() / 2);
    let (mut below, mut pairs, mut positives) = (0.0, 0.0, 0.0);
    for (positive, negative) in positive.iter().zip(negative) {
        let (positive, negative) = (f64::from(*positive), f64::from(*negative));
        pairs += positive * (below + negative / 2.0);
        below += negative;
        positives += positive;
    }
    (pairs, positives * below)
}

impl Better {
    /// Whether `value` is better than `best` by more than `least`.
    pub fn is_better(self, value: f64, best: f64, least: f64) -> bool {
        match self {
            Better::Larger => value - best > least,
            Better::Smaller => best - value > least,
        }
    }
}

impl Parameter {
    /// A metric: its sums are added up by evaluations, from zero in each. No step reads it.
    ///
    /// Sums are f32: counts of records are exact up to 2^24 (16,777,216) an evaluation (of an area under the curve, a bin), and
    /// rounded beyond: nothing is kept of what rounding leaves out.
    pub fn metric(name: &str, metric: Metric) -> Parameter {
        let rule = Rule::Metric { metric, target: None };
        Parameter::new(name, &[metric.elements()], rule, Schedule::constant(0.0), Initial::Zeros)
    }

    /// The same metric, with what the job aims at; of one metric at most.
    pub fn aiming(self, target: Target) -> Parameter {
        match self.rule {
            Rule::Metric { metric, .. } => {
                Parameter { rule: Rule::Metric { metric, target: Some(target) }, ..self }
            }
            _ => self,
        }
    }
}

impl Declaration {
    /// The metrics, in the order in which they were declared.
    pub fn metrics(&self) -> impl Iterator<Item = Declared<'_>> {
        self.parameters.iter().enumerate().filter_map(|(at, parameter)| match parameter.rule {
            Rule::Metric { metric, target } => {
                Some(Declared { parameter: at, name: &parameter.name, metric, target })
            }
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_mean_is_the_sum_of_values_by_the_sum_of_weights() {
        assert_eq!(Metric::Accuracy.value(&[3.0, 4.0]), Some(0.75));
        assert_eq!(Metric::LogLoss.value(&[3.0, 0.0]), None, "of no record nothing is said");
    }

    #[test]
    fn what_is_no_number_is_told_from_what_is_of_no_record() {
        let mean = Metric::Mean { better: Better::Smaller };
        let bits = |sums: [f32; 2]| mean.value(&sums).map(f64::to_bits);
        let not_a_number = Some(f64::NAN.to_bits());
        assert_eq!([bits([f32::NAN, 2.0]), bits([-f32::NAN, 2.0]), bits([1.0, f32::NAN])], [not_a_number; 3]);
        assert_eq!(bits([f32::INFINITY, f32::INFINITY]), not_a_number);
        assert_eq!(mean.value(&[f32::NEG_INFINITY, 2.0]), Some(f64::NEG_INFINITY));
        assert_eq!([mean.value(&[0.0, 0.0]), mean.value(&[f32::NAN, 0.0])], [None; 2]);
        assert_eq!([bits([-0.0, 4.0]), bits([0.0, -4.0])], [Some(0); 2], "zero has one sign");
    }

    #[test]
    fn the_area_is_a_half_of_what_tells_nothing_and_one_of_what_tells_all() {
        let auc = Metric::Auc { bins: 3 };
        assert_eq!(auc.value(&[0.0, 0.0, 5.0, 2.0, 1.0, 0.0]), Some(1.0));
        assert_eq!(auc.value(&[5.0, 0.0, 0.0, 0.0, 0.0, 3.0]), Some(0.0));
        assert_eq!(auc.value(&[0.0, 4.0, 0.0, 0.0, 9.0, 0.0]), Some(0.5));
        assert_eq!(auc.value(&[0.0, 4.0, 0.0, 0.0, 0.0, 0.0]), None);
    }

    proptest! {
        #[test]
        fn the_area_is_the_share_of_pairs_in_order_with_ties_for_a_half(
            scores in proptest::collection::vec((0usize..7, any::<bool>()), 2..60)
        ) {
            let mut counts = vec![0.0; 14];
            scores.iter().for_each(|(bin, is_positive)| counts[if *is_positive { *bin } else { 7 + bin }] += 1.0);
            let (mut ordered, mut pairs) = (0.0, 0.0);
            for (ours, _) in scores.iter().filter(|(_, is_positive)| *is_positive) {
                for (theirs, _) in scores.iter().filter(|(_, is_positive)| !is_positive) {
                    pairs += 1.0;
                    ordered += if ours > theirs { 1.0 } else if ours == theirs { 0.5 } else { 0.0 };
                }
            }
            let value = Metric::Auc { bins: 7 }.value(&counts);
            prop_assert_eq!(value.is_some(), pairs > 0.0);
            prop_assert!(value.is_none_or(|value| (value - ordered / pairs).abs() < 1e-12));
        }
    }
}
