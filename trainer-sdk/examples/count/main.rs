//! The oracle as a training program: after E epochs every element of every parameter holds the same number, or a
//! record was skipped or doubled. `shoal run --data 'DIR/*.recordio' --epochs E -- target/release/examples/count`

#[allow(dead_code)] // The example counts; the demo, which includes this file too, also reads the counts.
mod oracle;

use shoal_trainer_sdk::{Batch, Declaration, Gradient, Job, Model, Parameters};

struct Count;

impl Model for Count {
    fn declare(&mut self, job: &Job) -> anyhow::Result<Declaration> {
        let parameters =
            (0..oracle::NAMES.len()).map(|which| oracle::parameter(which, job.records)).collect();
        Ok(Declaration { parameters, block_elements: 0 })
    }

    fn step(&mut self, batch: &Batch<'_>, _: &Parameters, gradient: &mut Gradient) -> anyhow::Result<()> {
        oracle::add(batch, gradient)
    }
}

fn main() -> std::process::ExitCode {
    shoal_trainer_sdk::main(Count)
}
