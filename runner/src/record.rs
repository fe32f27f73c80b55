//! What happened in a local run: members, faults, samples, with seconds since its start; its journal says the same.

use super::journal::{Begun, Entry, Journal, Seen};
use super::losses::Losses;
use super::tensorboard::Board;
use super::told::Told;
use crate::report::{Fault, Member, Sample};
use shoal_job::Role;
use shoal_runtime::wire::proto::StatusReply;
use tokio::time::Instant;

/// The record of one run.
#[derive(Debug)]
pub struct Record {
    started: Instant,
    journal: Journal,
    board: Option<Board>,
    is_closed: bool,
    /// Every process that the run has had.
    pub members: Vec<Member>,
    /// What was done to them.
    pub faults: Vec<Fault>,
    /// How the job was, again and again.
    pub samples: Vec<Sample>,
    records_sampled: u64,
    told: Told,
}

impl Record {
    /// Begins now.
    pub fn new(mut journal: Journal, begun: Begun) -> Record {
        journal.write(&Entry::Begun(begun));
        Record {
            started: Instant::now(),
            journal,
            board: None,
            is_closed: false,
            members: Vec::new(),
            faults: Vec::new(),
            samples: Vec::new(),
            records_sampled: 0,
            told: Told::default(),
        }
    }

    /// The same, told to TensorBoard too.
    pub(crate) fn with_board(self, board: Option<Board>) -> Record {
        Record { board, ..self }
    }

    /// How long the run lives.
    pub fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// A process was started.
    pub fn joined(&mut self, role: Role, name: &str, process: u32) {
        let from_seconds = self.seconds();
        self.journal.write(&Entry::Joined {
            at: from_seconds,
            role: role.name().to_owned(),
            name: name.to_owned(),
            process,
        });
        self.members.push(Member {
            name: name.to_owned(),
            role: role.name().to_owned(),
            process,
            from_seconds,
            to_seconds: from_seconds,
            frozen: Vec::new(),
            end: String::new(),
        });
    }

    /// A process has ended, and how, in a word.
    pub fn ended(&mut self, process: u32, end: &str) {
        let now = self.seconds();
        if let Some(member) =
            self.members.iter_mut().find(|member| member.process == process && member.end.is_empty())
        {
            member.to_seconds = now;
            member.end = end.to_owned();
            close_freeze(member, now);
            self.journal.write(&Entry::Ended { at: now, process, end: end.to_owned() });
        }
    }

    /// Something was done to a process; to none in particular where the name is empty.
    pub fn fault(&mut self, kind: &str, role: Role, name: &str, what: &str) {
        let fault = Fault {
            kind: kind.to_owned(),
            role: role.name().to_owned(),
            name: name.to_owned(),
            at_seconds: self.seconds(),
            what: what.to_owned(),
        };
        freeze_or_thaw(&mut self.members, &fault);
        self.journal.write(&Entry::Fault(fault.clone()));
        self.faults.push(fault);
    }

    /// Faults that struck somebody: not those that end, not what came of one, and not what others have done.
    pub fn injected(&self) -> impl Iterator<Item = &Fault> {
        self.faults.iter().filter(|fault| {
            !matches!(fault.kind.as_str(), "thaw" | "heal" | "lost" | "stopped" | "continues")
        })
    }

    /// Whether the next sample is due: after 100 ms or, in a long run, a 500th of it; at once when trainers come or go.
    pub fn is_sample_due(&self, trainers_live: u32) -> bool {
        let now = self.seconds();
        self.samples.last().is_none_or(|last| {
            now - last.at_seconds >= (now / 500.0).max(0.1) || last.trainers_live != trainers_live
        })
    }

    /// How the job is. `over` is `status` with the counts of the whole run.
    pub fn sample(&mut self, status: &StatusReply, over: &StatusReply) {
        let mut seen = Seen::of(self.seconds(), status, over);
        if !status.is_progress_known
            && let Some(last) = self.samples.last()
        {
            // A master that has just begun to lead: the job is where it was, or will be known to be elsewhere.
            (seen.step, seen.records_trained) = (last.step, self.records_sampled);
            seen.trainers_live = seen.trainers_live.max(last.trainers_live);
        }
        self.told.leave_new(&mut seen);
        let since = seen.at - self.samples.last().map_or(0.0, |last| last.at_seconds);
        let gained = seen.records_trained.saturating_sub(self.records_sampled);
        self.records_sampled = seen.records_trained;
        self.samples.push(Sample {
            at_seconds: seen.at,
            step: seen.step,
            trainers_live: seen.trainers_live,
            loss: None,
            records_per_second: gained as f64 / since.max(1e-3),
        });
        self.board.iter_mut().for_each(|board| board.see(&seen));
        self.journal.write(&Entry::Seen(seen));
    }

