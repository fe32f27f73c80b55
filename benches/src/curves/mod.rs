//! `curves`: the accuracy on held-out records, epoch by epoch, of jobs with 2 trainers, with 4, and with a number that goes
//! to and fro between them while they train. It must never draw a curve that was not trained: what failed ends the bench.

mod arguments;
mod changes;
mod figure;
mod job;
mod judge;
mod pack;
mod page;
mod print;
mod programs;
mod results;
mod sets;

use self::arguments::{Arguments, Output};
use self::judge::Judged;
use self::results::{OfSet, Results, Trainers};
use crate::report::load;
use anyhow::{Context, ensure};
use clap::Parser;
use std::path::Path;
use std::process::ExitCode;

/// What a bench ends with that could not be run.
const FAILED: u8 = 2;

/// Trains or reads what the command line asks for, and draws it.
pub fn main() -> ExitCode {
    run(&Arguments::parse()).unwrap_or_else(|error| {
        say(&format!("error: {error:#}"));
        ExitCode::from(FAILED)
    })
}

#[allow(clippy::print_stdout, reason = "its output is what it is for")]
fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let results = match arguments.from.is_empty() {
        true => trained(arguments)?,
        false => read(&arguments.from)?,
    };
    let judged = judge::all(&results);
    write(&arguments.html, &page::html(&results, &judged))?;
    if let Some(svg) = &arguments.svg {
        write(svg, &figure::svg(&results, &judged))?;
    }
    match arguments.output {
        Output::Text => print!("{}", print::table(&results, &judged)),
        Output::Json => println!("{}", print::json(&results, &judged)?),
    }
    let unequal: Vec<&str> = judged.iter().filter(|set| !set.sync_is_equal()).map(Judged::set).collect();
    if unequal.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    say(&format!("synchronous curves differ: {}", unequal.join(", ")));
    Ok(ExitCode::FAILURE)
}

/// Trains everything that was asked for.
fn trained(arguments: &Arguments) -> anyhow::Result<Results> {
    let plans = arguments.plans()?;
    let programs = programs::Programs::found(arguments.programs.as_deref())?;
    let (load_before, mut sets) = (load(), Vec::new());
    for plan in plans {
        let packed = pack::packed(&plan, &programs)?;
        let (records, held_out) = (packed.records, packed.held_out);
        say(&format!("{}: {records} records to train on, {held_out} held out", plan.set));
        let mut curves = Vec::new();
        for (mode, seed) in plan.modes_and_seeds() {
            for trainers in [Trainers::Few, Trainers::Many, Trainers::Elastic] {
                let job = job::Job { plan: &plan, packed: &packed, mode, trainers, seed };
                let curve = programs.run(&job).with_context(|| format!("{}, {job}", plan.set))?;
                say(&format!("{}, {job}: {curve}", plan.set));
                curves.push(curve);
            }
        }
        let (set, epochs) = (plan.set, plan.epochs);
        sets.push(OfSet { set, network: plan.set.network().to_owned(), records, held_out, epochs, curves });
    }
    Ok(Results { load_before, load_after: load(), sets })
}

/// What earlier runs printed with `-o json`, one after another.
fn read(files: &[std::path::PathBuf]) -> anyhow::Result<Results> {
    let mut all = Results::default();
    for file in files {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        let Results { load_before, load_after, sets } = serde_json::from_str(last)
            .with_context(|| format!("{}: its last line is no result of -o json", file.display()))?;
        ensure!(!sets.is_empty(), "{}: has no data set", file.display());
        all.load_before = all.load_before.or(load_before);
        all.load_after = load_after.or(all.load_after);
        all.add(sets);
    }
    Ok(all)
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Progress, which is not the result.
fn say(line: &str) {
    eprintln!("{line}");
}
