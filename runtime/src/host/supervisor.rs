//! The process that looks after this one: `SHOAL_SUPERVISOR` names it. Whoever it started ends when it is gone, however many shells,
//! profilers and timers stand between, and whoever has taken them over as a child.

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
