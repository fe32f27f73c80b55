//! What evaluations add up. Knows nothing of the network.

use crate::access::AccessError;
use crate::flat::Flat;
use crate::names::Names;
use shoal_runtime::cluster::{Metric, Rule};
use std::sync::Arc;

/// The metric sums of one microbatch, zero at first.
#[derive(Debug)]
pub struct Metrics {
    pub(crate) names: Arc<Names>,
    pub(crate) values: Flat,
}

impl Metrics {
    pub(crate) fn zeros(names: &Arc<Names>) -> Metrics {
        Metrics { names: names.clone(), values: names.metric_sums() }
    }

    /// Adds to a mean: a **sum** of values, and what they weigh together. `accuracy` adds the number of hits and the number
    /// of records, `log_loss` the sum of losses in nats and the number of records or tokens. Both are f32; an evaluation in which the
    /// weights come to 0 has no value.
    ///
    /// # Errors
    /// No such metric, or one that is no mean.
    pub fn add(&mut self, name: &str, sum: f32, weight: f32) -> Result<(), AccessError> {
        match self.find(name)? {
            (Metric::Auc { .. }, _) => {
                Err(AccessError::OtherMetric { name: name.to_owned(), of: "of scores", call: "score" })
            }
            (_, sums) => {
                sums.iter_mut().zip([sum, weight]).for_each(|(total, part)| *total += part);
                Ok(())
            }
        }
    }

    /// Counts one record for an area under the curve: how probable it was said to be, from 0 to 1, and what it was. What lies in one
    /// of the metric's bins, of equal width, counts as equally probable.
    ///
    /// # Errors
    /// No such metric, one that is no area under the curve, a score that is no number from 0 to 1.
    pub fn score(&mut self, name: &str, score: f32, is_positive: bool) -> Result<(), AccessError> {
        if !(0.0..=1.0).contains(&score) {
            return Err(AccessError::Score { name: name.to_owned(), score });
        }
        let (Metric::Auc { bins }, counts) = self.find(name)? else {
            return Err(AccessError::OtherMetric { name: name.to_owned(), of: "a mean", call: "add" });
        };
        let bin = ((f64::from(score) * f64::from(bins)) as usize).min(bins as usize - 1);
        counts[if is_positive { bin } else { bins as usize + bin }] += 1.0;
        Ok(())
    }

    fn find(&mut self, name: &str) -> Result<(Metric, &mut [f32]), AccessError> {
        let at = self.names.find(name)?;
        match self.names.declaration.parameters[at].rule {
            Rule::Metric { metric, .. } => Ok((metric, &mut self.values[at])),
            _ => Err(AccessError::NotMetric { name: name.to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_runtime::cluster::initial::Initial;
    use shoal_runtime::cluster::{Declaration, Parameter, Precision, Schedule};

    fn metrics() -> Metrics {
        let weight = Parameter::new("w", &[3], Rule::Sgd, Schedule::constant(0.1), Initial::Zeros);
        let parameters = vec![
            weight,
            Parameter::metric("right", Metric::Accuracy),
            Parameter::metric("auc", Metric::Auc { bins: 4 }),
        ];
        Metrics::zeros(&Arc::new(Names::new(
            Declaration { parameters, block_elements: 0 },
            7,
            Precision::F32,
        )))
    }

    #[test]
    fn means_add_up_and_scores_are_counted_in_their_bins() {
        let mut metrics = metrics();
        metrics.add("right", 3.0, 4.0).unwrap();
        metrics.add("right", 1.0, 1.0).unwrap();
        for (score, is_positive) in [(0.0, false), (0.25, true), (0.99, true), (1.0, true)] {
            metrics.score("auc", score, is_positive).unwrap();
        }
        assert_eq!(metrics.values[0], [0.0; 0], "parameters take no part");
        assert_eq!(metrics.values[1], [4.0, 5.0]);
        assert_eq!(metrics.values[2], [0.0, 1.0, 0.0, 2.0, 1.0, 0.0, 0.0, 0.0]);
        let auc = Metric::Auc { bins: 4 };
        assert_eq!(auc.value(&metrics.values[2]), Some(1.0));
    }

    #[test]
    fn what_is_no_metric_or_no_such_one_is_refused_with_the_way_out() {
        let mut metrics = metrics();
        let words = |result: Result<(), AccessError>| result.unwrap_err().to_string();
        assert!(words(metrics.add("w", 1.0, 1.0)).contains("Parameter::metric"));
        assert!(words(metrics.add("auc", 1.0, 1.0)).contains("score"));
        assert!(words(metrics.score("right", 0.5, true)).contains("add"));
        assert!(words(metrics.score("auc", 1.5, true)).contains("from 0 to 1"));
        assert!(words(metrics.score("auc", f32::NAN, true)).contains("from 0 to 1"));
        assert!(words(metrics.add("other", 1.0, 1.0)).contains("other"));
    }
}
