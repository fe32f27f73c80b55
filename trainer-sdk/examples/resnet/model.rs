//! The residual network as a training program: Adam, its learning rate falling along half a cosine over the whole job;
//! batch norm by each microbatch's own statistics, its running ones kept by the rule `Ema`.

use super::dense;
use super::network::{Network, Sums, Weights};
use super::sizes::{CLASSES, Image, Sizes, Unit};
use anyhow::ensure;
use shoal_trainer_sdk::{
    Batch, Declaration, Fans, Gradient, Initial, Job, Metric, Metrics, Model, Parameter, Parameters, Rule,
    Schedule,
};

/// The loss of every step, summed over its records: `shoal run` and `shoal report` show it.
const LOSS: &str = "loss";
const ACCURACY: &str = "accuracy";
const LOG_LOSS: &str = "log_loss";
const OUTPUT: [&str; 2] = ["fc.weight", "fc.bias"];

/// A small residual network with batch norm; `shoal run` starts it
#[derive(Clone, Copy, Debug, clap::Parser)]
#[command(
    after_help = "Example: shoal run --trainers 2 --data train.recordio --eval-data test.recordio --microbatch-records 32 -- target/release/examples/resnet --image 28x28x1"
)]
pub(crate) struct Hyper {
    /// What an image is: height, width, planes
    #[arg(long, value_enum, default_value = "28x28x1")]
    image: Image,
    /// Filters of the first stage; the second has twice, the third four times as many
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    width: u16,
    /// Residual blocks in each of the three stages: N make a network of 6 N + 2 layers
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=18))]
    blocks: u16,
    /// Adam's learning rate at the start
    #[arg(long, default_value_t = 0.01)]
    rate: f32,
    /// The learning rate at the end
    #[arg(long, default_value_t = 0.0001)]
    rate_last: f32,
    /// How much of the running statistics an update keeps. An asynchronous job updates them with every microbatch: take a
    /// value nearer to 1 there
    #[arg(long, default_value_t = 0.9)]
    decay: f32,
}

/// The model, with buffers that steps reuse.
#[derive(Debug)]
pub(crate) struct Resnet {
    hyper: Hyper,
    network: Network,
    sums: Sums,
    pixels: Vec<f32>,
    labels: Vec<u8>,
}

impl Model for Resnet {
    fn declare(&mut self, job: &Job) -> anyhow::Result<Declaration> {
        let steps = job.epochs * job.steps_per_epoch;
        let rate = Schedule::cosine(self.hyper.rate, self.hyper.rate_last, steps.max(1));
        let trained = |name: &str, shape: &[u64], initial| {
            Parameter::new(name, shape, Rule::ADAM, rate.clone(), initial)
        };
        let kaiming = |shape: &[u64]| Initial::kaiming_normal(Fans::outputs_first(shape));
        let constant = |value| Initial::Constant { value };
        let mut parameters = Vec::new();
        for unit in &self.network.units {
            let ([kernel, scale, shift, ..], shape) = (&unit.names, unit.kernel_shape());
            parameters.push(trained(kernel, &shape, kaiming(&shape)));
            parameters.push(trained(scale, &shape[..1], constant(1.0)));
            parameters.push(trained(shift, &shape[..1], Initial::Zeros));
        }
        let shape = [CLASSES as u64, self.network.sizes.features() as u64];
        parameters.push(trained(OUTPUT[0], &shape, kaiming(&shape)));
        parameters.push(trained(OUTPUT[1], &shape[..1], Initial::Zeros));
        // Behind all others, so that at most one block is shared with them: what is in it is never rounded.
        for Unit { names, convolution } in &self.network.units {
            for (name, value) in [(&names[3], 0.0), (&names[4], 1.0)] {
                let (rule, shape) = (Rule::Ema { decay: self.hyper.decay }, [convolution.filters as u64]);
                let schedule = Schedule::constant(0.0);
                parameters.push(Parameter::new(name, &shape, rule, schedule, constant(value)));
            }
        }
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
        self.read(batch)?;
        let weights = self.weights(parameters)?;
        let Resnet { network, sums, pixels, labels, .. } = self;
        sums.units.iter_mut().flatten().chain(&mut sums.output).for_each(|sum| sum.fill(0.0));
        let loss = network.loss_and_sums(&weights, pixels, labels, sums);
        for (unit, sums) in network.units.iter().zip(&sums.units) {
            for (name, sum) in unit.names.iter().zip(sums) {
                gradient.slice_mut(name)?.copy_from_slice(sum);
            }
        }
        for (name, sum) in OUTPUT.iter().zip(&sums.output) {
            gradient.slice_mut(name)?.copy_from_slice(sum);
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
        self.read(batch)?;
        let mut logits = self.network.logits(&self.weights(parameters)?, &self.pixels);
        let told = dense::likeliest(&logits);
        let hits = told.iter().zip(&self.labels).filter(|(told, label)| told == label).count();
        let loss = dense::softmax_loss(&mut logits, &self.labels);
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
        self.read(batch)?;
        let told = dense::likeliest(&self.network.logits(&self.weights(parameters)?, &self.pixels));
        outputs.extend(told.iter().map(|class| class.to_string().into_bytes()));
        Ok(())
    }
}

impl Resnet {
    pub(crate) fn new(hyper: Hyper) -> Resnet {
        let (channels, side) = hyper.image.channels_and_side();
        let (width, blocks) = (hyper.width.into(), hyper.blocks.into());
        let network = Network::new(Sizes { channels, side, width, blocks });
        let sums = network.zeros();
        Resnet { hyper, network, sums, pixels: Vec::new(), labels: Vec::new() }
    }

