//! The local runner: the same roles as on a cluster, as processes of this machine, supervised; and what is read of jobs, models and
//! tables by whoever runs or watches one.
//!
//! [`Supervisor`] keeps the processes of one job as the job wants them, by what `upkeep` decides and what ends mean ([`shoal_job::ends`]);
//! [`record`] and [`journal`] remember what happened; a [`reaper`] outlives it and leaves nothing; some run on [`hosts`] of their own.
//! Nothing here may change a bit of the model: it starts, stops and signals processes only.

#![forbid(unsafe_code)]

/// Prints a line for people on standard error: as `eprintln!`, but nobody ends because it cannot be written.
#[macro_export]
macro_rules! note {
    ($($line:tt)*) => { $crate::output::note(format_args!($($line)*)) };
}

// What the command line says of a job, and what is printed and exited with.
pub mod exit;
pub mod flags;
pub mod output;

// A run: its folder, its processes, its story.
mod claim;
mod counts;
mod credentials;
mod description;
pub mod folder;
pub mod history;
pub mod hosts;
pub mod journal;
pub mod latest;
pub mod life;
pub mod outcome;
pub mod plan;
mod process;
pub mod progress;
pub mod reaper;
pub mod record;
mod silence;
mod start;
mod stops;
mod supervisor;
mod tensorboard;
pub mod told;
mod upkeep;

// Jobs that answer elsewhere.
pub mod client;
pub mod validity;

// What a status says of a job.
pub mod breakdown;
pub mod data_size;
pub mod evaluations;
pub mod exclusions;
pub mod reading;
pub mod rewinds;
pub mod staleness;
pub mod standstill;
pub mod waste;

// Models and tables, at rest and as files.
pub mod at_rest;
pub mod losses;
pub mod model_state;
pub mod programs;
pub mod table_state;

// For eyes.
pub mod report;
pub mod screen;
pub mod shell;
pub mod terminal;

pub use claim::Claim;
pub use plan::JobPlan;
pub use process::Process;
pub use supervisor::Supervisor;
