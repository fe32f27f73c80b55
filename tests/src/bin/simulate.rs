//! Plays seeds of the simulation; exits with 0 only if no promise was broken.
#![allow(clippy::print_stdout, reason = "a program's output")]

use clap::{Parser, ValueEnum};
use shoal_tests::sim::coverage::MUST_OCCUR;
use shoal_tests::sim::network::Depth;
use shoal_tests::sim::run::play;
use shoal_tests::sim::scenario::Scenario;
use shoal_tests::sim::seeds::{Broken, Draw, Summary, simulate_all, story_of};
use shoal_tests::sim::shrink::shrink;
use std::ops::Range;
use std::process::{Command, ExitCode};

/// Plays seeds of the simulation: whole jobs of real masters, pservers and trainers under faults, each run decided by its
/// seed alone. Ends with exit code 0 only if no seed broke a promise.
#[derive(Parser)]
struct Arguments {
    /// How deep the simulation goes.
    #[arg(long, value_enum, default_value_t = Deep::Machine)]
    depth: Deep,
    /// Which seeds, from A to before B.
    #[arg(long, value_name = "A..B", value_parser = range, default_value = "0..1000")]
    seeds: Range<u64>,
    /// Which jobs: even seeds are synchronous and odd ones asynchronous, or all are one.
    #[arg(long, value_enum, default_value_t = Jobs::Both)]
    mode: Jobs,
    /// Tells everything that happens. For few seeds.
    #[arg(long)]
    trace: bool,
    /// Makes the first broken scenario as small as it can be made, and tells that.
    #[arg(long)]
    shrink: bool,
    /// Threads that play seeds; as many as the machine has by default.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

/// So many seeds must meet everything.
const ENOUGH: u64 = 1000;

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Deep {
    /// Roles in one thread; calls, the clock and the master's disk are models.
    Machine,
    /// Roles over real gRPC, on a model of TCP.
    Wire,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Jobs {
    Both,
    Sync,
    Async,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let depth = if arguments.depth == Deep::Wire { Depth::Wire } else { Depth::Machine };
    let draw = |seed: u64| {
        let drawn = match arguments.mode {
            Jobs::Both => Scenario::drawn_both(seed),
            Jobs::Sync => Scenario::drawn(seed),
            Jobs::Async => Scenario::drawn_async(seed),
        };
        Scenario { depth, ..drawn }
    };
    if arguments.trace {
        return Ok(traced(&draw, arguments.seeds));
    }
    let threads = match arguments.threads {
        Some(threads) => threads.max(1),
        None => std::thread::available_parallelism()?.get(),
    };
    #[allow(clippy::disallowed_methods, reason = "how fast seeds are played in the world's time")]
    let began = std::time::Instant::now();
    let count = arguments.seeds.end - arguments.seeds.start;
    let summary = simulate_all(&draw, arguments.seeds, threads);
    let seconds = began.elapsed().as_secs_f64();
    println!("{}", summary.coverage);
    let (ttls, seed) = summary.stood_still_ttls;
    println!("longest standstill after healing: {ttls:.1} lease TTLs (seed {seed})");
    println!("{count} seeds in {seconds:.1} s: {:.1} seeds/s on {threads} threads", count as f64 / seconds);
    let missing = summary.coverage.missing(&MUST_OCCUR);
    if count >= ENOUGH && depth == Depth::Machine && arguments.mode == Jobs::Both && !missing.is_empty() {
        println!(
            "{count} seeds never met: {missing:?}: a simulation that does not meet a case does not test it"
        );
        return Ok(ExitCode::FAILURE);
    }
    Ok(judged(&draw, &summary, arguments.shrink))
}

fn judged(draw: &Draw<'_>, summary: &Summary, shrinks: bool) -> ExitCode {
    for Broken { seed, violations } in &summary.broken {
        println!("BROKEN {seed}: {}", violations.join("; "));
    }
    let Some(broken) = summary.broken.first() else { return ExitCode::SUCCESS };
    println!("{}\nat commit {}", story_of(draw, broken), commit());
    if shrinks {
        let smallest = shrink(draw(broken.seed), &broken.violations);
        let run = play(smallest.clone(), true);
        run.trace.lines().iter().for_each(|line| println!("{line}"));
        println!("the smallest scenario that breaks it: {smallest:#?}\nit breaks {:?}", run.violations);
    }
    ExitCode::FAILURE
}

/// The commit that is checked out, for who reads of a failure elsewhere.
fn commit() -> String {
    let asked = Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=12"]).output();
    let told = asked.ok().filter(|output| output.status.success());
    told.map_or("unknown".into(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn traced(draw: &Draw<'_>, seeds: Range<u64>) -> ExitCode {
    let mut is_broken = false;
    for seed in seeds {
        let run = play(draw(seed), true);
        run.trace.lines().iter().for_each(|line| println!("{line}"));
        println!("seed {seed}: {:?} after {:?}, hash {:016x}", run.violations, run.lasted, run.trace.hash());
        is_broken |= !run.violations.is_empty();
    }
    if is_broken { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn range(words: &str) -> Result<Range<u64>, String> {
    let (first, end) = words.split_once("..").ok_or("it is A..B")?;
    let number = |word: &str| word.parse::<u64>().map_err(|error| format!("{word:?}: {error}"));
    let range = number(first)?..number(end)?;
    if range.is_empty() { Err("A must be below B".into()) } else { Ok(range) }
}
