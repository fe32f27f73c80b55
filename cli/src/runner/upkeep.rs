//! What a supervisor decides: how many processes to start, which to ask to leave, whether an end was a failure, when
//! failures are too many. Pure: it is told the time, and starts and stops nothing.

use super::process::End;
use rustix::process::Signal;
use std::time::Duration;

/// A process that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Running {
    /// Its process id.
    pub(crate) pid: u32,
    /// Whether it was told to leave: it does not count towards what is wanted any more.
    pub(crate) is_leaving: bool,
}

/// What to do about the processes of one role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Upkeep {
    /// So many are missing.
    pub(crate) start: u32,
    /// These are too many.
    pub(crate) stop: Vec<u32>,
}

/// Trainers: the supervisor decides which of them leave, the newest first.
pub(crate) fn trainers(wanted: u32, running: &[Running]) -> Upkeep {
    let staying: Vec<u32> = running.iter().filter(|one| !one.is_leaving).map(|one| one.pid).collect();
    let count = staying.len() as u32;
    let stop = staying.into_iter().rev().take(count.saturating_sub(wanted) as usize).collect();
    Upkeep { start: wanted.saturating_sub(count), stop }
}

/// Pservers: the master decides which of them leave, and they end by themselves when nothing is left on them.
pub(crate) fn pservers(wanted: u32, running: &[Running]) -> Upkeep {
    let staying = running.iter().filter(|one| !one.is_leaving).count() as u32;
    Upkeep { start: wanted.saturating_sub(staying), stop: Vec::new() }
}

/// What an end means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meaning {
    /// In a word, for the record: `left`, `ended` or `killed`.
    pub(crate) word: &'static str,
    /// Whether the process itself is at fault.
    pub(crate) is_failure: bool,
    /// Whether starting it again would end the same way: it was called wrongly, or is no program.
    pub(crate) is_hopeless: bool,
}

/// What the end of a trainer or a pserver means.
pub(crate) fn meaning(end: End, was_leaving: bool) -> Meaning {
    let word = match end {
        End::Exited(0) if was_leaving => "left",
        End::Exited(0) => "ended",
        End::Exited(_) | End::Signalled(_) => "killed",
    };
    let is_failure = !matches!(end, End::Exited(0));
    Meaning { word, is_failure, is_hopeless: matches!(end, End::Exited(2 | 127)) }
}

/// Why a process ended by a signal that came from elsewhere, judged by the last lines of its log.
pub(crate) fn reason(end: End, last_words: &str) -> Option<String> {
    let End::Signalled(signal) = end else { return None };
    let said = last_words.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("nothing");
    let unallocated = last_words.lines().rev().find(|line| line.contains(UNALLOCATED));
    Some(match (Signal::from_named_raw(signal), unallocated) {
        (Some(Signal::ABORT), Some(line)) => format!("out of memory: {line}"),
        (Some(Signal::ABORT), None) => format!("it aborted; its log ends: {said}"),
        (Some(Signal::KILL), _) => {
            "SIGKILL from elsewhere: perhaps out of memory, which the kernel's log would say".to_owned()
        }
        _ => format!("signal {signal}; its log ends: {said}"),
    })
}

/// What Rust's allocator says before it ends a process.
const UNALLOCATED: &str = "memory allocation of";

/// How often processes of a role may fail without a step made in between.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    max: u32,
    failures: u32,
    /// The furthest point that was seen: how often the job has gone back, and its step.
    furthest: (u64, u64),
    not_before: Duration,
}

/// The pause after one that was told to leave.
const REST: Duration = Duration::from_millis(500);
/// The longest pause before the next start.
const PAUSE_MAX: Duration = Duration::from_secs(1);

impl Budget {
    /// So many failures end the job.
    pub(crate) fn of(max: u32) -> Budget {
        Budget { max, failures: 0, furthest: (0, 0), not_before: Duration::ZERO }
    }

    /// The job stands at `step`, having gone back `rewinds` times.
    pub(crate) fn see(&mut self, rewinds: u64, step: u64) {
        let (rewinds_before, step_before) = self.furthest;
        if rewinds == rewinds_before && step > step_before {
            self.failures = 0;
        }
        // Going back is no step made. A master that has just come back shows step 0 for a moment.
        self.furthest = self.furthest.max((rewinds, step));
    }

