//! The grid: one job under every number of trainers and pservers, calm and under chaos, must end in one hash.
//!
//! `cargo run --release -p shoal-studies --bin grid` runs all of it (about twelve minutes) and exits 0 only if every hash agrees,
//! every count is exact, and everything that the grid is meant to stir did happen. `grid variants` runs the jobs that decide
//! over all blocks, take gradients late or evaluate, alone; `grid variants NAME` those whose name has this in it.
#![allow(clippy::print_stdout)] // Its table is what it is for.

use anyhow::{Context, ensure};
use serde_json::Value;
use shoal_tests::processes::{Job, Programs, pack_digits, programs};
use std::collections::BTreeMap;
use std::path::Path;

const TRAINERS: [&str; 5] = ["1", "2", "3", "5", "8"];
const PSERVERS: [u32; 3] = [1, 2, 3];
/// Jobs that decide over all blocks, take gradients late, or round them: a name, what `shoal run` is told, what the program is.
const VARIANTS: [(&str, &[&str], &[&str]); 11] = [
    ("clip", &[], &["--clip-norm", "0.2"]),
    ("skip", &[], &["--spoil-every", "7"]),
    ("loss scale", &[], &["--loss-scale", "65536", "--spoil-every", "11"]),
    ("delay 1", &["--delay", "1"], &[]),
    (
        "delay 2, all of it",
        &["--delay", "2"],
        &["--clip-norm", "0.2", "--loss-scale", "1024", "--spoil-every", "9"],
    ),
    (
        "a copy, all of it",
        &["--replicas", "1"],
        &["--clip-norm", "0.2", "--loss-scale", "1024", "--spoil-every", "9"],
    ),
    ("bf16", &["--gradients", "bf16"], &[]),
    (
        "bf16, all of it",
        &["--gradients", "bf16", "--delay", "1", "--replicas", "1"],
        &["--clip-norm", "0.2", "--loss-scale", "1024", "--spoil-every", "9"],
    ),
    ("evaluation", &["--eval-data", EVALUATED, "--eval-steps", "7"], &[]),
    (
        "early stop, rates",
        &["--eval-data", EVALUATED, "--eval-steps", "4", "--epochs", "4"],
        &["--stop-after", "3", "--lower-after", "1"],
    ),
    (
        "evaluation, all of it",
        &["--eval-data", EVALUATED, "--eval-steps", "2", "--delay", "1", "--replicas", "1"],
        &["--lower-after", "1", "--keep-best", "--clip-norm", "0.2", "--spoil-every", "9"],
    ),
];
/// Stands for the digits that are held out.
const EVALUATED: &str = "EVALUATED";
/// Counters that must not be 0 over the whole grid.
const STIRRED: [&str; 7] = [
    "odd_blocks",
    "short_steps",
    "negative_zeros",
    "replaced_by_ancestor",
    "tasks_leased_again",
    "duplicates_refused",
    "late_pushes",
];

fn main() -> anyhow::Result<()> {
    let programs = programs()?;
    let folder = tempfile::tempdir()?;
    let data = pack_digits(&programs, &folder.path().join("data"))?;
    let mut grid = Grid { programs, data, folder: folder.path(), stirred: BTreeMap::new(), hash: None };
    if std::env::args().nth(1).is_some_and(|word| word == "variants") {
        // What they are told changes something.
        let plain = grid.run(&grid.programs.digits, "2", 1, &["--epochs", "2", "--seed", "7"])?;
        grid.hash = plain["parameters_sha256"].as_str().map(str::to_owned);
        return grid.variants();
    }
    for pservers in PSERVERS {
        for trainers in TRAINERS {
            grid.cell(trainers, pservers, None)?;
            grid.cell(trainers, pservers, Some(u64::from(pservers) * 100 + trainers.parse::<u64>()?))?;
        }
    }
    grid.others()?;
    grid.variants()?;
    for mode in ["sync", "async"] {
        for seed in 1..=20 {
            grid.count(mode, seed)?;
        }
    }
    for name in STIRRED {
        let total = grid.stirred.get(name).copied().unwrap_or(0);
        println!("{name:<24} {total}");
        ensure!(total > 0, "the grid was idle: {name} never happened");
    }
    println!("1 hash over the grid: {}", grid.hash.unwrap_or_default());
    Ok(())
}

