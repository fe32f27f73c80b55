//! The `shoal` command: every role in one binary, the local runner, and all that looks at a job. What is public is what `main` needs.

#![forbid(unsafe_code)]

#[macro_use(note)]
extern crate shoal_runner;

// The command line, and what it calls.
mod absent;
mod command_line;
mod commands;
mod config;
mod doctor;
#[cfg(feature = "cluster")]
mod manifest;
mod silence;

// Jobs of a cluster, and what a status says that is verified or recorded.
#[cfg(feature = "cluster")]
mod cluster;
mod recorded;
mod verified;

// Data sets and tables, as files.
#[cfg(feature = "pack")]
mod pack;
#[cfg(feature = "parquet")]
mod table_file;

use command_line::Refused;
use shoal_runner::exit::{self, Exit};
use std::ffi::OsString;
use std::process::ExitCode;

/// Runs what the command line asks for; how it went is the exit code.
pub fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    if let Some(why) = absent::why(&words) {
        return exit::failed(&why.into());
    }
    match command_line::parsed(words) {
        Ok((arguments, taken)) => arguments.run().unwrap_or_else(|error| {
            let code = exit::failed(&error);
            if matches!(error.downcast_ref(), Some(Exit::Usage(_))) {
                command_line::tell(&taken);
            }
            code
        }),
        Err((Refused::File(why), _)) => exit::failed(&why.into()),
        Err((Refused::Line(error), taken)) => {
            let code = command_line::unparsed(&error);
            command_line::tell(&taken);
            code
        }
    }
}