    /// Closes what is still open at the end of the run.
    pub fn close(&mut self) {
        let now = self.seconds();
        for member in self.members.iter_mut().filter(|member| member.end.is_empty()) {
            member.to_seconds = now;
            member.end = "ended".to_owned();
            close_freeze(member, now);
        }
    }

    /// What the program has counted in the first `made` steps.
    pub(crate) fn tell_losses(&mut self, losses: &Losses, made: u64) {
        self.board.iter_mut().for_each(|board| board.tell_losses(losses, made));
    }

    /// How the run ended, and why; only the first word counts.
    pub fn conclude(&mut self, how: &str, why: &str) {
        if !std::mem::replace(&mut self.is_closed, true) {
            let at = self.seconds();
            self.board.iter_mut().for_each(|board| board.conclude(at, how == "done"));
            let (how, why) = (how.to_owned(), why.to_owned());
            self.journal.write(&Entry::Closed { at, how, why });
        }
    }
}

/// Marks the living member of that name as frozen, or as moving again.
pub fn freeze_or_thaw(members: &mut [Member], fault: &Fault) {
    let named = members.iter_mut().find(|member| member.name == fault.name && member.end.is_empty());
    match (named, fault.kind.as_str()) {
        // Who is stopped by somebody else, and then by chaos, stands still once.
        (Some(member), "freeze" | "stopped") if !is_frozen(member) => {
            member.frozen.push((fault.at_seconds, f64::INFINITY));
        }
        (Some(member), "thaw" | "continues") => close_freeze(member, fault.at_seconds),
        _ => {}
    }
}

fn is_frozen(member: &Member) -> bool {
    member.frozen.last().is_some_and(|freeze| freeze.1.is_infinite())
}

/// A member that stood still goes on, or is no more.
pub(crate) fn close_freeze(member: &mut Member, now: f64) {
    if let Some(freeze) = member.frozen.last_mut().filter(|freeze| freeze.1.is_infinite()) {
        freeze.1 = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_master_that_does_not_know_how_far_the_job_is_makes_no_step_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let begun = Begun::of(&[], &StatusReply::default(), 1);
        let mut record = Record::new(Journal::open(&path), begun);
        let word = |step, is_progress_known| StatusReply {
            step,
            records_trained: 10 * step,
            is_progress_known,
            ..Default::default()
        };
        for status in [word(0, true), word(7, true), word(0, false), word(3, true)] {
            record.sample(&status, &status);
        }
        assert_eq!(record.samples.iter().map(|sample| sample.step).collect::<Vec<_>>(), [0, 7, 7, 3]);
        let written = super::super::journal::read(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let steps = written.iter().filter_map(|entry| match entry {
            Entry::Seen(seen) => Some((seen.step, seen.records_trained)),
            _ => None,
        });
        assert_eq!(steps.collect::<Vec<_>>(), [(0, 0), (7, 70), (7, 70), (3, 30)]);
    }

    #[test]
    fn who_is_stopped_by_somebody_and_then_frozen_stands_still_once_and_that_is_one_fault() {
        let folder = tempfile::tempdir().unwrap();
        let begun = Begun::of(&[], &StatusReply::default(), 1);
        let mut record = Record::new(Journal::open(&folder.path().join("journal")), begun);
        record.joined(Role::Trainer, "trainer-0", 7);
        for kind in ["stopped", "freeze", "thaw", "continues"] {
            record.fault(kind, Role::Trainer, "trainer-0", "");
        }
        let [(from, to)] = record.members[0].frozen[..] else { panic!("{:?}", record.members) };
        assert!(from <= to && to.is_finite());
        assert_eq!(record.injected().map(|fault| fault.kind.as_str()).collect::<Vec<_>>(), ["freeze"]);
    }
}
