//! Parameter servers come, go and change places under a running job, in either mode, undisturbed and with the source
//! or the target of every move killed:
//!
//! `cargo run --release -p shoal-studies --bin moves [-- --turns N]`
//!
//! 1 -> 3 -> 2 -> 4 -> 1 pservers, and each of three migrated once. The victim is killed in every one of these seven
//! changes, at the next phase of the move in turn; a change that was over before that phase was seen is taken back and
//! made again. Each job must end with exact counts and in synchronous mode with the hash of an undisturbed run, and
//! what was answered `Applied` must stand exactly once in the ledgers of later checkpoints; it may go back only where
//! one pserver was all there was to be. Prints how long pushes lasted, and the bytes moved by each change of number
//! against the least possible. Exits 0 only if all jobs kept the promises.
#![allow(clippy::print_stdout)] // Its table is what it is for.

mod changes;

use anyhow::{Context, bail, ensure};
use changes::{Changes, Struck, Victim, log_of};
use serde_json::Value;
use shoal_tests::applied::Log;
use shoal_tests::ledgers::Readings;
use shoal_tests::phases::{PHASES, Phase};
use shoal_tests::processes::{Job, Programs, closing, pack_digits, programs};
use std::collections::BTreeMap;
use std::path::Path;

const EPOCHS: &str = "8";
/// Pause before each microbatch: a job lasts longer than all changes.
const PACE_MILLIS: &str = "150";

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let turns = match std::env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => PHASES.len(),
        [word, turns] if word == "--turns" => turns.parse()?,
        _ => bail!("moves [--turns N]"),
    };
    let programs = programs()?;
    let folder = tempfile::tempdir()?;
    let data = pack_digits(&programs, &folder.path().join("data"))?;
    let mut script = Script { programs, data, folder: folder.path(), struck: BTreeMap::new() };
    let calm = closing(&script.job("calm", "sync", "0").command().output()?)?;
    let hash = calm["parameters_sha256"].as_str().context("no hash")?.to_owned();
    println!("an undisturbed run: {hash}");
    for mode in ["sync", "async"] {
        for (victim, turns) in [(Victim::Nobody, 1), (Victim::Source, turns), (Victim::Target, turns)] {
            for turn in 0..turns {
                let told = script.play(mode, victim, turn, &hash).await;
                println!("{}", told.with_context(|| format!("{mode}, victim {victim:?}, turn {turn}"))?);
            }
        }
    }
    println!("killed by phase: {:?}", script.struck);
    Ok(())
}

struct Script<'a> {
    programs: Programs,
    data: String,
    folder: &'a Path,
    struck: BTreeMap<(Victim, Phase), u32>,
}

impl Script<'_> {
    fn job(&self, run: &str, mode: &str, pace: &str) -> Job<'_> {
        let run = format!("runs/{run}");
        let more =
            ["--epochs", EPOCHS, "--seed", "7", "--mode", mode, "--pace-millis", pace, "--folder", &run];
        let ttl = ["--replicas", "1", "--lease-ttl-millis", "1000"];
        let checkpoints = ["--checkpoint-steps", "10", "--keep-last", "1000"];
        let more = more.iter().chain(&ttl).chain(&checkpoints).map(|word| (*word).to_owned()).collect();
        let (programs, data, folder) = (&self.programs, self.data.as_str(), self.folder);
        Job {
            programs,
            folder,
            program: &programs.digits,
            data,
            trainers: "3",
            pservers: 1,
            more,
            hyper: Vec::new(),
        }
    }

    /// One job with all changes; returns what there is to tell.
    async fn play(&mut self, mode: &str, victim: Victim, turn: usize, hash: &str) -> anyhow::Result<String> {
        let name = format!("{mode}-{victim:?}-{turn}");
        let run = self.folder.join("runs").join(&name);
        let command = self.job(&name, mode, PACE_MILLIS).command();
        let mut changes = Changes::of(command, &run, victim, turn).await?;
        let mut told = Vec::new();
        for number in [3, 2, 4, 1] {
            told.push(changes.scale(number).await.with_context(|| format!("to {number} pservers"))?);
            if number == 3 {
                changes.migrate_each().await.context("migrations")?;
            }
        }
        let closing = changes.ended().await?;
        let log = Log::read(&std::fs::read_to_string(log_of(&run))?)?;
        let readings = changes.reader.judge(&log).await?;
        judge(&closing, &log, &readings, mode, hash)?;
        let struck = &changes.struck;
        struck.iter().for_each(|one| *self.struck.entry((victim, one.phase)).or_default() += 1);
        ensure!(victim == Victim::Nobody || struck.len() == 7, "struck in {} of 7 changes", struck.len());
        let is_kept = |one: &Struck| one.times_back == 0 || !one.is_covered;
        ensure!(struck.iter().all(is_kept), "went back although there were copies: {struck:?}");
        let phases: Vec<String> = struck.iter().map(|one| in_words(one, &log)).collect();
        Ok(format!(
            "{mode:<5} {:<6} killed {:>2} times [{}], {} times back; {} answers looked up in {} ledgers; pushes {}; \
             bytes moved / least: {}",
            format!("{victim:?}"),
            struck.len(),
            phases.join(", "),
            closing["rewinds"],
            readings.compared,
            readings.ledgers,
            lasted(log.pushes.iter().map(|push| push.micros).collect()),
            if victim == Victim::Nobody { told.join(", ") } else { String::from("-") },
        ))
    }
}

fn judge(closing: &Value, log: &Log, readings: &Readings, mode: &str, hash: &str) -> anyhow::Result<()> {
    ensure!(closing["records_wrong"] == 0, "counts are wrong: {closing}");
    ensure!(closing["records_counted"] == closing["records_expected"], "counts are wrong: {closing}");
    ensure!(mode == "async" || closing["parameters_sha256"] == hash, "another hash: {closing}");
    let steps = closing["steps"].as_u64().context("no steps")?;
    let not_kept = [log.not_kept(steps), readings.faults.clone()].concat();
    ensure!(not_kept.is_empty(), "not kept: {:?}", &not_kept[..not_kept.len().min(10)]);
    ensure!(readings.compared > 0, "no answer was looked up in a ledger");
    Ok(())
}

/// A kill: the phase, the longest push until all was settled again, and how often the job went back.
fn in_words(struck: &Struck, log: &Log) -> String {
    let pushes = log.pushes.iter().filter(|push| struck.logged.contains(&push.end));
    let longest = pushes.map(|push| push.micros).max().unwrap_or(0) / 1000;
    let back = if struck.times_back > 0 { ", back" } else { "" };
    format!("{:?} {longest} ms{back}", struck.phase)
}

/// Percentiles of durations in microseconds, in words.
fn lasted(mut micros: Vec<u64>) -> String {
    micros.sort_unstable();
    let at = |share: f64| micros[((micros.len() - 1) as f64 * share) as usize] as f64 / 1000.0;
    if micros.is_empty() {
        return String::from("none");
    }
    format!("{}: p50 {:.1} ms, p99 {:.1} ms, longest {:.1} ms", micros.len(), at(0.5), at(0.99), at(1.0))
}
