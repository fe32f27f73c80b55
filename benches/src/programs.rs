//! The programs of whole jobs: `shoal`, and this bench as their training program, as they were when the measurement began: whoever
//! builds meanwhile changes nothing. And a run of them, which must never outlive the bench.

use anyhow::{Context, ensure};
use serde::Deserialize;
use shoal_recordio::{Writer, WriterOptions};
use shoal_runtime::host::supervisor;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use tempfile::TempDir;

/// Copies of both programs.
#[derive(Debug)]
pub(crate) struct Programs {
    folder: TempDir,
    pub(crate) shoal: PathBuf,
    train: PathBuf,
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

    /// An empty folder for one job, which goes when it is dropped.
    pub(crate) fn folder(&self) -> anyhow::Result<TempDir> {
        Ok(tempfile::tempdir_in(self.folder.path())?)
    }

    /// `shoal run` with `flags` in `folder`, of so many records, each a microbatch; its run is in `run` there, and this program is
    /// its training program, which is told `--train TOLD`.
    pub(crate) fn start(
        &self,
        folder: &Path,
        records: u64,
        flags: &[String],
        told: &str,
    ) -> anyhow::Result<Running> {
        let (data, said) = (folder.join("data.recordio"), folder.join("said"));
        write_records(&data, records)?;
        let mut command = self.command("run", None);
        command.args(["--microbatch-records", "1", "-o", "json"]).args(flags);
        command.arg("--data").arg(&data).arg("--folder").arg(folder.join("run"));
        command.arg("--").arg(&self.train).args(["--train", told]);
        command.current_dir(folder);
        Running::new(command, said)
    }

    /// `shoal` with a subcommand, on the first so many processors if that is said; it ends with this process.
    pub(crate) fn command(&self, subcommand: &str, cores: Option<u32>) -> Command {
        // It becomes the program, and keeps its number.
        let mut command = Command::new(if cores.is_some() { Path::new("taskset") } else { &self.shoal });
        if let Some(cores) = cores {
            command.arg("--cpu-list").arg(format!("0-{}", cores.saturating_sub(1))).arg(&self.shoal);
        }
        // Of whoever runs the bench: they would be other jobs.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SHOAL_"))
        {
            command.env_remove(name);
        }
        command.arg(subcommand).env(supervisor::VARIABLE, supervisor::Process::this().to_string());
        command
    }
}

/// A process that does not outlive this; those that it has started end with it.
#[derive(Debug)]
pub(crate) struct Running {
    process: Child,
    said: PathBuf,
}

impl Running {
    /// Starts it; what it says goes into the file `said`.
    pub(crate) fn new(mut command: Command, said: PathBuf) -> anyhow::Result<Running> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&said)?);
        let program = command.get_program().display().to_string();
        Ok(Running { process: command.spawn().with_context(|| format!("cannot start {program}"))?, said })
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// How it ended; `None` while it runs.
    pub(crate) fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        Ok(self.process.try_wait()?)
    }

    /// The last of what it said.
    pub(crate) fn said(&self) -> String {
        let said = std::fs::read(&self.said).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let lines: Vec<&str> = said.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A file of so many; what is in them is nobody's business.
pub(crate) fn write_records(path: &Path, records: u64) -> anyhow::Result<()> {
    let mut writer = Writer::new(File::create(path)?, WriterOptions::default());
    for record in 0..records {
        writer.write(&(record as u32).to_le_bytes())?;
    }
    writer.finish()?;
    Ok(())
}

/// A process that a run has started.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Joined {
    /// `master`, `pserver` or `trainer`.
    pub(crate) role: String,
    /// Its number.
    pub(crate) process: u32,
}

/// The processes that the run in this folder has started up to now, by its journal.
pub(crate) fn joined(run: &Path) -> Vec<Joined> {
    joined_in(&std::fs::read_to_string(run.join("journal.jsonl")).unwrap_or_default())
}

fn joined_in(journal: &str) -> Vec<Joined> {
    /// A line of a run's journal, as far as it matters here.
    #[derive(Deserialize)]
    struct Line {
        entry: String,
        #[serde(default)]
        role: String,
        #[serde(default)]
        process: u32,
    }
    let lines = journal.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
    let joined = lines.filter(|line| line.entry == "joined");
    joined.map(|Line { role, process, .. }| Joined { role, process }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_names_the_processes_that_were_started_and_a_line_that_is_half_written_is_none() {
        let journal = "{\"entry\":\"begun\",\"job\":\"a\"}\n\
                       {\"entry\":\"joined\",\"at\":0.1,\"role\":\"master\",\"name\":\"master\",\"process\":7}\n\
                       {\"entry\":\"ended\",\"at\":0.2,\"process\":7,\"end\":\"killed\"}\n\
                       {\"entry\":\"joined\",\"at\":0.1,\"role\":\"pserver\",\"na";
        assert_eq!(joined_in(journal), [Joined { role: "master".to_owned(), process: 7 }]);
    }
}
