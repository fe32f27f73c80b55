//! Whether a model is as good when trainers come and go: a program is trained undisturbed by 2 trainers and with
//! 1 -> 4 -> 2 of them, synchronously and asynchronously, and judged on held-out records.
//!
//! `cargo run --release -p shoal-studies --bin convergence -- digits`
//! `cargo run --release -p shoal-studies --bin convergence -- mnist --data FOLDER --accuracy-min 0.985`
//!
//! FOLDER has train.recordio and test.recordio (docs/examples.md makes them). Prints a table; exits 0 only if the
//! synchronous hashes are equal, every model tells at least `--accuracy-min` right, and no asynchronous one is worse
//! than the undisturbed synchronous one by more than half a percent, each over the mean of `--seeds`.
#![allow(clippy::print_stdout)] // Its table is what it is for.

use anyhow::{Context, ensure};
use clap::{Parser, ValueEnum};
use serde_json::Value;
use shoal_tests::processes::{Job, Programs, Running, closing, pack_digits, programs};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How much worse than the undisturbed synchronous model, as a share of the held-out records.
const WORSE_MAX: f64 = 0.005;
/// Numbers of trainers, each for a third of the job.
const CHANGES: [u32; 3] = [1, 4, 2];

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Program {
    Digits,
    Mnist,
}

/// Trains a program in either mode, undisturbed and with trainers changing, and compares
#[derive(Parser)]
struct Arguments {
    /// What is trained; digits packs its own data
    #[arg(value_enum)]
    program: Program,
    /// The folder of train.recordio and test.recordio
    #[arg(long, required_if_eq("program", "mnist"))]
    data: Option<PathBuf>,
    /// The least share of held-out records that each model must tell right
    #[arg(long, default_value_t = 0.9)]
    accuracy_min: f64,
    /// Jobs of each kind, with seeds from 7 on; accuracies are their means
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// The longest that one job may take, in seconds
    #[arg(long, default_value_t = 600)]
    seconds_max: u64,
    /// Passes over the data; by default 8 (mnist), 30 (digits)
    #[arg(long)]
    epochs: Option<u32>,
}

/// Trains what the command line asks for, and judges it.
///
/// # Errors
/// A job that failed, or a judgement that nobody would accept.
#[tokio::main(flavor = "current_thread")]
pub async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let folder = tempfile::tempdir()?;
    let bench = Bench::new(&arguments, folder.path())?;
    println!("mode   trainers     seed  held-out accuracy  steps/s  seconds  parameters sha256");
    let mut means = Vec::new();
    let mut hashes: Vec<Vec<String>> = Vec::new();
    for mode in ["sync", "async"] {
        for changes in [&[2][..], &CHANGES] {
            let (mut sum, mut of_seeds) = (0.0, Vec::new());
            for seed in 7..7 + arguments.seeds {
                let (accuracy, hash) = bench.train(mode, changes, seed).await?;
                sum += accuracy;
                of_seeds.push(hash);
            }
            means.push(sum / arguments.seeds as f64);
            hashes.push(of_seeds);
        }
    }
    let in_words: Vec<String> = means.iter().map(|mean| format!("{:.2} %", 100.0 * mean)).collect();
    println!("mean accuracy, sync, sync changing, async, async changing: {}", in_words.join(", "));
    judge(&means, &hashes, arguments.accuracy_min)?;
    println!("synchronous hashes are equal; no model is worse than the first by more than {WORSE_MAX}");
    Ok(())
}

/// Mean accuracies and hashes by seed, of the undisturbed synchronous jobs first, then of the changing ones; then of
/// the asynchronous ones, whose hashes differ from run to run.
fn judge(means: &[f64], hashes: &[Vec<String>], accuracy_min: f64) -> anyhow::Result<()> {
    ensure!(hashes[0] == hashes[1], "synchronous hashes differ");
    for mean in means {
        ensure!(*mean >= accuracy_min, "{mean} is less than {accuracy_min}");
        ensure!(*mean >= means[0] - WORSE_MAX, "{mean} is worse than {} by more than {WORSE_MAX}", means[0]);
    }
    Ok(())
}

struct Bench<'a> {
    programs: Programs,
    folder: &'a Path,
    program: PathBuf,
    train: String,
    test: PathBuf,
    more: Vec<String>,
    patience: Duration,
}

