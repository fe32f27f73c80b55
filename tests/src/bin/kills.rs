//! Two hundred random `kill -9` over all roles, in either mode and with 0, 1 and 2 copies beside each primary:
//!
//! `cargo run --release -p shoal-tests --bin kills [-- --kills N] [--mode sync|async] [--replicas R] [--seed S]`
//!
//! Jobs are run one after another until so many processes were killed. Each must end with exact counts, in synchronous
//! mode with the hash of a run that nobody disturbed, and with every update kept that was answered `Applied`; with
//! copies none may go back. Exits 0 only then.
#![allow(clippy::print_stdout)] // Its table is what it is for.

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use shoal_tests::applied::Log;
use shoal_tests::processes::{Job, Programs, pack_digits, programs};
use std::collections::BTreeMap;
use std::path::Path;

/// Acknowledgements that must have been written down for each ten kills: fewer would prove little.
const ACKNOWLEDGED_PER_TEN_KILLS: u64 = 50;
/// Of each role at least one kill in so many.
const ROLE_SHARE: u64 = 20;

struct Arguments {
    kills: u64,
    modes: Vec<String>,
    replicas: Vec<String>,
    seed: u64,
}

fn main() -> anyhow::Result<()> {
    let arguments = arguments(std::env::args().skip(1))?;
    let programs = programs()?;
    let folder = tempfile::tempdir()?;
    let data = pack_digits(&programs, &folder.path().join("data"))?;
    let script = Script { programs, data, folder: folder.path(), kills: arguments.kills };
    let calm = script.run("sync", "0", None)?;
    let hash = calm["parameters_sha256"].as_str().context("no hash")?.to_owned();
    println!("an undisturbed run: {hash}");
    for mode in &arguments.modes {
        for replicas in &arguments.replicas {
            script.combination(mode, replicas, arguments.seed, &hash)?;
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
    rewinds: u64,
    terms: u64,
    seconds: f64,
}

impl Script<'_> {
    fn run(&self, mode: &str, replicas: &str, chaos: Option<(u64, &Path)>) -> anyhow::Result<Value> {
        let mut more = vec!["--epochs", "2", "--seed", "7", "--mode", mode, "--replicas", replicas];
        let seed = chaos.map(|(seed, _)| seed.to_string());
        if let Some(seed) = &seed {
            more.extend(["--chaos", seed, "--chaos-kinds", "kill", "--checkpoint-steps", "15"]);
            more.extend(["--pace-millis", "150"]);
        }
        let more = more.into_iter().map(str::to_owned).collect();
        let (programs, data, folder) = (&self.programs, self.data.as_str(), self.folder);
        let job = Job { programs, folder, program: &programs.digits, data, trainers: "3", pservers: 3, more };
        let mut command = job.command();
        if let Some((_, log)) = chaos {
            command.env("SHOAL_PUSH_LOG", log);
        }
        shoal_tests::processes::closing(&command.output()?)
    }

    fn combination(&self, mode: &str, replicas: &str, seed: u64, hash: &str) -> anyhow::Result<()> {
        let mut total = Total::default();
        while total.kills < self.kills {
            let seed = seed * 1000 + total.jobs;
            let what = || format!("--mode {mode} --replicas {replicas}, chaos {seed}");
            self.job(mode, replicas, seed, hash, &mut total).with_context(what)?;
        }
        let Total { jobs, kills, by_role, acknowledged, rewinds, terms, seconds } = &total;
        let roles: Vec<String> = by_role.iter().map(|(role, kills)| format!("{role} {kills}")).collect();
        println!(
            "{mode:<5} replicas {replicas}: {kills} kills ({}) in {jobs} jobs of {seconds:.0} s in all; {acknowledged} \
             acknowledgements, all kept; {rewinds} times back, {terms} masters elected",
            roles.join(", ")
        );
        let least = kills * ACKNOWLEDGED_PER_TEN_KILLS / 10;
        ensure!(*acknowledged >= least, "only {acknowledged} acknowledgements, not {least}");
        ensure!(by_role.len() == 3, "a role was never struck");
        ensure!(by_role.values().all(|of_role| of_role * ROLE_SHARE >= *kills), "a role was hardly struck");
        Ok(())
    }

    /// One job, which must keep the promises.
    fn job(
        &self,
        mode: &str,
        replicas: &str,
        seed: u64,
        hash: &str,
        total: &mut Total,
    ) -> anyhow::Result<()> {
        let log = self.folder.join(format!("log-{mode}-{replicas}-{seed}"));
        let closing = self.run(mode, replicas, Some((seed, &log)))?;
        let log = Log::read(&std::fs::read_to_string(&log)?)?;
        let number = |name: &str| closing[name].as_u64().with_context(|| format!("no {name}: {closing}"));
        ensure!(number("records_wrong")? == 0, "counts are wrong: {closing}");
        ensure!(number("records_counted")? == number("records_expected")?, "counts are wrong: {closing}");
        ensure!(mode == "async" || closing["parameters_sha256"] == hash, "another hash: {closing}");
        let not_kept = log.not_kept(number("steps")?);
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
        total.acknowledged += log.acknowledged() as u64;
        total.rewinds += number("rewinds")?;
        total.terms += number("master_term")?;
        total.seconds += closing["seconds"].as_f64().unwrap_or(0.0);
        Ok(())
    }
}
