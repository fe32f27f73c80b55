//! The process that looks after this one: `SHOAL_SUPERVISOR` names it. Whoever it started ends when it is gone, however many shells,
//! profilers and timers stand between, and whoever has taken them over as a child. All that it started, and what those have, can be
//! found by that name.

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use std::fmt;
use std::io;
use std::str::FromStr;
use std::time::Duration;

/// Where it is named.
pub const VARIABLE: &str = "SHOAL_SUPERVISOR";

/// How often it is looked for.
const LOOK: Duration = Duration::from_secs(1);

/// One process of all that this machine has had since it was booted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    pid: u32,
    /// When it began, in ticks since the boot: a number that is given again has another. Absent where the system does not say.
    began: Option<u64>,
}

impl Process {
    /// This one.
    pub fn this() -> Process {
        let pid = std::process::id();
        Process { pid, began: stat(pid).ok().map(|stat| stat.began) }
    }

    /// That which looks after this one; none where none is named, or in words that are no name.
    pub fn supervisor() -> Option<Process> {
        std::env::var(VARIABLE).ok()?.parse().ok()
    }

    /// Whether it is there. What has ended and was not asked after by its parent is not. Where the system cannot say at the moment,
    /// as when this process has no file left to open, it is taken to be there.
    pub fn lives(self) -> bool {
        match (stat(self.pid), self.began) {
            (Ok(stat), Some(began)) => stat.lives && stat.began == began,
            (Ok(stat), None) => stat.lives,
            // Nobody else can be asked: then it is whose child this one is.
            (Err(_), None) => std::os::unix::process::parent_id() == self.pid,
            (Err(error), Some(_)) => !is_absence(&error),
        }
    }

    /// The processes that have this one for a supervisor, in the order of their numbers: whoever has its name in the environment that
    /// it began with. Those of other users are not seen.
    ///
    /// # Errors
    /// The system does not say which processes there are.
    pub fn started(self) -> io::Result<Vec<Process>> {
        let name = format!("{VARIABLE}={self}");
        living(|pid, _| is_in_environment(pid, &name))
    }

    /// The processes of a group, and all others that have `variable`, as `NAME=VALUE`, in the environment that they began with: in
    /// whatever group and session a launcher has put them.
    ///
    /// # Errors
    /// As [`started`](Self::started).
    pub fn of_group_or_environment(group: u32, variable: &str) -> io::Result<Vec<Process>> {
        living(|pid, stat| stat.group == group || is_in_environment(pid, variable))
    }

    /// The same but for those of the group.
    ///
    /// # Errors
    /// As [`started`](Self::started).
    pub fn of_environment_elsewhere(group: u32, variable: &str) -> io::Result<Vec<Process>> {
        living(|pid, stat| stat.group != group && is_in_environment(pid, variable))
    }

