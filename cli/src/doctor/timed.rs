//! A check that comes to an end: it runs on a thread of its own, and is left behind when its time is over.

use super::outcome::{Checked, Level, Outcome};
use shoal_runtime::host::output::{self, Stream};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Who looks on is told what is waited for after that.
const QUIET: Duration = Duration::from_millis(700);

/// A check.
pub(crate) struct Check {
    pub(crate) name: &'static str,
    /// How long it may take.
    pub(crate) time: Duration,
    /// What to do where it takes longer.
    pub(crate) hung: &'static str,
    /// How bad it is at most, whatever it finds.
    pub(crate) worst: Level,
    pub(crate) work: Box<dyn FnOnce() -> Vec<Checked> + Send>,
}

/// Its outcomes. A thread that hangs, on a disk that does not answer, ends with this process.
pub(crate) fn run(check: Check) -> Vec<Checked> {
    let Check { name, time, hung, worst, work } = check;
    let (tell, told) = channel();
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(move || tell.send(work()));
    if let Err(error) = started {
        let found = format!("cannot be checked: no thread is to be had: {error}");
        return vec![(name, Outcome::failed(found, "ulimit -u, and pids.max of the control group"))];
    }
    let is_watched =
        Stream::Notes.is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb");
    let mut answer = told.recv_timeout(QUIET.min(time));
    if answer == Err(RecvTimeoutError::Timeout) && time > QUIET {
        if is_watched {
            output::rewrite(format_args!("checking: {name}, up to {} s", time.as_secs()));
        }
        answer = told.recv_timeout(time - QUIET);
        if is_watched {
            output::rewrite("");
        }
    }
    let found = match answer {
        Ok(found) => found,
        Err(RecvTimeoutError::Timeout) => {
            let found = format!("no answer within {:.1} s", time.as_secs_f64());
            vec![(name, Outcome::failed(found, hung))]
        }
        Err(RecvTimeoutError::Disconnected) => {
            let found = "the check itself has failed: this is a fault of shoal";
            return vec![(name, Outcome::failed(found, hung))];
        }
    };
    found.into_iter().map(|(name, outcome)| (name, outcome.at_most(worst))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(time: Duration, work: impl FnOnce() -> Vec<Checked> + Send + 'static) -> Vec<Checked> {
        let (hung, worst) = ("look at the mount", Level::Failed);
        run(Check { name: "disk", time, hung, worst, work: Box::new(work) })
    }

    #[test]
    fn what_hurts_nobody_is_no_failure_whether_it_is_found_or_hangs() {
        let (_never, forever) = channel::<()>();
        let hangs: Box<dyn FnOnce() -> Vec<Checked> + Send> = Box::new(move || {
            let _ = forever.recv();
            Vec::new()
        });
        let fails: Box<dyn FnOnce() -> Vec<Checked> + Send> =
            Box::new(|| vec![("name", Outcome::failed("none", "do")), ("other", Outcome::ok("fine"))]);
        for work in [hangs, fails] {
            let time = Duration::from_millis(50);
            let found = run(Check { name: "name", time, hung: "", worst: Level::Warning, work });
            assert_eq!(found[0].1.level, Level::Warning, "{found:?}");
            assert!(found.iter().skip(1).all(|(_, outcome)| outcome.level == Level::Ok), "{found:?}");
        }
    }

    #[test]
    fn a_check_that_hangs_fails_when_its_time_is_over_and_holds_up_nobody() {
        let (_never, forever) = channel::<()>();
        let found = check(Duration::from_millis(50), move || {
            let _ = forever.recv();
            Vec::new()
        });
        assert!(
            found[0].1.level == Level::Failed && found[0].1.found.contains("no answer within 0.1 s"),
            "{found:?}"
        );
        assert_eq!(found[0].1.advice.as_deref(), Some("look at the mount"));
    }

    #[test]
    fn a_check_that_panics_is_told_as_a_fault_of_ours() {
        let found = check(Duration::from_secs(60), || panic!("on purpose"));
        assert!(
            found[0].1.level == Level::Failed && found[0].1.found.contains("fault of shoal"),
            "{found:?}"
        );
    }

    #[test]
    fn a_check_that_ends_says_what_it_has_found() {
        let found = check(Duration::from_secs(60), || vec![("disk", Outcome::ok("fine"))]);
        assert_eq!(found, [("disk", Outcome::ok("fine"))]);
    }
}
