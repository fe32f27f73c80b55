//! Whether the example `clicks` is as good as its peer in PyTorch, and the same to the last bit whatever happens to it:
//!
//! `cargo run --release -p shoal-studies --bin click_through -- adult --data data/adult --peer data/adult.json`
//!
//! The folder is what `clicks --pack` makes, FILE what `benches/peers/deepfm.py --json FILE` has found on the same rows
//! (docs/examples.md). Without delay and with a delay of 1, it trains a model for each seed undisturbed, and the first
//! once more while trainers go from 1 to 4 to 2 and pservers from 1 to 3, of which one is killed and one migrated.
//! Exits 0 only if the mean areas under the curve are within 0.003 of the peer's, and if parameters, evaluation and
//! numbers of rows are those of the undisturbed job.
#![allow(clippy::print_stdout)] // Its table is what it is for.

use anyhow::{Context, bail, ensure};
use clap::Parser;
use serde_json::Value;
use shoal_tests::processes::{Job, Programs, Running, closing, programs};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How far the mean area under the curve may be from the peer's.
const APART_MAX: f64 = 0.003;
/// As `deepfm.py` has them: 32 · 8 rows of an update, passes, the first seed.
const ALIKE: [&str; 8] =
    ["--microbatch-records", "32", "--microbatches-per-step", "8", "--epochs", "6", "--eval-epochs", "6"];
const SEED_FIRST: u64 = 7;
/// Trainers that must have done something in a job that is disturbed.
const TRAINERS_MOST: usize = 4;
const LOOK: Duration = Duration::from_millis(50);

/// Trains `clicks` beside its peer, undisturbed and not, and compares
#[derive(Parser)]
struct Arguments {
    /// The data set: adult or movielens
    set: String,
    /// The folder of train.recordio and test.recordio
    #[arg(long, value_name = "FOLDER")]
    data: PathBuf,
    /// What deepfm.py has written with --json
    #[arg(long, value_name = "FILE")]
    peer: PathBuf,
    /// Models whose mean is compared
    #[arg(long, default_value_t = 5)]
    seeds: u64,
    /// Pause before each microbatch of a disturbed job, so that there is time to disturb it
    #[arg(long, default_value_t = 5, value_name = "MILLIS")]
    pace_millis: u32,
    /// The longest that one job may take, in seconds
    #[arg(long, default_value_t = 900)]
    seconds_max: u64,
}

/// What is compared of a job.
#[derive(Clone, Debug, PartialEq)]
struct Ended {
    auc: f64,
    log_loss: f64,
    /// Numbers of rows by table.
    rows: Value,
    hash: String,
}

/// Trains what the command line asks for, and judges it.
///
/// # Errors
/// A job that failed, or a judgement that nobody would accept.
#[tokio::main(flavor = "current_thread")]
pub async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let folder = tempfile::tempdir()?;
    let peer = peer(&arguments.peer).with_context(|| format!("{}", arguments.peer.display()))?;
    let bench = Bench::new(&arguments, folder.path())?;
    println!("PyTorch, mean: AUC {:.4}, log loss {:.4}", peer.0, peer.1);
    println!("delay  seed  what       AUC     log loss  seconds  rows, parameters sha256");
    let mut verdicts = Vec::new();
    for delay in ["0", "1"] {
        let mut alone = Vec::new();
        for seed in SEED_FIRST..SEED_FIRST + arguments.seeds {
            alone.push(bench.train(delay, seed, false).await?);
        }
        let changed = bench.train(delay, SEED_FIRST, true).await?;
        let mean = |of: fn(&Ended) -> f64| alone.iter().map(of).sum::<f64>() / alone.len() as f64;
        let means = (mean(|ended| ended.auc), mean(|ended| ended.log_loss));
        println!("delay {delay}, mean: AUC {:.4}, log loss {:.4}", means.0, means.1);
        verdicts.push(judge(peer.0, means.0, &alone[0], &changed).with_context(|| format!("delay {delay}")));
    }
    verdicts.into_iter().collect::<anyhow::Result<()>>()?;
    println!("within {APART_MAX} of PyTorch; disturbed jobs end with the same bits and rows");
    Ok(())
}

fn judge(peer: f64, mean: f64, alone: &Ended, changed: &Ended) -> anyhow::Result<()> {
    ensure!(
        (mean - peer).abs() <= APART_MAX,
        "AUC {mean:.4} is not within {APART_MAX} of the peer's {peer:.4}"
    );
    ensure!(alone == changed, "a disturbed job ended otherwise: {changed:?} and not {alone:?}");
    Ok(())
}

/// Mean area under the curve and log loss of the peer's models.
fn peer(file: &Path) -> anyhow::Result<(f64, f64)> {
    let told: Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
    let number = |name: &str| told[name].as_f64().with_context(|| format!("has no {name:?}"));
    Ok((number("auc")?, number("log_loss")?))
}

struct Bench<'a> {
    programs: Programs,
    folder: &'a Path,
    set: &'a str,
    train: String,
    test: String,
    pace_millis: u32,
    patience: Duration,
}

