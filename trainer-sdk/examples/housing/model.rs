//! The housing program: least squares by Nesterov's accelerated descent.

use super::records::{self, FEATURES};
use super::regression;
use shoal_trainer_sdk::{
    Batch, Better, Declaration, Gradient, Initial, Job, Metric, Metrics, Model, Parameter, Parameters, Rule,
    Schedule,
};

const WEIGHT: &str = "weight";
const BIAS: &str = "bias";
/// The squared error of every step, summed over its records: `shoal run` and `shoal report` show it.
const LOSS: &str = "loss";
const SQUARED_ERROR: &str = "squared_error";

/// The model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Housing {
    /// The learning rate at the start.
    pub(crate) rate: f32,
}

impl Model for Housing {
    fn declare(&mut self, job: &Job) -> anyhow::Result<Declaration> {
        let steps = job.epochs * job.steps_per_epoch;
        let trained = |name: &str, elements: usize| {
            let rate = Schedule::cosine(self.rate, 0.0, steps);
            Parameter::new(name, &[elements as u64], Rule::Nesterov { momentum: 0.9 }, rate, Initial::Zeros)
        };
        let parameters = vec![
            trained(WEIGHT, FEATURES),
            trained(BIAS, 1),
            Parameter::sum(LOSS, &[steps]),
            Parameter::metric(SQUARED_ERROR, Metric::Mean { better: Better::Smaller }),
        ];
        Ok(Declaration { parameters, block_elements: 0 })
    }

    fn step(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        gradient: &mut Gradient,
    ) -> anyhow::Result<()> {
        let model = (parameters.slice(WEIGHT)?, parameters.slice(BIAS)?[0]);
        let (mut weight_sum, mut bias_sum, mut loss) = ([0.0; FEATURES], 0.0, 0.0);
        for record in batch.records {
            let (features, price) = records::decode(record.bytes)?;
            loss += regression::add(model, (&features, price), (&mut weight_sum, &mut bias_sum));
        }
        gradient.slice_mut(WEIGHT)?.copy_from_slice(&weight_sum);
        gradient.slice_mut(BIAS)?[0] = bias_sum;
        gradient.slice_mut(LOSS)?[batch.step as usize] += loss;
        Ok(())
    }

    fn evaluate(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        metrics: &mut Metrics,
    ) -> anyhow::Result<()> {
        let (weight, bias) = (parameters.slice(WEIGHT)?, parameters.slice(BIAS)?[0]);
        for record in batch.records {
            let (features, price) = records::decode(record.bytes)?;
            let error = regression::price(weight, bias, &features) - price;
            metrics.add(SQUARED_ERROR, error * error, 1.0)?;
        }
        Ok(())
    }

    fn predict(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        outputs: &mut Vec<Vec<u8>>,
    ) -> anyhow::Result<()> {
        let (weight, bias) = (parameters.slice(WEIGHT)?, parameters.slice(BIAS)?[0]);
        for record in batch.records {
            let (features, _) = records::decode(record.bytes)?;
            outputs.push(format!("{:.2}", regression::price(weight, bias, &features)).into_bytes());
        }
        Ok(())
    }
}
