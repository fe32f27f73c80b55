//! One process of a local run: started in a group of its own, its output in a log file, ended when dropped.

use super::upkeep;
use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use shoal_runtime::host::supervisor;
use std::cell::Cell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};

/// How long a process that was asked to stop may take before it is killed.
const GRACE: Duration = Duration::from_secs(5);

/// A process that this one started.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) pid: u32,
    pub(crate) log: PathBuf,
    child: Child,
    end: Option<End>,
    /// Whether this program has ended it.
    was_killed: Cell<bool>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// With this exit code.
    Exited(i32),
    /// By this signal.
    Signalled(i32),
}

impl Process {
    /// Starts `program` under `name`, with its output in `logs/NAME.log`.
    pub(crate) fn start(
        name: &str,
        program: &[OsString],
        environment: &[(&str, String)],
        logs: &Path,
    ) -> anyhow::Result<Process> {
        let (executable, arguments) = program.split_first().context("no program to start")?;
        let log = logs.join(format!("{name}.log"));
        let output = std::fs::File::options().create(true).append(true).open(&log);
        let output = output.with_context(|| format!("cannot write {}", log.display()))?;
        let child = Command::new(executable)
            .args(arguments)
            // Those of this command: its processes are given their own, or none.
            .env_remove("SHOAL_TLS")
            .env_remove("SHOAL_PLAINTEXT")
            .envs(environment.iter().map(|(key, value)| (key, value)))
            .env("NO_COLOR", "1")
            // One address is not for several processes.
            .env_remove("SHOAL_HTTP")
            .env(supervisor::VARIABLE, supervisor::Process::this().to_string())
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            // A Ctrl-C in the terminal reaches the supervisor alone, which then stops the rest in order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", Path::new(executable).display()))?;
        let pid = child.id().context("the process ended at once")?;
        Ok(Process { name: name.to_owned(), pid, log, child, end: None, was_killed: Cell::new(false) })
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> anyhow::Result<Option<End>> {
        use std::os::unix::process::ExitStatusExt;
        let status = self.child.try_wait().with_context(|| format!("cannot ask after {}", self.name))?;
        self.end = status.map(|status| match status.signal() {
            Some(signal) => End::Signalled(signal),
            None => End::Exited(status.code().unwrap_or(-1)),
        });
        Ok(self.end)
    }

    /// Whether it is known to have ended by a signal.
    pub(crate) fn was_signalled(&self) -> bool {
        matches!(self.end, Some(End::Signalled(_)))
    }

    /// Why it ended by a signal that this program did not send, as far as that can be told.
    pub(crate) fn reason(&self) -> Option<String> {
        self.end.filter(|_| !self.was_killed.get()).and_then(|end| upkeep::reason(end, &self.last_words()))
    }

    /// How it ended, for people.
    pub(crate) fn how(&self) -> String {
        match self.end {
            None => "still running".to_owned(),
            Some(End::Exited(code)) => format!("exit code {code}"),
            Some(End::Signalled(signal)) => format!("signal {signal}"),
        }
    }

    /// Sends a signal. A process that is gone does not hear it, which is no error.
    pub(crate) fn signal(&self, signal: Signal) {
        if let (Some(_), Some(pid)) = (self.child.id(), Pid::from_raw(self.pid as i32)) {
            self.was_killed.set(self.was_killed.get() || signal == Signal::KILL || signal == Signal::TERM);
            let _ = kill_process(pid, signal);
        }
    }

    /// Kills it and waits until it is gone.
    pub(crate) async fn kill(&mut self) {
        self.was_killed.set(true);
        // An error means that it is gone already.
        let _ = self.child.kill().await;
    }

    /// Asks it to stop, and kills it if it does not.
    pub(crate) async fn stop(&mut self) {
        self.signal(Signal::CONT);
        self.signal(Signal::TERM);
        if tokio::time::timeout(GRACE, self.child.wait()).await.is_err() {
            self.kill().await;
        }
    }

    /// The last lines of its log, for an error message.
    pub(crate) fn last_words(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}