impl Bench<'_> {
    fn new<'a>(arguments: &'a Arguments, folder: &'a Path) -> anyhow::Result<Bench<'a>> {
        let data = arguments.data.canonicalize().with_context(|| format!("{}", arguments.data.display()))?;
        let file = |name: &str| data.join(name).to_string_lossy().into_owned();
        let (train, test) = (file("train.recordio"), file("test.recordio"));
        let patience = Duration::from_secs(arguments.seconds_max);
        let (set, pace_millis) = (arguments.set.as_str(), arguments.pace_millis);
        Ok(Bench { programs: programs()?, folder, set, train, test, pace_millis, patience })
    }

    /// One job; prints its row.
    async fn train(&self, delay: &str, seed: u64, is_disturbed: bool) -> anyhow::Result<Ended> {
        let what = if is_disturbed { "disturbed" } else { "alone" };
        let run = self.folder.join("runs").join(format!("{delay}-{seed}-{what}"));
        let began = Instant::now();
        let result = self.run(&run, delay, seed, is_disturbed).await;
        let ended = ended(&result.with_context(|| format!("delay {delay}, seed {seed}, {what}"))?)?;
        let Ended { auc, log_loss, rows, hash } = &ended;
        let seconds = began.elapsed().as_secs_f64();
        println!(
            "{delay:<5}  {seed:<4}  {what:<9}  {auc:.4}  {log_loss:.4}    {seconds:>7.1}  {rows} {hash}"
        );
        Ok(ended)
    }

    async fn run(&self, run: &Path, delay: &str, seed: u64, is_disturbed: bool) -> anyhow::Result<Value> {
        let (seed, at, pace) = (seed.to_string(), run.to_string_lossy(), self.pace_millis.to_string());
        let mut more = vec!["--delay", delay, "--seed", &seed, "--folder", &at, "--eval-data", &self.test];
        if is_disturbed {
            more.extend(["--replicas", "1", "--pace-millis", &pace]);
        }
        let more = ALIKE.iter().chain(&more).map(|word| (*word).to_owned()).collect();
        let (programs, folder, data) = (&self.programs, self.folder, self.train.as_str());
        let trainers = if is_disturbed { "1:4" } else { "1" };
        let hyper = vec!["--set".to_owned(), self.set.to_owned()];
        let job =
            Job { programs, folder, program: &programs.clicks, data, trainers, pservers: 1, more, hyper };
        let log = self.folder.join("log.txt");
        let (mut running, began) = (Running::start(job.command(), &log)?, Instant::now());
        if is_disturbed {
            let until = began + self.patience;
            Disturbed { bench: self, run, running: &mut running, until }.disturb().await?;
        }
        let code = running.end_within(self.patience.saturating_sub(began.elapsed())).await?;
        let said = || std::fs::read_to_string(&log).unwrap_or_default();
        ensure!(code == Some(0), "exit {code:?}: {}", said());
        let result: Value = serde_json::from_str(&std::fs::read_to_string(run.join("result.json"))?)?;
        ensure!(result["rewinds"] == 0, "it went back, although there were copies: {result}");
        let trainers = result["trainers"].as_array().map_or(&[][..], Vec::as_slice);
        let worked = trainers.iter().filter(|trainer| trainer["tasks"].as_u64() > Some(0)).count();
        ensure!(!is_disturbed || worked >= TRAINERS_MOST, "only {worked} trainers did something: {result}");
        Ok(result)
    }
}

/// A job that is being disturbed.
struct Disturbed<'a> {
    bench: &'a Bench<'a>,
    run: &'a Path,
    running: &'a mut Running,
    until: Instant,
}

impl Disturbed<'_> {
    async fn disturb(&mut self) -> anyhow::Result<()> {
        self.wait_for("a tenth of the steps", |status| share(status) > 0.1).await?;
        self.ask(&["scale", "--trainers", "4", "--pservers", "3"])?;
        let status = self.wait_for("three pservers with copies", |status| is_whole(status, 3)).await?;
        let killed = live(&status)[0].1;
        let process = rustix::process::Pid::from_raw(i32::try_from(killed)?).context("no process")?;
        rustix::process::kill_process(process, rustix::process::Signal::KILL)?;
        let is_back = |status: &Value| is_whole(status, 3) && live(status).iter().all(|one| one.1 != killed);
        let status = self.wait_for("another in its place", is_back).await?;
        let migrated = live(&status)[1].0.clone();
        ensure!(self.ask(&["migrate", "--pserver", &migrated, "--wait"])?["gone"] == true, "is not gone");
        let status = self.wait_for("two thirds of the steps", |status| share(status) > 0.66).await?;
        ensure!(status["trainers_live"] == 4, "not four trainers: {status}");
        self.ask(&["scale", "--trainers", "2"])?;
        Ok(())
    }

    async fn wait_for(&mut self, what: &str, is_so: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        let mut last = Value::Null;
        while Instant::now() < self.until {
            ensure!(
                self.running.is_running(),
                "it ended before there was {what}: raise --pace-millis. {last}"
            );
            // A job that has just begun cannot be asked yet.
            last = self.ask(&["status"]).unwrap_or_default();
            if is_so(&last) {
                return Ok(last);
            }
            sleep(LOOK).await;
        }
        bail!("there is not {what} in time: {last}")
    }

    fn ask(&self, words: &[&str]) -> anyhow::Result<Value> {
        let mut command = Command::new(&self.bench.programs.shoal);
        closing(&command.args(words).arg("--run").arg(self.run).args(["-o", "json"]).output()?)
    }
}

