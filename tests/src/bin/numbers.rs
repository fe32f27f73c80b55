//! A program whose data have no file: a record is its number, and what is learnt of it is asked of the program. Counts as the example
//! `count` does, and fails on a record whose bytes are not its index, as a little-endian u64 or as text. For tests of `records:N`, and of
//! files of the same records.

#[allow(dead_code)] // The demo, which includes this file too, also reads the counts.
#[path = "../../../trainer-sdk/examples/count/oracle.rs"]
mod oracle;

use shoal_trainer_sdk::{
    Batch, Better, Declaration, Gradient, Initial, Job, Metric, Metrics, Model, Parameter, Parameters,
    Record, Rule, Schedule,
};
use std::process::ExitCode;

struct Numbers;

/// The data set of this program, as map-style ones are: asked by the number.
fn sample(record: &Record<'_>) -> anyhow::Result<f32> {
    let (number, text) = (record.index.to_le_bytes(), record.index.to_string());
    anyhow::ensure!([&number, text.as_bytes()].contains(&record.bytes), "record {} is another", record.index);
    Ok((record.index % 97) as f32 / 97.0)
}

impl Model for Numbers {
    fn declare(&mut self, job: &Job) -> anyhow::Result<Declaration> {
        let learnt = Parameter::new("w", &[1], Rule::Sgd, Schedule::constant(0.01), Initial::Zeros);
        let error = Parameter::metric("error", Metric::Mean { better: Better::Smaller });
        let counts = (0..oracle::NAMES.len()).map(|which| oracle::parameter(which, job.records));
        Ok(Declaration { parameters: counts.chain([learnt, error]).collect(), block_elements: 0 })
    }

    fn step(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        gradient: &mut Gradient,
    ) -> anyhow::Result<()> {
        let w = parameters.slice("w")?[0];
        for record in batch.records {
            gradient.add("w", &[w - sample(record)?])?;
        }
        oracle::add(batch, gradient)
    }

    fn evaluate(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        metrics: &mut Metrics,
    ) -> anyhow::Result<()> {
        let w = parameters.slice("w")?[0];
        for record in batch.records {
            metrics.add("error", (w - sample(record)?).abs(), 1.0)?;
        }
        Ok(())
    }

    fn predict(
        &mut self,
        batch: &Batch<'_>,
        _: &Parameters,
        outputs: &mut Vec<Vec<u8>>,
    ) -> anyhow::Result<()> {
        for record in batch.records {
            outputs.push(sample(record)?.to_le_bytes().to_vec());
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    shoal_trainer_sdk::main(Numbers)
}
