//! What a training run looked like: one picture (SVG) and one self-contained page (HTML) from plain values.
//! It must stay a pure function of its input: no file, no clock, no network, and no panic on any input.

mod curves;
mod lanes;
mod layout;
mod markers;
mod page;
mod sheet;
mod svg;
mod time;

pub use page::html;
pub use svg::svg;

use crate::exclusions::Excluded;

/// A training run from its first second to its last. Times are seconds since its start.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Run {
    /// What the reader sees first.
    pub title: String,
    /// The job's name.
    pub job: String,
    /// How long it ran.
    pub seconds: f64,
    /// Steps applied.
    pub steps: u64,
    /// Passes over the data set.
    pub epochs: u64,
    /// In order of time.
    pub samples: Vec<Sample>,
    /// The metrics of the evaluations, each with its curve.
    pub metrics: Vec<Metric>,
    /// One entry for each process that took part; entries of one role and name share a lane.
    pub members: Vec<Member>,
    /// What happened to the members, in order of time.
    pub faults: Vec<Fault>,
    /// Records that were left out; of many the first.
    pub excluded: Vec<Excluded>,
    /// What was checked afterwards.
    pub verdicts: Vec<Verdict>,
    /// Anything else worth a line: name and value.
    pub facts: Vec<(String, String)>,
    /// What trainers' time went to, where that is known.
    pub time: Option<Time>,
}

/// A metric of the evaluations.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Metric {
    /// As the program calls it.
    pub name: String,
    /// One for each evaluation, in order of time.
    pub points: Vec<Point>,
}

/// A metric's value in one evaluation.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Point {
    /// When it was seen.
    pub at_seconds: f64,
    /// Steps that the model had.
    pub step: u64,
    /// None of no record, and none that is no number.
    pub value: Option<f64>,
}

/// What trainers' time went to.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Time {
    /// `compute`, `pull`, `push`, `read`, `wait`, each with its share of the whole.
    pub shares: Vec<(&'static str, f64)>,
    /// What would help.
    pub advice: Option<String>,
}

/// The state of a run at one moment.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Sample {
    /// When it was taken.
    pub at_seconds: f64,
    /// Steps applied so far.
    pub step: u64,
    /// Trainers that hold a membership.
    pub trainers_live: u32,
    /// Mean loss per record over the last steps; none before the first.
    pub loss: Option<f64>,
    /// Records counted per second since the sample before.
    pub records_per_second: f64,
}

/// One process of the run.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Member {
    /// Its name, which a restarted process may inherit.
    pub name: String,
    /// `trainer`, `pserver`, `master`.
    pub role: String,
    /// Its process id.
    pub process: u32,
    /// When it joined.
    pub from_seconds: f64,
    /// When it was gone.
    pub to_seconds: f64,
    /// Stretches of `(from, to)` in which it did not move.
    pub frozen: Vec<(f64, f64)>,
    /// How it went: `left`, `killed` or `ended`.
    pub end: String,
}

/// One thing done to a member.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Fault {
    /// `join`, `leave`, `migrate`, `kill`, `freeze`, `memory`, `partition`, `slow` or `disk`; `thaw` or `heal`, which end
    /// one; `lost`, for a process that ended by itself.
    pub kind: String,
    /// The role it was done to.
    pub role: String,
    /// The member it was done to.
    pub name: String,
    /// When.
    pub at_seconds: f64,
    /// In a few words.
    pub what: String,
}

/// One promise, and whether the run kept it.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Verdict {
    /// Whether it was kept.
    pub holds: bool,
    /// The finding in one sentence, with its numbers. A leading ✔ or ✘ is not repeated.
    pub text: String,
}

#[cfg(test)]
mod tests;
