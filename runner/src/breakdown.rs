//! What trainers' time went to, in shares, and what would help. Pure: read off their counters.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use shoal_runtime::wire::proto::{Mode, StatusReply, TrainerCounters};

/// Less time than this, over all trainers, says nothing yet.
const TELLING_MICROS: u64 = 1_000_000;
/// The rule of thumb: so many microbatches of a step for each trainer.
const MICROBATCHES_PER_TRAINER: u64 = 8;

/// Microseconds that trainers spent, summed over all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breakdown {
    read: u64,
    pull: u64,
    compute: u64,
    push: u64,
    wait: u64,
}

/// What holds a job up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Compute,
    Pserver,
    Data,
    Others,
}

impl Breakdown {
    /// What these counters say.
    pub fn of(counters: &TrainerCounters) -> Breakdown {
        Breakdown {
            read: counters.read_micros,
            pull: counters.pull_micros,
            compute: counters.compute_micros,
            push: counters.push_micros,
            wait: counters.wait_micros,
        }
    }

    /// What was spent since `earlier`: nothing where a count has begun anew.
    pub fn since(&self, earlier: &Breakdown) -> Breakdown {
        Breakdown {
            read: self.read.saturating_sub(earlier.read),
            pull: self.pull.saturating_sub(earlier.pull),
            compute: self.compute.saturating_sub(earlier.compute),
            push: self.push.saturating_sub(earlier.push),
            wait: self.wait.saturating_sub(earlier.wait),
        }
    }

