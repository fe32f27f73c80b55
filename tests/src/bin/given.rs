//! A program whose parameters begin at values that no distribution gives: `given`; and that knows its records by their numbers:
//! `given records`. For tests of what programs say of a job before that begins.

use ndarray::Array2;
use shoal_trainer_sdk::{
    Batch, Declaration, Description, Gradient, Initial, Job, Metric, Metrics, Model, Parameter, Parameters,
    Rule, Schedule, ndarray,
};
use std::process::ExitCode;

struct Given {
    has_records: bool,
}

impl Model for Given {
    fn describe(&mut self, seed: u64) -> anyhow::Result<Description> {
        let weight =
            Array2::from_shape_fn((3, 4), |(row, column)| (seed as f32 + (7 * row + column) as f32).sin());
        Ok(Description {
            records: self.has_records.then_some(400),
            eval_records: self.has_records.then_some(40),
            initial: [("weight".to_owned(), weight.into_dyn())].into(),
        })
    }
    fn declare(&mut self, _: &Job) -> anyhow::Result<Declaration> {
        let weight = Parameter::new("weight", &[3, 4], Rule::Sgd, Schedule::constant(0.01), Initial::Zeros);
        let mean = Parameter::metric("mean", Metric::Mean { better: shoal_trainer_sdk::Better::Smaller });
        Ok(Declaration { parameters: vec![weight, mean], block_elements: 0 })
    }
    fn step(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        gradient: &mut Gradient,
    ) -> anyhow::Result<()> {
        let (weight, sums) = (parameters.slice("weight")?, gradient.slice_mut("weight")?);
        for record in batch.records {
            let aim = (record.index % 10) as f32;
            sums.iter_mut().zip(weight).for_each(|(sum, weight)| *sum += weight - aim);
        }
        Ok(())
    }
    fn evaluate(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        metrics: &mut Metrics,
    ) -> anyhow::Result<()> {
        let sum: f32 = parameters.slice("weight")?.iter().sum();
        metrics.add("mean", sum * batch.records.len() as f32, batch.records.len() as f32)?;
        Ok(())
    }
}

fn main() -> ExitCode {
    let has_records = std::env::args().nth(1).is_some_and(|word| word == "records");
    shoal_trainer_sdk::main(Given { has_records })
}
