//! Plays seeds of the simulation: `cargo run --release -p shoal-tests --bin simulate -- --seeds 0..10000 [--mode async] [--trace]`.
#![allow(clippy::print_stdout, reason = "a program's output")]

use anyhow::{Context, bail, ensure};
use shoal_tests::sim::run::{Draw, play};
use shoal_tests::sim::scenario::Scenario;
use shoal_tests::sim::seeds::{simulate_all, story_of};
use std::ops::Range;
use std::process::ExitCode;

struct Arguments {
    draw: Draw,
    seeds: Range<u64>,
    traces: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let Arguments { draw, seeds, traces } = arguments(std::env::args().skip(1))?;
    if traces {
        return Ok(traced(draw, seeds));
    }
    let threads = std::thread::available_parallelism()?.get();
    #[allow(clippy::disallowed_methods, reason = "how fast seeds are played in the world's time")]
    let began = std::time::Instant::now();
    let count = seeds.end - seeds.start;
    let summary = simulate_all(draw, seeds, threads);
    let seconds = began.elapsed().as_secs_f64();
    println!("{}", summary.coverage);
    let (ttls, seed) = summary.stood_still_ttls;
    println!("longest standstill after healing: {ttls:.1} lease TTLs (seed {seed})");
    println!("{count} seeds in {seconds:.1} s: {:.1} seeds/s on {threads} threads", count as f64 / seconds);
    for broken in &summary.broken {
        println!("BROKEN {}: {}", broken.seed, broken.violations.join("; "));
    }
    if let Some(broken) = summary.broken.first() {
        println!("{}", story_of(draw, broken));
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

fn traced(draw: Draw, seeds: Range<u64>) -> ExitCode {
    let mut is_broken = false;
    for seed in seeds {
        let run = play(draw(seed), true);
        run.trace.lines().iter().for_each(|line| println!("{line}"));
        println!("seed {seed}: {:?} after {:?}, hash {:016x}", run.violations, run.lasted, run.trace.hash());
        is_broken |= !run.violations.is_empty();
    }
    if is_broken { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn arguments(mut words: impl Iterator<Item = String>) -> anyhow::Result<Arguments> {
    let mut arguments = Arguments { draw: Scenario::drawn, seeds: 0..1000, traces: false };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--mode" => {
                arguments.draw = match words.next().as_deref() {
                    Some("sync") => Scenario::drawn,
                    Some("async") => Scenario::drawn_async,
                    _ => bail!("--mode takes sync or async"),
                }
            }
            "--trace" => arguments.traces = true,
            "--seeds" => {
                let range = words.next().context("--seeds takes A..B")?;
                let (first, end) = range.split_once("..").context("--seeds takes A..B")?;
                arguments.seeds = first.parse()?..end.parse()?;
            }
            other => {
                bail!("unknown argument {other:?}: simulate [--mode sync|async] [--seeds A..B] [--trace]")
            }
        }
    }
    ensure!(!arguments.seeds.is_empty(), "--seeds A..B: A must be below B");
    Ok(arguments)
}
