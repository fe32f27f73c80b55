//! `blocks`: what a step costs the processors, by role, as the number of blocks grows: of one model in ever smaller blocks, and of
//! ever larger models in blocks of one size. And how updates that fall due at once are spread over processors. Whole jobs, each role
//! a process of its own. It must never count what comes before the first step: processes that start, blocks that are filled.

mod costs;
mod decided;
mod job;
mod parts;
mod print;
mod program;

use self::costs::Row;
use self::job::Ran;
use self::parts::{Part, Shape};
use self::program::{Program, Training};
use crate::programs::Programs;
use crate::report::load;
use clap::{Parser, ValueEnum};
use serde::Serialize;
use std::process::ExitCode;
use std::time::Duration;

/// Measures what a step costs the processors, by role, as the number of blocks grows.
#[derive(Parser)]
#[command(
    name = "blocks",
    after_help = "Examples:\n  blocks --only count --followers 0 --limit 60\n  blocks --only size --mib 64,1024 --rounds 3 -o json\n  blocks --only decided,followed --elements 67108864"
)]
pub(crate) struct Arguments {
    /// What is measured
    #[arg(long, value_delimiter = ',', default_value = "count,size,decided,followed")]
    only: Vec<Part>,
    /// Of count: the numbers of blocks that 512 MiB are cut into
    #[arg(long, value_delimiter = ',', default_value = "512,4096,32768,131072", value_parser = clap::value_parser!(u64).range(512..=1 << 20))]
    blocks: Vec<u64>,
    /// Of size: the sizes of models
    #[arg(long, value_delimiter = ',', default_value = "64,256,1024,2048,4096", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    mib: Vec<u64>,
    /// Of size: the size of all blocks
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1024))]
    block_kib: u64,
    /// Copies of each block beside its primary: a job with one has two pservers
    #[arg(long, value_delimiter = ',', default_value = "0,1", value_parser = clap::value_parser!(u32).range(0..=8))]
    followers: Vec<u32>,
    /// Steps that are counted, each of one microbatch; of models below 512 MiB as many times more
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    steps: u64,
    /// Of decided and followed: the parameters. A pserver needs 24 bytes of memory for each, two pservers with followers 40 together
    #[arg(long, default_value_t = 1 << 28, value_parser = clap::value_parser!(u64).range(1 << 10..=1 << 36))]
    elements: u64,
    /// Of decided and followed: how many processors the pserver has that is measured
    #[arg(long, value_delimiter = ',', default_value = "1,2", value_parser = clap::value_parser!(u32).range(1..=1024))]
    cores: Vec<u32>,
    /// Of decided: the lease TTL in milliseconds; a pserver that is silent for longer is taken for lost
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(50..=3_600_000))]
    ttl: u64,
    /// How often each job is run
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Seconds after which a job is ended, and said to be over the limit
    #[arg(long, default_value_t = 180, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    limit: u64,
    /// How the result is printed
    #[arg(short, long, default_value = "text")]
    output: Output,
    /// Be a trainer
    #[arg(long, hide = true)]
    train: Option<Training>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    /// For people
    Text,
    /// One object on one line
    Json,
}

/// The result of one run.
#[derive(Debug, Serialize)]
struct Report {
    rounds: u32,
    /// After which a job was ended, in seconds.
    limit: u64,
    load_before: Option<String>,
    load_after: Option<String>,
    rows: Vec<Row>,
    /// Of updates that fall due at once.
    at_once: Vec<decided::Row>,
}

#[allow(clippy::print_stdout, reason = "its output is what it is for")]
/// Measures what the command line asks for.
///
/// # Errors
/// What could not be measured.
pub fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    if let Some(training) = arguments.train {
        return Ok(shoal_trainer_sdk::main(Program::new(training)?));
    }
    let report = measured(&arguments)?;
    match arguments.output {
        Output::Text => print!("{report}"),
        Output::Json => println!("{}", serde_json::to_string(&report)?),
    }
    Ok(ExitCode::SUCCESS)
}

/// All jobs in turn, round by round.
fn measured(arguments: &Arguments) -> anyhow::Result<Report> {
    let Arguments { rounds, limit, .. } = *arguments;
    let of_part = |part: &Part| part.shapes(arguments).into_iter().map(|shape| (*part, shape)).collect();
    let shapes: Vec<(Part, Shape)> = arguments.only.iter().flat_map::<Vec<_>, _>(of_part).collect();
    let (load_before, programs) = (load(), Programs::build()?);
    let mut runs: Vec<Vec<Ran>> = vec![Vec::new(); shapes.len()];
    for round in 1..=rounds {
        for ((part, shape), runs) in shapes.iter().zip(&mut runs) {
            // What has not ended in time once is not waited for again.
            if runs.iter().all(Ran::is_whole) {
                let ran = job::run(&programs, shape, Duration::from_secs(limit))?;
                say(&format!("round {round} of {rounds}, {part}, {shape}: {ran}"));
                runs.push(ran);
            }
        }
    }
    let rows =
        shapes.into_iter().zip(runs).map(|((part, shape), runs)| Row::new(part, shape, runs)).collect();
    let rows = costs::beside_the_first(rows);
    let mut at_once = Vec::new();
    for part in arguments.only.iter().filter(|part| part.is_at_once()) {
        at_once.extend(decided::rows(*part, arguments, &programs)?);
    }
    Ok(Report { rounds, limit, load_before, load_after: load(), rows, at_once })
}

/// For whoever waits.
fn say(what: &str) {
    eprintln!("{what}");
}
