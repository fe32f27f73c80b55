//! Whole jobs as a user runs them: `shoal run` with its master, one pserver and trainers, each a process of its own. A job whose
//! values did not come out, or that went back, is no measurement: it ends the bench.

use super::begins::Begins;
use super::load::Load;
use super::program::Training;
use super::watch::{Seen, Watch};
use anyhow::{Context, bail, ensure};
use serde_json::Value;
use shoal_recordio::{Writer, WriterOptions};
use shoal_runtime::host::supervisor;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::Instant;

/// How long a job may take beyond all its pauses.
const PATIENCE: Duration = Duration::from_secs(180);
const POLL: Duration = Duration::from_millis(20);

/// The programs, as they were when the measurement began: whoever builds meanwhile changes nothing.
#[derive(Debug)]
pub(crate) struct Programs {
    folder: TempDir,
    shoal: PathBuf,
    train: PathBuf,
}

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
    /// Builds `shoal` in this build's own profile, and keeps a copy of it and of this program.
    pub(crate) fn build() -> anyhow::Result<Programs> {
        let folder = tempfile::tempdir()?;
        let [shoal, train] = ["shoal", "train"].map(|name| folder.path().join(name));
        // This very program, whatever has taken its place since it was started.
        std::fs::copy("/proc/self/exe", &train).context("copying this program")?;
        let own = std::env::current_exe()?;
        let built = own.parent().context("this program lies in no folder")?;
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--quiet", "--package", "shoal-cli", "--bin", "shoal"]);
        cargo.args(built.ends_with("release").then_some("--release"));
        // What cargo tells this program of its package would have some of the dependencies built anew.
        let of_package = |name: &str| ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|of| name.starts_with(of));
        for (name, _) in std::env::vars_os().filter(|(name, _)| of_package(&name.to_string_lossy())) {
            cargo.env_remove(name);
        }
        let target = built.parent().context("this program was not built by cargo")?;
        let cargo = cargo.env("CARGO_TARGET_DIR", target).current_dir(env!("CARGO_MANIFEST_DIR"));
        ensure!(cargo.status().context("cannot start cargo")?.success(), "`shoal` does not build");
        let from = built.join("shoal");
        std::fs::copy(&from, &shoal).with_context(|| format!("copying {}", from.display()))?;
        Ok(Programs { folder, shoal, train })
    }

    /// Runs a job to its end.
    pub(crate) fn run(&self, job: &Job) -> anyhow::Result<Ran> {
        self.run_beside(job, None)
    }

    /// The same, its processes looked at all the time, which takes a little of the machine.
    pub(crate) fn run_watched(&self, job: &Job) -> anyhow::Result<Ran> {
        self.run_beside(job, Some(Watch::new()?))
    }

    fn run_beside(&self, job: &Job, mut watch: Option<Watch>) -> anyhow::Result<Ran> {
        let folder = tempfile::tempdir_in(self.folder.path())?;
        let said = folder.path().join("said");
        let mut running = Running(self.command(job, folder.path())?.stderr(File::create(&said)?).spawn()?);
        let run = folder.path().join("run");
        let pauses =
            Duration::from_micros(job.load.micros) * job.load.microbatches * job.steps * job.slowness;
        let deadline = Instant::now() + PATIENCE + pauses;
        let status = loop {
            if let Some(status) = running.0.try_wait()? {
                break status;
            }
            ensure!(Instant::now() < deadline, "{job:?} has not ended; it said:\n{}", end_of(&said));
            watch.iter_mut().for_each(|watch| watch.look(&run));
            super::program::pause(POLL);
        };
        if !status.success() {
            bail!("{job:?}: `shoal run` ended with {status}:\n{}", end_of(&said));
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

    fn command(&self, job: &Job, folder: &Path) -> anyhow::Result<Command> {
        let (data, begins) = (folder.join("data.recordio"), folder.join("begins"));
        std::fs::create_dir(&begins)?;
        write_records(&data, job.steps * job.load.microbatches)?;
        let Job { load, steps, slowness, .. } = *job;
        let mut command = Command::new(&self.shoal);
        // Of whoever runs the bench: they would be other jobs.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SHOAL_"))
        {
            command.env_remove(name);
        }
        command.args(["run", "--pservers", "1", "--microbatch-records", "1", "-o", "json"]);
        command.args(["--trainers", &job.trainers.to_string()]);
        command.args(["--microbatches-per-step", &load.microbatches.to_string()]);
        command.args(["--delay", &load.delay.to_string()]);
        if let Some(millis) = job.ttl_millis {
            command.args(["--lease-ttl-millis", &millis.to_string()]);
        }
        command.arg("--data").arg(&data).arg("--folder").arg(folder.join("run"));
        let told = serde_json::to_string(&Training { load, steps, slowness, begins })?;
        command.arg("--").arg(&self.train).args(["--train", &told]);
        command.current_dir(folder).env(supervisor::VARIABLE, supervisor::Process::this().to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Ok(command)
    }
}

/// A `shoal run` that does not outlive this; its processes end with it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// As many as there are microbatches; what is in them is nobody's business.
fn write_records(path: &Path, records: u32) -> anyhow::Result<()> {
    let mut writer = Writer::new(File::create(path)?, WriterOptions::default());
    for record in 0..records {
        writer.write(&record.to_le_bytes())?;
    }
    writer.finish()?;
    Ok(())
}

/// The last of what a command said.
fn end_of(said: &Path) -> String {
    let said = std::fs::read(said).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let lines: Vec<&str> = said.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
