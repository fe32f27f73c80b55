//! `planner`: what one plan costs, for clusters of several sizes, beside what reading the cluster once costs.
//! It must never plan for another cluster than the one that it copies beside it.

mod cluster;

use self::cluster::{NODES_PER_JOB, NOW, Situation};
use crate::measure::{ROUNDS_MIN, Spread, in_turn};
use crate::report::load;
use clap::{Parser, ValueEnum};
use serde::Serialize;
use shoal_planner::{JobPlan, Settings, plan};
use std::fmt;
use std::hint::black_box;

/// Measures plans of clusters of several sizes.
#[derive(Parser)]
#[command(name = "planner", after_help = "Example:\n  planner --nodes 1000,10000 --situation still")]
struct Arguments {
    /// Nodes of the clusters; each has a job for every five of them
    #[arg(long, value_delimiter = ',', default_value = "100,1000,10000")]
    nodes: Vec<usize>,
    /// What the planner meets
    #[arg(long, value_enum, value_delimiter = ',', default_value = "cold,still,changed")]
    situation: Vec<Situation>,
    /// Measured rounds of every cluster; one more is thrown away first
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u32).range(i64::from(ROUNDS_MIN)..=1000))]
    rounds: u32,
    /// How the result is printed
    #[arg(short, long, default_value = "text")]
    output: Output,
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
struct Planner {
    rounds: u32,
    load_before: Option<String>,
    load_after: Option<String>,
    rows: Vec<Row>,
}

/// Plans of one cluster.
#[derive(Serialize)]
struct Row {
    situation: Situation,
    nodes: usize,
    jobs: usize,
    /// Trainers that the plan gives to all jobs together.
    trainers: u64,
    /// Of one plan.
    seconds: Spread,
    /// In copies of the cluster as the planner is given it: what reading and writing it once costs.
    copies: Spread,
}

#[allow(clippy::print_stdout, reason = "its output is what it is for")]
/// Measures what the command line asks for.
///
/// # Errors
/// What could not be measured.
pub fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let load_before = load();
    let mut rows = Vec::new();
    for situation in &arguments.situation {
        for nodes in &arguments.nodes {
            rows.push(measured(*nodes, *situation, arguments.rounds)?);
        }
    }
    let planner = Planner { rounds: arguments.rounds, load_before, load_after: load(), rows };
    match arguments.output {
        Output::Text => print!("{planner}"),
        Output::Json => println!("{}", serde_json::to_string(&planner)?),
    }
    Ok(())
}

fn measured(nodes: usize, situation: Situation, rounds: u32) -> anyhow::Result<Row> {
    let view = cluster::cluster(nodes, situation)?;
    let mut planned: Vec<JobPlan> = Vec::new();
    let mut ours = || {
        planned = plan(black_box(&view), &Settings::default(), NOW)?;
        Ok(())
    };
    let mut copy = || {
        drop(black_box(view.clone()));
        Ok(())
    };
    let took = in_turn(rounds, [&mut ours, &mut copy])?;
    Ok(Row {
        situation,
        nodes,
        jobs: nodes / NODES_PER_JOB,
        trainers: planned.iter().map(|job| u64::from(job.trainers)).sum(),
        seconds: Spread::of(took.iter().map(|[ours, _]| *ours).collect()),
        copies: Spread::of(took.iter().map(|[ours, copy]| ours / copy).collect()),
    })
}

impl fmt::Display for Planner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let load = |load: &Option<String>| load.clone().unwrap_or_else(|| "unknown".to_owned());
        let (before, after) = (load(&self.load_before), load(&self.load_after));
        writeln!(f, "{} rounds; load before {before}, after {after}\n", self.rounds)?;
        writeln!(
            f,
            "situation    nodes    jobs  trainers   plan, ms  (least..most)         µs/node   copies"
        )?;
        for row in &self.rows {
            let Row { situation, nodes, jobs, trainers, seconds, copies } = row;
            let [median, min, max] = [seconds.median, seconds.min, seconds.max].map(|seconds| 1e3 * seconds);
            let spread = format!("({min:.2}..{max:.2})");
            writeln!(
                f,
                "{situation:<9} {nodes:>8} {jobs:>7} {trainers:>9} {median:>10.2}  {spread:<20} {:>8.2} {:>8.1}",
                1e3 * median / *nodes as f64,
                copies.median
            )?;
        }
        Ok(())
    }
}
