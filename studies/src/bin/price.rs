//! What copies cost: steps per second with 0, 1 and 2 copies beside each primary, alternated in one run.
//!
//! `cargo run --release -p shoal-studies --bin price [-- --rounds N]`
//!
//! Three pservers and three trainers on this machine, nothing else to wait for: the digits model (43 KB) and the counts
//! of a larger data set (12 MB of parameters). Prints the median of each and its ratio to none.
#![allow(clippy::print_stdout)] // Its table is what it is for.

use anyhow::{Context, bail, ensure};
use shoal_tests::processes::{Job, Programs, pack_digits, programs};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Records of the larger data set: each has an element in three counting parameters.
const RECORDS: u32 = 1_000_000;

fn main() -> anyhow::Result<()> {
    let rounds = match std::env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => 5,
        [word, rounds] if word == "--rounds" => rounds.parse()?,
        _ => bail!("price [--rounds N]"),
    };
    let programs = programs()?;
    let folder = tempfile::tempdir()?;
    let digits = pack_digits(&programs, &folder.path().join("data"))?;
    let lines = pack_lines(&programs, folder.path())?;
    for (name, program, data, more) in [
        (
            "digits",
            &programs.digits,
            digits.as_str(),
            &["--epochs", "12", "--microbatches-per-step", "6"][..],
        ),
        ("count", &programs.count, &lines, &["--microbatch-records", "2000", "--microbatches-per-step", "6"]),
    ] {
        let mut rates = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..rounds {
            for (replicas, rates) in rates.iter_mut().enumerate() {
                rates.push(steps_per_second(&programs, folder.path(), program, data, more, replicas)?);
            }
        }
        let [none, one, two] = rates.map(median);
        println!(
            "{name:<7} steps/s: {none:.1} with no copy, {one:.1} with one ({:.2}), {two:.1} with two ({:.2}); {rounds} rounds",
            one / none,
            two / none
        );
    }
    Ok(())
}

fn steps_per_second(
    programs: &Programs,
    folder: &Path,
    program: &PathBuf,
    data: &str,
    more: &[&str],
    replicas: usize,
) -> anyhow::Result<f64> {
    let replicas = replicas.to_string();
    let more = more.iter().copied().chain(["--replicas", &replicas]).map(str::to_owned).collect();
    let closing =
        Job { programs, folder, program, data, trainers: "3", pservers: 3, more, hyper: Vec::new() }.run()?;
    ensure!(closing["records_wrong"] == 0, "counts are wrong: {closing}");
    let number = |name: &str| closing[name].as_f64().with_context(|| format!("no {name}: {closing}"));
    Ok(number("steps")? / number("seconds")?)
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// The larger data set: numbered lines.
fn pack_lines(programs: &Programs, folder: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    for line in 0..RECORDS {
        writeln!(text, "{line}")?;
    }
    let (lines, packed) = (folder.join("lines.txt"), folder.join("lines.recordio"));
    std::fs::write(&lines, text)?;
    let mut command = Command::new(&programs.shoal);
    let done =
        command.args(["recordio", "pack", "lines"]).arg(&lines).arg("--output").arg(&packed).output()?;
    ensure!(done.status.success(), "recordio pack: {}", String::from_utf8_lossy(&done.stderr));
    Ok(packed.to_string_lossy().into_owned())
}
