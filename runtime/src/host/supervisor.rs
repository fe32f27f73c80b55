//! The process that looks after this one: `SHOAL_SUPERVISOR` names it. Whoever it started ends when it is gone, however many shells,
//! profilers and timers stand between, and whoever has taken them over as a child. All that it started, and what those have, can be
//! found by that name.

use rustix::process::{Pid, Signal, kill_process};
use std::fmt;
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
        Process { pid, began: stat(pid).map(|stat| stat.began) }
    }

    /// That which looks after this one; none where none is named, or in words that are no name.
    pub fn supervisor() -> Option<Process> {
        std::env::var(VARIABLE).ok()?.parse().ok()
    }

    /// Whether it is there. What has ended and was not asked after by its parent is not.
    pub fn lives(self) -> bool {
        match (stat(self.pid), self.began) {
            (Some(stat), Some(began)) => stat.lives && stat.began == began,
            (Some(stat), None) => stat.lives,
            // Nobody else can be asked: then it is whose child this one is.
            (None, _) => self.began.is_none() && std::os::unix::process::parent_id() == self.pid,
        }
    }

    /// The processes that have this one for a supervisor, in the order of their numbers: whoever has its name in the environment that
    /// it began with. Those of other users are not seen.
    pub fn started(self) -> Vec<Process> {
        let name = format!("{VARIABLE}={self}");
        let is_named = |pid: &u32| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == name.as_bytes())
        };
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let processes = pids.filter(is_named).map(|pid| (pid, stat(pid)));
        let living = processes.filter(|(_, stat)| stat.as_ref().is_some_and(|stat| stat.lives));
        let mut living: Vec<Process> =
            living.map(|(pid, stat)| Process { pid, began: stat.map(|stat| stat.began) }).collect();
        living.sort_by_key(|process| process.pid);
        living
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
    began: u64,
}

/// None where there is no such process, or the system says nothing of any. See proc(5).
fn stat(pid: u32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Its name is in parentheses, and may have some, and spaces.
    let (_, after) = text.rsplit_once(") ")?;
    let mut fields = after.split(' ');
    let state = fields.next()?;
    let began = fields.nth(18)?.parse().ok()?;
    Some(Stat { lives: !matches!(state, "Z" | "X" | "x"), began })
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

    #[test]
    fn what_it_started_is_found_whoever_s_child_that_is() {
        let this = Process { began: Some(7), ..Process::this() };
        // A shell that does not wait, in a session of its own: nobody's child and nobody's group.
        let script = "setsid sleep 600 & sleep 600";
        let mut shell =
            Command::new("sh").args(["-c", script]).env(VARIABLE, this.to_string()).spawn().unwrap();
        while this.started().len() < 3 {
            std::thread::yield_now();
        }
        for process in this.started() {
            process.signal(Signal::KILL);
        }
        shell.wait().unwrap();
        while !this.started().is_empty() {
            std::thread::yield_now();
        }
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
