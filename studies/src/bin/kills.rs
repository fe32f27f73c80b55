//! Two hundred random `kill -9` over all roles, in either mode and with 0, 1 and 2 copies beside each primary:
//!
//! `cargo run --release -p shoal-studies --bin kills [-- --kills N] [--mode sync|async] [--replicas R] [--seed S]`
//!
//! Jobs are run one after another until so many processes were killed. Each must end with exact counts, in synchronous
//! mode with the hash of a run that nobody disturbed, and with every update kept that was answered `Applied`: it stands
//! exactly once in the ledgers of all checkpoints that were written later, between kills; with copies none may go
//! back. Exits 0 only then.
#![allow(clippy::print_stdout)] // Its table is what it is for.

use anyhow::{Context, bail, ensure};
use shoal_tests::applied::Log;
use shoal_tests::ledgers::Reader;
use shoal_tests::processes::{Job, Programs, closing, pack_digits, programs};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tokio::task::spawn_blocking;

/// Acknowledgements that must have been written down for each ten kills: fewer would prove little.
const ACKNOWLEDGED_PER_TEN_KILLS: u64 = 50;
/// Of those at least so many of a hundred must have been looked up in a ledger written later.
const COMPARED_PERCENT: u64 = 50;
/// Between checkpoints: about as long as between kills.
const CHECKPOINT_STEPS: &str = "5";
/// How often the log is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// Of each role at least one kill in so many.
const ROLE_SHARE: u64 = 20;

struct Arguments {
    kills: u64,
    modes: Vec<String>,
    replicas: Vec<String>,
    seed: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments = arguments(std::env::args().skip(1))?;
    let programs = programs()?;
    let folder = tempfile::tempdir()?;
    let data = pack_digits(&programs, &folder.path().join("data"))?;
    let script = Script { programs, data, folder: folder.path(), kills: arguments.kills };
    let calm = closing(&script.job("calm", "sync", "0", &[]).command().output()?)?;
    let hash = calm["parameters_sha256"].as_str().context("no hash")?.to_owned();
    println!("an undisturbed run: {hash}");
    for mode in &arguments.modes {
        for replicas in &arguments.replicas {
            script.combination(mode, replicas, arguments.seed, &hash).await?;
        }
    }
    Ok(())
}

fn arguments(mut words: impl Iterator<Item = String>) -> anyhow::Result<Arguments> {
    let all = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let (modes, replicas) = (all(&["sync", "async"]), all(&["0", "1", "2"]));
    let mut arguments = Arguments { kills: 200, modes, replicas, seed: 1 };
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word} takes a value"))?;
        match word.as_str() {
            "--kills" => arguments.kills = value.parse()?,
            "--seed" => arguments.seed = value.parse()?,
            "--mode" => arguments.modes = vec![value],
            "--replicas" => arguments.replicas = vec![value],
            other => bail!("unknown {other:?}: kills [--kills N] [--mode M] [--replicas R] [--seed S]"),
        }
    }
    Ok(arguments)
}

struct Script<'a> {
    programs: Programs,
    data: String,
    folder: &'a Path,
    kills: u64,
}

#[derive(Default)]
struct Total {
    jobs: u64,
    kills: u64,
    by_role: BTreeMap<String, u64>,
    acknowledged: u64,
    ledgers: u64,
    compared: u64,
    rewinds: u64,
    terms: u64,
    seconds: f64,
}