    /// A process failed. Returns whether that was one too many. The next start is put off, the longer the more failed.
    pub(crate) fn fail(&mut self, now: Duration) -> bool {
        self.failures += 1;
        let pause = Duration::from_millis(25) * 2u32.pow(self.failures.min(10)) - Duration::from_millis(50);
        self.not_before = now + pause.min(PAUSE_MAX);
        self.failures >= self.max
    }

    /// A process was told to leave, and left: what is wanted may look otherwise in a moment, and a supervisor that goes
    /// by what it saw last would start one after another.
    pub(crate) fn rest(&mut self, now: Duration) {
        self.not_before = self.not_before.max(now + REST);
    }

    /// Whether the next process may be started.
    pub(crate) fn may_start(&self, now: Duration) -> bool {
        now >= self.not_before
    }
}

/// How long the master has not answered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outage {
    since: Option<Duration>,
    is_told: bool,
    misses: u32,
}

/// What there is to say of an outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutageNews {
    /// Nothing new.
    Nothing,
    /// It lasts long enough to be mentioned.
    Lasts,
    /// It lasted longer than patience does.
    Over(Duration),
}

impl Outage {
    /// An outage is mentioned once it has lasted so long.
    const MENTIONED: Duration = Duration::from_secs(3);

    /// How long the next question may go without an answer: long enough on a loaded machine, short enough for other
    /// things not to be late.
    pub(crate) fn question(&self) -> Duration {
        (Duration::from_millis(250) * 2u32.pow(self.misses.min(2))).min(Duration::from_secs(1))
    }

    /// The master did not answer.
    pub(crate) fn miss(&mut self, now: Duration, patience: Duration) -> OutageNews {
        let since = *self.since.get_or_insert(now);
        self.misses += 1;
        let lasted = now - since;
        if lasted >= patience {
            return OutageNews::Over(lasted);
        }
        if lasted >= Self::MENTIONED && !std::mem::replace(&mut self.is_told, true) {
            return OutageNews::Lasts;
        }
        OutageNews::Nothing
    }

    /// The master answered. Returns how long it was away, if that was mentioned.
    pub(crate) fn end(&mut self, now: Duration) -> Option<Duration> {
        let ended = std::mem::take(self);
        ended.since.filter(|_| ended.is_told).map(|since| now - since)
    }

    /// Whether the master is away.
    pub(crate) fn is_on(&self) -> bool {
        self.since.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }
    fn running(leaving: &[bool]) -> Vec<Running> {
        leaving.iter().zip(1..).map(|(is_leaving, pid)| Running { pid, is_leaving: *is_leaving }).collect()
    }

    #[test]
    fn who_is_leaving_does_not_count_and_the_newest_trainer_leaves_first() {
        let four = running(&[false, true, false, false]);
        assert_eq!(trainers(3, &four), Upkeep::default());
        assert_eq!(trainers(5, &four), Upkeep { start: 2, stop: vec![] });
        assert_eq!(trainers(1, &four), Upkeep { start: 0, stop: vec![4, 3] });
        assert_eq!(pservers(3, &four), Upkeep::default());
        assert_eq!(pservers(4, &four), Upkeep { start: 1, stop: vec![] });
        assert_eq!(pservers(1, &four), Upkeep::default(), "the master chooses who leaves");
    }

    #[test]
    fn only_an_end_with_success_is_none_of_a_failure() {
        let word = |end, was_leaving| meaning(end, was_leaving).word;
        assert_eq!((word(End::Exited(0), true), word(End::Exited(0), false)), ("left", "ended"));
        assert_eq!((word(End::Exited(1), true), word(End::Signalled(9), false)), ("killed", "killed"));
        let failed = [End::Exited(0), End::Exited(1), End::Exited(2), End::Exited(127), End::Signalled(9)];
        assert_eq!(failed.map(|end| meaning(end, false).is_failure), [false, true, true, true, true]);
        assert_eq!(failed.map(|end| meaning(end, false).is_hopeless), [false, false, true, true, false]);
    }

