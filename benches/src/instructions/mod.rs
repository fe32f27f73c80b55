//! `instructions`: how many instructions the hot paths take, counted under valgrind and held against a committed baseline.
//! It must never compare counts of different kinds of code: other targets, other registers, without optimisation.

mod baseline;
mod count;
mod judge;
mod paths;

use self::baseline::Baseline;
use self::count::Valgrind;
use self::judge::Report;
use anyhow::{Context, ensure};
use clap::{Parser, ValueEnum};
use std::path::Path;
use std::process::ExitCode;

const BASELINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/instructions.txt");

/// Counts the instructions of hot paths and compares them with benches/instructions.txt; fails where they differ by more than
/// the tolerance.
#[derive(Parser)]
#[command(name = "instructions")]
struct Arguments {
    /// How the result is printed
    #[arg(short, long, default_value = "text")]
    output: Output,
    /// Only paths whose names begin with one of these
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Write the baseline anew instead of comparing with it
    #[arg(long, conflicts_with = "only")]
    write: bool,
    /// Walk one path, to be counted
    #[arg(long, hide = true, requires = "repetitions")]
    walk: Option<String>,
    /// How often
    #[arg(long, hide = true)]
    repetitions: Option<u32>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    /// For people
    Text,
    /// One object on one line
    Json,
}

#[allow(clippy::print_stdout, reason = "its output is what it is for")]
/// Measures what the command line asks for.
///
/// # Errors
/// What could not be measured.
pub fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    if let (Some(name), Some(repetitions)) = (&arguments.walk, arguments.repetitions) {
        count::check_processor()?;
        paths::walk(name, repetitions)?;
        return Ok(ExitCode::SUCCESS);
    }
    check_build()?;
    let (file, valgrind) = (Path::new(BASELINE), Valgrind::find()?);
    let is_wanted =
        |name: &str| arguments.only.is_empty() || arguments.only.iter().any(|only| name.starts_with(only));
    let baseline = if arguments.write { None } else { Some(Baseline::read(file)?) };
    if let Some(baseline) = &baseline {
        baseline.origin.check_target(&valgrind.origin).with_context(|| file.display().to_string())?;
    }
    let mut counts = Vec::new();
    for path in paths::all().into_iter().filter(|path| is_wanted(path.name)) {
        counts.push(valgrind.count(&path)?);
    }
    ensure!(!counts.is_empty(), "no path begins with {}", arguments.only.join(" or "));
    let counted = Baseline { origin: valgrind.origin, counts };
    let Some(mut baseline) = baseline else {
        std::fs::write(file, counted.to_string()).with_context(|| file.display().to_string())?;
        print!("{counted}");
        return Ok(ExitCode::SUCCESS);
    };
    baseline.counts.retain(|count| is_wanted(&count.name));
    let report = Report::new(counted, baseline);
    match arguments.output {
        Output::Text => print!("{report}"),
        Output::Json => println!("{}", serde_json::to_string(&report)?),
    }
    Ok(if report.holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Code that was built in pieces has other calls inlined: counts differ by up to a fifth.
fn check_build() -> anyhow::Result<()> {
    ensure!(!cfg!(debug_assertions), "counts are of optimised code: cargo run --release");
    let is_incremental = std::env::var("CARGO_INCREMENTAL").is_ok_and(|is_incremental| is_incremental != "0");
    ensure!(!is_incremental, "counts are of code that was not built incrementally: CARGO_INCREMENTAL=0");
    Ok(())
}
