//! The `shoal` command: every role in one binary, the local runner, and all that looks at a job. What is public is what `main` needs.

#![forbid(unsafe_code)]

/// Prints a line for people on standard error: as `eprintln!`, but nobody ends because it cannot be written.
macro_rules! note {
    ($($line:tt)*) => { shoal_runtime::host::output::note(format_args!($($line)*)) };
}

// The command line, and what it calls.
mod absent;
mod command_line;
mod commands;
mod exit;
#[cfg(feature = "cluster")]
mod manifest;

// Jobs: those of this machine, those that answer elsewhere.
mod client;
#[cfg(feature = "cluster")]
mod cluster;
mod drill;
mod programs;
mod runner;
mod validity;

// What a status says of a job.
mod breakdown;
mod data_size;
mod evaluations;
mod exclusions;
mod reading;
mod rewinds;
mod staleness;
mod verified;
mod waste;

// Data sets and models, as files.
mod at_rest;
mod losses;
mod model_state;
#[cfg(feature = "pack")]
mod pack;
#[cfg(feature = "parquet")]
mod table_file;
mod table_state;

// For eyes.
mod report;
mod screen;
mod shell;
mod terminal;

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs what the command line asks for; how it went is the exit code.
pub fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    if let Some(why) = absent::why(&words) {
        return exit::failed(&why.into());
    }
    match command_line::parsed(words) {
        Ok(command) => command.run().unwrap_or_else(|error| exit::failed(&error)),
        Err(error) => command_line::unparsed(&error),
    }
}