/// The share of a job's steps that is done.
fn share(status: &Value) -> f64 {
    status["step"].as_f64().unwrap_or(0.0) / status["steps"].as_f64().unwrap_or(1.0)
}

/// Whether so many pservers live, and every block has a copy beside its primary.
fn is_whole(status: &Value, pservers: usize) -> bool {
    let live = live(status);
    let blocks: u64 = live.iter().map(|(_, _, blocks)| blocks).sum();
    live.len() == pservers
        && status["copies_filling"] == 0
        && status["copies_in_sync"].as_u64() >= Some(blocks)
}

/// Pservers that hold something: name, process, and of how many blocks they are the primary.
fn live(status: &Value) -> Vec<(String, u64, u64)> {
    let pservers = status["pservers"].as_array().map_or(&[][..], Vec::as_slice).iter();
    let held = |one: &Value| {
        let (name, process, blocks) = (one["name"].as_str()?, one["pid"].as_u64()?, one["blocks"].as_u64()?);
        (one["lost"] == false && blocks > 0).then(|| (name.to_owned(), process, blocks))
    };
    pservers.filter_map(held).collect()
}

/// By the last evaluation of a job that ended.
fn ended(result: &Value) -> anyhow::Result<Ended> {
    let last = result["evaluations"].as_array().and_then(|evaluations| evaluations.last());
    let metrics = &last.with_context(|| format!("nothing was evaluated: {result}"))?["metrics"];
    let metric = |name: &str| metrics[name].as_f64().with_context(|| format!("no {name}: {metrics}"));
    let hash = result["parameters_sha256"].as_str().context("no hash")?.to_owned();
    Ok(Ended { auc: metric("auc")?, log_loss: metric("log_loss")?, rows: result["rows"].clone(), hash })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn other_bits_other_rows_and_a_worse_or_better_model_are_refused() {
        let alone = Ended { auc: 0.92, log_loss: 0.3, rows: json!({"embedding": 5}), hash: "a".to_owned() };
        let judged = |peer, mean, changed: &Ended| {
            judge(peer, mean, &alone, changed).map_err(|error| error.to_string())
        };
        assert_eq!(judged(0.92, 0.9225, &alone), Ok(()));
        assert_eq!(judged(0.9225, 0.92, &alone), Ok(()));
        assert!(judged(0.92, 0.9235, &alone).unwrap_err().contains("not within 0.003"));
        assert!(judged(0.9235, 0.92, &alone).unwrap_err().contains("not within 0.003"));
        assert!(judged(f64::NAN, 0.92, &alone).is_err());
        let changed = [
            Ended { hash: "b".to_owned(), ..alone.clone() },
            Ended { rows: json!({"embedding": 6}), ..alone.clone() },
            Ended { auc: 0.921, ..alone.clone() },
        ];
        for changed in changed {
            assert!(judged(0.92, 0.92, &changed).unwrap_err().contains("ended otherwise"));
        }
    }

    #[test]
    fn pservers_that_are_lost_or_hold_nothing_do_not_count() {
        let one = |name: &str, blocks: u32, lost: bool| json!({"name": name, "pid": 7, "blocks": blocks, "lost": lost});
        let pservers = [one("a", 3, false), one("b", 0, false), one("c", 3, true), one("d", 1, false)];
        let mut status =
            json!({"pservers": pservers, "copies_filling": 0, "copies_in_sync": 4, "step": 3, "steps": 4});
        assert_eq!(live(&status), [("a".to_owned(), 7, 3), ("d".to_owned(), 7, 1)]);
        assert!(is_whole(&status, 2) && !is_whole(&status, 3));
        for (copies, number) in [("copies_filling", 1), ("copies_in_sync", 3)] {
            let kept = std::mem::replace(&mut status[copies], number.into());
            assert!(!is_whole(&status, 2), "{copies}: {number}");
            status[copies] = kept;
        }
        assert_eq!((share(&status), share(&Value::Null)), (0.75, 0.0));
    }

    #[test]
    fn the_peers_result_is_read_as_its_script_writes_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("peer.json");
        std::fs::write(&file, r#"{"auc": 0.92, "log_loss": 0.27, "models": [{"seed": 7, "auc": 0.92}]}"#)
            .unwrap();
        assert_eq!(peer(&file).unwrap(), (0.92, 0.27));
        std::fs::write(&file, "{}").unwrap();
        assert!(peer(&file).unwrap_err().to_string().contains("auc"));
    }
}
