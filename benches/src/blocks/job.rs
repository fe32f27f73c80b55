//! One job, run until its last counted step, its limit, or the end of the machine's memory. It must never leave a process behind:
//! the next job would be measured beside it.

use super::parts::Shape;
use super::program::{Look, Taken, Training, WARM};
use crate::measure::pause;
use crate::process::{available_bytes, processors};
use crate::programs::{Joined, Programs, Running, joined};
use anyhow::{bail, ensure};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

const POLL: Duration = Duration::from_millis(50);
/// How long processes may take to see that they are not wanted any more.
const ENDING: Duration = Duration::from_secs(60);
/// A job is ended before the machine has less memory than this.
const LEFT_BYTES: u64 = 2 << 30;
/// So that no lease runs out and nobody is taken for lost, however long a step takes.
const TTL_MILLIS: u64 = 600_000;

/// What came of a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Ran {
    /// Why not all steps were made: `None`, they were.
    pub(crate) cut_short: Option<String>,
    /// That were counted.
    pub(crate) steps: u64,
    /// Seconds by the wall in which they were made.
    pub(crate) seconds: f64,
    /// What each role has taken in them, all its processes together.
    pub(crate) counted: BTreeMap<String, Cost>,
    /// What each role has taken since it began, of a job that was cut short: no more is known of one without a counted step.
    pub(crate) whole: BTreeMap<String, Cost>,
}

/// What the processes of a role have taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Cost {
    /// Seconds in their own code.
    pub(crate) user: f64,
    /// Seconds in the system's.
    pub(crate) system: f64,
    /// The most that each had resident at a time, since it began.
    pub(crate) peak_bytes: u64,
}

/// Runs it.
///
/// # Errors
/// It failed by itself, values did not come out, it went back, or a process was started anew.
pub(crate) fn run(programs: &Programs, shape: &Shape, limit: Duration) -> anyhow::Result<Ran> {
    let folder = programs.folder()?;
    let [run, looks] = ["run", "looks"].map(|name| folder.path().join(name));
    let mut running = start(programs, shape, folder.path(), &run, &looks)?;
    let deadline = Instant::now() + limit;
    let cut_short = loop {
        let seen = read(&looks)?;
        if seen.len() as u64 > shape.steps {
            break None;
        }
        if let Some(status) = running.ended()? {
            bail!("{shape}: `shoal run` ended with {status}:\n{}", running.said());
        }
        if Instant::now() >= deadline {
            break Some(format!("over the limit of {} s", limit.as_secs()));
        }
        if available_bytes()? < LEFT_BYTES {
            break Some(format!("the machine had less than {} GiB of memory left", LEFT_BYTES >> 30));
        }
        pause(POLL);
    };
    let whole = if cut_short.is_some() { whole(&Look::at(0, &run)?.processes) } else { BTreeMap::new() };
    let started = joined(&run);
    drop(running);
    gone(&started)?;
    counted(&read(&looks)?, cut_short, whole)
}

fn start(
    programs: &Programs,
    shape: &Shape,
    folder: &Path,
    run: &Path,
    looks: &Path,
) -> anyhow::Result<Running> {
    let flags = [
        format!("--pservers={}", shape.pservers()),
        format!("--replicas={}", shape.followers),
        "--trainers=1".to_owned(),
        "--microbatches-per-step=1".to_owned(),
        "--checkpoint-seconds=0".to_owned(),
        format!("--record-hashes={}", shape.records),
        format!("--lease-ttl-millis={TTL_MILLIS}"),
    ];
    let told = Training { shape: *shape, run: run.to_owned(), looks: looks.to_owned() };
    // One step more than the program makes.
    programs.start(folder, WARM + shape.steps + 1, &flags, &serde_json::to_string(&told)?)
}

/// What the trainer has written down up to now. A line that is not whole yet is none.
fn read(looks: &Path) -> anyhow::Result<Vec<Look>> {
    let text = std::fs::read_to_string(looks).unwrap_or_default();
    let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    Ok(lines.map(serde_json::from_str).collect::<Result<_, _>>()?)
}

/// Waits until none of these is there any more.
fn gone(started: &[Joined]) -> anyhow::Result<()> {
    let deadline = Instant::now() + ENDING;
    while let Some(Joined { role, process }) =
        started.iter().find(|joined| processors(joined.process).is_some())
    {
        ensure!(Instant::now() < deadline, "{role} {process} of an ended job is still there: end it by hand");
        pause(POLL);
    }
    Ok(())
}

