//! What the page shows of a job: its run's journal, what its master said last, and how it ended, folded into one object. Pure.

use crate::curves::{Point, thinned};
use crate::events::Events;
use crate::members::{self, rounded};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use shoal_runner::breakdown::{self, Breakdown};
use shoal_runner::history::History;
use shoal_runner::journal::{Begun, Entry, Seen};
use shoal_runner::losses::Losses;
use shoal_runner::reading::{epoch, live};
use shoal_runner::report::Sample;
use shoal_runner::{evaluations, rewinds, standstill};
use shoal_runtime::wire::proto::{PserverStatus, StatusReply};
use std::collections::{BTreeSet, VecDeque};

/// Over so long rates and the times of trainers are those of "lately".
const LATELY_SECONDS: f64 = 10.0;
/// Points of a metric's curve: of more evaluations every so many.
const EVALUATIONS_MAX: usize = 240;
/// Pservers of which each one's blocks are shown; of the others their number.
const PSERVERS_MAX: usize = 40;

/// How a run ended, for those who look at its page.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Conclusion {
    /// Hashes of models, which are shown beside one another.
    pub hashes: Vec<Hash>,
    /// What was checked: whether it holds, and in which words.
    pub verdicts: Vec<(bool, String)>,
    /// The command that shows it again.
    pub again: Option<String>,
}

/// A model's hash.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hash {
    /// Whose.
    pub of: String,
    /// SHA-256, in hexadecimal.
    pub sha256: String,
}

/// What was told of a job so far.
#[derive(Debug)]
pub(crate) struct View {
    job: String,
    history: Option<History>,
    status: Option<StatusReply>,
    events: Events,
    /// The times of trainers, seconds since the run's beginning beside them; one that is older than lately, and those after it.
    times: VecDeque<(f64, Breakdown)>,
    /// Members whose links are cut.
    cut: BTreeSet<String>,
    losses: Option<Losses>,
    conclusion: Option<Conclusion>,
    /// Why nobody answers; none while the master does.
    silence: Option<String>,
    /// Seconds since the run's beginning, and of when that was said.
    now: f64,
}

impl View {
    /// Nothing yet of a job of this name.
    pub(crate) fn new(job: String) -> View {
        View {
            job,
            history: None,
            status: None,
            events: Events::default(),
            times: VecDeque::new(),
            cut: BTreeSet::new(),
            losses: None,
            conclusion: None,
            silence: None,
            now: 0.0,
        }
    }

    /// The next entry of the run's journal.
    pub(crate) fn told(&mut self, entry: Entry) {
        if let (None, Entry::Begun(begun)) = (&self.history, &entry) {
            self.history = Some(History::of_run(begun.clone()));
        }
        let Some(history) = &mut self.history else { return };
        let is_anew = matches!(entry, Entry::Begun(_));
        history.follow(entry.clone());
        let since = history.since_beginning(0.0);
        if is_anew {
            (self.conclusion, self.job) = (None, history.begun.job.clone());
            self.cut.clear();
        }
        self.now = self.now.max(history.seconds());
        match &entry {
            Entry::Seen(seen) => self.spent(seen, since),
            Entry::Fault(fault) if fault.kind == "partition" => drop(self.cut.insert(fault.name.clone())),
            Entry::Fault(fault) if fault.kind == "heal" => drop(self.cut.remove(&fault.name)),
            _ => {}
        }
        self.events.told(&entry, since);
    }

    fn spent(&mut self, seen: &Seen, since: f64) {
        let at = seen.at + since;
        self.times.push_back((at, seen.time));
        while self.times.get(1).is_some_and(|(second, _)| at - second >= LATELY_SECONDS) {
            self.times.pop_front();
        }
    }

    /// What the master says, `at` seconds after the run's beginning.
    pub(crate) fn saw(&mut self, at: f64, status: StatusReply) {
        self.now = self.now.max(at);
        self.events.saw(self.now, &status);
        (self.silence, self.status) = (None, Some(status));
    }

    /// Nobody answers, and why.
    pub(crate) fn missed(&mut self, why: String) {
        self.silence = Some(why);
    }

    /// The losses that the program has counted so far.
    pub(crate) fn counted(&mut self, losses: Losses) {
        self.losses = Some(losses);
    }

    /// The run is over, and this came of it.
    pub(crate) fn concluded(&mut self, conclusion: Conclusion) {
        self.conclusion = Some(conclusion);
    }

