//! Breaking jobs on purpose: [`chaos`] injects faults that a seed decides, [`trials`] judges job after job under them, and [`demo`] is one
//! job that people can watch. Faults come from outside: no role knows of any.

#![forbid(unsafe_code)]

#[macro_use(note)]
extern crate shoal_runner;

pub mod chaos;
pub mod demo;
pub mod flags;
mod programs;
pub mod trials;

use std::process::ExitCode;

/// The demo's training program: trains the job that its environment names.
pub fn demo_trainer() -> ExitCode {
    shoal_trainer_sdk::main(programs::digits::Digits::default())
}
