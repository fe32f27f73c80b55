//! The text program: a network that tells the next character, by Adam. A gradient's weight is the number of characters
//! told, which differs from record to record.

use super::network::{self, PARAMETERS, Rows, Sums, Weights};
use super::windows::{self, CONTEXT};
use shoal_trainer_sdk::{
    Batch, Declaration, Fans, Gradient, Initial, Job, Model, Parameter, Parameters, Rule, Schedule,
};

/// The loss of every step, summed over its characters: `shoal run` and `shoal report` show it.
const LOSS: &str = "loss";

/// What can be chosen.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Hyper {
    /// Adam's learning rate at the start; it falls to a hundredth along half a cosine over the whole job
    #[arg(long, default_value_t = 0.002)]
    rate: f32,
}

/// The model, with buffers that steps reuse.
#[derive(Debug)]
pub(crate) struct Text {
    hyper: Hyper,
    rows: Rows,
    sums: Sums,
}

impl Model for Text {
    fn declare(&mut self, job: &Job) -> Declaration {
        let steps = job.epochs * job.steps_per_epoch;
        let rate = Schedule::cosine(self.hyper.rate, self.hyper.rate / 100.0, steps);
        let trained = |(name, shape): &(&str, &[u64])| {
            let initial = match *name {
                "embedding" => Initial::Normal { deviation: 1.0 },
                _ if shape.len() == 1 => Initial::Zeros,
                _ => Initial::kaiming_uniform(Fans::outputs_first(shape)),
            };
            Parameter::new(*name, shape, Rule::ADAM, rate.clone(), initial)
        };
        let mut parameters: Vec<Parameter> = PARAMETERS.iter().map(trained).collect();
        parameters.push(Parameter::sum(LOSS, &[steps]));
        Declaration { parameters, block_elements: 0 }
    }

    fn step(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        gradient: &mut Gradient,
    ) -> anyhow::Result<()> {
        self.read(batch)?;
        let weights = weights_of(parameters)?;
        for (sum, weight) in self.sums.iter_mut().zip(weights) {
            sum.clear();
            sum.resize(weight.len(), 0.0);
        }
        let loss = network::loss_and_sums(&weights, &self.rows, &mut self.sums);
        for ((name, _), sums) in PARAMETERS.iter().zip(&self.sums) {
            // Written, not added to the zeros that are there: a -0.0 must reach the reduction as it is.
            gradient.slice_mut(name)?.iter_mut().zip(sums).for_each(|(slot, sum)| *slot = -sum);
        }
        gradient.slice_mut(LOSS)?[batch.step as usize] += loss as f32;
        gradient.set_weight(self.rows.targets.len() as u64);
        Ok(())
    }
}

impl Text {
    pub(crate) fn new(hyper: Hyper) -> Text {
        Text { hyper, rows: Rows::default(), sums: Sums::default() }
    }

    fn read(&mut self, batch: &Batch<'_>) -> anyhow::Result<()> {
        self.rows.contexts.clear();
        self.rows.targets.clear();
        for record in batch.records {
            let targets = windows::targets(record.bytes)?;
            let classes: Vec<u8> = record.bytes.iter().copied().map(windows::class_of).collect();
            for context in classes.windows(CONTEXT).take(targets) {
                self.rows.contexts.extend_from_slice(context);
            }
            self.rows.targets.extend_from_slice(&classes[CONTEXT..]);
        }
        Ok(())
    }
}

fn weights_of(parameters: &Parameters) -> anyhow::Result<Weights<'_>> {
    let mut weights: Weights<'_> = [&[]; 5];
    for (slot, (name, _)) in weights.iter_mut().zip(PARAMETERS) {
        *slot = parameters.slice(name)?;
    }
    Ok(weights)
}
