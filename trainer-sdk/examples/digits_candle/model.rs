//! The digits program over candle: a forward pass and its summed loss; the gradients are candle's.

use super::data::{self, DIGIT_PIXELS};
use shoal_trainer_sdk::candle::candle_core::{D, DType, Device, Tensor};
use shoal_trainer_sdk::candle::{self, Tensors};
use shoal_trainer_sdk::{
    Batch, Declaration, Fans, Gradient, Initial, Job, Metric, Metrics, Model, Parameter, Parameters, Rule,
    Schedule,
};

/// As in `digits`.
const HIDDEN: u64 = 67;
const CLASSES: u64 = 10;
const LOSS: &str = "loss";

/// The model.
#[derive(Debug)]
pub(crate) struct Digits;

impl Model for Digits {
    fn declare(&mut self, job: &Job) -> anyhow::Result<Declaration> {
        let pixels = DIGIT_PIXELS as u64;
        let rate = Schedule::cosine(0.02, 0.0005, job.epochs * job.steps_per_epoch);
        let trained = |name: &str, shape: &[u64], initial| {
            Parameter::new(name, shape, Rule::ADAM, rate.clone(), initial)
        };
        let glorot = |shape: &[u64]| Initial::xavier_uniform(Fans::outputs_last(shape));
        let parameters = vec![
            trained("hidden.weight", &[pixels, HIDDEN], glorot(&[pixels, HIDDEN])),
            trained("hidden.bias", &[HIDDEN], Initial::Zeros),
            trained("output.weight", &[HIDDEN, CLASSES], glorot(&[HIDDEN, CLASSES])),
            trained("output.bias", &[CLASSES], Initial::Zeros),
            Parameter::sum(LOSS, &[job.epochs * job.steps_per_epoch]),
            Parameter::metric("accuracy", Metric::Accuracy),
        ];
        Ok(Declaration { parameters, block_elements: 0 })
    }

    fn step(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        gradient: &mut Gradient,
    ) -> anyhow::Result<()> {
        let (pixels, labels) = tensors_of(batch)?;
        let loss = candle::step(parameters, gradient, &Device::Cpu, |tensors| {
            let logits = logits(tensors, &pixels)?;
            let likely = logits.gather(&labels, 1)?.squeeze(1)?;
            Ok((logits.log_sum_exp(D::Minus1)? - likely)?.sum_all()?)
        })?;
        gradient.slice_mut(LOSS)?[batch.step as usize] += loss;
        Ok(())
    }

    fn evaluate(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        metrics: &mut Metrics,
    ) -> anyhow::Result<()> {
        let (pixels, labels) = tensors_of(batch)?;
        let guesses = logits(&Tensors::constants(parameters, &Device::Cpu)?, &pixels)?.argmax(1)?;
        let hits = guesses.eq(&labels.squeeze(1)?)?.to_dtype(DType::F32)?.sum_all()?.to_scalar()?;
        metrics.add("accuracy", hits, batch.records.len() as f32)?;
        Ok(())
    }
}

/// Rows x classes, before the softmax.
fn logits(tensors: &Tensors, pixels: &Tensor) -> anyhow::Result<Tensor> {
    let of = |name: &str| tensors.find(name);
    let hidden = pixels.matmul(of("hidden.weight")?)?.broadcast_add(of("hidden.bias")?)?.relu()?;
    Ok(hidden.matmul(of("output.weight")?)?.broadcast_add(of("output.bias")?)?)
}

/// Rows x 64 pixels from 0 to 1, and rows x 1 labels.
fn tensors_of(batch: &Batch<'_>) -> anyhow::Result<(Tensor, Tensor)> {
    let (mut pixels, mut labels) = (Vec::new(), Vec::new());
    for record in batch.records {
        let (label, row) = data::decode(record.bytes)?;
        labels.push(u32::from(label));
        pixels.extend(row.iter().map(|pixel| data::unit(*pixel)));
    }
    let rows = labels.len();
    let pixels = Tensor::from_vec(pixels, (rows, DIGIT_PIXELS), &Device::Cpu)?;
    Ok((pixels, Tensor::from_vec(labels, (rows, 1), &Device::Cpu)?))
}