impl Bench<'_> {
    fn new<'a>(arguments: &Arguments, folder: &'a Path) -> anyhow::Result<Bench<'a>> {
        let programs = programs()?;
        let (program, epochs, more) = match arguments.program {
            // Paced, so that there is time to change the number of trainers.
            Program::Digits => (programs.digits.clone(), 30, ["--pace-millis", "5"].as_slice()),
            Program::Mnist => (
                programs.mnist.clone(),
                8,
                ["--microbatch-records", "32", "--microbatches-per-step", "8"].as_slice(),
            ),
        };
        let epochs = arguments.epochs.unwrap_or(epochs).to_string();
        // Evaluated once, at the end.
        let more = more.iter().copied().chain(["--epochs", &epochs, "--eval-epochs", &epochs]);
        let more = more.map(str::to_owned).collect();
        let (train, test) = match &arguments.data {
            Some(data) => {
                let data = data.canonicalize().with_context(|| format!("{}", data.display()))?;
                (data.join("train.recordio").to_string_lossy().into_owned(), data.join("test.recordio"))
            }
            None => {
                let data = folder.join("data");
                (pack_digits(&programs, &data)?, data.join("test-0.recordio"))
            }
        };
        let patience = Duration::from_secs(arguments.seconds_max);
        Ok(Bench { programs, folder, program, train, test, more, patience })
    }

    /// One job; prints its row, returns its accuracy and hash.
    async fn train(&self, mode: &str, changes: &[u32], seed: u64) -> anyhow::Result<(f64, String)> {
        let words: Vec<String> = changes.iter().map(u32::to_string).collect();
        let name = format!("{mode}-{}-{seed}", words.join("-"));
        let run = self.folder.join("runs").join(&name);
        let result = self.run(mode, changes, seed, &run).await.with_context(|| format!("job {name}"))?;
        let number = |name: &str| result[name].as_f64().with_context(|| format!("no {name}: {result}"));
        let hash = result["parameters_sha256"].as_str().context("no hash")?.to_owned();
        let (accuracy, seconds) = (accuracy(&result)?, number("seconds")?);
        println!(
            "{mode:<6} {:<12} {seed:<5} {:>15.2} %  {:>7.1}  {seconds:>7.1}  {hash}",
            words.join(" -> "),
            100.0 * accuracy,
            number("steps")? / seconds
        );
        Ok((accuracy, hash))
    }

    async fn run(&self, mode: &str, changes: &[u32], seed: u64, run: &Path) -> anyhow::Result<Value> {
        let (seed, at) = (seed.to_string(), run.to_string_lossy());
        let test = self.test.to_string_lossy();
        let more =
            ["--mode", mode, "--seed", &seed, "--folder", &at, "--eval-data", &test].map(str::to_owned);
        let more = [&self.more[..], &more].concat();
        let (least, most) = (changes.iter().min().unwrap_or(&1), changes.iter().max().unwrap_or(&1));
        ensure!(changes.first() == Some(least), "a job begins with the fewest trainers");
        let (programs, folder, data) = (&self.programs, self.folder, self.train.as_str());
        let trainers = format!("{least}:{most}");
        let job = Job {
            programs,
            folder,
            program: &self.program,
            data,
            trainers: &trainers,
            pservers: 2,
            more,
            hyper: Vec::new(),
        };
        let log = self.folder.join("log.txt");
        let began = Instant::now();
        let mut running = Running::start(job.command(), &log)?;
        for (turn, trainers) in changes.iter().enumerate().skip(1) {
            let share = turn as f64 / changes.len() as f64;
            while self.progress(run).unwrap_or(0.0) < share {
                ensure!(running.is_running(), "ended before all changes were made");
                ensure!(began.elapsed() < self.patience, "not {share} of it done within {:?}", self.patience);
                sleep(Duration::from_millis(50)).await;
            }
            self.ask(run, &["scale", "--trainers", &trainers.to_string()])?;
        }
        let code = running.end_within(self.patience.saturating_sub(began.elapsed())).await?;
        let said = || std::fs::read_to_string(&log).unwrap_or_default();
        ensure!(code == Some(0), "exit {code:?}: {}", said());
        let result: Value = serde_json::from_str(&std::fs::read_to_string(run.join("result.json"))?)?;
        let worked = |trainer: &&Value| trainer["tasks"].as_u64() > Some(0);
        let worked =
            result["trainers"].as_array().map_or(0, |trainers| trainers.iter().filter(worked).count());
        ensure!(worked >= *most as usize, "only {worked} trainers did something: {result}");
        Ok(result)
    }

    /// The share of the job that is done, where it can be asked.
    fn progress(&self, run: &Path) -> Option<f64> {
        let status = self.ask(run, &["status"]).ok()?;
        Some(status["step"].as_f64()? / status["steps"].as_f64()?)
    }

    fn ask(&self, run: &Path, words: &[&str]) -> anyhow::Result<Value> {
        let mut command = Command::new(&self.programs.shoal);
        closing(&command.args(words).arg("--run").arg(run).args(["-o", "json"]).output()?)
    }
}

/// What the model is on held-out records, by the last evaluation.
fn accuracy(result: &Value) -> anyhow::Result<f64> {
    let last = result["evaluations"].as_array().and_then(|evaluations| evaluations.last());
    let last = last.with_context(|| format!("nothing was evaluated: {result}"))?;
    last["metrics"]["accuracy"].as_f64().context("no accuracy")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_hash_and_a_worse_model_are_refused() {
        let hashes =
            |last: &str| ["a b", last, "c d", "e f"].map(|two| two.split(' ').map(str::to_owned).collect());
        let judged = |means: [f64; 4], last: &str| {
            judge(&means, &hashes(last), 0.985).map_err(|error| error.to_string())
        };
        assert_eq!(judged([0.99, 0.99, 0.986, 1.0], "a b"), Ok(()));
        assert!(judged([0.99, 0.99, 0.99, 0.99], "a x").unwrap_err().contains("hashes differ"));
        assert!(judged([0.995, 0.995, 0.995, 0.986], "a b").unwrap_err().contains("worse than 0.995"));
        assert!(judged([0.984, 0.984, 0.984, 0.984], "a b").unwrap_err().contains("less than 0.985"));
    }
}