impl Script<'_> {
    fn job(&self, run: &str, mode: &str, replicas: &str, more: &[&str]) -> Job<'_> {
        let folder = format!("runs/{run}");
        let all =
            ["--epochs", "2", "--seed", "7", "--mode", mode, "--replicas", replicas, "--folder", &folder];
        let more = all.iter().chain(more).map(|word| (*word).to_owned()).collect();
        let (programs, data, folder) = (&self.programs, self.data.as_str(), self.folder);
        Job {
            programs,
            folder,
            program: &programs.digits,
            data,
            trainers: "3",
            pservers: 3,
            more,
            hyper: Vec::new(),
        }
    }

    async fn combination(&self, mode: &str, replicas: &str, seed: u64, hash: &str) -> anyhow::Result<()> {
        let mut total = Total::default();
        while total.kills < self.kills {
            let seed = seed * 1000 + total.jobs;
            let what = || format!("--mode {mode} --replicas {replicas}, chaos {seed}");
            self.struck(mode, replicas, seed, hash, &mut total).await.with_context(what)?;
        }
        let Total { jobs, kills, by_role, acknowledged, ledgers, compared, rewinds, terms, seconds } = &total;
        let roles: Vec<String> = by_role.iter().map(|(role, kills)| format!("{role} {kills}")).collect();
        println!(
            "{mode:<5} replicas {replicas}: {kills} kills ({}) in {jobs} jobs of {seconds:.0} s in all; {acknowledged} \
             acknowledgements, all kept, {compared} of them looked up in {ledgers} later ledgers; {rewinds} times back, \
             {terms} masters elected",
            roles.join(", ")
        );
        let least = kills * ACKNOWLEDGED_PER_TEN_KILLS / 10;
        ensure!(*acknowledged >= least, "only {acknowledged} acknowledgements, not {least}");
        let least = acknowledged * COMPARED_PERCENT / 100;
        ensure!(*compared >= least, "only {compared} acknowledgements looked up, not {least}");
        ensure!(by_role.len() == 3, "a role was never struck");
        ensure!(by_role.values().all(|of_role| of_role * ROLE_SHARE >= *kills), "a role was hardly struck");
        Ok(())
    }

    /// One job under fire, which must keep the promises.
    async fn struck(
        &self,
        mode: &str,
        replicas: &str,
        seed: u64,
        hash: &str,
        total: &mut Total,
    ) -> anyhow::Result<()> {
        let (name, seed) = (format!("{mode}-{replicas}-{seed}"), seed.to_string());
        let file = self.folder.join(format!("log-{name}"));
        let fire = ["--chaos", &seed, "--chaos-kinds", "kill", "--pace-millis", "150"];
        let checkpoints = ["--checkpoint-steps", CHECKPOINT_STEPS, "--keep-last", "1000"];
        let mut command =
            self.job(&name, mode, replicas, &[fire.as_slice(), &checkpoints].concat()).command();
        command.env("SHOAL_PUSH_LOG", &file);
        let mut reader = Reader::of(&self.folder.join("runs").join(&name), &file);
        let job = spawn_blocking(move || command.output());
        while !job.is_finished() {
            reader.look().await?;
            tokio::time::sleep(LOOK).await;
        }
        let closing = closing(&job.await??)?;
        let log = Log::read(&std::fs::read_to_string(&file)?)?;
        let readings = reader.judge(&log).await?;
        let number = |name: &str| closing[name].as_u64().with_context(|| format!("no {name}: {closing}"));
        ensure!(number("records_wrong")? == 0, "counts are wrong: {closing}");
        ensure!(number("records_counted")? == number("records_expected")?, "counts are wrong: {closing}");
        ensure!(mode == "async" || closing["parameters_sha256"] == hash, "another hash: {closing}");
        let not_kept = [log.not_kept(number("steps")?), readings.faults].concat();
        let some = &not_kept[..not_kept.len().min(10)];
        ensure!(not_kept.is_empty(), "{} not kept: {some:#?}; {closing}", not_kept.len());
        ensure!(
            replicas == "0" || number("rewinds")? == 0,
            "went back although there were copies: {closing}"
        );
        let faults = closing["faults"].as_array().context("no faults")?;
        for fault in faults {
            let role = fault["role"].as_str().unwrap_or_default().to_owned();
            *total.by_role.entry(role).or_default() += 1;
        }
        total.jobs += 1;
        total.kills += faults.len() as u64;
        total.acknowledged += log.acknowledged.len() as u64;
        total.ledgers += readings.ledgers;
        total.compared += readings.compared;
        total.rewinds += number("rewinds")?;
        total.terms += number("master_term")?;
        total.seconds += closing["seconds"].as_f64().unwrap_or(0.0);
        Ok(())
    }
}
