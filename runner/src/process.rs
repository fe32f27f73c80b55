//! One process of a local run with all that it has started, in whatever group and session: its output is in a log file of bounded size, and
//! all of it is ended when this is dropped.

use crate::stops::{News, StopWatch};
use crate::upkeep::Silence;
use anyhow::Context;
use rustix::process::{Pid, Signal};
use shoal_job::Role;
use shoal_job::ends::End;
use shoal_runtime::host::files::NewFile;
use shoal_runtime::host::supervisor;
use std::cell::Cell;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::time::Instant;

/// How long a process that was asked to stop may take before it is killed.
const GRACE: Duration = Duration::from_secs(5);
/// How long a trainer that was told to leave may take to hand back its tasks before it is killed: as pods have.
const GRACE_TO_LEAVE: Duration = Duration::from_secs(30);
/// How long what was killed may take to be gone: what a driver or a file server holds cannot be ended.
const GRACE_TO_DIE: Duration = Duration::from_secs(10);
/// How often the processes of this machine are looked through for what has outlived the one that was started.
const LOOK: Duration = Duration::from_millis(100);
/// In the environment of all that belong to one process of the run; no two starts have one value.
const START: &str = "SHOAL_START";
/// A log that is longer goes on from its beginning; what it was is kept once, as `NAME.log.1`.
const LOG_BYTES_MAX: u64 = 64 << 20;
/// What is read of a log's end for an error message, in bytes and lines.
const LAST_WORDS_BYTES: u64 = 4096;
const LAST_WORDS_LINES: usize = 5;
/// What is read of it where all of an error is looked for, in bytes: a log may have 64 MiB, and its process may end often.
const WORDS_BYTES: u64 = 64 << 10;

/// A process that this one started, with those that it has started.
#[derive(Debug)]
pub struct Process {
    /// Such as `trainer-3`.
    pub name: String,
    /// What it does in the job.
    pub role: Role,
    /// The process that was started: a wrapper, perhaps. Its group has the same number.
    pub pid: u32,
    /// What it says.
    pub log: PathBuf,
    /// When it was started.
    pub started: Instant,
    /// Whether it was said that it takes long to join.
    pub is_missed: bool,
    /// How long nothing was heard of it.
    pub(crate) silence: Silence,
    stops: StopWatch,
    /// Whether this run itself has stopped it.
    is_held: Cell<bool>,
    /// How long the log was when this process was started: what comes after it has said.
    log_begins: u64,
    child: Child,
    /// What all of them have in their environment, as `NAME=VALUE`.
    mark: String,
    /// How the process that was started has ended; others may be there yet.
    leader: Option<End>,
    /// When it was last looked whether others are there.
    looked: Option<Instant>,
    /// Whether nothing is left of it.
    is_over: bool,
    told: Cell<Option<Instant>>,
    killed: Cell<Option<Instant>>,
    /// Whether the process that was started was.
    was_killed: Cell<bool>,
}

/// How many processes this one has started.
static STARTS: AtomicU64 = AtomicU64::new(0);