    /// Each part in a word, in the order in which they are shown.
    fn named(&self) -> [(&'static str, u64); 5] {
        let Breakdown { read, pull, compute, push, wait } = *self;
        [("compute", compute), ("pull", pull), ("push", push), ("read", read), ("wait", wait)]
    }

    fn whole(&self) -> u64 {
        self.named().iter().map(|(_, part)| part).sum()
    }

    fn percent(&self, part: u64) -> f64 {
        100.0 * part as f64 / self.whole().max(1) as f64
    }

    /// The largest part, pulls and pushes as one; none while there is too little to tell.
    fn bound(&self) -> Option<(Bound, f64)> {
        let parts = [
            (Bound::Compute, self.compute),
            (Bound::Pserver, self.pull + self.push),
            (Bound::Data, self.read),
            (Bound::Others, self.wait),
        ];
        let (bound, part) = parts.into_iter().rev().max_by_key(|(_, part)| *part)?;
        (self.whole() >= TELLING_MICROS).then_some((bound, self.percent(part)))
    }

    /// The shares in one line; none before there is any time.
    pub fn shares(&self) -> Option<String> {
        let shares = self.named().map(|(word, part)| format!("{word} {:.0} %", self.percent(part)));
        (self.whole() > 0).then(|| shares.join(", "))
    }

    /// Each part that is some, in a word and as a share of the whole; none before there is any time.
    pub fn parts(&self) -> Option<Vec<(&'static str, f64)>> {
        let some = self.named().into_iter().filter(|(_, part)| *part > 0);
        (self.whole() > 0).then(|| some.map(|(word, part)| (word, self.percent(part) / 100.0)).collect())
    }

    /// The same for programs.
    pub fn json(&self) -> Value {
        self.named().map(|(word, part)| (format!("{word}_micros"), part)).into_iter().collect()
    }
}

/// What holds the job up and what would help, in a sentence; none while there is too little to tell.
pub fn advice(status: &StatusReply) -> Option<String> {
    let settings = status.settings.clone().unwrap_or_default();
    let scale = JobScale {
        is_async: settings.mode() == Mode::Async,
        per_step: u64::from(settings.microbatches_per_step),
        trainers: u64::from(crate::reading::live(status)),
    };
    Breakdown::of(&status.trainer_totals.unwrap_or_default()).advice(scale)
}

/// What advice depends on beside the shares.
#[derive(Clone, Copy, Debug)]
pub struct JobScale {
    /// Whether each microbatch is an update of its own.
    pub is_async: bool,
    /// Microbatches.
    pub per_step: u64,
    /// Trainers that take part.
    pub trainers: u64,
}

impl Breakdown {
    /// What holds the job up and what would help; none while there is too little to tell.
    pub fn advice(&self, scale: JobScale) -> Option<String> {
        let JobScale { is_async, per_step, trainers } = scale;
        let (bound, percent) = self.bound()?;
        let share = format!("{percent:.0} % of trainers' time");
        Some(match bound {
            Bound::Compute if is_async || trainers * MICROBATCHES_PER_TRAINER <= per_step => {
                format!(
                    "compute-bound: {share} is the step function; more trainers would help (`shoal scale --trainers`)"
                )
            }
            Bound::Compute => format!(
                "compute-bound: {share} is the step function; more trainers would help, with more microbatches per step (now {per_step}; about {MICROBATCHES_PER_TRAINER} for each trainer)"
            ),
            Bound::Pserver => format!(
                "pserver-bound: {share} goes to pulls and pushes; more pservers would help (`shoal scale --pservers`), or more records in a microbatch"
            ),
            Bound::Data => format!(
                "data-bound: {share} is waiting for records; faster storage would help, or chunks that fit the shuffle (--shuffle-run)"
            ),
            Bound::Others if is_async => {
                format!(
                    "waiting: {share} has no task; a larger --staleness-window would help, or fewer trainers"
                )
            }
            Bound::Others => format!(
                "waiting: {share} goes to waiting for others to complete a step; more microbatches per step would help (now {per_step} for {trainers} trainers; about {MICROBATCHES_PER_TRAINER} for each), or fewer trainers"
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_job::counters::{self, Counters};
    use shoal_runtime::wire::proto::{JobSettings, TrainerStatus};

    fn status(mode: Mode, trainers: usize, [read, pull, compute, push, wait]: [u64; 5]) -> StatusReply {
        let live = TrainerStatus { state: "live".to_owned(), ..Default::default() };
        let totals = TrainerCounters {
            read_micros: read * 100_000,
            pull_micros: pull * 100_000,
            compute_micros: compute * 100_000,
            push_micros: push * 100_000,
            wait_micros: wait * 100_000,
            ..Default::default()
        };
        let settings = JobSettings { mode: mode.into(), microbatches_per_step: 16, ..Default::default() };
        StatusReply {
            settings: Some(settings),
            trainers: vec![live; trainers],
            trainer_totals: Some(totals),
            ..Default::default()
        }
    }
    fn said(mode: Mode, trainers: usize, parts: [u64; 5]) -> String {
        advice(&status(mode, trainers, parts)).unwrap()
    }

    #[test]
    fn the_largest_part_is_named_with_what_would_help() {
        let pserver = said(Mode::Sync, 2, [10, 25, 30, 20, 15]);
        assert!(pserver.starts_with("pserver-bound: 45 %") && pserver.contains("--pservers"), "{pserver}");
        let data = said(Mode::Sync, 2, [60, 0, 30, 0, 10]);
        assert!(data.starts_with("data-bound: 60 %"), "{data}");
        let compute = said(Mode::Sync, 2, [0, 1, 97, 1, 1]);
        assert!(compute.starts_with("compute-bound: 97 %") && compute.contains("--trainers"), "{compute}");
        let others = said(Mode::Sync, 4, [0, 0, 40, 0, 60]);
        assert!(others.starts_with("waiting: 60 %") && others.contains("now 16 for 4 trainers"), "{others}");
        assert!(said(Mode::Async, 4, [0, 0, 40, 0, 60]).contains("--staleness-window"));
    }

    #[test]
    fn more_trainers_than_a_step_has_work_for_are_not_advised_alone() {
        let few = said(Mode::Sync, 2, [0, 0, 100, 0, 0]);
        assert!(!few.contains("microbatches per step"), "{few}");
        let many = said(Mode::Sync, 3, [0, 0, 100, 0, 0]);
        assert!(many.contains("microbatches per step (now 16"), "{many}");
        assert!(!said(Mode::Async, 30, [0, 0, 100, 0, 0]).contains("microbatches per step"));
    }

    #[test]
    fn too_little_time_says_nothing() {
        assert_eq!(advice(&status(Mode::Sync, 1, [0, 0, 9, 0, 0])), None);
        assert_eq!(Breakdown::of(&TrainerCounters::default()).shares(), None);
    }

    #[test]
    fn every_activity_that_trainers_count_is_a_part() {
        let counters = status(Mode::Sync, 1, [1, 2, 3, 4, 5]).trainer_totals.unwrap();
        let (activities, parts) =
            (counters::TrainerCounters::from(counters).metrics(), Breakdown::of(&counters));
        let seconds = activities.iter().find(|metric| metric.name == "seconds_total").unwrap();
        let counted = seconds.samples.iter().map(|(label, micros)| (label.unwrap().1, *micros));
        assert_eq!(counted.collect::<Vec<_>>(), parts.named());
    }

    #[test]
    fn shares_are_of_all_the_time() {
        let counters = status(Mode::Sync, 1, [10, 20, 40, 5, 25]).trainer_totals.unwrap();
        let shares = Breakdown::of(&counters).shares().unwrap();
        assert_eq!(shares, "compute 40 %, pull 20 %, push 5 %, read 10 %, wait 25 %");
    }
}
