//! A small job of counted lines, for tests of everything around training: what starts it, what it prints to, what ends it.

use crate::processes::{Programs, closing, programs};
use anyhow::{Context, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A folder with data, in which runs take place; their programs find the example `count` as `$COUNT`.
#[derive(Debug)]
pub struct SmallJob {
    /// The programs under test.
    pub programs: Programs,
    folder: TempDir,
}

impl SmallJob {
    /// Packs so many records.
    ///
    /// # Errors
    /// Programs that do not build, a folder that cannot be made.
    pub fn of(records: usize) -> anyhow::Result<SmallJob> {
        let (programs, folder) = (programs()?, tempfile::tempdir()?);
        let lines: String = (0..records).map(|line| format!("line {line}\n")).collect();
        std::fs::write(folder.path().join("lines"), lines)?;
        let pack = ["recordio", "pack", "lines", "lines", "--output", "part.recordio"];
        let packed = Command::new(&programs.shoal).current_dir(folder.path()).args(pack).output()?;
        ensure!(packed.status.success(), "{}", String::from_utf8_lossy(&packed.stderr));
        Ok(SmallJob { programs, folder })
    }

    /// A file in its folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Any command, in its folder.
    pub fn shoal(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.programs.shoal);
        command.current_dir(self.folder.path()).args(words).stdin(Stdio::null());
        command.env("COUNT", &self.programs.count);
        command
    }

    /// `shoal run` in the folder `run`, of a program and its arguments.
    pub fn run(&self, run: &str, flags: &[&str], program: &[&str]) -> Command {
        let job = ["run", "--data", "part.recordio", "--microbatches-per-step", "4", "--folder", run];
        let mut command = self.shoal(&job);
        command.args(flags).arg("--").args(program);
        command
    }

    /// The example by itself.
    pub fn count(&self) -> &str {
        self.programs.count.to_str().unwrap_or_default()
    }

    /// The hash of an undisturbed run.
    ///
    /// # Errors
    /// It failed.
    pub fn undisturbed(&self) -> anyhow::Result<String> {
        hash_of(&closing(&self.run("undisturbed", &["-o", "json"], &[self.count()]).output()?)?)
    }

    /// The hash that a run in that folder has left in its closing object.
    ///
    /// # Errors
    /// There is none.
    pub fn hash(&self, run: &str) -> anyhow::Result<String> {
        let result = std::fs::read_to_string(self.path(run).join("result.json"));
        hash_of(&serde_json::from_str(&result.context("the run has no closing object")?)?)
    }

    /// The names of a run's logs, sorted.
    pub fn logs(&self, run: &str) -> Vec<String> {
        names(&self.path(run).join("logs"))
    }
}

fn hash_of(closing: &serde_json::Value) -> anyhow::Result<String> {
    Ok(closing["parameters_sha256"].as_str().context("no hash")?.to_owned())
}

fn names(folder: &Path) -> Vec<String> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = files.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
