//! Whole jobs as a user runs them: `shoal run` with its master, one pserver and trainers, each a process of its own. A job whose
//! values did not come out, or that went back, is no measurement: it ends the bench.

use super::begins::Begins;
use super::load::Load;
use super::program::Training;
use super::watch::{Seen, Watch};
use crate::measure::pause;
use crate::programs::{Programs, Running};
use anyhow::{bail, ensure};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// How long a job may take beyond all its pauses.
const PATIENCE: Duration = Duration::from_secs(180);
const POLL: Duration = Duration::from_millis(20);

/// One job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) trainers: u32,
    pub(crate) steps: u32,
    pub(crate) load: Load,
    /// How many times as long one of the trainers takes.
    pub(crate) slowness: u32,
    /// The lease TTL; what a user has who says nothing where it is not given.
    pub(crate) ttl_millis: Option<u64>,
}

/// What came of one.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) begins: Begins,
    /// The closing object of `shoal run`.
    pub(crate) closing: Value,
    /// Where it was asked for.
    pub(crate) seen: Option<Seen>,
}

impl Programs {
    /// Runs a job to its end.
    pub(crate) fn run(&self, job: &Job) -> anyhow::Result<Ran> {
        self.run_beside(job, None)
    }

    /// The same, its processes looked at all the time, which takes a little of the machine.
    pub(crate) fn run_watched(&self, job: &Job) -> anyhow::Result<Ran> {
        self.run_beside(job, Some(Watch::new()?))
    }

    fn run_beside(&self, job: &Job, mut watch: Option<Watch>) -> anyhow::Result<Ran> {
        let folder = self.folder()?;
        let mut running = self.start_job(job, folder.path())?;
        let run = folder.path().join("run");
        let pauses =
            Duration::from_micros(job.load.micros) * job.load.microbatches * job.steps * job.slowness;
        let deadline = Instant::now() + PATIENCE + pauses;
        let status = loop {
            if let Some(status) = running.ended()? {
                break status;
            }
            ensure!(Instant::now() < deadline, "{job:?} has not ended; it said:\n{}", running.said());
            watch.iter_mut().for_each(|watch| watch.look(&run));
            pause(POLL);
        };
        if !status.success() {
            bail!("{job:?}: `shoal run` ended with {status}:\n{}", running.said());
        }
        let closing: Value = serde_json::from_str(&std::fs::read_to_string(run.join("result.json"))?)?;
        ensure!(
            closing["steps"] == job.steps && closing["rewinds"] == 0 && closing["short_steps"] == 0,
            "no undisturbed job of {} steps: {closing}",
            job.steps
        );
        let mut written = Vec::new();
        for file in std::fs::read_dir(folder.path().join("begins"))? {
            written.push(std::fs::read_to_string(file?.path())?);
        }
        let begins = Begins::read(job.steps, written.iter().map(String::as_str))?;
        Ok(Ran { begins, closing, seen: watch.map(Watch::seen).transpose()? })
    }

    fn start_job(&self, job: &Job, folder: &Path) -> anyhow::Result<Running> {
        let begins = folder.join("begins");
        std::fs::create_dir(&begins)?;
        let Job { load, steps, slowness, trainers, ttl_millis } = *job;
        let mut flags = vec![
            "--pservers=1".to_owned(),
            format!("--trainers={trainers}"),
            format!("--microbatches-per-step={}", load.microbatches),
            format!("--delay={}", load.delay),
        ];
        flags.extend(ttl_millis.map(|millis| format!("--lease-ttl-millis={millis}")));
        let told = serde_json::to_string(&Training { load, steps, slowness, begins })?;
        self.start(folder, u64::from(steps * load.microbatches), &flags, &told)
    }
}
