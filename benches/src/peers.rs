//! Other parameter servers, asked for rounds in turn with ours: a process that serves them line by line. It must never pass
//! off a peer that is not there as one that was measured.

use crate::measure::Took;
use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Where the programs are that serve them.
const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers");

/// What became of a peer's start.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Told {
    /// It is there, and which it is.
    Version(String),
    /// It is not, and why.
    Missing(String),
}

/// The process and what it told.
#[derive(Debug)]
pub struct Peers {
    program: PathBuf,
    process: Child,
    asking: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStdout>>,
    /// Of every peer.
    pub told: BTreeMap<String, Told>,
}

impl Peers {
    /// Starts those that `program` serves by a Python that has what they need, with ElasticDL's unpacked wheel.
    ///
    /// # Errors
    /// There is no such Python, or the program ends.
    pub fn start(
        program: &str,
        python: &Path,
        wheel: Option<&Path>,
        arguments: &[(&str, String)],
    ) -> anyhow::Result<Peers> {
        let flags = arguments.iter().flat_map(|(flag, value)| [(*flag).to_owned(), value.clone()]);
        let program = Path::new(PROGRAMS).join(program);
        let wheel = wheel.into_iter().flat_map(|wheel| [Path::new("--wheel"), wheel]);
        let mut process = Command::new(python)
            .arg(&program)
            .args(wheel)
            .args(flags)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("starting {}", python.display()))?;
        let asking = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().context("its answers cannot be read")?).lines();
        let mut peers = Peers { program, process, asking, answers, told: BTreeMap::new() };
        peers.told = serde_json::from_str(&peers.heard()?)?;
        Ok(peers)
    }

    fn heard(&mut self) -> anyhow::Result<String> {
        let line = self
            .answers
            .next()
            .with_context(|| format!("{} has ended: run it by hand", self.program.display()))?;
        Ok(line?)
    }

    /// Those that are there.
    pub fn names(&self) -> Vec<String> {
        let there = self.told.iter().filter(|(_, told)| matches!(told, Told::Version(_)));
        there.map(|(name, _)| name.clone()).collect()
    }

    /// What those that are there call themselves.
    pub fn versions(&self) -> Vec<String> {
        let versions = self.told.values().filter_map(|told| match told {
            Told::Version(version) => Some(version.clone()),
            Told::Missing(_) => None,
        });
        versions.collect()
    }

    /// What one pull, push or scan of a peer took in the mean, by its own clocks.
    ///
    /// # Errors
    /// The process has ended.
    pub fn took(&mut self, name: &str, what: &str, times: u32) -> anyhow::Result<Took> {
        let asking = self.asking.as_mut().context("it was ended")?;
        writeln!(asking, "{name} {what} {times}")?;
        asking.flush()?;
        let took: Took = serde_json::from_str(&self.heard()?)?;
        ensure!(took.seconds > 0.0, "{name} says that a {what} takes no time");
        Ok(took)
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        // It ends, and its processes with it, when nobody asks any more.
        drop(self.asking.take());
        let _ = self.process.wait();
    }
}
