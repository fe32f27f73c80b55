//! PyTorch's fused Adam, in a process of its own that is asked for one size after another, in turn with ours.

use super::Arguments;
use anyhow::Context;
use serde::Deserialize;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/fused_adam.py");

/// What it says first.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Told {
    Version(String),
    Missing(String),
}

/// The process, if there is one.
pub(crate) struct Torch {
    told: Told,
    running: Option<Running>,
}

struct Running {
    process: Child,
    asking: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Torch {
    /// Starts it by the Python that is named. One that is not there is said to be missing.
    pub(crate) fn start(arguments: &Arguments) -> anyhow::Result<Torch> {
        let mut command = Command::new(&arguments.python);
        command.arg(PROGRAM).args([arguments.device.to_string(), arguments.rounds.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = match command.spawn() {
            Ok(process) => process,
            Err(error) => {
                let why = format!("{}: {error}", arguments.python.display());
                return Ok(Torch { told: Told::Missing(why), running: None });
            }
        };
        let asking = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().context("its answers cannot be read")?).lines();
        let mut running = Running { process, asking, answers };
        let told = serde_json::from_str(&running.heard()?)?;
        Ok(Torch { told, running: Some(running) })
    }

    /// What it is, or why it is not there.
    pub(crate) fn told(&self) -> String {
        match &self.told {
            Told::Version(version) => version.clone(),
            Told::Missing(why) => format!("no PyTorch ({why})"),
        }
    }

    /// What it reads and writes per second over a working set of so many bytes; none where it is not there.
    pub(crate) fn bytes_per_second(&mut self, bytes: u64) -> anyhow::Result<Option<f64>> {
        let (Told::Version(_), Some(running)) = (&self.told, &mut self.running) else { return Ok(None) };
        let asking = running.asking.as_mut().context("it was ended")?;
        writeln!(asking, "{bytes}")?;
        asking.flush()?;
        Ok(Some(serde_json::from_str(&running.heard()?)?))
    }
}

impl Running {
    fn heard(&mut self) -> anyhow::Result<String> {
        Ok(self.answers.next().with_context(|| format!("{PROGRAM} has ended: run it by hand"))??)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It ends when nobody asks any more.
        drop(self.asking.take());
        let _ = self.process.wait();
    }
}
