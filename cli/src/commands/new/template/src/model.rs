//! The model: what it declares, and one step of it. Shoal updates the parameters; nothing here keeps any.

use crate::samples::{FEATURES, Sample};
use crate::step;
use shoal_trainer_sdk::{
    Batch, Declaration, Gradient, Initial, Job, Metric, Metrics, Model, Parameter, Parameters,
    Rule, Schedule,
};

/// A plane between two kinds of points.
pub struct Points {
    /// Adam's.
    pub learning_rate: f32,
}

impl Model for Points {
    /// Must be a function of the job and the arguments: every trainer declares the same.
    fn declare(&mut self, job: &Job) -> anyhow::Result<Declaration> {
        let rate = Schedule::constant(self.learning_rate);
        let trained = |name: &str, elements: usize, start: Initial| {
            Parameter::new(name, &[elements as u64], Rule::ADAM, rate.clone(), start)
        };
        let parameters = vec![
            trained("weight", FEATURES, Initial::Normal { deviation: 0.1 }),
            trained("bias", 1, Initial::Zeros),
            // Steps add to it, and it is never set back. `shoal report` draws what is called "loss" and has a sum for each step.
            Parameter::sum("loss", &[job.epochs * job.steps_per_epoch]),
            // Evaluations add to it, each from zero.
            Parameter::metric("accuracy", Metric::Accuracy),
        ];
        Ok(Declaration {
            parameters,
            block_elements: 0,
        })
    }

    /// Adds **sums** over the batch; Shoal divides once for all trainers. Must be a function of its arguments.
    fn step(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        gradient: &mut Gradient,
    ) -> anyhow::Result<()> {
        let (weight, bias) = (parameters.slice("weight")?, parameters.slice("bias")?[0]);
        let (mut weight_sums, mut bias_sum, mut loss) = ([0.0; FEATURES], 0.0, 0.0);
        for record in batch.records {
            let Sample { label, features } = Sample::decode(record.bytes)?;
            loss += step::add_gradient(
                weight,
                bias,
                &features,
                f32::from(label),
                &mut weight_sums,
                &mut bias_sum,
            );
        }
        gradient.add("weight", &weight_sums)?;
        gradient.add("bias", &[bias_sum])?;
        gradient.slice_mut("loss")?[batch.step as usize] += loss;
        Ok(())
    }

    /// Adds **sums** over the batch, whose records are those of `--eval-data`.
    fn evaluate(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        metrics: &mut Metrics,
    ) -> anyhow::Result<()> {
        let (weight, bias) = (parameters.slice("weight")?, parameters.slice("bias")?[0]);
        let mut hits = 0.0;
        for record in batch.records {
            let Sample { label, features } = Sample::decode(record.bytes)?;
            let guess = u8::from(step::logit(weight, bias, &features) > 0.0);
            hits += f32::from(u8::from(guess == label));
        }
        metrics.add("accuracy", hits, batch.records.len() as f32)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_trainer_sdk::Trial;

    /// Half the distance between the two losses that a slope is taken from.
    const APART: f32 = 0.01;

    /// Whatever the model is: what `step` adds to the gradient is the slope of what it adds to "loss".
    #[test]
    fn the_gradient_agrees_with_finite_differences() {
        let mut model = Points {
            learning_rate: 0.05,
        };
        let records: Vec<_> = (0..9).map(|number| Sample::made(number).encode()).collect();
        let records: Vec<&[u8]> = records.iter().map(|record| &record[..]).collect();
        let mut trial = Trial::new(&mut model, 9).unwrap();
        let gradient = trial.step(&mut model, &records).unwrap();
        let names: Vec<String> = trial.trained().map(str::to_owned).collect();
        for name in &names {
            for (element, found) in gradient.slice(name).unwrap().iter().enumerate() {
                let mut loss_beside = |apart: f32| {
                    let kept = trial.slice_mut(name).unwrap()[element];
                    trial.slice_mut(name).unwrap()[element] = kept + apart;
                    let sums = trial.step(&mut model, &records).unwrap();
                    trial.slice_mut(name).unwrap()[element] = kept;
                    sums.slice("loss").unwrap()[0]
                };
                let slope = (loss_beside(APART) - loss_beside(-APART)) / (2.0 * APART);
                assert!(
                    (slope - found).abs() < 1e-2 * (1.0 + slope.abs()),
                    "{name}[{element}]: {slope}, not {found}"
                );
            }
        }
    }
}
