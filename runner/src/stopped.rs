//! Whether somebody has stopped a process (SIGSTOP) who is not this run, and lets it go on. A run tells of it, as of what chaos and buttons
//! do: otherwise nobody knows later why it stood still.

use std::time::Duration;
use tokio::time::Instant;

/// How often a process is looked at.
const LOOK: Duration = Duration::from_millis(250);
/// One that stands still for a shorter time is not told of.
const LASTS: Duration = Duration::from_millis(500);

/// What is known of one process.
#[derive(Debug, Default)]
pub(crate) struct Stopped {
    looked: Option<Instant>,
    since: Option<Instant>,
    is_told: bool,
}

impl Stopped {
    /// Returns whether it has been stopped, or goes on, where that has to be told.
    pub(crate) fn news(&mut self, now: Instant, is_stopped: impl FnOnce() -> bool) -> Option<bool> {
        if self.looked.is_some_and(|looked| now < looked + LOOK) {
            return None;
        }
        self.looked = Some(now);
        if !is_stopped() {
            self.since = None;
            return std::mem::take(&mut self.is_told).then_some(false);
        }
        let lasts = now - *self.since.get_or_insert(now) >= LASTS;
        (lasts && !std::mem::replace(&mut self.is_told, lasts)).then_some(true)
    }
}

/// Whether a process is stopped now.
pub(crate) fn is_stopped(pid: u32) -> bool {
    // Its name comes before, in parentheses, and may be of any characters.
    let said = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    said.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_that_lasts_is_told_once_and_so_is_its_end() {
        let (begun, mut stopped) = (Instant::now(), Stopped::default());
        let mut news = |millis: u64, is: bool| stopped.news(begun + Duration::from_millis(millis), || is);
        assert_eq!(news(0, false), None);
        assert_eq!([news(300, true), news(400, true), news(600, false)], [None; 3], "it was short");
        assert_eq!([news(1_000, true), news(1_300, true)], [None; 2]);
        assert_eq!([news(1_600, true), news(2_000, true)], [Some(true), None]);
        assert_eq!([news(2_300, false), news(2_600, false)], [Some(false), None]);
    }

    #[test]
    fn a_process_that_is_stopped_is_known_whatever_it_is_called() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("a) T (b");
        std::fs::copy("/bin/sleep", &program).unwrap();
        let mut child = std::process::Command::new(program).arg("60").spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        assert!(!is_stopped(child.id()));
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        while !is_stopped(child.id()) {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_stopped(child.id()));
    }
}
