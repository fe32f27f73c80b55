//! One process of a local run, and whatever it starts: a process group, its output in a log file of bounded size, ended when dropped.

use super::ends::End;
use super::roles::Role;
use anyhow::Context;
use rustix::process::{Pid, Signal, WaitOptions};
use shoal_runtime::host::files::NewFile;
use shoal_runtime::host::supervisor;
use std::cell::Cell;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::time::Instant;

/// How long a process that was asked to stop may take before it is killed.
const GRACE: Duration = Duration::from_secs(5);
/// How long a trainer that was told to leave may take to hand back its tasks before it is killed: as pods have.
const GRACE_TO_LEAVE: Duration = Duration::from_secs(30);
/// A log that is longer goes on from its beginning; what it was is kept once, as `NAME.log.1`.
const LOG_BYTES_MAX: u64 = 64 << 20;
/// What may be read of a log's end for an error message, in bytes and lines.
const LAST_WORDS_BYTES: u64 = 4096;
const LAST_WORDS_LINES: usize = 5;

/// A process that this one started, with those that it has started and that are in its group.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) role: Role,
    /// The process that was started: a wrapper, perhaps. The group has its number.
    pub(crate) pid: u32,
    pub(crate) log: PathBuf,
    child: Child,
    /// How the process that was started has ended, and when; others of its group may be there yet.
    leader: Option<(End, Instant)>,
    /// Whether nothing is left of the group.
    is_over: bool,
    /// When it was told to leave.
    told: Cell<Option<Instant>>,
    was_killed: Cell<bool>,
}

impl Process {
    /// Starts `program` under `name`, with its output at the end of `logs/NAME.log`.
    pub(crate) fn start(
        role: Role,
        name: &str,
        program: &[OsString],
        environment: &[(&str, String)],
        logs: &Path,
    ) -> anyhow::Result<Process> {
        let (executable, arguments) = program.split_first().context("no program to start")?;
        let log = logs.join(format!("{name}.log"));
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
            .stdout(output(&log))
            .stderr(output(&log))
            // A Ctrl-C in the terminal reaches the supervisor alone, which then stops the rest in order.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", Path::new(executable).display()))?;
        let pid = child.id().context("the process ended at once")?;
        Ok(Process {
            name: name.to_owned(),
            role,
            pid,
            log,
            child,
            leader: None,
            is_over: false,
            told: Cell::new(None),
            was_killed: Cell::new(false),
        })
    }

    /// How it ended, once nothing is left of its group. Whatever outlives the process that was started is killed: at once, or
    /// after its time to leave.
    pub(crate) fn ended(&mut self) -> anyhow::Result<Option<End>> {
        use std::os::unix::process::ExitStatusExt;
        if self.leader.is_none() {
            let status = self.child.try_wait().with_context(|| format!("cannot ask after {}", self.name))?;
            self.leader = status.map(|status| {
                let code = || End::Exited(status.code().unwrap_or(-1));
                (status.signal().map_or_else(code, End::Signalled), Instant::now())
            });
        }
        let Some((end, at)) = self.leader else { return Ok(None) };
        if !self.is_over {
            let patience = if self.told.get().is_some() { GRACE } else { Duration::ZERO };
            if at.elapsed() >= patience {
                self.tell(Signal::KILL);
            }
            self.is_over = self.is_group_gone();
        }
        Ok(Some(end).filter(|_| self.is_over))
    }

    /// Whether it is known to have ended.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// How it ended, if it is known to have.
    pub(crate) fn end(&self) -> Option<End> {
        self.leader.filter(|_| self.is_over).map(|(end, _)| end)
    }

    /// Asks after every process of the group whose parent has ended: they are this one's children then. That of the process that
    /// was started was asked before.
    fn is_group_gone(&self) -> bool {
        let Some(group) = self.group() else { return true };
        while let Ok(Some(_)) = rustix::process::waitpgid(group, WaitOptions::NOHANG) {}
        rustix::process::test_kill_process_group(group).is_err()
    }

    fn group(&self) -> Option<Pid> {
        Pid::from_raw(self.pid as i32)
    }

    fn tell(&self, signal: Signal) {
        if let Some(group) = self.group().filter(|_| !self.is_over) {
            // An error means that nobody is there any more.
            let _ = rustix::process::kill_process_group(group, signal);
        }
    }

    /// Whether it was told to leave.
    pub(crate) fn was_told(&self) -> bool {
        self.told.get().is_some()
    }

    /// Whether this program has killed it.
    pub(crate) fn was_killed(&self) -> bool {
        self.was_killed.get()
    }

    /// Sends a signal to its group. One that is gone does not hear it, which is no error.
    pub(crate) fn signal(&self, signal: Signal) {
        if self.leader.is_none() && signal == Signal::KILL {
            self.was_killed.set(true);
        }
        self.tell(signal);
    }

    /// Tells it to leave: a trainer hands back its tasks then.
    pub(crate) fn ask_to_leave(&self) {
        self.told.set(self.told.get().or_else(|| Some(Instant::now())));
        self.signal(Signal::TERM);
    }

    /// Kills it if it was told to leave long ago.
    pub(crate) fn kill_if_late(&self) {
        if self.told.get().is_some_and(|told| told.elapsed() >= GRACE_TO_LEAVE) {
            self.signal(Signal::KILL);
        }
    }

    /// Kills it and waits until it is gone.
    pub(crate) async fn kill(&mut self) {
        self.signal(Signal::KILL);
        while !matches!(self.ended(), Ok(Some(_)) | Err(_)) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Asks it to stop, and kills it if it does not.
    pub(crate) async fn stop(&mut self) {
        self.signal(Signal::CONT);
        self.ask_to_leave();
        let ended = async {
            while !matches!(self.ended(), Ok(Some(_)) | Err(_)) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(GRACE, ended).await.is_err() {
            self.kill().await;
        }
    }

    /// Keeps the log within its bounds. What is written between copying and cutting is lost; on a disk that is full all of it is.
    pub(crate) fn keep_log_short(&self) -> Option<impl FnOnce() + Send + 'static> {
        let bytes = std::fs::metadata(&self.log).map_or(0, |log| log.len());
        let log = self.log.clone();
        (bytes > LOG_BYTES_MAX).then_some(move || {
            let _ = keep(&log);
            // Whoever writes it appends.
            let _ = File::options().write(true).open(&log).and_then(|log| log.set_len(0));
        })
    }

    /// The last lines of its log, for an error message.
    pub(crate) fn last_words(&self) -> String {
        let text = tail(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().rev().take(LAST_WORDS_LINES).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.tell(Signal::KILL);
    }
}

/// The end of a log; nothing where that cannot be written, which ends no run.
fn output(log: &Path) -> Stdio {
    match File::options().create(true).append(true).open(log) {
        Ok(log) => log.into(),
        Err(error) => {
            note!("warning: {} cannot be written, and what belongs there is lost: {error}", log.display());
            Stdio::null()
        }
    }
}

/// Puts what a log holds beside it.
fn keep(log: &Path) -> anyhow::Result<()> {
    let mut kept = NewFile::begin(&log.with_extension("log.1"))?;
    std::io::copy(&mut File::open(log)?, &mut kept)?;
    kept.settle()?;
    Ok(())
}

/// The last bytes of a file.
fn tail(file: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(file)?;
    let bytes = file.metadata()?.len();
    file.seek(SeekFrom::Start(bytes.saturating_sub(LAST_WORDS_BYTES)))?;
    let mut text = Vec::new();
    file.take(LAST_WORDS_BYTES).read_to_end(&mut text)?;
    Ok(text)
}
