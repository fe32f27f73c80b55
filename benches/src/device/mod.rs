//! What a GPU makes of updates: whether the bits are the processor's, how near the kernel comes to the device's copy bandwidth,
//! what exact rounding costs, what is left of it once gradients come from this machine's memory, and what of that once they
//! come from another process.

#![allow(clippy::print_stdout, reason = "a bench prints its tables")]

mod bits;
mod engine;
mod equality;
mod jobs;
mod kernel;
mod raw;
mod sums;
mod torch;

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;

/// Updates on a CUDA device, measured; the first parts fail if they are not the processor's bit for bit
#[derive(Parser)]
struct Arguments {
    /// Number of the device
    #[arg(long, default_value_t = 0)]
    device: u32,
    /// Only this part
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// Device code with approximate arithmetic, to compare with: `build.py --fast FILE` makes it
    #[arg(long, value_name = "FILE")]
    fast: Option<PathBuf>,
    /// Bytes of the largest working set
    #[arg(long, default_value_t = 20 << 30)]
    bytes_max: u64,
    /// Measurements of each figure; the median is shown
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Updates of each rule that are compared
    #[arg(long, default_value_t = 1000)]
    updates: u64,
    /// A Python with PyTorch, to compare with its fused Adam
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// As a trainer of one of the jobs that are measured
    #[arg(long, hide = true)]
    train: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// A thousand updates of every rule on both sides, and sums likewise
    Equality,
    /// The kernel against copies in the device's memory
    Kernel,
    /// Updates from pinned pages to pinned pages against the processor
    Engine,
    /// Whole jobs, disturbed ones among them, against one without a device
    Bits,
    /// A device that is lost, in this process
    #[value(hide = true)]
    Loss,
    /// A job whose blocks go to the device and back
    Migration,
    /// Whole jobs, with gradients in messages and in device memory
    Jobs,
}

/// Measures what the command line asks for.
///
/// # Errors
/// What could not be measured.
pub fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    if let Some(training) = &arguments.train {
        return jobs::train(training);
    }
    if arguments.only == Some(Part::Loss) {
        bits::lose_own(&arguments)?;
    }
    let is_wanted = |part| arguments.only.is_none_or(|only| only == part);
    if is_wanted(Part::Equality) {
        equality::run(&arguments)?;
        sums::run(&arguments)?;
    }
    if is_wanted(Part::Bits) {
        bits::run(&arguments)?;
    }
    if is_wanted(Part::Migration) {
        jobs::migrate(&arguments)?;
    }
    if is_wanted(Part::Kernel) {
        kernel::run(&arguments)?;
    }
    if is_wanted(Part::Engine) {
        engine::run(&arguments)?;
    }
    if is_wanted(Part::Jobs) {
        jobs::run(&arguments)?;
    }
    Ok(ExitCode::SUCCESS)
}
