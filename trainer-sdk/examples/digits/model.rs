//! The digits program: a perceptron on 8x8 digits, with the count oracle and the loss of every step carried along.

use super::data;
use super::mlp::{self, GradientMut, Weights};
use super::oracle;
use shoal_trainer_sdk::{
    Batch, Decisions, Declaration, Fans, Gradient, Initial, Job, LossScale, Metric, Metrics, Model,
    NonFinite, OnDevice, Parameter, Parameters, Plateau, Rule, Schedule, Target,
};

/// Adam's learning rate at the start; it falls along half a cosine over the whole job.
const LEARNING_RATE: f32 = 0.02;
const LEARNING_RATE_LAST: f32 = 0.0005;
const LOSS: &str = "loss";
const ACCURACY: &str = "accuracy";
const WEIGHTS: [&str; 4] = ["hidden.weight", "hidden.bias", "output.weight", "output.bias"];

/// What is not needed to train, and here to be seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extras {
    /// The norm to which gradients are clipped.
    pub(crate) clip_norm: Option<f32>,
    /// The first loss scale.
    pub(crate) loss_scale: Option<f32>,
    /// Every so many-th step has an infinite gradient.
    pub(crate) spoil_every: Option<u64>,
    /// The job ends after so many evaluations that are no better.
    pub(crate) stop_after: Option<u32>,
    /// The learning rate is halved after so many.
    pub(crate) lower_after: Option<u32>,
    /// Whether the best checkpoint is kept.
    pub(crate) keep_best: bool,
    /// The CUDA device that has the weights and their gradients. No kernel computes here: they are copied out, and back.
    pub(crate) device: Option<u32>,
}

/// The model, with buffers that steps reuse.
#[derive(Debug, Default)]
pub(crate) struct Digits {
    extras: Extras,
    pixels: Vec<f32>,
    labels: Vec<u8>,
    gradients: [Vec<f32>; 4],
    /// What was copied out of a device.
    weights: [Vec<f32>; 4],
}

impl Model for Digits {
    fn declare(&mut self, job: &Job) -> anyhow::Result<Declaration> {
        let (pixels, hidden, classes) = (mlp::PIXELS as u64, mlp::HIDDEN as u64, mlp::CLASSES as u64);
        let over = job.epochs * job.steps_per_epoch;
        let rate = Schedule::cosine(LEARNING_RATE, LEARNING_RATE_LAST, over);
        let trained = |name: &str, shape: &[u64], initial| {
            Parameter::new(name, shape, Rule::ADAM, rate.clone(), initial)
        };
        let glorot = |shape: &[u64]| Initial::xavier_uniform(Fans::outputs_last(shape));
        let mut parameters = vec![
            oracle::parameter(0, job.records),
            trained(WEIGHTS[0], &[pixels, hidden], glorot(&[pixels, hidden])),
            trained(WEIGHTS[1], &[hidden], Initial::Zeros),
            oracle::parameter(1, job.records),
            trained(WEIGHTS[2], &[hidden, classes], glorot(&[hidden, classes])),
            trained(WEIGHTS[3], &[classes], Initial::Zeros),
            Parameter::sum(LOSS, &[job.epochs * job.steps_per_epoch]),
            oracle::parameter(2, job.records),
        ];
        if job.evaluations > 0 {
            let accuracy = Parameter::metric(ACCURACY, Metric::Accuracy);
            parameters.push(self.extras.target().map_or(accuracy.clone(), |target| accuracy.aiming(target)));
        }
        // Odd, so that blocks end where no vector register does.
        let declaration = Declaration { parameters, block_elements: 601 };
        Ok(match self.extras.decisions() {
            Some(decisions) => declaration.deciding(decisions),
            None => declaration,
        })
    }

    fn on_device(&mut self) -> Option<OnDevice> {
        let parameters = WEIGHTS.map(str::to_owned).to_vec();
        self.extras.device.map(|ordinal| OnDevice { ordinal, parameters })
    }

    fn step(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        gradient: &mut Gradient,
    ) -> anyhow::Result<()> {
        self.read(batch)?;
        let weights = weights(self.extras.device, parameters, &mut self.weights)?;
        let elements =
            [weights.hidden_weights, weights.hidden_bias, weights.output_weights, weights.output_bias]
                .map(<[f32]>::len);
        for (buffer, elements) in self.gradients.iter_mut().zip(elements) {
            buffer.clear();
            buffer.resize(elements, 0.0);
        }
        let [hidden_weights, hidden_bias, output_weights, output_bias] = &mut self.gradients;
        let mut sums = GradientMut { hidden_weights, hidden_bias, output_weights, output_bias };
        let loss = mlp::loss_and_gradient(&weights, &self.pixels, &self.labels, &mut sums);
        let is_spoilt = self.extras.spoil_every.is_some_and(|every| (batch.step + 1).is_multiple_of(every));
        let scale = if is_spoilt { f32::INFINITY } else { parameters.loss_scale() };
        for (buffer, name) in self.gradients.iter_mut().zip(WEIGHTS) {
            if scale != 1.0 {
                buffer.iter_mut().for_each(|sum| *sum *= scale);
            }
            // Copied, not added to the zeros that are there: a -0.0 must reach the reduction as it is.
            match self.extras.device {
                None => gradient.slice_mut(name)?.copy_from_slice(buffer),
                Some(_) => gradient.on_device_mut(name)?.write(buffer)?,
            }
        }
        gradient.slice_mut(LOSS)?[batch.step as usize] += loss as f32;
        oracle::add(batch, gradient)
    }

