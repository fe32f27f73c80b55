//! One file for each command: its arguments and what it does with them.

pub(crate) mod certs;
pub(crate) mod checkpoint;
#[cfg(feature = "cluster")]
pub(crate) mod cluster;
pub(crate) mod drain;
pub(crate) mod export;
pub(crate) mod new;
pub(crate) mod recordio;
pub(crate) mod report;
pub(crate) mod roles;
pub(crate) mod run;
pub(crate) mod scale;
#[cfg(feature = "cluster")]
pub(crate) mod simulate;
pub(crate) mod status;

use shoal_runtime::host::output::{self, Unprinted};

/// How a command that reads something prints it.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// For people
    Text,
    /// One object on one line, last on standard output
    Json,
}

/// Prints a result on standard output.
pub(crate) fn print(line: impl std::fmt::Display) -> Result<(), Unprinted> {
    output::result(line)
}

/// Prints what a command has done or found: that holds though nobody reads it.
pub(crate) fn print_outcome(line: impl std::fmt::Display) -> Result<(), Unprinted> {
    match output::result(line) {
        Err(Unprinted::Closed) => Ok(()),
        printed => printed,
    }
}