struct Grid<'a> {
    programs: Programs,
    data: String,
    folder: &'a Path,
    stirred: BTreeMap<&'static str, u64>,
    hash: Option<String>,
}

impl Grid<'_> {
    fn run(&self, program: &Path, trainers: &str, pservers: u32, more: &[&str]) -> anyhow::Result<Value> {
        self.run_with(program, trainers, pservers, more, &[])
    }

    fn run_with(
        &self,
        program: &Path,
        trainers: &str,
        pservers: u32,
        more: &[&str],
        hyper: &[&str],
    ) -> anyhow::Result<Value> {
        let hyper = hyper.iter().map(|word| (*word).to_owned()).collect();
        let more = more.iter().map(|word| (*word).to_owned()).collect();
        let (programs, data, folder) = (&self.programs, self.data.as_str(), self.folder);
        let job = Job { programs, folder, program, data, trainers, pservers, more, hyper };
        job.run().with_context(|| format!("{trainers} trainers, {pservers} pservers"))
    }

    fn cell(&mut self, trainers: &str, pservers: u32, chaos: Option<u64>) -> anyhow::Result<()> {
        let seed = chaos.map(|chaos| chaos.to_string());
        let mut more = vec!["--epochs", "2", "--seed", "7"];
        match &seed {
            Some(seed) => more.extend(["--chaos", seed]),
            // Paced, so that all trainers have started before the work is done.
            None => more.extend(["--pace-millis", "30"]),
        }
        let closing = self.run(&self.programs.digits, trainers, pservers, &more)?;
        let hash = closing["parameters_sha256"].as_str().context("no hash")?.to_owned();
        let faults = closing["faults"].as_array().map_or(0, Vec::len);
        println!(
            "trainers {trainers}  pservers {pservers}  faults {faults:>2}  {:>5.1} s  {hash}",
            closing["seconds"].as_f64().unwrap_or(0.0)
        );
        ensure!(closing["records_wrong"] == 0, "counts are wrong: {closing}");
        ensure!(closing["odd_blocks"].as_u64() >= Some(4), "fewer than 4 blocks of odd lengths");
        ensure!(*self.hash.get_or_insert_with(|| hash.clone()) == hash, "another hash: {closing}");
        if chaos.is_none() {
            ensure!(everyone_contributed(&closing), "a member was idle: {closing}");
        }
        for name in STIRRED {
            *self.stirred.entry(name).or_default() += closing[name].as_u64().unwrap_or(0);
        }
        ensure!(
            trainers == "1" || closing["levels"].as_array().map_or(0, Vec::len) >= 2,
            "one level only: {closing}"
        );
        Ok(())
    }

    fn variants(&self) -> anyhow::Result<()> {
        let named = std::env::args().nth(2).unwrap_or_default();
        let wanted = (0..).zip(&VARIANTS).filter(|(_, (name, ..))| name.contains(&named));
        wanted.into_iter().try_for_each(|(number, variant)| self.variant(number, variant))
    }

    /// One job of a kind, undisturbed, with other members, and under chaos: one hash, and another than the grid's.
    fn variant(&self, number: u64, (name, more, hyper): &(&str, &[&str], &[&str])) -> anyhow::Result<()> {
        let evaluated = self.data.replace("train-", "test-");
        let epochs = if more.contains(&"--epochs") { &[][..] } else { &["--epochs", "2"] };
        let more = more.iter().map(|word| if *word == EVALUATED { evaluated.as_str() } else { word });
        let common: Vec<&str> = epochs.iter().copied().chain(["--seed", "7"]).chain(more).collect();
        let mut first: Option<(String, Value)> = None;
        for (round, (trainers, pservers)) in
            [("1", 1), ("3", 2), ("2:4", 3), ("3", 3)].into_iter().enumerate()
        {
            let seed = (1000 + 10 * number + round as u64).to_string();
            let chaos = if round < 2 { ["--pace-millis", "10"] } else { ["--chaos", seed.as_str()] };
            let more = [&common[..], &chaos[..]].concat();
            let closing = self.run_with(&self.programs.digits, trainers, pservers, &more, hyper)?;
            let hash = closing["parameters_sha256"].as_str().context("no hash")?.to_owned();
            let faults = closing["faults"].as_array().map_or(0, Vec::len);
            println!("{name:<22} trainers {trainers:<4} pservers {pservers}  faults {faults:>2}  {hash}");
            let found = (hash, closing["evaluations"].clone());
            ensure!(*first.get_or_insert_with(|| found.clone()) == found, "another hash: {closing}");
            // What it is meant to show did happen.
            for (word, counter) in [("--clip-norm", "steps_clipped"), ("--spoil-every", "steps_skipped")] {
                let happened = closing[counter].as_u64() > Some(0);
                ensure!(happened || !hyper.contains(&word), "{counter} is 0: {closing}");
            }
            let newest = closing["evaluations"].as_array().and_then(|evaluations| evaluations.last());
            let newest = newest.cloned().unwrap_or_default();
            ensure!(newest.is_object() || !common.contains(&"--eval-data"), "nothing evaluated: {closing}");
            let is_stopped = closing["stopped_early"] == true;
            ensure!(is_stopped == hyper.contains(&"--stop-after"), "stopped early: {is_stopped}: {closing}");
            let is_lowered = newest["rate"].as_f64() < Some(1.0);
            ensure!(is_lowered || !hyper.contains(&"--lower-after"), "no rate was lowered: {closing}");
        }
        let Some((hash, _)) = first else { return Ok(()) };
        ensure!(Some(&hash) != self.hash.as_ref(), "{name} changes nothing");
        Ok(())
    }

    /// Another seed and another M give other hashes.
    fn others(&self) -> anyhow::Result<()> {
        for more in [
            ["--seed", "8", "--microbatches-per-step", "16"],
            ["--seed", "7", "--microbatches-per-step", "12"],
        ] {
            let closing =
                self.run(&self.programs.digits, "2", 2, &[&["--epochs", "2"], &more[..]].concat())?;
            println!("{}  {}", more.join(" "), closing["parameters_sha256"]);
            ensure!(
                closing["parameters_sha256"].as_str() != self.hash.as_deref(),
                "the same hash with {more:?}"
            );
        }
        Ok(())
    }

    fn count(&mut self, mode: &str, seed: u64) -> anyhow::Result<()> {
        let chaos = seed.to_string();
        let more = ["--epochs", "3", "--chaos", &chaos, "--mode", mode];
        let closing = self.run(&self.programs.count, "2:4", 3, &more)?;
        let faults = closing["faults"].as_array().map_or(0, Vec::len);
        println!(
            "count  {mode:<5} chaos {seed:>2}  faults {faults:>2}  {}/{} counted",
            closing["records_counted"], closing["records_expected"]
        );
        ensure!(closing["records_wrong"] == 0 && faults > 0, "not exact, or nothing hit: {closing}");
        Ok(())
    }
}

fn everyone_contributed(closing: &Value) -> bool {
    let has_done = |member: &Value, what: &str| member[what].as_u64() > Some(0);
    let all = |role: &str, what: &str| {
        closing[role].as_array().is_some_and(|members| members.iter().all(|member| has_done(member, what)))
    };
    all("trainers", "tasks") && all("pservers", "pushes")
}