    fn evaluate(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        metrics: &mut Metrics,
    ) -> anyhow::Result<()> {
        let guesses = self.guess(batch, parameters)?;
        let hits = guesses.iter().zip(&self.labels).filter(|(guess, label)| guess == label).count();
        metrics.add(ACCURACY, hits as f32, guesses.len() as f32)?;
        Ok(())
    }

    fn predict(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        outputs: &mut Vec<Vec<u8>>,
    ) -> anyhow::Result<()> {
        let guesses = self.guess(batch, parameters)?;
        outputs.extend(guesses.iter().map(|guess| guess.to_string().into_bytes()));
        Ok(())
    }
}

impl Extras {
    /// What the job aims at, if at anything.
    fn target(&self) -> Option<Target> {
        let plateau = self.lower_after.map(|after| Plateau { after, factor: 0.5 });
        let target =
            Target { least_change: 0.0, keep_best: self.keep_best, stop_after: self.stop_after, plateau };
        Some(target).filter(|target| *target != Target::default())
    }

    /// What is to be decided over all blocks, if anything is.
    fn decisions(&self) -> Option<Decisions> {
        let skips = self.loss_scale.is_some() || self.spoil_every.is_some();
        let non_finite = if skips { NonFinite::Skip { in_a_row_max: 20 } } else { NonFinite::Fail };
        let loss_scale = self.loss_scale.map(|initial| LossScale { initial, growth_interval: 10 });
        let decisions = Decisions { clip_norm: self.clip_norm, non_finite, loss_scale };
        (skips || self.clip_norm.is_some()).then_some(decisions)
    }
}

impl Digits {
    /// With something to be seen.
    #[allow(dead_code)] // The demo, which includes this file too, trains without.
    pub(crate) fn with(extras: Extras) -> Digits {
        Digits { extras, ..Digits::default() }
    }

    /// The likeliest digit of each record.
    fn guess(&mut self, batch: &Batch<'_>, parameters: &Parameters) -> anyhow::Result<Vec<u8>> {
        self.read(batch)?;
        let weights = weights(self.extras.device, parameters, &mut self.weights)?;
        Ok(mlp::predict(&weights, &self.pixels))
    }

    fn read(&mut self, batch: &Batch<'_>) -> anyhow::Result<()> {
        self.pixels.clear();
        self.labels.clear();
        for record in batch.records {
            let (label, pixels) = data::decode(record.bytes)?;
            self.labels.push(label);
            self.pixels.extend(pixels.iter().map(|pixel| data::unit(*pixel)));
        }
        Ok(())
    }
}

/// The weights: here already, or copied out of a device into `copies`.
fn weights<'a>(
    device: Option<u32>,
    parameters: &'a Parameters,
    copies: &'a mut [Vec<f32>; 4],
) -> anyhow::Result<Weights<'a>> {
    if device.is_none() {
        return weights_of(|name| Ok(parameters.slice(name)?));
    }
    for (copy, name) in copies.iter_mut().zip(WEIGHTS) {
        *copy = parameters.on_device(name)?.read()?;
    }
    let [hidden_weights, hidden_bias, output_weights, output_bias] = &*copies;
    Ok(Weights { hidden_weights, hidden_bias, output_weights, output_bias })
}

fn weights_of<'a>(find: impl Fn(&str) -> anyhow::Result<&'a [f32]>) -> anyhow::Result<Weights<'a>> {
    Ok(Weights {
        hidden_weights: find(WEIGHTS[0])?,
        hidden_bias: find(WEIGHTS[1])?,
        output_weights: find(WEIGHTS[2])?,
        output_bias: find(WEIGHTS[3])?,
    })
}

/// Share of the held-out digits that a trained model tells right. `find` gives a parameter's values by name.
#[allow(dead_code)] // The example trains; the demo, which includes this file too, also judges.
pub(crate) fn held_out_accuracy<'a>(find: impl Fn(&str) -> anyhow::Result<&'a [f32]>) -> anyhow::Result<f64> {
    let (_, held_out) = data::split()?;
    let labels: Vec<u8> = held_out.rows().map(|(label, _)| label).collect();
    Ok(mlp::accuracy(&weights_of(find)?, &held_out.unit_pixels(), &labels))
}
