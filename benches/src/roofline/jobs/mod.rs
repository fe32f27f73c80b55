//! Whole jobs: what they cost beside a rival that promises less, with a slow trainer, with more trainers, with a delay; their memory and their
//! traffic. Trainers pause in place of computing, so that two cores are enough for all of them.

mod arrivals;
mod begins;
mod delay;
mod job;
mod load;
mod memory;
mod price;
mod program;
mod rival;
mod scaling;
mod straggler;
mod watch;

pub(crate) use arrivals::{Adding, serve as add};
pub(crate) use program::{Program, Training};

use crate::programs::Programs;
use crate::report::Row;
use load::Load;

/// As the rule of thumb says.
const MICROBATCHES_PER_TRAINER: u32 = 8;
/// A block of 1 MiB.
const ELEMENTS: usize = 1 << 18;
/// What a microbatch takes where speed is measured.
const MICROS: u64 = 10_000;

/// What is measured of whole jobs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Part {
    Price,
    Straggler,
    Scaling,
    Delay,
    Memory,
}

/// The rows of a part. Says on standard error how far it is.
pub(crate) fn rows(part: Part, rounds: u32, programs: &Programs) -> anyhow::Result<Vec<Row>> {
    match part {
        Part::Price => price::rows(rounds, programs),
        Part::Straggler => straggler::rows(rounds, programs),
        Part::Scaling => scaling::rows(rounds, programs),
        Part::Delay => delay::rows(rounds, programs),
        Part::Memory => memory::rows(programs),
    }
}

fn load(microbatches: u32, jitter_percent: u32) -> Load {
    Load { elements: ELEMENTS, microbatches, micros: MICROS, jitter_percent, delay: 0 }
}

/// For whoever waits.
fn say(what: &str) {
    eprintln!("{what}");
}
