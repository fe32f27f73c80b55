//! Breaking jobs on purpose: [`chaos`] injects faults that a seed decides, [`hands_on`] those that a person asks for by the live page,
//! [`trials`] judges job after job under them, and [`demo`] is one job that people can watch. Faults come from outside: no role knows of any.

#![forbid(unsafe_code)]

#[macro_use(note)]
extern crate shoal_runner;

pub mod chaos;
pub mod demo;
pub mod flags;
pub mod hands_on;
mod programs;
pub mod trials;

use std::process::ExitCode;

/// The demo's training program: trains the job that its environment names.
pub fn demo_trainer() -> ExitCode {
    shoal_trainer_sdk::main(programs::digits::Digits::default())
}
