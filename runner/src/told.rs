//! What a journal has told of already: each exclusion and each evaluation is told once. Pure.

use crate::journal::{Evaluated, Seen};

/// What one life of a run, or one look at a job after another, has told.
#[derive(Debug, Default)]
pub struct Told {
    excluded: usize,
    evaluated: Vec<Evaluated>,
}

impl Told {
    /// Leaves in `seen` what is new in it.
    pub fn leave_new(&mut self, seen: &mut Seen) {
        // Exclusions only ever grow.
        let known = seen.excluded.len();
        seen.excluded.drain(..self.excluded.min(known));
        self.excluded = self.excluded.max(known);
        // A rewind takes evaluations back. Most are made again as they were; from the first that differs on, all are new.
        let same = self.evaluated.iter().zip(&seen.evaluated).take_while(|(told, now)| told == now).count();
        seen.evaluated.drain(..same);
        if !seen.evaluated.is_empty() {
            self.evaluated.truncate(same);
            self.evaluated.extend(seen.evaluated.iter().cloned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_runtime::wire::proto::{EvaluationStatus, MetricValue, StatusReply, TroubleStatus};

    /// What is told of looks with evaluations by step and value, and with so many exclusions.
    fn told(looks: &[(&[(u64, f64)], u64)]) -> Vec<(Vec<u64>, Vec<u64>)> {
        let mut told = Told::default();
        let look = |(evaluations, exclusions): &(&[(u64, f64)], u64)| {
            let evaluation = |(step, value): &(u64, f64)| {
                let values = vec![MetricValue { name: "auc".to_owned(), value: Some(*value) }];
                EvaluationStatus { step: *step, values, ..Default::default() }
            };
            let trouble = |step| TroubleStatus { excluded_from: Some(step), ..Default::default() };
            let status = StatusReply {
                evaluations: evaluations.iter().map(evaluation).collect(),
                troubles: (0..*exclusions).map(trouble).collect(),
                ..Default::default()
            };
            let mut seen = Seen::of(0.0, &status, &status);
            told.leave_new(&mut seen);
            let steps = seen.evaluated.iter().map(|evaluated| evaluated.step).collect();
            (steps, seen.excluded.iter().map(|excluded| excluded.from).collect())
        };
        looks.iter().map(look).collect()
    }

    #[test]
    fn each_exclusion_is_told_once() {
        let exclusions: Vec<_> =
            told(&[(&[], 1), (&[], 3), (&[], 0), (&[], 4)]).into_iter().map(|told| told.1).collect();
        assert_eq!(exclusions, [vec![0], vec![1, 2], vec![], vec![3]]);
    }

    #[test]
    fn an_evaluation_that_a_rewind_took_back_is_told_again_where_it_has_another_value() {
        let looks: [&[(u64, f64)]; 5] = [
            &[(2, 0.1)],
            &[(2, 0.1), (4, 0.2)],
            &[(2, 0.1)],
            &[(2, 0.1), (4, 0.2)],
            &[(2, 0.1), (4, 0.3), (6, 0.4)],
        ];
        let steps: Vec<_> = told(&looks.map(|look| (look, 0))).into_iter().map(|told| told.0).collect();
        assert_eq!(steps, [vec![2], vec![4], vec![], vec![], vec![4, 6]]);
    }
}
