//! The text program: a network that tells the next character, by Adam. A gradient's weight is the number of characters
//! told, which differs from record to record.

use super::dense;
use super::network::{self, EMBEDDING, LAYERS, Rows, Sums, Weights};
use super::windows::{self, CONTEXT};
use ndarray::Ix2;
use shoal_trainer_sdk::{
    Batch, Declaration, Fans, Gradient, Initial, Job, Metric, Metrics, Model, Parameter, Parameters, Rule,
    Schedule,
};

/// The loss of every step, summed over its characters: `shoal run` and `shoal report` show it.
const LOSS: &str = "loss";
const ACCURACY: &str = "accuracy";
const LOG_LOSS: &str = "log_loss";

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
    /// The layers' gradients. `Gradient` lends one parameter at a time, and a layer adds to its weight's and its bias's at once.
    layers: [Vec<f32>; 4],
}

impl Model for Text {
    fn declare(&mut self, job: &Job) -> anyhow::Result<Declaration> {
        let steps = job.epochs * job.steps_per_epoch;
        let rate = Schedule::cosine(self.hyper.rate, self.hyper.rate / 100.0, steps);
        let trained = |(name, shape): (&str, &[u64])| {
            let initial = match name {
                "embedding" => Initial::Normal { deviation: 1.0 },
                _ if shape.len() == 1 => Initial::Zeros,
                _ => Initial::kaiming_uniform(Fans::outputs_first(shape)),
            };
            Parameter::new(name, shape, Rule::ADAM, rate.clone(), initial)
        };
        let mut parameters: Vec<Parameter> = [EMBEDDING].into_iter().chain(LAYERS).map(trained).collect();
        parameters.push(Parameter::sum(LOSS, &[steps]));
        parameters.push(Parameter::metric(LOG_LOSS, Metric::LogLoss));
        parameters.push(Parameter::metric(ACCURACY, Metric::Accuracy));
        Ok(Declaration { parameters, block_elements: 0 })
    }

    fn step(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        gradient: &mut Gradient,
    ) -> anyhow::Result<()> {
        read(batch.records.iter().map(|record| record.bytes), &mut self.rows)?;
        let weights = weights_of(parameters)?;
        for (sums, weight) in self.layers.iter_mut().zip(weights.layers) {
            sums.clear();
            sums.resize(weight.len(), 0.0);
        }
        let embedding = gradient.array_mut(EMBEDDING.0)?.into_dimensionality::<Ix2>()?;
        let sums = Sums { embedding, layers: &mut self.layers };
        let loss = network::loss_and_sums(&weights, &self.rows, sums);
        for ((name, _), sums) in LAYERS.iter().zip(&self.layers) {
            gradient.add(name, sums)?;
        }
        gradient.slice_mut(LOSS)?[batch.step as usize] += loss as f32;
        gradient.set_weight(self.rows.targets.len() as u64);
        Ok(())
    }

    /// By character, not by window.
    fn evaluate(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        metrics: &mut Metrics,
    ) -> anyhow::Result<()> {
        read(batch.records.iter().map(|record| record.bytes), &mut self.rows)?;
        let mut logits = network::logits(&weights_of(parameters)?, &self.rows.contexts);
        let told = dense::likeliest(&logits);
        let hits = told.iter().zip(&self.rows.targets).filter(|(told, target)| told == target).count();
        let loss = dense::softmax_loss(&mut logits, &self.rows.targets);
        metrics.add(LOG_LOSS, loss as f32, told.len() as f32)?;
        metrics.add(ACCURACY, hits as f32, told.len() as f32)?;
        Ok(())
    }

    /// The character that is likeliest to follow the window.
    fn predict(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        outputs: &mut Vec<Vec<u8>>,
    ) -> anyhow::Result<()> {
        let mut contexts = Vec::new();
        for record in batch.records {
            let told = windows::targets(record.bytes)?;
            contexts.extend(record.bytes[told..].iter().copied().map(windows::class_of));
        }
        let likeliest = dense::likeliest(&network::logits(&weights_of(parameters)?, &contexts));
        outputs
            .extend(likeliest.into_iter().map(|class| windows::character_of(class).to_string().into_bytes()));
        Ok(())
    }
}

impl Text {
    pub(crate) fn new(hyper: Hyper) -> Text {
        Text { hyper, rows: Rows::default(), layers: Default::default() }
    }
}

fn read<'a>(records: impl Iterator<Item = &'a [u8]>, rows: &mut Rows) -> anyhow::Result<()> {
    rows.contexts.clear();
    rows.targets.clear();
    for record in records {
        let targets = windows::targets(record)?;
        let classes: Vec<u8> = record.iter().copied().map(windows::class_of).collect();
        for context in classes.windows(CONTEXT).take(targets) {
            rows.contexts.extend_from_slice(context);
        }
        rows.targets.extend_from_slice(&classes[CONTEXT..]);
    }
    Ok(())
}

fn weights_of(parameters: &Parameters) -> anyhow::Result<Weights<'_>> {
    let embedding = parameters.array(EMBEDDING.0)?.into_dimensionality::<Ix2>()?;
    let mut layers: [&[f32]; 4] = [&[]; 4];
    for (slot, (name, _)) in layers.iter_mut().zip(LAYERS) {
        *slot = parameters.slice(name)?;
    }
    Ok(Weights { embedding, layers })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_a_row_for_each_character_to_tell() {
        let window: Vec<u8> = (0..CONTEXT as u8 + 2).map(|at| b'A' + at % 26).collect();
        let classes: Vec<u8> = window.iter().copied().map(windows::class_of).collect();
        let mut rows = Rows { contexts: vec![9], targets: vec![9] };
        read([window.as_slice(), &window[1..]].into_iter(), &mut rows).unwrap();
        let [first, second] = [&classes[..CONTEXT], &classes[1..=CONTEXT]];
        assert_eq!(rows.contexts, [first, second, second].concat());
        assert_eq!(rows.targets, [classes[CONTEXT], classes[CONTEXT + 1], classes[CONTEXT + 1]]);
        assert!(read([&window[..CONTEXT]].into_iter(), &mut rows).is_err());
    }
}
