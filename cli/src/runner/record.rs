//! What happened in a local run: members, faults, samples, with seconds since its start. Memory only; writes nothing.

use super::roles::Role;
use crate::report::{Fault, Member, Sample};
use tokio::time::Instant;

/// The record of one run.
#[derive(Debug)]
pub(crate) struct Record {
    started: Instant,
    pub(crate) members: Vec<Member>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) samples: Vec<Sample>,
    records_sampled: u64,
}

impl Record {
    pub(crate) fn new() -> Record {
        let started = Instant::now();
        Record { started, members: Vec::new(), faults: Vec::new(), samples: Vec::new(), records_sampled: 0 }
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    pub(crate) fn joined(&mut self, role: Role, name: &str, process: u32) {
        let from_seconds = self.seconds();
        self.members.push(Member {
            name: name.to_owned(),
            role: role.word().to_owned(),
            process,
            from_seconds,
            to_seconds: from_seconds,
            frozen: Vec::new(),
            end: String::new(),
        });
    }

    pub(crate) fn ended(&mut self, process: u32, end: &str) {
        let now = self.seconds();
        if let Some(member) =
            self.members.iter_mut().find(|member| member.process == process && member.end.is_empty())
        {
            member.to_seconds = now;
            member.end = end.to_owned();
            close_freeze(member, now);
        }
    }

    pub(crate) fn fault(&mut self, kind: &str, role: Role, name: &str, what: &str) {
        let at_seconds = self.seconds();
        if let Some(member) =
            self.members.iter_mut().find(|member| member.name == name && member.end.is_empty())
        {
            match kind {
                "freeze" => member.frozen.push((at_seconds, f64::INFINITY)),
                "thaw" => close_freeze(member, at_seconds),
                _ => {}
            }
        }
        self.faults.push(Fault {
            kind: kind.to_owned(),
            role: role.word().to_owned(),
            name: name.to_owned(),
            at_seconds,
            what: what.to_owned(),
        });
    }

    /// A sample, unless the last one is younger than 100 ms and nothing changed.
    pub(crate) fn sample(&mut self, step: u64, trainers_live: u32, records: u64) {
        let at_seconds = self.seconds();
        let last = self.samples.last();
        let since = last.map_or(at_seconds, |last| at_seconds - last.at_seconds);
        if last.is_some_and(|last| since < 0.1 && last.trainers_live == trainers_live) {
            return;
        }
        let records_per_second = records.saturating_sub(self.records_sampled) as f64 / since.max(1e-3);
        self.records_sampled = records;
        self.samples.push(Sample { at_seconds, step, trainers_live, loss: None, records_per_second });
    }

    /// Closes what is still open at the end of the run.
    pub(crate) fn close(&mut self) {
        let now = self.seconds();
        for member in self.members.iter_mut().filter(|member| member.end.is_empty()) {
            member.to_seconds = now;
            member.end = "ended".to_owned();
            close_freeze(member, now);
        }
    }
}

fn close_freeze(member: &mut Member, now: f64) {
    if let Some(freeze) = member.frozen.last_mut().filter(|freeze| freeze.1.is_infinite()) {
        freeze.1 = now;
    }
}
