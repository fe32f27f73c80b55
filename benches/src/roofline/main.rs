//! `roofline`: how near Shoal's hot paths come to what this machine can do at all, and how leasing grows.
//! It must never print a figure whose limit was measured in another run.

mod leases;
mod map;
mod scan;
mod update;

use clap::{Parser, ValueEnum};
use shoal_benches::measure::ROUNDS_MIN;
use shoal_benches::report::{self, Report};

/// Measures Shoal and the machine's limits in turn, and prints both.
#[derive(Parser)]
#[command(name = "roofline")]
struct Arguments {
    /// How the result is printed
    #[arg(short, long, default_value = "text")]
    output: Output,
    /// Measured rounds of every row; one more is thrown away first
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u32).range(i64::from(ROUNDS_MIN)..=1000))]
    rounds: u32,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    /// For people
    Text,
    /// One object on one line
    Json,
}

#[allow(clippy::print_stdout, reason = "its output is what it is for")]
fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let report = measured(arguments.rounds)?;
    match arguments.output {
        Output::Text => print!("{report}"),
        Output::Json => println!("{}", serde_json::to_string(&report)?),
    }
    Ok(())
}

fn measured(rounds: u32) -> anyhow::Result<Report> {
    let load_before = report::load();
    let mut rows = vec![scan::row(rounds)?];
    rows.extend(update::rows(rounds)?);
    let (lease_rows, lease_growth) = leases::rows(rounds)?;
    rows.extend(lease_rows);
    Ok(Report { rounds, load_before, load_after: report::load(), rows, lease_growth })
}
