//! A program that goes on once it has trained: it trains twice, says so each time, and then waits for the signal that ends it. For
//! tests of what training leaves behind in its process.

#![allow(clippy::print_stderr, reason = "a test's program")]
#![allow(clippy::disallowed_methods, reason = "there is no runtime to wait in")]

use shoal_trainer_sdk::{
    Batch, Declaration, Gradient, Initial, Job, Model, Parameter, Parameters, Rule, Schedule,
};
use std::process::ExitCode;
use std::time::Duration;

struct Count;

impl Model for Count {
    fn declare(&mut self, _: &Job) -> anyhow::Result<Declaration> {
        let count = Parameter::new("count", &[1], Rule::Sum, Schedule::constant(1.0), Initial::Zeros);
        Ok(Declaration { parameters: vec![count], block_elements: 0 })
    }
    fn step(&mut self, batch: &Batch<'_>, _: &Parameters, gradient: &mut Gradient) -> anyhow::Result<()> {
        gradient.slice_mut("count")?[0] += batch.records.len() as f32;
        Ok(())
    }
}

fn main() -> ExitCode {
    for number in 1..=2 {
        match shoal_trainer_sdk::train(&mut Count) {
            Ok(ended) => eprintln!("training {number} has ended: {ended:?}"),
            Err(error) => {
                eprintln!("training {number} has failed: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    std::thread::sleep(Duration::from_secs(600));
    ExitCode::SUCCESS
}
