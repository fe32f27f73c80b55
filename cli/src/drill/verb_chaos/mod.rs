//! `shoal chaos`: one job again and again, each time under faults that another seed decides, and what became of it
//! judged. It must not call a run good of which it does not know that.

mod again;
mod judge;
mod table;
mod trial;

use super::chaos::kind::{Kind, Kinds};
use super::chaos::privileges;
use super::flags::{ChaosFlags, Fire};
use clap::ValueEnum;
use judge::Ending;
use serde_json::json;
use shoal_runner::flags::JobFlags;
use shoal_runner::output::{Output, print_outcome};
use shoal_runner::plan::Bounds;
use shoal_runtime::host::clock::wall_seconds;
use shoal_runtime::host::shutdown::Shutdown;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;
use table::Table;
use trial::{Trial, Trials};

/// A job takes at most so long, and so many times what it takes undisturbed, before it is called hung.
const HUNG: Duration = Duration::from_secs(240);
const HUNG_TIMES: u32 = 20;
/// Jobs that may break a promise before the rest is not played.
const BROKEN_MAX: usize = 5;
/// Lines of a failed job's log that are shown.
const LAST_LINES: usize = 12;

/// Strike a training job on this machine again and again, and judge what becomes of it
///
/// Runs the program once undisturbed, then job after job, each under faults of its own seed. A job holds if it ends by
/// itself and in time, if every record counted exactly once (as far as the program counts them), and, when it is
/// synchronous, if its parameters have the bits of the undisturbed run. Exit code 0 only if all held. Where no numbers are
/// given, there are 2:4 trainers and 2:3 pservers.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
shoal chaos --data 'data/train-*.recordio' --replicas 1 -- target/release/my-program\n  \
sudo shoal chaos --faults 1000 --trainers 2:4 --pservers 2:3 --data 'data/train-*.recordio' -- target/release/my-program\n  \
shoal chaos --seeds 17..18 --chaos-kinds kill,memory --data 'data/train-*.recordio' -- target/release/my-program\n\
Kinds that need root on Linux (partition, slow, disk) are left out, loudly, where they cannot be.",
mut_arg("program", |program| program.required(true)))]
pub(crate) struct ChaosArguments {
    #[command(flatten)]
    flags: JobFlags<ChaosFlags>,
    /// Go on until so many faults were struck, in at most as many jobs
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    faults: u64,
    /// Play these seeds instead, a job for each: from A, below B
    #[arg(long, value_name = "A..B", conflicts_with = "faults")]
    seeds: Option<Seeds>,
    /// Folder for the jobs' folders, of which those of good jobs are removed; by default a new one under runs/
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// A range of seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seeds {
    from: u64,
    below: u64,
}

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Seeds, String> {
        let wrong = || "give A..B with A below B, like 0..20".to_owned();
        let (from, below) = text.split_once("..").ok_or_else(wrong)?;
        let seeds =
            Seeds { from: from.parse().map_err(|_| wrong())?, below: below.parse().map_err(|_| wrong())? };
        if seeds.from < seeds.below { Ok(seeds) } else { Err(wrong()) }
    }
}

/// What is known when all has been played.
struct Findings {
    table: Table,
    kinds: Kinds,
    jobs: u64,
    rewinds: u64,
    broken: Vec<Broken>,
}

/// A job that did not hold.
struct Broken {
    seed: u64,
    why: Vec<String>,
    again: String,
    folder: PathBuf,
}

