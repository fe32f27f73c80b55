//! The MNIST program: LeNet-5 by Adam, its learning rate falling along half a cosine over the whole job.

use super::dense;
use super::lenet::{self, PARAMETERS, Sums, Weights};
use anyhow::ensure;
use shoal_trainer_sdk::{
    Batch, Declaration, Fans, Gradient, Initial, Job, Metric, Metrics, Model, Parameter, Parameters, Rule,
    Schedule,
};

/// The loss of every step, summed over its records: `shoal run` and `shoal report` show it.
const LOSS: &str = "loss";
const ACCURACY: &str = "accuracy";
const LOG_LOSS: &str = "log_loss";

/// LeNet-5 on MNIST; `shoal run` starts it
#[derive(Clone, Copy, Debug, clap::Parser)]
pub(crate) struct Hyper {
    /// Adam's learning rate at the start
    #[arg(long, default_value_t = 0.002)]
    rate: f32,
    /// The learning rate at the end
    #[arg(long, default_value_t = 0.00002)]
    rate_last: f32,
    /// Steps over which the learning rate rises at first
    #[arg(long, default_value_t = 0, value_name = "STEPS")]
    warmup_steps: u64,
}

/// The model, with buffers that steps reuse.
#[derive(Debug)]
pub(crate) struct Mnist {
    hyper: Hyper,
    images: Images,
    sums: Sums,
}

/// Images as the network takes them, and their labels.
#[derive(Debug, Default)]
struct Images {
    pixels: Vec<f32>,
    labels: Vec<u8>,
}

impl Model for Mnist {
    fn declare(&mut self, job: &Job) -> anyhow::Result<Declaration> {
        let steps = job.epochs * job.steps_per_epoch;
        let Hyper { rate, rate_last, warmup_steps } = self.hyper;
        let falling = steps.saturating_sub(warmup_steps).max(1);
        let mut rate = Schedule::cosine(rate, rate_last, falling);
        if warmup_steps > 0 {
            rate = rate.after_warmup(warmup_steps);
        }
        let trained = |(name, shape): &(&str, &[u64])| {
            let initial = match shape.len() {
                1 => Initial::Zeros,
                _ => Initial::kaiming_uniform(Fans::outputs_first(shape)),
            };
            Parameter::new(name, shape, Rule::ADAM, rate.clone(), initial)
        };
        let mut parameters: Vec<Parameter> = PARAMETERS.iter().map(trained).collect();
        parameters.push(Parameter::sum(LOSS, &[steps]));
        parameters.push(Parameter::metric(ACCURACY, Metric::Accuracy));
        parameters.push(Parameter::metric(LOG_LOSS, Metric::LogLoss));
        Ok(Declaration { parameters, block_elements: 0 })
    }

    fn step(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        gradient: &mut Gradient,
    ) -> anyhow::Result<()> {
        self.images.read(batch)?;
        let weights = weights_of(parameters)?;
        for (sum, weight) in self.sums.iter_mut().zip(weights) {
            sum.clear();
            sum.resize(weight.len(), 0.0);
        }
        let loss = lenet::loss_and_sums(&weights, &self.images.pixels, &self.images.labels, &mut self.sums);
        for ((name, _), sums) in PARAMETERS.iter().zip(&self.sums) {
            // Written, not added to the zeros that are there: a -0.0 must reach the reduction as it is.
            gradient.slice_mut(name)?.iter_mut().zip(sums).for_each(|(slot, sum)| *slot = -sum);
        }
        gradient.slice_mut(LOSS)?[batch.step as usize] += loss as f32;
        Ok(())
    }

    fn evaluate(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        metrics: &mut Metrics,
    ) -> anyhow::Result<()> {
        self.images.read(batch)?;
        let mut logits = lenet::logits(&weights_of(parameters)?, &self.images.pixels);
        let told = dense::likeliest(&logits);
        let hits = told.iter().zip(&self.images.labels).filter(|(told, label)| told == label).count();
        let loss = dense::softmax_loss(&mut logits, &self.images.labels);
        metrics.add(ACCURACY, hits as f32, told.len() as f32)?;
        metrics.add(LOG_LOSS, loss as f32, told.len() as f32)?;
        Ok(())
    }

    fn predict(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        outputs: &mut Vec<Vec<u8>>,
    ) -> anyhow::Result<()> {
        self.images.read(batch)?;
        let told = dense::likeliest(&lenet::logits(&weights_of(parameters)?, &self.images.pixels));
        outputs.extend(told.iter().map(|class| class.to_string().into_bytes()));
        Ok(())
    }
}

impl Mnist {
    pub(crate) fn new(hyper: Hyper) -> Mnist {
        Mnist { hyper, images: Images::default(), sums: Sums::default() }
    }
}

impl Images {
    fn read(&mut self, batch: &Batch<'_>) -> anyhow::Result<()> {
        self.pixels.clear();
        self.labels.clear();
        for record in batch.records {
            let (label, pixels) = decode(record.bytes)?;
            self.labels.push(label);
            self.pixels.extend(pixels.iter().map(|pixel| f32::from(*pixel) / 255.0));
        }
        Ok(())
    }
}

/// The label and the pixels of a record that `shoal recordio pack idx` made.
fn decode(record: &[u8]) -> anyhow::Result<(u8, &[u8])> {
    ensure!(
        record.len() == 1 + lenet::PIXELS,
        "an image is a record of {} bytes (label, then 28 x 28 pixels), not of {}",
        1 + lenet::PIXELS,
        record.len()
    );
    ensure!(usize::from(record[0]) < lenet::CLASSES, "a label is 0 to 9, not {}", record[0]);
    Ok((record[0], &record[1..]))
}

fn weights_of(parameters: &Parameters) -> anyhow::Result<Weights<'_>> {
    let mut weights: Weights<'_> = [&[]; 10];
    for (slot, (name, _)) in weights.iter_mut().zip(PARAMETERS) {
        *slot = parameters.slice(name)?;
    }
    Ok(weights)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_a_label_and_784_pixels() {
        let mut record = [7; 785];
        record[0] = 9;
        assert_eq!(decode(&record).unwrap(), (9, &[7; 784][..]));
        assert!(decode(&record[..784]).unwrap_err().to_string().contains("not of 784"));
        assert!(decode(&[]).is_err());
        record[0] = 10;
        assert!(decode(&record).unwrap_err().to_string().contains("not 10"));
    }
}
