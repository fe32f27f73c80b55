//! What a job aims at with a metric: when to stop, which checkpoint to keep, when to lower the learning rate. Pure.
//!
//! A function of the values of all evaluations so far: nothing of it has to be remembered, and whoever asks again, after
//! whatever was lost, is told the same.

use super::metric::Better;
use serde::{Deserialize, Serialize};

/// What a job aims at with one of its metrics. By default nothing: say at least one of the three.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// A value counts as better only if it is by more than this; not negative.
    pub least_change: f32,
    /// Whether the checkpoint of the best evaluation is kept, however old it grows. Training waits until the checkpoint at
    /// an evaluation is durable.
    pub keep_best: bool,
    /// The job ends after so many evaluations, one after the other, that were no better than the best before them. Those that
    /// came to nothing finite are passed over, here and in a plateau.
    pub stop_after: Option<u32>,
    /// When learning rates are lowered.
    pub plateau: Option<Plateau>,
}

/// Learning rates are lowered where a metric gets no better.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plateau {
    /// After so many evaluations without a better value, counted from the last better one or the last lowering.
    pub after: u32,
    /// All rates are multiplied with it; above 0 and below 1.
    pub factor: f32,
}

/// What follows from the evaluations so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judged {
    /// The evaluation with the best value.
    pub best: Option<u64>,
    /// The evaluation after which the job ends, if one of them was the last straw.
    pub last: Option<u64>,
    /// From which evaluation on rates are multiplied, and with what.
    pub rates: Vec<(u64, f32)>,
}

impl Target {
    /// What follows from `values`, one of each evaluation. One that was of no record, or is not finite, is passed over: it is
    /// neither the best nor one that was no better.
    pub fn judge(&self, better: Better, values: impl IntoIterator<Item = Option<f64>>) -> Judged {
        let mut judged = Judged::default();
        let (mut best, mut idle, mut flat, mut rate): (Option<f64>, _, _, _) = (None, 0, 0, 1.0f32);
        for (number, value) in (0..).zip(values) {
            let Some(value) = value.filter(|value| value.is_finite()) else { continue };
            if best.is_none_or(|best| better.is_better(value, best, f64::from(self.least_change))) {
                (best, judged.best, idle, flat) = (Some(value), Some(number), 0, 0);
                continue;
            }
            (idle, flat) = (idle + 1, flat + 1);
            if self.stop_after.is_some_and(|after| idle >= after) {
                judged.last = judged.last.or(Some(number));
            }
            if let Some(Plateau { factor, .. }) = self.plateau.filter(|plateau| flat >= plateau.after) {
                (rate, flat) = (rate * factor, 0);
                judged.rates.push((number, rate));
            }
        }
        judged
    }

    pub(super) fn fault(&self) -> Option<&'static str> {
        match *self {
            Target { least_change, .. } if !(least_change >= 0.0 && least_change.is_finite()) => {
                Some("least_change must be finite and not negative")
            }
            Target { stop_after: Some(0), .. } => Some("stop_after must be at least 1 evaluation"),
            Target { plateau: Some(Plateau { after: 0, .. }), .. } => {
                Some("a plateau lasts at least 1 evaluation")
            }
            Target { plateau: Some(Plateau { factor, .. }), .. } if !(factor > 0.0 && factor < 1.0) => {
                Some("a plateau's factor must be above 0 and below 1")
            }
            Target { keep_best: false, stop_after: None, plateau: None, .. } => {
                Some("it aims at nothing: say keep_best, stop_after or plateau")
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(of: &[f64]) -> Vec<Option<f64>> {
        of.iter().map(|value| Some(*value)).collect()
    }

    #[test]
    fn a_job_ends_after_so_many_evaluations_in_a_row_that_were_no_better() {
        let target = Target { stop_after: Some(2), ..Target::default() };
        let ends = |of: &[f64]| target.judge(Better::Larger, values(of)).last;
        assert_eq!(ends(&[0.5, 0.4, 0.6, 0.6]), None);
        assert_eq!(ends(&[0.5, 0.4, 0.6, 0.6, 0.6]), Some(4));
        assert_eq!(ends(&[0.5, 0.4, 0.6, 0.6, 0.6, 0.9, 0.1]), Some(4), "what is decided stays so");
        assert_eq!(target.judge(Better::Smaller, values(&[0.5, 0.4, 0.6, 0.6])).last, Some(3));
    }

    #[test]
    fn the_best_is_the_first_of_those_that_are_no_better_than_one_another() {
        let target = Target { least_change: 0.1, keep_best: true, ..Target::default() };
        let best = |better, of: &[f64]| target.judge(better, values(of)).best;
        assert_eq!(best(Better::Larger, &[0.5, 0.55, 0.7, 0.75]), Some(2));
        assert_eq!(best(Better::Smaller, &[0.5, 0.55, 0.7, 0.3]), Some(3));
        assert_eq!(target.judge(Better::Larger, [None, Some(0.1), None]).best, Some(1));
    }

    #[test]
    fn an_evaluation_that_comes_to_nothing_finite_is_neither_the_best_nor_one_that_was_no_better() {
        let plateau = Some(Plateau { after: 2, factor: 0.5 });
        let target = Target { stop_after: Some(3), keep_best: true, plateau, ..Target::default() };
        let judged = |better, odd: Option<f64>| {
            let values = [odd, odd, odd, odd, Some(0.5), odd, Some(0.5), odd, odd, Some(0.5), Some(0.5)];
            let Judged { best, last, rates } = target.judge(better, values);
            (best, last, rates)
        };
        let expected = (Some(4), Some(10), vec![(9, 0.5)]);
        for better in [Better::Larger, Better::Smaller] {
            for odd in [None, Some(f64::NAN), Some(f64::INFINITY), Some(f64::NEG_INFINITY)] {
                assert_eq!(judged(better, odd), expected, "{better:?} {odd:?}");
            }
        }
    }

    #[test]
    fn rates_fall_once_for_each_plateau() {
        let plateau = Some(Plateau { after: 2, factor: 0.5 });
        let target = Target { plateau, ..Target::default() };
        let rates = |of: &[f64]| target.judge(Better::Larger, values(of)).rates;
        assert_eq!(rates(&[0.5, 0.4, 0.4, 0.4]), [(2, 0.5)]);
        assert_eq!(rates(&[0.5, 0.4, 0.4, 0.4, 0.4, 0.6, 0.5]), [(2, 0.5), (4, 0.25)]);
    }

    #[test]
    fn targets_that_make_no_sense_are_refused_with_the_way_out() {
        let plateau =
            |after, factor| Target { plateau: Some(Plateau { after, factor }), ..Target::default() };
        let faults = [
            (Target::default(), "nothing"),
            (Target { least_change: -1.0, keep_best: true, ..Target::default() }, "least_change"),
            (Target { stop_after: Some(0), ..Target::default() }, "stop_after"),
            (plateau(0, 0.5), "at least 1"),
            (plateau(2, 1.0), "factor"),
            (plateau(2, f32::NAN), "factor"),
        ];
        for (target, words) in faults {
            assert!(target.fault().is_some_and(|fault| fault.contains(words)), "{target:?}");
        }
        assert_eq!(plateau(1, 0.1).fault(), None);
    }
}
