//! The count example on a machine where one record cannot be used: `picky RECORD`; or ends the program without a word, `picky
//! RECORD abort`, as every record does with `picky all abort`, and the beginning with `picky none abort`. For tests of what
//! then becomes of the record; other trainers of the job run `count` itself.

#![allow(clippy::print_stderr, reason = "a test's program")]

#[allow(dead_code)] // The demo, which includes this file too, also reads the counts.
#[path = "../../../trainer-sdk/examples/count/oracle.rs"]
mod oracle;

use shoal_trainer_sdk::{Batch, Declaration, Gradient, Job, Model, Parameters};
use std::process::ExitCode;

/// What cannot be used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Refused {
    Record(u64),
    All,
    /// Not even the beginning.
    Start,
}

struct Picky {
    refused: Refused,
    aborts: bool,
}

impl Model for Picky {
    fn declare(&mut self, job: &Job) -> anyhow::Result<Declaration> {
        if self.refused == Refused::Start {
            std::process::abort();
        }
        let parameters =
            (0..oracle::NAMES.len()).map(|which| oracle::parameter(which, job.records)).collect();
        Ok(Declaration { parameters, block_elements: 0 })
    }

    fn step(&mut self, batch: &Batch<'_>, _: &Parameters, gradient: &mut Gradient) -> anyhow::Result<()> {
        let is_refused = |index| self.refused == Refused::All || self.refused == Refused::Record(index);
        if let Some(record) = batch.records.iter().find(|record| is_refused(record.index)) {
            if self.aborts {
                std::process::abort();
            }
            anyhow::bail!("record {} cannot be used here", record.index);
        }
        oracle::add(batch, gradient)
    }
}

fn main() -> ExitCode {
    let refused = match std::env::args().nth(1).as_deref() {
        Some("all") => Some(Refused::All),
        Some("none") => Some(Refused::Start),
        word => word.and_then(|word| word.parse().ok()).map(Refused::Record),
    };
    let Some(refused) = refused else {
        eprintln!("usage: picky RECORD|all|none [abort]");
        return ExitCode::from(2);
    };
    let aborts = std::env::args().nth(2).is_some_and(|word| word == "abort");
    shoal_trainer_sdk::main(Picky { refused, aborts })
}