    #[test]
    fn the_reason_of_a_signal_from_elsewhere_is_read_off_the_log() {
        let reason = |end, log: &str| reason(end, log).unwrap_or_default();
        let log = "registered\nmemory allocation of 4096 bytes failed\n\n";
        assert_eq!(reason(End::Signalled(6), log), "out of memory: memory allocation of 4096 bytes failed");
        assert!(reason(End::Signalled(6), "registered\nassertion\n").ends_with("its log ends: assertion"));
        assert!(reason(End::Signalled(9), log).contains("perhaps out of memory"));
        assert!(reason(End::Signalled(11), "").starts_with("signal 11"));
        assert_eq!(reason(End::Exited(1), log), "");
    }

    #[test]
    fn failures_without_a_step_between_them_use_the_budget_up() {
        let mut budget = Budget::of(3);
        budget.see(0, 4);
        assert!(!budget.fail(at(0)) && !budget.fail(at(0)));
        budget.see(0, 4);
        assert!(budget.clone().fail(at(0)), "no step was made");
        budget.see(0, 5);
        assert!(!budget.fail(at(0)) && !budget.fail(at(0)) && budget.fail(at(0)));
    }

    #[test]
    fn going_back_is_no_step_made_nor_is_coming_where_one_was() {
        let mut budget = Budget::of(2);
        budget.see(0, 9);
        assert!(!budget.fail(at(0)));
        budget.see(1, 2);
        assert!(budget.clone().fail(at(0)), "it went back");
        budget.see(0, 0);
        budget.see(1, 2);
        assert!(budget.clone().fail(at(0)), "a new master's first word is step 0");
        budget.see(1, 3);
        assert!(!budget.fail(at(0)));
    }

    #[test]
    fn the_first_failure_is_mended_at_once_and_later_ones_after_a_pause() {
        let mut budget = Budget::of(20);
        budget.fail(at(1000));
        assert!(budget.may_start(at(1000)));
        budget.fail(at(1000));
        assert!(!budget.may_start(at(1049)) && budget.may_start(at(1050)));
        for _ in 0..17 {
            budget.fail(at(1000));
        }
        assert!(!budget.may_start(at(1999)) && budget.may_start(at(2000)));
    }

    #[test]
    fn nobody_takes_the_place_of_who_was_told_to_leave_before_one_has_looked_again() {
        let mut budget = Budget::of(2);
        budget.rest(at(1000));
        assert!(!budget.may_start(at(1499)) && budget.may_start(at(1500)));
        assert!(!budget.fail(at(1500)), "it was no failure");
    }

    #[test]
    fn an_outage_is_mentioned_once_and_its_end_too() {
        let (mut outage, patience) = (Outage::default(), at(10_000));
        assert_eq!(outage.miss(at(500), patience), OutageNews::Nothing);
        assert!(outage.is_on());
        assert_eq!(outage.end(at(900)), None, "too short to mention");
        outage.miss(at(1000), patience);
        assert_eq!(outage.miss(at(3999), patience), OutageNews::Nothing);
        assert_eq!(outage.miss(at(4000), patience), OutageNews::Lasts);
        assert_eq!(outage.miss(at(5000), patience), OutageNews::Nothing);
        assert_eq!(outage.clone().miss(at(11_000), patience), OutageNews::Over(at(10_000)));
        assert_eq!(outage.end(at(6000)), Some(at(5000)));
        assert!(!outage.is_on());
    }

    #[test]
    fn questions_get_more_time_while_none_is_answered() {
        let mut outage = Outage::default();
        let asked: Vec<Duration> = (0..4)
            .map(|miss| {
                let question = outage.question();
                outage.miss(at(miss), at(1000));
                question
            })
            .collect();
        assert_eq!(asked, [at(250), at(500), at(1000), at(1000)]);
    }

    proptest! {
        #[test]
        fn afterwards_as_many_stay_as_are_wanted(wanted in 0u32..9, leaving in proptest::collection::vec(any::<bool>(), 0..9)) {
            let running = running(&leaving);
            let staying = running.iter().filter(|one| !one.is_leaving).count() as u32;
            let upkeep = trainers(wanted, &running);
            prop_assert_eq!(staying + upkeep.start - upkeep.stop.len() as u32, wanted);
            let is_staying = |pid: &u32| running.iter().any(|one| one.pid == *pid && !one.is_leaving);
            prop_assert!(upkeep.stop.iter().all(is_staying));
            prop_assert_eq!(pservers(wanted, &running).start + staying, wanted.max(staying));
        }
    }
}