    /// What the run is.
    pub(crate) fn begun(&self) -> Option<&Begun> {
        self.history.as_ref().map(|history| &history.begun)
    }

    /// Seconds from the run's beginning to what was told last.
    pub(crate) fn now(&self) -> f64 {
        self.now
    }

    /// Whether nothing more is to come.
    pub(crate) fn is_over(&self) -> bool {
        self.history.as_ref().is_some_and(|history| history.closed.is_some())
            || self.status.as_ref().is_some_and(|status| matches!(status.phase.as_str(), "done" | "failed"))
    }

    /// `waiting`, `training`, `done`, `failed`, `interrupted`, and why.
    fn phase(&self) -> (String, String) {
        if let Some((how, why)) = self.history.as_ref().and_then(|history| history.closed.clone()) {
            return (how, why);
        }
        match &self.status {
            Some(status) => (status.phase.clone(), status.failure.clone()),
            None if self.history.is_some() => ("running".to_owned(), String::new()),
            None => ("waiting".to_owned(), String::new()),
        }
    }

    /// All that the page draws.
    pub(crate) fn frame(&self) -> Value {
        let (phase, why) = self.phase();
        let history = self.history.as_ref();
        let points = history.map(|history| thinned(&history.samples)).unwrap_or_default();
        let last = history.and_then(|history| history.last.as_ref());
        let status = self.status.as_ref();
        let members = history.map_or(&[][..], History::members);
        json!({
            "job": self.job, "program": history.map(History::program).filter(|program| !program.is_empty()),
            "mode": history.map(|history| history.begun.mode.clone()),
            "phase": phase, "why": why, "now": rounded(self.now), "is_over": self.is_over(), "silence": self.silence,
            "progress": self.progress(last), "time": self.time(), "waits": self.waits(),
            "members": members::json(members, status, &self.cut),
            "numbers": status.filter(|_| !self.is_over()).map(numbers), "pservers": status.map(pservers),
            "curves": self.curves(&points), "metrics": status.map(metrics),
            "events": self.events.iter().map(|event| json!([rounded(event.at), event.kind, event.text])).collect::<Vec<_>>(),
            "conclusion": self.conclusion,
        })
    }

    /// Returns the cause of an idle standstill; null while the job goes on.
    fn waits(&self) -> Value {
        let status = self.status.as_ref().filter(|_| !self.is_over());
        let brief = status
            .and_then(|status| Some((standstill::brief(status)?, &status.standstill.as_ref()?.way_out)));
        brief.map_or(Value::Null, |(cause, way_out)| json!({ "cause": cause, "way_out": way_out }))
    }

    /// How far the job is. Of a job whose run is over and whose master is gone, as its journal saw it last.
    fn progress(&self, last: Option<&Seen>) -> Value {
        let known = self.status.as_ref().filter(|status| status.is_progress_known);
        // Of a run that is over the journal has the last word: its master has gone before it could be asked.
        let known = known.filter(|_| !self.is_over() || last.is_none());
        let (step, steps) = known
            .map(|status| (status.step, status.steps))
            .or(last.map(|last| (last.step, last.steps)))
            .unwrap_or_default();
        let records = known.map(|status| status.records_trained).or(last.map(|last| last.records_trained));
        let rate = self.rate();
        let left = known.and_then(|status| status.records_planned.checked_sub(status.records_trained));
        let eta = rate
            .filter(|rate| *rate > 0.0 && !self.is_over())
            .zip(left)
            .map(|(rate, left)| left as f64 / rate);
        let (computed, wasted) = last.map_or((0, 0), |last| (last.computed, last.wasted));
        json!({
            "step": step, "steps": steps, "epoch": self.status.as_ref().and_then(epoch), "records": records,
            "records_per_second": rate, "eta_seconds": eta, "records_computed": computed, "records_wasted": wasted,
            "rewinds": last.map(|last| last.rewinds), "rewinds_text": last.map(|last| rewinds::text(last.rewinds, &last.rewind_causes)),
            "records_excluded": last.map(|last| last.records_excluded),
        })
    }

    /// Records a second over lately.
    fn rate(&self) -> Option<f64> {
        let samples = &self.history.as_ref()?.samples;
        let last = samples.last()?;
        let is_before = |one: &Sample| last.at_seconds - one.at_seconds >= LATELY_SECONDS;
        let lately = samples.iter().rposition(is_before).map_or(0, |before| before + 1);
        let begun = lately.checked_sub(1).map_or(0.0, |before| samples[before].at_seconds);
        let (mut before, mut records) = (begun, 0.0);
        for sample in &samples[lately..] {
            records += sample.records_per_second * (sample.at_seconds - before);
            before = sample.at_seconds;
        }
        (before > begun).then(|| records / (before - begun))
    }

