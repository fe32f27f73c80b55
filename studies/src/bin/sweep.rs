//! Kills each role at every point that a job reaches, before and after, and again during recovery: `cargo run --release -p
//! shoal-studies --bin sweep`. Exits with 0 only if every promise was kept and every point was met.
#![allow(clippy::print_stdout, reason = "a program's output")]

use clap::Parser;
use shoal_runtime::cluster::permutation::key;
use shoal_runtime::cluster::{Mode, Period};
use shoal_runtime::host::random::Random;
use shoal_tests::sim::data_set::DataSetShape;
use shoal_tests::sim::evaluated::Evaluations;
use shoal_tests::sim::faults::{Fault, When};
use shoal_tests::sim::points::{Order, Point, SWAPS};
use shoal_tests::sim::run::{Run, play, play_with};
use shoal_tests::sim::scenario::Scenario;
use shoal_tests::sim::weather::Weather;
use shoal_trainer_sdk::{Decisions, NonFinite};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Kills each role at every point that a job reaches, before and after, and again during recovery.
#[derive(Parser)]
struct Arguments {
    /// Times that a point is reached at which processes are killed: the first, the last and some in between.
    #[arg(long, default_value_t = 4)]
    times: u64,
    /// Second kills for each of them, soon after the first.
    #[arg(long, default_value_t = 2)]
    again: u64,
}

/// A kill or two in a job.
struct Trial {
    job: usize,
    orders: Vec<Order>,
}

/// What came of all trials.
#[derive(Default)]
struct Report {
    kills: BTreeMap<Point, u64>,
    broken: Vec<String>,
    runs: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let jobs = jobs();
    let trials = trials(&jobs, &arguments);
    let points: usize = trials.iter().map(|trial| trial.orders.len()).sum();
    println!("{} runs, {points} kills ordered", trials.len());
    let (next, report) = (AtomicUsize::new(0), Mutex::new(Report::default()));
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(trial) = trials.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let run = play_with(jobs[trial.job].1.clone(), trial.orders.clone(), false);
                    report.lock().unwrap_or_else(PoisonError::into_inner).add(&jobs, trial, run);
                }
            });
        }
    });
    let report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
    report.print(&reached(&jobs))
}

impl Report {
    fn add(&mut self, jobs: &[(&'static str, Scenario)], trial: &Trial, run: Run) {
        self.runs += 1;
        for kill in run.points.kills() {
            *self.kills.entry(kill).or_default() += 1;
        }
        if !run.violations.is_empty() {
            let (name, orders) = (jobs[trial.job].0, &trial.orders);
            self.broken.push(format!("{name}, {orders:?}: {}", run.violations.join("; ")));
        }
    }

    fn print(&self, reached: &BTreeMap<Point, u64>) -> ExitCode {
        println!("{:>8} {:>6}  point", "reached", "kills");
        for (point, count) in reached {
            println!("{count:>8} {:>6}  {point}", self.kills.get(point).copied().unwrap_or_default());
        }
        let mut never: Vec<String> =
            reached.keys().filter(|point| !self.kills.contains_key(point)).map(Point::to_string).collect();
        let is_reached = |swap: &&str| reached.keys().any(|point| point.what == **swap);
        never.extend(SWAPS.iter().filter(|swap| !is_reached(swap)).map(|swap| (*swap).to_owned()));
        let kills: u64 = self.kills.values().sum();
        println!("{} runs, {kills} kills at {} points; never met: {never:?}", self.runs, self.kills.len());
        self.broken.iter().for_each(|broken| println!("BROKEN {broken}"));
        if self.broken.is_empty() && never.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Jobs that between them do all that a job can do.
fn jobs() -> Vec<(&'static str, Scenario)> {
    let job = |seed, mode, replicas, has_disk| {
        let ttl = Duration::from_secs(1);
        let sync = matches!(mode, Mode::Sync { .. });
        let decisions = Decisions { clip_norm: Some(0.5), non_finite: NonFinite::Fail, loss_scale: None };
        let millis = Duration::from_millis;
        Scenario {
            data: DataSetShape { seed, records: 120, files: 2, chunk_bytes: 200, is_numbered: false },
            epochs: 2,
            mode,
            replicas,
            has_disk,
            ttl,
            decisions: sync.then_some(decisions),
            evaluations: Some(Evaluations { records: 12, every: Period::Epochs(1), target: None }),
            pservers: 3,
            checkpoint_steps: 2,
            trainers: 3,
            paces: vec![millis(10), millis(14), millis(9)],
            weather: Weather { delay: millis(3), ..Weather::fair() },
            faults: vec![
                (When::at(100), Fault::MigratePserver(1)),
                (When::at(200), Fault::Leave(0)),
                (When::at(300), Fault::JoinAs(1)),
                (When::at(400), Fault::CrashPserver(2, ttl / 2)),
                (When::at(500), Fault::CrashMaster(ttl / 4)),
                (When::at(600), Fault::ScalePservers(2)),
            ],
            healing: When::at(1000),
            patience: ttl * 3,
            ..Scenario::quiet(seed)
        }
    };
    let window = Mode::Async { staleness_window: 8, scale_by_staleness: true };
    vec![
        ("synchronous, one follower", job(1, Mode::SYNC, 1, true)),
        ("synchronous, no follower", job(2, Mode::SYNC, 0, false)),
        ("synchronous, a delay", job(3, Mode::Sync { delay: 1 }, 1, false)),
        ("asynchronous, one follower", job(4, window, 1, true)),
        ("asynchronous, no follower", job(5, window, 0, false)),
    ]
}

/// How often the jobs reach each point when nobody else is killed.
fn reached(jobs: &[(&'static str, Scenario)]) -> BTreeMap<Point, u64> {
    let mut reached = BTreeMap::new();
    for (_, scenario) in jobs {
        for (point, count) in play(scenario.clone(), false).points.reached() {
            *reached.entry(point).or_default() += count;
        }
    }
    reached
}

fn trials(jobs: &[(&'static str, Scenario)], arguments: &Arguments) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (job, (_, scenario)) in jobs.iter().enumerate() {
        let mut random = Random::seeded(key(&[scenario.seed, 0x5EEB]));
        for (point, count) in play(scenario.clone(), false).points.reached() {
            let times = arguments.times.min(count);
            let mut numbers: Vec<u64> =
                (0..times).map(|time| 1 + time * (count - 1) / (times - 1).max(1)).collect();
            numbers.dedup();
            for number in numbers {
                let first = Order::At(point.clone(), number);
                trials.push(Trial { job, orders: vec![first.clone()] });
                for _ in 0..arguments.again {
                    let second = Order::Next(1 + random.below(200));
                    trials.push(Trial { job, orders: vec![first.clone(), second] });
                }
            }
        }
    }
    trials
}
