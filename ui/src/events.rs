//! What happened to a job, in words, newest last. Pure.

use serde::Serialize;
use shoal_runner::journal::{Entry, Seen};
use shoal_runner::reading::epoch;
use shoal_runner::{evaluations, rewinds};
use shoal_runtime::wire::proto::{PserverStatus, StatusReply};
use std::collections::{BTreeMap, VecDeque};

/// Events that are kept.
const KEPT_MAX: usize = 200;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Event {
    /// Seconds since the run began.
    pub(crate) at: f64,
    /// `come`, `gone`, `fault`, `heal`, `back` (the job went back), `kept` (a checkpoint), `moved`, `better`, `left_out`, `phase`.
    pub(crate) kind: &'static str,
    pub(crate) text: String,
}

/// The events so far, and what the next ones are told by.
#[derive(Debug, Default)]
pub(crate) struct Events {
    kept: VecDeque<Event>,
    /// Names of processes.
    names: BTreeMap<u32, String>,
    seen: Option<Seen>,
    status: Option<Box<StatusReply>>,
}

impl Events {
    /// Those that are kept, newest last.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Event> {
        self.kept.iter()
    }

    pub(crate) fn say(&mut self, at: f64, kind: &'static str, text: String) {
        self.kept.push_back(Event { at, kind, text });
        if self.kept.len() > KEPT_MAX {
            self.kept.pop_front();
        }
    }

    /// An entry of the journal, whose times are `since` seconds after the run's beginning.
    pub(crate) fn told(&mut self, entry: &Entry, since: f64) {
        match entry {
            Entry::Begun(_) => self.say(since, "phase", "the run begins".to_owned()),
            Entry::Joined { at, name, process, .. } => {
                self.names.insert(*process, name.clone());
                self.say(at + since, "come", format!("{name} is started"));
            }
            Entry::Ended { at, process, end } => {
                let name = self.names.get(process).cloned().unwrap_or_else(|| format!("process {process}"));
                let kind = if end == "left" || end == "ended" { "gone" } else { "fault" };
                self.say(at + since, kind, format!("{name}: {end}"));
            }
            Entry::Fault(fault) => {
                let kind = match fault.kind.as_str() {
                    "thaw" | "heal" | "continues" => "heal",
                    "join" => "come",
                    "leave" => "gone",
                    "migrate" => "moved",
                    _ => "fault",
                };
                let name = if fault.name.is_empty() { fault.role.as_str() } else { fault.name.as_str() };
                self.say(fault.at_seconds + since, kind, format!("{} {name}: {}", fault.kind, fault.what));
            }
            Entry::Seen(seen) => self.progress(seen, since),
            Entry::Closed { at, how, why } if why.is_empty() => self.say(at + since, "phase", how.clone()),
            Entry::Closed { at, how, why } => {
                let why = why.lines().next().unwrap_or_default();
                self.say(at + since, "phase", format!("{how}: {why}"));
            }
        }
    }

    fn progress(&mut self, seen: &Seen, since: f64) {
        let at = seen.at + since;
        if let Some(before) = self.seen.take() {
            if seen.rewinds > before.rewinds {
                let grown =
                    |cause: &_, times: &u64| *times > before.rewind_causes.get(cause).copied().unwrap_or(0);
                let new = seen.rewind_causes.iter().filter(|(cause, times)| grown(cause, times));
                let new = new.map(|(cause, times)| (*cause, *times)).collect();
                let why = rewinds::text(seen.rewinds - before.rewinds, &new);
                self.say(at, "back", format!("the job went back to step {} {why}", seen.step));
            }
            if seen.master_term > before.master_term {
                self.say(at, "heal", format!("a master leads again, in term {}", seen.master_term));
            }
        }
        let left_out: Vec<String> = seen.excluded.iter().map(|excluded| excluded.line()).collect();
        left_out.into_iter().for_each(|line| self.say(at, "left_out", line));
        self.seen = Some(seen.clone());
    }

    /// What the master says, beside what a journal has.
    pub(crate) fn saw(&mut self, at: f64, status: &StatusReply) {
        let Some(before) = self.status.take() else {
            self.status = Some(Box::new(status.clone()));
            return;
        };
        if status.checkpoint > before.checkpoint {
            let (number, version) = (status.checkpoint, status.checkpoint_version);
            self.say(at, "kept", format!("checkpoint {number} is durable, of version {version}"));
        }
        for evaluation in status.evaluations.iter().skip(before.evaluations.len()) {
            let best = if evaluation.is_best { ", the best so far" } else { "" };
            let values = evaluations::values(evaluation);
            self.say(at, "better", format!("evaluated at step {}: {values}{best}", evaluation.step));
        }
        if status.is_progress_known
            && before.is_progress_known
            && status.epoch > before.epoch
            && let Some((_, epochs)) = epoch(status)
        {
            self.say(at, "phase", format!("epoch {} of {epochs} is over", status.epoch));
        }
        self.standstill(at, &before, status);
        self.moves(at, &before, status);
        if status.copies_filling == 0 && before.copies_filling > 0 && status.copies_in_sync > 0 {
            self.say(at, "heal", "every copy of every block is in sync again".to_owned());
        }
        self.status = Some(Box::new(status.clone()));
    }

    /// A job begins to stand still, waits for something else, or goes on.
    fn standstill(&mut self, at: f64, before: &StatusReply, status: &StatusReply) {
        let of = |status: &StatusReply| {
            status
                .standstill
                .as_ref()
                .filter(|one| one.is_idle)
                .map(|one| (one.reason.clone(), one.cause.clone()))
        };
        match (of(before), of(status)) {
            (None, Some((_, cause))) => self.say(at, "fault", format!("the job stands still: {cause}")),
            (Some((was, _)), Some((is, cause))) if was != is => {
                self.say(at, "fault", format!("the job waits: {cause}"));
            }
            (Some(_), None) => self.say(at, "heal", "the job goes on".to_owned()),
            _ => {}
        }
    }

    fn moves(&mut self, at: f64, before: &StatusReply, status: &StatusReply) {
        let of = |status: &StatusReply| -> BTreeMap<u64, PserverStatus> {
            let pservers = status.pservers.iter().filter(|pserver| !pserver.lost);
            pservers.map(|pserver| (pserver.incarnation, pserver.clone())).collect()
        };
        let (then, now) = (of(before), of(status));
        for (incarnation, pserver) in &now {
            let had = then.get(incarnation).map_or(0, |then| then.blocks);
            if then.get(incarnation).is_some_and(|then| !then.is_leaving) && pserver.is_leaving {
                self.say(at, "moved", format!("{} hands its blocks to others", pserver.name));
            }
            if pserver.blocks > had && !then.is_empty() {
                let count = pserver.blocks - had;
                let blocks = if count == 1 { "block is" } else { "blocks are" };
                self.say(at, "moved", format!("{count} {blocks} at {} now, as primaries", pserver.name));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_runner::report::Fault;
    use shoal_runtime::wire::proto::{EvaluationStatus, MetricValue};

    fn texts(events: &Events) -> Vec<&str> {
        events.iter().map(|event| event.text.as_str()).collect()
    }

    #[test]
    fn a_journal_is_told_by_names_and_with_times_of_the_run() {
        let mut events = Events::default();
        let (role, name) = ("trainer".to_owned(), "trainer-3".to_owned());
        events.told(&Entry::Joined { at: 1.0, role: role.clone(), name: name.clone(), process: 7 }, 100.0);
        let what = "kill -9".to_owned();
        events
            .told(&Entry::Fault(Fault { kind: "kill".to_owned(), role, name, at_seconds: 2.0, what }), 100.0);
        events.told(&Entry::Ended { at: 2.5, process: 7, end: "killed".to_owned() }, 100.0);
        assert_eq!(texts(&events), ["trainer-3 is started", "kill trainer-3: kill -9", "trainer-3: killed"]);
        let kinds: Vec<_> = events.iter().map(|event| (event.at, event.kind)).collect();
        assert_eq!(kinds, [(101.0, "come"), (102.0, "fault"), (102.5, "fault")]);
    }

    #[test]
    fn what_two_looks_differ_by_is_told() {
        let pserver = |incarnation, blocks, is_leaving| PserverStatus {
            name: format!("pserver-{incarnation}"),
            incarnation,
            blocks,
            is_leaving,
            ..Default::default()
        };
        let first =
            StatusReply { pservers: vec![pserver(1, 4, false)], copies_filling: 1, ..Default::default() };
        let values = vec![MetricValue { name: "accuracy".to_owned(), value: Some(0.5) }];
        let second = StatusReply {
            pservers: vec![pserver(1, 3, true), pserver(2, 1, false)],
            copies_in_sync: 4,
            checkpoint: 2,
            checkpoint_version: 40,
            evaluations: vec![EvaluationStatus { step: 40, values, is_best: true, ..Default::default() }],
            ..Default::default()
        };
        let mut events = Events::default();
        events.saw(1.0, &first);
        events.saw(2.0, &first);
        assert!(texts(&events).is_empty(), "nothing has happened");
        events.saw(3.0, &second);
        assert_eq!(
            texts(&events),
            [
                "checkpoint 2 is durable, of version 40",
                "evaluated at step 40: accuracy 0.5000, the best so far",
                "pserver-1 hands its blocks to others",
                "1 block is at pserver-2 now, as primaries",
                "every copy of every block is in sync again",
            ]
        );
    }

    #[test]
    fn of_many_events_the_newest_are_kept() {
        let mut events = Events::default();
        (0..1000).for_each(|at| events.say(f64::from(at), "phase", at.to_string()));
        assert_eq!((events.kept.len(), texts(&events)[KEPT_MAX - 1]), (KEPT_MAX, "999"));
    }
}