/// What was taken between the first look and the last.
fn counted(looks: &[Look], cut_short: Option<String>, whole: BTreeMap<String, Cost>) -> anyhow::Result<Ran> {
    let (Some(first), Some(last)) = (looks.first(), looks.last()) else {
        return Ok(Ran { cut_short, steps: 0, seconds: 0.0, counted: BTreeMap::new(), whole });
    };
    ensure!(
        looks.windows(2).all(|pair| pair[0].step + 1 == pair[1].step) && first.step == WARM,
        "the job went back: its steps were {:?}",
        looks.iter().map(|look| look.step).collect::<Vec<u64>>()
    );
    let is_same = |look: &Look| look.processes.keys().eq(first.processes.keys());
    ensure!(looks.iter().all(is_same), "a process was started while steps were counted");
    let mut counted: BTreeMap<String, Cost> = BTreeMap::new();
    for (before, after) in first.processes.values().zip(last.processes.values()) {
        let cost = counted.entry(after.role.clone()).or_default();
        cost.user += after.processors.user - before.processors.user;
        cost.system += after.processors.system - before.processors.system;
        cost.peak_bytes = cost.peak_bytes.max(after.peak_bytes);
    }
    let seconds = (last.wall_nanos - first.wall_nanos) as f64 / 1e9;
    Ok(Ran { cut_short, steps: last.step - first.step, seconds, counted, whole })
}

fn whole(processes: &BTreeMap<u32, Taken>) -> BTreeMap<String, Cost> {
    let mut whole: BTreeMap<String, Cost> = BTreeMap::new();
    for taken in processes.values() {
        let cost = whole.entry(taken.role.clone()).or_default();
        cost.user += taken.processors.user;
        cost.system += taken.processors.system;
        cost.peak_bytes = cost.peak_bytes.max(taken.peak_bytes);
    }
    whole
}

impl Ran {
    /// Whether all steps were made.
    pub(crate) fn is_whole(&self) -> bool {
        self.cut_short.is_none()
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ran { cut_short, steps, seconds, counted, whole } = self;
        if let Some(why) = cut_short {
            write!(f, "{why}, ")?;
        }
        write!(f, "{steps} steps counted, in {seconds:.1} s; user and system seconds")?;
        let roles = if *steps > 0 { counted } else { whole };
        for (role, Cost { user, system, .. }) in roles {
            write!(f, ", {role} {user:.2} and {system:.2}")?;
        }
        f.write_str(if *steps > 0 { "" } else { ", from the begin on" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Processors;

    fn look(step: u64, pservers: [(u32, f64); 2]) -> Look {
        let taken = |user| Taken {
            role: "pserver".to_owned(),
            processors: Processors { user, system: 2.0 * user },
            peak_bytes: user as u64,
        };
        let processes = pservers.map(|(process, user)| (process, taken(user))).into();
        Look { step, wall_nanos: step * 500_000_000, processes }
    }

    fn of(looks: &[Look]) -> anyhow::Result<Ran> {
        counted(looks, None, BTreeMap::new())
    }

    #[test]
    fn what_came_before_the_first_look_does_not_count_and_processes_of_a_role_count_together() {
        let ran = of(&[
            look(2, [(7, 3.0), (8, 1.0)]),
            look(3, [(7, 4.0), (8, 1.5)]),
            look(4, [(7, 5.0), (8, 2.0)]),
        ]);
        let ran = ran.unwrap();
        assert_eq!((ran.steps, ran.seconds), (2, 1.0));
        assert_eq!(ran.counted["pserver"], Cost { user: 3.0, system: 6.0, peak_bytes: 5 });
    }

    #[test]
    fn a_step_that_came_again_or_was_not_seen_and_a_process_that_was_started_anew_are_no_measurement() {
        let at = |step| look(step, [(7, 1.0), (8, 1.0)]);
        for wrong in [
            vec![at(3)],
            vec![at(2), at(4)],
            vec![at(2), at(3), at(3)],
            vec![at(2), look(3, [(7, 1.0), (9, 1.0)])],
        ] {
            assert!(of(&wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(of(&[]).unwrap().steps, 0);
    }
}
