//! The count example on a machine where one record cannot be used: `picky RECORD`; or on one of so many threads, as it says of its
//! environment: `picky threads N`; or no function, as it tells its calls from step N on: `picky calls N`; or ends the program without a word, `picky
//! RECORD abort`, as every record does with `picky all abort`, and the beginning with `picky none abort`. For tests of what
//! then becomes of the record; other trainers of the job run `count` itself.

#![allow(clippy::print_stderr, reason = "a test's program")]

#[allow(dead_code)] // The demo, which includes this file too, also reads the counts.
#[path = "../../../trainer-sdk/examples/count/oracle.rs"]
mod oracle;

use shoal_trainer_sdk::{Batch, Declaration, Gradient, Job, Model, Parameter, Parameters};
use std::collections::BTreeMap;
use std::process::ExitCode;

/// What cannot be used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Refused {
    Record(u64),
    All,
    /// Not even the beginning.
    Start,
    Nothing,
}

/// A parameter in which calls are counted.
const CALLS: &str = "calls";

struct Picky {
    refused: Refused,
    aborts: bool,
    /// What it says that its bits depend on.
    threads: Option<String>,
    /// Of one that counts them: calls so far, and the first step in which they are told.
    calls: Option<(f32, u64)>,
}

impl Model for Picky {
    fn declare(&mut self, job: &Job) -> anyhow::Result<Declaration> {
        if self.refused == Refused::Start {
            std::process::abort();
        }
        let counted = (0..oracle::NAMES.len()).map(|which| oracle::parameter(which, job.records));
        let parameters = counted.chain(self.calls.map(|_| Parameter::sum(CALLS, &[1]))).collect();
        Ok(Declaration { parameters, block_elements: 0 })
    }

    fn environment(&mut self) -> anyhow::Result<BTreeMap<String, String>> {
        Ok(self.threads.iter().map(|threads| ("threads".to_owned(), threads.clone())).collect())
    }

    fn step(&mut self, batch: &Batch<'_>, _: &Parameters, gradient: &mut Gradient) -> anyhow::Result<()> {
        let is_refused = |index| self.refused == Refused::All || self.refused == Refused::Record(index);
        if let Some(record) = batch.records.iter().find(|record| is_refused(record.index)) {
            if self.aborts {
                std::process::abort();
            }
            anyhow::bail!("record {} cannot be used here", record.index);
        }
        if let Some((calls, from)) = &mut self.calls {
            *calls += 1.0;
            gradient.add(CALLS, &[if batch.step < *from { 0.0 } else { *calls }])?;
        }
        oracle::add(batch, gradient)
    }
}

fn main() -> ExitCode {
    let refused = match std::env::args().nth(1).as_deref() {
        Some("all") => Some(Refused::All),
        Some("none") => Some(Refused::Start),
        Some("threads" | CALLS) => Some(Refused::Nothing),
        word => word.and_then(|word| word.parse().ok()).map(Refused::Record),
    };
    let Some(refused) = refused else {
        eprintln!("usage: picky RECORD|all|none [abort], or picky threads N, or picky calls [STEP]");
        return ExitCode::from(2);
    };
    let second = std::env::args().nth(2);
    let aborts = second.as_deref() == Some("abort");
    let is_counting = std::env::args().nth(1).as_deref() == Some(CALLS);
    let from = second.as_deref().and_then(|word| word.parse().ok()).unwrap_or(0);
    let calls = is_counting.then_some((0.0, from));
    let threads = second.filter(|_| refused == Refused::Nothing && !is_counting);
    shoal_trainer_sdk::main(Picky { refused, aborts, threads, calls })
}