    fn read(&mut self, batch: &Batch<'_>) -> anyhow::Result<()> {
        self.pixels.clear();
        self.labels.clear();
        for record in batch.records {
            let (label, pixels) = decode(record.bytes, self.network.sizes)?;
            self.labels.push(label);
            self.pixels.extend(pixels.iter().map(|pixel| f32::from(*pixel) / 255.0));
        }
        Ok(())
    }

    fn weights<'a>(&self, parameters: &'a Parameters) -> anyhow::Result<Weights<'a>> {
        let mut units = Vec::new();
        for Unit { names, .. } in &self.network.units {
            let mut of_unit: [&[f32]; 5] = [&[]; 5];
            for (slot, name) in of_unit.iter_mut().zip(names) {
                *slot = parameters.slice(name)?;
            }
            units.push(of_unit);
        }
        let output = [parameters.slice(OUTPUT[0])?, parameters.slice(OUTPUT[1])?];
        Ok(Weights { units, output })
    }
}

/// The label and the pixels of a record.
fn decode(record: &[u8], sizes: Sizes) -> anyhow::Result<(u8, &[u8])> {
    let Sizes { channels, side, .. } = sizes;
    ensure!(
        record.len() == 1 + sizes.pixels(),
        "an image is a record of {} bytes (label, then {channels} planes of {side} x {side} pixels), not of {}; \
         --image says which images they are",
        1 + sizes.pixels(),
        record.len()
    );
    ensure!(usize::from(record[0]) < CLASSES, "a label is 0 to 9, not {}", record[0]);
    Ok((record[0], &record[1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_a_label_and_the_planes_of_the_image() {
        let sizes =
            |image: &str| Resnet::new(clap::Parser::parse_from(["resnet", "--image", image])).network.sizes;
        let (gray, coloured) = (sizes("28x28x1"), sizes("32x32x3"));
        assert_eq!(decode(&[7; 785], gray).unwrap(), (7, &[7; 784][..]));
        assert_eq!(decode(&[7; 3073], coloured).unwrap(), (7, &[7; 3072][..]));
        assert!(decode(&[7; 3073], gray).unwrap_err().to_string().contains("--image"));
        assert!(decode(&[], gray).is_err());
        assert!(decode(&[10; 785], gray).unwrap_err().to_string().contains("not 10"));
    }
}