    /// Sends it a signal. One that is gone does not hear it, which is no error.
    pub fn signal(self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.pid as i32).filter(|_| self.lives()) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Resolves once it is gone, within about a second. Must be called inside a tokio runtime.
    pub async fn ended(self) {
        while self.lives() {
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// What the system says of a process.
struct Stat {
    lives: bool,
    is_stopped: bool,
    group: u32,
    began: u64,
}

/// See proc(5).
fn stat(pid: u32) -> io::Result<Stat> {
    // A name may have any bytes, and is cut within a letter.
    let text = std::fs::read(format!("/proc/{pid}/stat"))?;
    parsed(&String::from_utf8_lossy(&text))
        .ok_or_else(|| io::Error::other("/proc/PID/stat in words that are not known"))
}

fn parsed(text: &str) -> Option<Stat> {
    // Its name is in parentheses, and may have some, and spaces.
    let (_, after) = text.rsplit_once(") ")?;
    let mut fields = after.split(' ');
    let state = fields.next()?;
    let group = fields.nth(1)?.parse().ok()?;
    let began = fields.nth(16)?.parse().ok()?;
    let lives = !matches!(state, "Z" | "X" | "x");
    Some(Stat { lives, is_stopped: state == "T", group, began })
}

/// Whether a process is stopped by a signal. One that the system does not tell of is not.
pub fn is_stopped(pid: u32) -> bool {
    stat(pid).is_ok_and(|stat| stat.is_stopped)
}

/// Whether an error says that there is no such process.
fn is_absence(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(Errno::SRCH.raw_os_error())
}

/// The processes of this machine that live and are meant, in the order of their numbers.
fn living(is_meant: impl Fn(u32, &Stat) -> bool) -> io::Result<Vec<Process>> {
    let names = std::fs::read_dir("/proc")?.flatten().map(|entry| entry.file_name());
    let mut pids: Vec<u32> = names.filter_map(|name| name.to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    let mut meant = Vec::new();
    for pid in pids {
        match stat(pid) {
            Ok(stat) if stat.lives && is_meant(pid, &stat) => {
                meant.push(Process { pid, began: Some(stat.began) });
            }
            // One that cannot be looked at now might be meant.
            Err(error) if !is_absence(&error) => return Err(error),
            _ => {}
        }
    }
    Ok(meant)
}

fn is_in_environment(pid: u32, variable: &str) -> bool {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|one| one == variable.as_bytes())
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.began {
            Some(began) => write!(f, "{}:{began}", self.pid),
            None => write!(f, "{}", self.pid),
        }
    }
}

impl FromStr for Process {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Process, Self::Err> {
        let (pid, began) = text.split_once(':').map_or((text, None), |(pid, began)| (pid, Some(began)));
        Ok(Process { pid: pid.parse()?, began: began.map(str::parse).transpose()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    fn sleeper() -> (Child, Process) {
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = child.id();
        (child, Process { pid, began: Some(stat(pid).unwrap().began) })
    }

    #[test]
    fn a_name_is_read_as_it_is_written() {
        let this = Process::this();
        assert!(this.began.is_some() && this.lives());
        for named in [this, Process { began: None, ..this }] {
            assert_eq!(named.to_string().parse(), Ok(named));
        }
        for wrong in ["", "1:", ":1", "one", "1:2:3", "-1"] {
            assert!(wrong.parse::<Process>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn another_process_of_the_same_number_is_not_the_one() {
        let this = Process::this();
        assert!(!Process { began: this.began.map(|began| began + 1), ..this }.lives());
    }

    #[tokio::test]
    async fn what_it_started_is_found_whoever_s_child_that_is() {
        let this = Process { began: Some(7), ..Process::this() };
        // A shell that does not wait, a session of its own: nobody's child and nobody's group.
        let script = "setsid sleep 600 & sleep 600; true";
        let mut shell =
            Command::new("sh").args(["-c", script]).env(VARIABLE, this.to_string()).spawn().unwrap();
        let patience = Duration::from_secs(20);
        let counted = |wanted: usize| async move {
            while this.started().unwrap().len() != wanted {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(patience, counted(3)).await.unwrap();
        let variable = format!("{VARIABLE}={this}");
        let found = Process::of_group_or_environment(std::process::id(), &variable).unwrap();
        assert!(this.started().unwrap().iter().all(|one| found.contains(one)));
        for process in this.started().unwrap() {
            process.signal(Signal::KILL);
        }
        shell.wait().unwrap();
        tokio::time::timeout(patience, counted(0)).await.unwrap();
    }

    #[test]
    fn what_the_system_does_not_tell_is_no_end() {
        assert!(is_absence(&io::ErrorKind::NotFound.into()));
        assert!(is_absence(&io::Error::from_raw_os_error(3)), "ESRCH: it ended while it was read");
        assert!(!is_absence(&io::Error::from_raw_os_error(24)), "EMFILE: no file can be opened");
        assert!(parsed("7 (a) b) S 1 2 3").is_none());
    }

    #[tokio::test]
    async fn what_is_stopped_is_known_whatever_it_is_called() {
        use std::os::unix::ffi::OsStrExt;
        let folder = tempfile::tempdir().unwrap();
        // A letter that is cut, as the system cuts names of more than fifteen bytes.
        let program = folder.path().join(std::ffi::OsStr::from_bytes(b"a) T (b \xc3"));
        std::os::unix::fs::symlink("/bin/sh", &program).unwrap();
        let mut command = Command::new(program);
        let mut child =
            command.args(["-c", "read line"]).stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        assert!(Process { pid, began: None }.lives() && !is_stopped(pid));
        kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
        let stopped = async {
            while !is_stopped(pid) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), stopped).await.unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_stopped(pid));
    }

    #[tokio::test]
    async fn its_end_is_noticed_though_nobody_has_asked_after_it() {
        let (mut child, named) = sleeper();
        let ended = tokio::spawn(named.ended());
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(named.lives() && !ended.is_finished());
        child.kill().unwrap();
        tokio::time::timeout(Duration::from_secs(10), ended).await.unwrap().unwrap();
        assert!(!named.lives(), "it is there for its parent alone");
        child.wait().unwrap();
        assert!(!named.lives());
        named.ended().await;
    }
}
