//! What commands print: results as they were asked for, and lines for people.

use shoal_runtime::host::output;
pub use shoal_runtime::host::output::{Unprinted, note};
use std::fmt::Display;

/// How a command that reads something prints it.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// For people
    Text,
    /// One object on one line, last on standard output
    Json,
}

/// Prints a result on standard output.
///
/// # Errors
/// It is not printed: what was asked for was not had.
pub fn print(line: impl Display) -> Result<(), Unprinted> {
    output::result(line)
}

/// Prints what a command has done or found: that holds though nobody reads it.
///
/// # Errors
/// Standard output does not take it.
pub fn print_outcome(line: impl Display) -> Result<(), Unprinted> {
    match output::result(line) {
        Err(Unprinted::Closed) => Ok(()),
        printed => printed,
    }
}
