//! `roofline`: how near Shoal's hot paths come to what this machine can do at all, how leasing grows, and what whole jobs cost.
//! It must never print a figure whose limit was measured in another run.

mod client;
mod dispatch;
mod jobs;
mod leases;
mod map;
mod reading;
mod scan;
mod tasks;
mod update;
mod wire;

use crate::measure::ROUNDS_MIN;
use crate::peers::Peers;
use crate::programs::Programs;
use crate::report::{self, LeaseGrowth, Report};
use clap::{Parser, ValueEnum};
use shoal_runtime::host::memory::keep_large_buffers;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

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
    /// What is measured
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "scan,reading,wire,update,leases,price,straggler,scaling,delay,memory"
    )]
    only: Vec<Part>,
    /// A Python for the peers, with tensorflow-cpu, grpcio and array_record, or with torch; more than one if need be. Without
    /// any ours is measured alone
    #[arg(long)]
    python: Vec<PathBuf>,
    /// The folder of ElasticDL's unpacked wheel
    #[arg(long)]
    wheel: Option<PathBuf>,
    /// Be a pserver
    #[arg(long, hide = true)]
    serve: Option<wire::Served>,
    /// Be a master of the data in this folder
    #[arg(long, hide = true)]
    serve_master: Option<PathBuf>,
    /// Be the rival's pserver
    #[arg(long, hide = true)]
    add: Option<jobs::Adding>,
    /// Be a trainer
    #[arg(long, hide = true)]
    train: Option<jobs::Training>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Part {
    /// Reading records
    Scan,
    /// Reading records ahead, from far away
    Reading,
    /// Pull and push over loopback
    Wire,
    /// Sums and update rules
    Update,
    /// Leasing tasks
    Leases,
    /// Whole jobs beside a sum in the order of arrival
    Price,
    /// Whole jobs of which one trainer is slow
    Straggler,
    /// Whole jobs of one to eight trainers, and their traffic
    Scaling,
    /// Whole jobs whose gradients are of earlier versions
    Delay,
    /// The memory of whole jobs
    Memory,
}

impl Part {
    /// Which part of what is measured of whole jobs it is.
    fn of_jobs(self) -> Option<jobs::Part> {
        match self {
            Part::Price => Some(jobs::Part::Price),
            Part::Straggler => Some(jobs::Part::Straggler),
            Part::Scaling => Some(jobs::Part::Scaling),
            Part::Delay => Some(jobs::Part::Delay),
            Part::Memory => Some(jobs::Part::Memory),
            Part::Scan | Part::Reading | Part::Wire | Part::Update | Part::Leases => None,
        }
    }
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
    if let Some(served) = arguments.serve {
        wire::serve(served)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(adding) = arguments.add {
        jobs::add(adding)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(training) = arguments.train {
        return Ok(shoal_trainer_sdk::main(jobs::Program::new(training)?));
    }
    if let Some(folder) = &arguments.serve_master {
        dispatch::serve(folder)?;
        return Ok(ExitCode::SUCCESS);
    }
    let report = measured(&arguments)?;
    match arguments.output {
        Output::Text => print!("{report}"),
        Output::Json => println!("{}", serde_json::to_string(&report)?),
    }
    Ok(ExitCode::SUCCESS)
}

fn measured(arguments: &Arguments) -> anyhow::Result<Report> {
    // As every role does that handles messages or chunks.
    keep_large_buffers();
    let (load_before, rounds) = (report::load(), arguments.rounds);
    let has = |part| arguments.only.contains(&part);
    let peers = |program: &str, wheel: Option<&Path>| {
        let start = |python: &PathBuf| Peers::start(program, python, wheel, &[]);
        arguments.python.iter().map(start).collect::<anyhow::Result<Vec<Peers>>>()
    };
    let (mut rows, mut lease_growth) = (Vec::new(), None);
    if has(Part::Scan) {
        rows.extend(scan::rows(rounds, peers("reading.py", None)?)?);
    }
    if has(Part::Reading) {
        rows.extend(reading::rows(rounds)?);
    }
    if has(Part::Wire) {
        rows.extend(wire::rows(rounds, peers("dense.py", arguments.wheel.as_deref())?)?);
    }
    if has(Part::Update) {
        rows.extend(update::rows(rounds)?);
    }
    if has(Part::Leases) {
        let ((lease_rows, by_trainers), (task_rows, by_chunks)) =
            (leases::rows(rounds)?, tasks::rows(rounds)?);
        rows.extend([lease_rows, task_rows].concat());
        lease_growth = Some(LeaseGrowth { by_trainers, by_chunks });
        rows.extend(dispatch::rows(rounds)?);
    }
    let of_jobs = arguments.only.iter().filter_map(|part| part.of_jobs());
    let of_jobs: Vec<jobs::Part> = of_jobs.collect();
    if !of_jobs.is_empty() {
        let programs = Programs::build()?;
        for part in of_jobs {
            rows.extend(jobs::rows(part, rounds, &programs)?);
        }
    }
    Ok(Report { rounds, load_before, load_after: report::load(), rows, lease_growth })
}
