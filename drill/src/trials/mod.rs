//! `shoal chaos`: one job again and again, each time under faults that another seed decides, and what became of it
//! judged. It must not call a run good of which it does not know that.

mod fault_counts;
mod reproduce;
mod trial;
mod verdict;

use super::chaos::kind::{Kind, Kinds};
use super::chaos::privileges;
use super::flags::{ChaosFlags, ChaosPlan};
use clap::ValueEnum;
use fault_counts::FaultCounts;
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
use trial::{Trial, Trials};
use verdict::EndState;

/// A job takes at most so long, and so many times what it takes undisturbed, before it is called hung.
const HUNG: Duration = Duration::from_secs(240);
const HUNG_TIMES: u32 = 20;
/// Jobs that may break a promise before the rest is not played.
const VIOLATIONS_MAX: usize = 5;
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
pub struct ChaosArguments {
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
struct Summary {
    counts: FaultCounts,
    kinds: Kinds,
    jobs: u64,
    rewinds: u64,
    violations: Vec<Violation>,
}

/// A job that did not hold.
struct Violation {
    seed: u64,
    why: Vec<String>,
    again: String,
    folder: PathBuf,
}

/// Plays jobs until enough faults were injected or seeds played, and prints what became of them.
///
/// # Errors
/// An interruption, or a job that cannot be played at all.
pub async fn run(mut arguments: ChaosArguments) -> anyhow::Result<ExitCode> {
    let kinds = kinds(&arguments.flags.more);
    privileges::enter(kinds, None)?;
    let flags = &mut arguments.flags;
    flags.trainers.get_or_insert(Bounds { min: 2, max: 4 });
    flags.pservers.get_or_insert(Bounds { min: 2, max: 3 });
    let unique = format!("chaos-{}-{}", wall_seconds(), std::process::id());
    let folder = arguments.folder.clone().unwrap_or_else(|| PathBuf::from("runs").join(unique));
    let mut trials = Trials { flags: arguments.flags.clone(), folder, shutdown: Shutdown::on_signal()? };
    let summary = play(&arguments, kinds, &mut trials).await?;
    trials.clear();
    match arguments.flags.output {
        Output::Json => print_outcome(json(&summary))?,
        Output::Text => print_outcome(text(&summary))?,
    }
    Ok(if summary.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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

async fn play(arguments: &ChaosArguments, kinds: Kinds, trials: &mut Trials) -> anyhow::Result<Summary> {
    note!("undisturbed:");
    let baseline = trials.baseline().await?;
    let bound = HUNG.max(Duration::from_secs_f64(baseline.seconds) * HUNG_TIMES);
    note!(
        "undisturbed: {:.1} s, sha256 {}…; now under {}; a job that takes {} s is called hung",
        baseline.seconds,
        &baseline.end.sha256[..12],
        kinds.words(),
        bound.as_secs()
    );
    let mut summary =
        Summary { counts: FaultCounts::default(), kinds, jobs: 0, rewinds: 0, violations: Vec::new() };
    let Seeds { from, below } = arguments.seeds.unwrap_or(Seeds { from: 0, below: arguments.faults });
    for seed in from..below {
        let is_enough = arguments.seeds.is_none() && summary.counts.total() >= arguments.faults;
        if is_enough || summary.violations.len() >= VIOLATIONS_MAX {
            break;
        }
        let plan = ChaosPlan { seed, is_hard: arguments.flags.more.chaos_hard, kinds };
        let trial = trials.with_faults(plan, bound).await?;
        take(&mut summary, arguments, trial, &baseline.end);
    }
    Ok(summary)
}

/// Judges a job, tells of it, and removes its folder if it held.
fn take(summary: &mut Summary, arguments: &ChaosArguments, trial: Trial, baseline: &EndState) {
    summary.jobs += 1;
    trial.faults.iter().for_each(|fault| summary.counts.add(fault));
    let why = match &trial.end {
        Ok(end) => verdict::violations(end, baseline),
        Err(why) => vec![why.clone()],
    };
    let rewinds = trial.end.as_ref().map_or(0, |end| end.rewinds);
    summary.rewinds += rewinds;
    let (seed, faults, seconds) = (trial.seed, trial.faults.len(), trial.seconds);
    let total = match arguments.seeds {
        Some(Seeds { from, below }) => format!("job {} of {}", summary.jobs, below - from),
        None => format!("{} faults, {} are wanted", summary.counts.total(), arguments.faults),
    };
    if why.is_empty() {
        let back = if rewinds > 0 { format!(", went back {rewinds} times") } else { String::new() };
        note!("seed {seed}: held under {faults} faults in {seconds:.1} s{back} ({total})");
        if let Err(error) = std::fs::remove_dir_all(&trial.folder) {
            note!("warning: {} is not removed: {error}", trial.folder.display());
        }
        return;
    }
    let again = reproduce::command(std::env::args_os(), seed);
    note!("seed {seed}: BROKEN under {faults} faults in {seconds:.1} s ({total})");
    why.iter().for_each(|why| note!("  {why}"));
    trial.last_lines(LAST_LINES).iter().for_each(|line| note!("  | {line}"));
    note!("  look: {}   again: {again}", trial.folder.display());
    summary.violations.push(Violation { seed, why, again, folder: trial.folder });
}

fn text(summary: &Summary) -> String {
    let Summary { counts, jobs, rewinds, violations, .. } = summary;
    let mut lines = vec![counts.text()];
    lines.push(format!("{} faults in {jobs} jobs, which went back {rewinds} times", counts.total()));
    if violations.is_empty() {
        lines.push("✔ all jobs held: ended in time, nothing lost, nothing counted twice".to_owned());
    }
    for Violation { seed, why, again, folder } in violations {
        lines.push(format!("✘ seed {seed}: {}", why.join("; ")));
        lines.push(format!("  look: {}\n  again: {again}", folder.display()));
    }
    lines.join("\n")
}

fn json(summary: &Summary) -> serde_json::Value {
    let Summary { counts, kinds, jobs, rewinds, violations } = summary;
    let broken = violations.iter().map(|Violation { seed, why, again, folder }| {
        json!({"seed": seed, "why": why, "again": again, "folder": folder})
    });
    let broken: Vec<_> = broken.collect();
    json!({
        "held": broken.is_empty(), "jobs": jobs, "faults": counts.total(), "by_kind": counts.json(),
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
