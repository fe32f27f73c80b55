//! The count example on a machine where one record cannot be used: `picky RECORD`. For tests of what then becomes of the
//! record; other trainers of the job run `count` itself.

#![allow(clippy::print_stderr, reason = "a test's program")]

#[allow(dead_code)] // The demo, which includes this file too, also reads the counts.
#[path = "../../../trainer-sdk/examples/count/oracle.rs"]
mod oracle;

use shoal_trainer_sdk::{Batch, Declaration, Gradient, Job, Model, Parameters};
use std::process::ExitCode;

struct Picky {
    refused: u64,
}

impl Model for Picky {
    fn declare(&mut self, job: &Job) -> Declaration {
        let parameters =
            (0..oracle::NAMES.len()).map(|which| oracle::parameter(which, job.records)).collect();
        Declaration { parameters, block_elements: 0 }
    }

    fn step(&mut self, batch: &Batch<'_>, _: &Parameters, gradient: &mut Gradient) -> anyhow::Result<()> {
        let is_refused = batch.records.iter().any(|record| record.index == self.refused);
        anyhow::ensure!(!is_refused, "record {} cannot be used here", self.refused);
        oracle::add(batch, gradient)
    }
}

fn main() -> ExitCode {
    let Some(refused) = std::env::args().nth(1).and_then(|word| word.parse().ok()) else {
        eprintln!("usage: picky RECORD");
        return ExitCode::from(2);
    };
    shoal_trainer_sdk::main(Picky { refused })
}