pub(crate) async fn run(mut arguments: ChaosArguments) -> anyhow::Result<ExitCode> {
    let kinds = kinds(&arguments.flags.more);
    privileges::enter(kinds)?;
    let flags = &mut arguments.flags;
    flags.trainers.get_or_insert(Bounds { min: 2, max: 4 });
    flags.pservers.get_or_insert(Bounds { min: 2, max: 3 });
    let unique = format!("chaos-{}-{}", wall_seconds(), std::process::id());
    let folder = arguments.folder.clone().unwrap_or_else(|| PathBuf::from("runs").join(unique));
    let mut trials = Trials { flags: arguments.flags.clone(), folder, shutdown: Shutdown::on_signal()? };
    let findings = play(&arguments, kinds, &mut trials).await?;
    trials.clear();
    match arguments.flags.output {
        Output::Json => print_outcome(json(&findings))?,
        Output::Text => print_outcome(text(&findings))?,
    }
    Ok(if findings.broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Those that were named; otherwise all that are possible here. What is left out is said, once.
fn kinds(flags: &ChaosFlags) -> Kinds {
    if !flags.chaos_kinds.is_empty() {
        return Kinds::of(&flags.chaos_kinds);
    }
    let is_possible = |kind: &Kind| match privileges::missing(*kind) {
        None => true,
        Some(why) => {
            if !privileges::is_inside() {
                note!("warning: no faults of the kind {}: {why}", kind.word());
            }
            false
        }
    };
    Kind::value_variants().iter().copied().filter(is_possible).collect()
}

async fn play(arguments: &ChaosArguments, kinds: Kinds, trials: &mut Trials) -> anyhow::Result<Findings> {
    note!("undisturbed:");
    let calm = trials.undisturbed().await?;
    let bound = HUNG.max(Duration::from_secs_f64(calm.seconds) * HUNG_TIMES);
    note!(
        "undisturbed: {:.1} s, sha256 {}…; now under {}; a job that takes {} s is called hung",
        calm.seconds,
        &calm.ending.sha256[..12],
        kinds.words(),
        bound.as_secs()
    );
    let mut findings = Findings { table: Table::default(), kinds, jobs: 0, rewinds: 0, broken: Vec::new() };
    let Seeds { from, below } = arguments.seeds.unwrap_or(Seeds { from: 0, below: arguments.faults });
    for seed in from..below {
        let is_enough = arguments.seeds.is_none() && findings.table.total() >= arguments.faults;
        if is_enough || findings.broken.len() >= BROKEN_MAX {
            break;
        }
        let fire = Fire { seed, is_hard: arguments.flags.more.chaos_hard, kinds };
        let trial = trials.struck(fire, bound).await?;
        take(&mut findings, arguments, trial, &calm.ending);
    }
    Ok(findings)
}

/// Judges a job, tells of it, and removes its folder if it held.
fn take(findings: &mut Findings, arguments: &ChaosArguments, trial: Trial, calm: &Ending) {
    findings.jobs += 1;
    trial.strikes.iter().for_each(|fault| findings.table.add(fault));
    let why = match &trial.ending {
        Ok(ending) => judge::broken(ending, calm),
        Err(why) => vec![why.clone()],
    };
    let rewinds = trial.ending.as_ref().map_or(0, |ending| ending.rewinds);
    findings.rewinds += rewinds;
    let (seed, faults, seconds) = (trial.seed, trial.strikes.len(), trial.seconds);
    let total = match arguments.seeds {
        Some(Seeds { from, below }) => format!("job {} of {}", findings.jobs, below - from),
        None => format!("{} of {} faults", findings.table.total(), arguments.faults),
    };
    if why.is_empty() {
        let back = if rewinds > 0 { format!(", went back {rewinds} times") } else { String::new() };
        note!("seed {seed}: held under {faults} faults in {seconds:.1} s{back} ({total})");
        if let Err(error) = std::fs::remove_dir_all(&trial.folder) {
            note!("warning: {} is not removed: {error}", trial.folder.display());
        }
        return;
    }
    let again = again::command(std::env::args_os(), seed);
    note!("seed {seed}: BROKEN under {faults} faults in {seconds:.1} s ({total})");
    why.iter().for_each(|why| note!("  {why}"));
    trial.last_lines(LAST_LINES).iter().for_each(|line| note!("  | {line}"));
    note!("  look: {}   again: {again}", trial.folder.display());
    findings.broken.push(Broken { seed, why, again, folder: trial.folder });
}

fn text(findings: &Findings) -> String {
    let Findings { table, jobs, rewinds, broken, .. } = findings;
    let mut lines = vec![table.text()];
    lines.push(format!("{} faults in {jobs} jobs, which went back {rewinds} times", table.total()));
    if broken.is_empty() {
        lines.push("✔ all jobs held: ended in time, nothing lost, nothing counted twice".to_owned());
    }
    for Broken { seed, why, again, folder } in broken {
        lines.push(format!("✘ seed {seed}: {}", why.join("; ")));
        lines.push(format!("  look: {}\n  again: {again}", folder.display()));
    }
    lines.join("\n")
}

fn json(findings: &Findings) -> serde_json::Value {
    let Findings { table, kinds, jobs, rewinds, broken } = findings;
    let broken = broken.iter().map(|Broken { seed, why, again, folder }| {
        json!({"seed": seed, "why": why, "again": again, "folder": folder})
    });
    let broken: Vec<_> = broken.collect();
    json!({
        "held": broken.is_empty(), "jobs": jobs, "faults": table.total(), "by_kind": table.json(),
        "rewinds": rewinds, "kinds": kinds.iter().map(Kind::word).collect::<Vec<_>>(), "broken": broken,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_seeds_has_a_beginning_before_its_end() {
        assert_eq!("3..20".parse(), Ok(Seeds { from: 3, below: 20 }));
        for wrong in ["", "3", "3..3", "4..3", "a..4", "3..=4"] {
            assert!(wrong.parse::<Seeds>().is_err(), "{wrong}");
        }
    }
}