    /// Where trainers' time went, in all and lately, and what would help.
    fn time(&self) -> Value {
        let Some((_, whole)) = self.times.back() else { return Value::Null };
        let lately = self.times.front().map(|(_, earlier)| whole.since(earlier));
        let advice = self.status.as_ref().filter(|_| !self.is_over()).and_then(breakdown::advice);
        json!({ "whole": whole.parts(), "lately": lately.and_then(|lately| lately.parts()), "advice": advice })
    }

    fn curves(&self, points: &[Point]) -> Value {
        let of = |value: &dyn Fn(&Point) -> f64| -> Vec<f64> {
            points.iter().map(|point| significant(value(point))).collect()
        };
        let loss = |point: &Point| {
            let loss = point.loss.or(self.losses.as_ref().and_then(|losses| losses.before(point.step)));
            loss.filter(|loss| loss.is_finite()).map(significant)
        };
        let losses: Vec<Option<f64>> = points.iter().map(loss).collect();
        json!({
            "at": points.iter().map(|point| rounded(point.at)).collect::<Vec<_>>(),
            "step": points.iter().map(|point| point.step).collect::<Vec<_>>(),
            "trainers": points.iter().map(|point| point.trainers).collect::<Vec<_>>(),
            "records_per_second": of(&|point| point.records_per_second),
            "steps_per_second": of(&|point| point.steps_per_second),
            "loss": losses.iter().any(Option::is_some).then_some(losses),
        })
    }
}

/// To four digits: a picture shows no more.
fn significant(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// Numbers that only a master knows.
fn numbers(status: &StatusReply) -> Value {
    json!({
        "trainers": live(status), "trainers_wanted": status.trainers_wanted,
        "pservers": status.pservers.iter().filter(|pserver| !pserver.lost).count(), "pservers_wanted": status.pservers_wanted,
        "replicas": status.replicas_wanted, "copies_in_sync": status.copies_in_sync, "copies_filling": status.copies_filling,
        "checkpoint": Some(status.checkpoint).filter(|number| *number > 0), "checkpoint_version": status.checkpoint_version,
        "checkpoint_age_seconds": status.checkpoint_age_millis / 1000, "checkpoint_under_way": status.checkpoint_under_way > 0,
        "checkpoints": status.checkpoints, "term": status.master_term,
    })
}

/// Where blocks are.
fn pservers(status: &StatusReply) -> Value {
    let live: Vec<&PserverStatus> = status.pservers.iter().filter(|pserver| !pserver.lost).collect();
    let each = live.iter().take(PSERVERS_MAX).map(|pserver| {
        json!({
            "name": pserver.name, "blocks": pserver.blocks, "copies": pserver.followers, "bytes": pserver.bytes,
            "leaving": pserver.is_leaving,
        })
    });
    json!({ "each": each.collect::<Vec<_>>(), "more": live.len().saturating_sub(PSERVERS_MAX) })
}

/// A curve for each metric: pairs of a step and a value; which evaluation was the best.
fn metrics(status: &StatusReply) -> Value {
    let all = &status.evaluations;
    let every = all.len().div_ceil(EVALUATIONS_MAX).max(1);
    let names = all.last().map(|last| last.values.iter().map(|value| value.name.clone()).collect::<Vec<_>>());
    let is_shown = |at: usize| (all.len() - 1 - at).is_multiple_of(every) || all[at].is_best;
    let curve = |(at, name): (usize, String)| {
        let value = |index: usize| {
            let evaluation = &all[index];
            let value = evaluation.values.get(at)?.value.filter(|value| value.is_finite())?;
            Some(json!([evaluation.step, value, evaluation.is_best]))
        };
        let points: Vec<Value> = (0..all.len()).filter(|index| is_shown(*index)).filter_map(value).collect();
        json!({ "name": name, "points": points })
    };
    let curves: Vec<Value> = names.unwrap_or_default().into_iter().enumerate().map(curve).collect();
    json!({ "curves": curves, "planned": status.evaluations_planned, "newest": all.last().map(evaluations::values) })
}

#[cfg(test)]
mod tests;