impl Process {
    /// Starts `program` under `name`, with its output at the end of `logs/NAME.log`.
    pub fn start(
        role: Role,
        name: &str,
        program: &[OsString],
        environment: &[(&str, String)],
        logs: &Path,
    ) -> anyhow::Result<Process> {
        let (executable, arguments) = program.split_first().context("no program to start")?;
        let log = logs.join(format!("{name}.log"));
        let log_begins = std::fs::metadata(&log).map_or(0, |log| log.len());
        let number = STARTS.fetch_add(1, Ordering::Relaxed);
        let supervisor = supervisor::Process::this().to_string();
        let start = format!("{supervisor}/{name}:{number}");
        let child = Command::new(executable)
            .args(arguments)
            // Those of this command: its processes are given their own, or none.
            .env_remove("SHOAL_TLS")
            .env_remove("SHOAL_PLAINTEXT")
            .envs(environment.iter().map(|(key, value)| (key, value)))
            .env("NO_COLOR", "1")
            // One address is not for several processes.
            .env_remove("SHOAL_HTTP")
            .env(supervisor::VARIABLE, supervisor)
            .env(START, &start)
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
            started: Instant::now(),
            is_missed: false,
            stops: StopWatch::default(),
            is_held: Cell::new(false),
            silence: Silence::default(),
            log_begins,
            child,
            mark: format!("{START}={start}"),
            leader: None,
            looked: None,
            is_over: false,
            told: Cell::new(None),
            killed: Cell::new(None),
            was_killed: Cell::new(false),
        })
    }

    /// How it ended, once nothing is left of it. What outlives the process that was started is killed: at once, or after its time to
    /// leave. What cannot be ended is left behind, and said.
    pub fn ended(&mut self) -> anyhow::Result<Option<End>> {
        self.ask_leader()?;
        if self.is_over {
            return Ok(self.leader);
        }
        if self.killed.get().is_some_and(|killed| killed.elapsed() >= GRACE_TO_DIE) {
            note!("warning: {} (process {}) cannot be ended: it is left behind", self.name, self.pid);
            self.leader.get_or_insert(End::Signalled(Signal::KILL.as_raw()));
            self.is_over = true;
        } else if self.leader.is_some() && self.looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
            self.looked = Some(Instant::now());
            self.is_over = self.all().is_empty();
            if !self.is_over && self.told.get().is_none_or(|told| told.elapsed() >= GRACE_TO_LEAVE) {
                self.tell(Signal::KILL);
            }
        }
        Ok(self.leader.filter(|_| self.is_over))
    }

    /// Whether the process that was started has ended, and how.
    fn ask_leader(&mut self) -> anyhow::Result<()> {
        use std::os::unix::process::ExitStatusExt;
        if self.leader.is_none() {
            let status = self.child.try_wait().with_context(|| format!("cannot ask after {}", self.name))?;
            self.leader = status.map(|status| match status.signal() {
                Some(signal) => End::Signalled(signal),
                None => End::Exited(status.code().unwrap_or(-1)),
            });
        }
        Ok(())
    }

    /// All that belong to it and live. Where the system does not list processes, its group stands for all.
    fn all(&self) -> Vec<supervisor::Process> {
        let group_stands = |_| {
            let group = Pid::from_raw(self.pid as i32);
            let is_there = group.is_some_and(|group| rustix::process::test_kill_process_group(group).is_ok());
            if is_there { vec![supervisor::Process::this()] } else { Vec::new() }
        };
        supervisor::Process::of_group_or_environment(self.pid, &self.mark).unwrap_or_else(group_stands)
    }

    /// Whether it is known to have ended.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// How it ended, if it is known to have.
    pub fn end(&self) -> Option<End> {
        self.leader.filter(|_| self.is_over)
    }

    /// Sends a signal to all that belong to it: to the group at once, then to those that are elsewhere.
    fn tell(&self, signal: Signal) {
        if self.is_over {
            return;
        }
        if signal == Signal::KILL {
            self.killed.set(self.killed.get().or_else(|| Some(Instant::now())));
        }
        if let Some(group) = Pid::from_raw(self.pid as i32) {
            // An error means that nobody is there any more.
            let _ = rustix::process::kill_process_group(group, signal);
        }
        let elsewhere = supervisor::Process::of_environment_elsewhere(self.pid, &self.mark);
        elsewhere.unwrap_or_default().into_iter().for_each(|process| process.signal(signal));
    }

    /// Whether it was told to leave.
    pub fn was_told(&self) -> bool {
        self.told.get().is_some()
    }

    /// Whether this program has killed it, and not what it left behind.
    pub fn was_killed(&self) -> bool {
        self.was_killed.get()
    }

    /// Sends a signal to all that belong to it. Those that are gone do not hear it, which is no error.
    pub fn signal(&self, signal: Signal) {
        if signal == Signal::STOP || signal == Signal::CONT {
            self.is_held.set(signal == Signal::STOP);
        }
        if self.leader.is_none() && signal == Signal::KILL {
            self.was_killed.set(true);
        }
        self.tell(signal);
    }

    /// Whether somebody else has stopped it, or lets it go on, where that has to be told.
    pub(crate) fn news_of_stops(&mut self) -> Option<News> {
        // What is ended goes on to die, and its number may be another's by now. Of what this run holds, the run itself tells.
        if self.leader.is_some() || self.killed.get().is_some() || self.is_held.get() {
            return None;
        }
        let pid = self.pid;
        self.stops.news(Instant::now(), || supervisor::is_stopped(pid))
    }

    /// Tells it to leave: a trainer hands back its tasks then.
    pub fn ask_to_leave(&self) {
        self.told.set(self.told.get().or_else(|| Some(Instant::now())));
        self.signal(Signal::TERM);
    }

    /// Ends it for what it does, or does not do: unlike one that [`signal`](Self::signal) kills, this end counts as any other.
    pub fn give_up(&self) {
        self.tell(Signal::KILL);
    }

    /// Whether it may be expected to be heard: this run neither holds it nor has killed it.
    pub(crate) fn may_be_heard(&self) -> bool {
        !self.is_held.get() && self.killed.get().is_none()
    }

    /// Kills it if it was told to leave long ago.
    pub fn kill_if_late(&self) {
        if self.told.get().is_some_and(|told| told.elapsed() >= GRACE_TO_LEAVE) {
            self.signal(Signal::KILL);
        }
    }

    /// Kills it and waits until it is gone.
    pub async fn kill(&mut self) {
        self.signal(Signal::KILL);
        while !matches!(self.ended(), Ok(Some(_)) | Err(_)) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Asks it to stop, and kills it if it does not.
    pub async fn stop(&mut self) {
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
    pub fn keep_log_short(&self) -> Option<impl FnOnce() + Send + 'static> {
        let bytes = std::fs::metadata(&self.log).map_or(0, |log| log.len());
        let log = self.log.clone();
        (bytes > LOG_BYTES_MAX).then_some(move || {
            let _ = keep(&log);
            // Whoever writes it appends.
            let _ = File::options().write(true).open(&log).and_then(|log| log.set_len(0));
        })
    }

    /// What it has said, or the end of that.
    pub fn words(&self) -> String {
        self.end_of_log(WORDS_BYTES)
    }

    /// The last lines that it has said, for an error message.
    pub fn last_words(&self) -> String {
        let text = self.end_of_log(LAST_WORDS_BYTES);
        let lines: Vec<&str> = text.lines().rev().take(LAST_WORDS_LINES).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    fn end_of_log(&self, bytes_max: u64) -> String {
        let text = tail(&self.log, self.log_begins, bytes_max).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
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

/// At most the last `bytes_max` bytes of a file, of those from `begin` on; of all of them where it has been cut since.
fn tail(file: &Path, begin: u64, bytes_max: u64) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(file)?;
    let bytes = file.metadata()?.len();
    let begin = if begin <= bytes { begin } else { 0 };
    file.seek(SeekFrom::Start(begin.max(bytes.saturating_sub(bytes_max))))?;
    let mut text = Vec::new();
    file.take(bytes_max).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_is_held_or_killed_is_not_expected_to_be_heard() {
        let folder = tempfile::tempdir().unwrap();
        let program = ["sleep", "60"].map(OsString::from);
        let mut process = Process::start(Role::Trainer, "trainer-0", &program, &[], folder.path()).unwrap();
        let heard = [Signal::STOP, Signal::CONT].map(|signal| {
            process.signal(signal);
            process.may_be_heard()
        });
        assert_eq!(heard, [false, true]);
        process.kill().await;
        assert!(!process.may_be_heard());
    }

    #[tokio::test]
    async fn of_a_log_however_long_only_the_end_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let script = "head -c 200000 /dev/zero | tr '\\0' x; echo; echo the reason why".to_owned();
        let program = ["sh".to_owned(), "-c".to_owned(), script].map(OsString::from);
        let mut process = Process::start(Role::Trainer, "trainer-0", &program, &[], folder.path()).unwrap();
        while process.ended().unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let words = process.words();
        assert!(
            words.len() as u64 == WORDS_BYTES && words.ends_with("x\nthe reason why\n"),
            "{}",
            words.len()
        );
        assert!(process.last_words().len() as u64 <= LAST_WORDS_BYTES);
        assert!(process.last_words().ends_with("the reason why"));
    }
}
