//! `rows`: what an embedding table costs, in memory and in time, beside the machine's own limits and other parameter servers.
//! It must never print a figure whose limit was measured in another run.

mod client;
mod flat;
mod growth;
mod print;
mod soak;
mod wire;

use self::growth::{Growth, Size};
use self::soak::Soak;
use self::wire::Wire;
use crate::measure::ROUNDS_MIN;
use crate::paths::buckets::MESSAGE_KEYS;
use crate::peers::Peers;
use crate::report::load;
use clap::{Parser, ValueEnum};
use serde::Serialize;
use std::path::PathBuf;

/// Measures embedding tables and the machine's limits in turn, and prints both.
#[derive(Parser)]
#[command(name = "rows")]
struct Arguments {
    /// What is measured
    #[arg(long, value_delimiter = ',', default_value = "growth,soak,wire")]
    only: Vec<Part>,
    /// The largest table, in rows; one of 10^8 needs 16 GB
    #[arg(long, default_value_t = 10_000_000)]
    rows_max: usize,
    /// Updates of each table that is soaked
    #[arg(long, default_value_t = 2400)]
    soak_updates: u64,
    /// A Python for the peers, with tensorflow-cpu and grpcio; without it ours is measured alone
    #[arg(long, requires = "wheel")]
    python: Option<PathBuf>,
    /// The folder of ElasticDL's unpacked wheel
    #[arg(long)]
    wheel: Option<PathBuf>,
    /// How the result is printed
    #[arg(short, long, default_value = "text")]
    output: Output,
    /// Measured rounds of every row; one more is thrown away first
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u32).range(i64::from(ROUNDS_MIN)..=1000))]
    rounds: u32,
    /// Be the pserver
    #[arg(long, hide = true)]
    serve: bool,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Part {
    /// Bytes and costs of a row in tables of 10^5 rows and more
    Growth,
    /// Memory over many updates with eviction
    Soak,
    /// Pull and push over loopback
    Wire,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    /// For people
    Text,
    /// One object on one line
    Json,
}

/// The result of one run.
#[derive(Serialize)]
struct Rows {
    rounds: u32,
    load_before: Option<String>,
    load_after: Option<String>,
    sizes: Vec<Size>,
    soaks: Vec<Soak>,
    wire: Option<Wire>,
}

#[allow(clippy::print_stdout, reason = "its output is what it is for")]
/// Measures what the command line asks for.
///
/// # Errors
/// What could not be measured.
pub fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if arguments.serve {
        return wire::serve();
    }
    let rows = measured(&arguments)?;
    match arguments.output {
        Output::Text => print!("{rows}"),
        Output::Json => println!("{}", serde_json::to_string(&rows)?),
    }
    Ok(())
}

fn measured(arguments: &Arguments) -> anyhow::Result<Rows> {
    let (load_before, rounds) = (load(), arguments.rounds);
    let has = |part| arguments.only.contains(&part);
    // The smallest memory first: what later parts leave to the allocator is nobody's row.
    let soaks = if has(Part::Soak) { soak::soaks(arguments.soak_updates)? } else { Vec::new() };
    let mut sizes = Vec::new();
    if has(Part::Growth) {
        let mut growth = Growth::new(rounds)?;
        for rows in [100_000, 1_000_000, 10_000_000, 100_000_000] {
            if rows <= arguments.rows_max {
                sizes.push(growth.to(rows)?);
            }
        }
    }
    let wire = if has(Part::Wire) {
        let peers = arguments.python.as_ref().zip(arguments.wheel.as_ref());
        let work = [("--rows", wire::TABLE_ROWS), ("--dimension", wire::DIMENSION), ("--keys", MESSAGE_KEYS)];
        let work = work.map(|(flag, value)| (flag, value.to_string()));
        let peers = peers
            .map(|(python, wheel)| Peers::start("embedding.py", python, Some(wheel), &work))
            .transpose()?;
        Some(wire::measured(rounds, peers)?)
    } else {
        None
    };
    Ok(Rows { rounds, load_before, load_after: load(), sizes, soaks, wire })
}
