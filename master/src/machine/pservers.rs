//! The pservers' side of the master: register, report, what to hold.

use super::{Machine, Placed};
use crate::advance::Advance;
use crate::assignment;
use crate::decide::{Admission, ahead};
use crate::members::State;
use crate::reports::{BlockProgress, BlockSums, CopyProgress};
use shoal_job::counters::PserverCounters;
use shoal_runtime::cluster::checkpoint::WrittenFile;
use shoal_runtime::cluster::waits::Wait;
use shoal_runtime::cluster::{
    BlockHashes, BlockId, DamagedCheckpoint, Incarnation, Refusal, RefusalKind, Rewind, Staleness, Step,
    Version,
};
use shoal_runtime::wire::proto;
use std::collections::btree_map::Entry;
use std::time::Duration;

/// How long a pserver may have no call open before it is asked whether it is still there.
pub const UNATTENDED_MAX: Duration = Duration::from_millis(50);

/// What the master knows of one pserver.
#[derive(Clone, Debug)]
pub struct PserverRecord {
    /// Where it listens.
    pub address: String,
    /// The number of its newest report.
    pub call: u64,
    /// What it has counted.
    pub counters: PserverCounters,
    /// Its updates by staleness.
    pub staleness: Staleness,
    /// Waits in progress, by its newest report.
    pub waits: Vec<Wait>,
}

/// What a pserver says in one report.
#[derive(Clone, Debug, Default)]
pub struct PserverWord {
    /// The number of the report, from 1.
    pub call: u64,
    /// How its primaries stand.
    pub progress: Vec<BlockProgress>,
    /// How its followers stand.
    pub copies: Vec<CopyProgress>,
    /// What the next evaluation came to, as far as its blocks hold it.
    pub sums: Vec<BlockSums>,
    /// Which copies its primaries ask for.
    pub admissions: Vec<Admission>,
    /// What it has counted.
    pub counters: PserverCounters,
    /// What makes the job impossible; empty while nothing does.
    pub failure: String,
    /// Whether it was asked to stop.
    pub is_leaving: bool,
    /// The checkpoint that the rest is about; 0 for none.
    pub checkpoint: u64,
    /// Files of it that are durable.
    pub written: Vec<WrittenFile>,
    /// Blocks here that were past it when they heard of it, or began to lead.
    pub passed: Vec<BlockId>,
    /// `true` if some block had passed the checkpoint; only from builds that do not report which.
    pub has_passed: bool,
    /// Checkpoints that its primaries were to begin from, and cannot.
    pub damaged: Vec<DamagedCheckpoint>,
    /// Its updates by staleness.
    pub staleness: Staleness,
    /// Hashes of blocks that are not durable yet.
    pub recorded: Vec<BlockHashes>,
    /// Waits in progress.
    pub waits: Vec<Wait>,
    /// A history, and the version below which a master has settled all hashes in it; `None` where it has settled none.
    pub settled: Option<(Rewind, Version)>,
}

impl PserverRecord {
    pub(super) fn at(address: &str) -> PserverRecord {
        let (counters, staleness) = (PserverCounters::default(), Staleness::default());
        PserverRecord { address: address.to_owned(), call: 0, counters, staleness, waits: Vec::new() }
    }
}

impl Machine {
    /// A pserver registers. A later life under a name ends the one before, and its copies with it.
    pub fn register(
        &mut self,
        name: &str,
        address: &str,
        nonce: u64,
        process: u32,
        previous: Option<Incarnation>,
        now: Duration,
    ) -> Result<Incarnation, Refusal> {
        let (incarnation, _) = self.pservers.join(name, nonce, process, previous, now)?;
        if let Entry::Vacant(vacant) = self.pserver_records.entry(incarnation) {
            vacant.insert(PserverRecord::at(address));
            self.pservers.suspect(incarnation, now + UNATTENDED_MAX);
        }
        // Those that are remembered no more.
        self.pservers.take_forgotten();
        self.pserver_records.retain(|known, _| self.pservers.is_current(*known));
        self.is_changed = true;
        Ok(incarnation)
    }

    /// A pserver says how its copies stand. An overtaken report is a sign of life and nothing else.
    pub fn report(&mut self, pserver: Incarnation, word: PserverWord, now: Duration) -> Result<(), Refusal> {
        self.check_within_the_job(&word)?;
        self.hear_pserver(pserver, now)?;
        let Some(record) = self.pserver_records.get_mut(&pserver).filter(|record| record.call < word.call)
        else {
            return Ok(());
        };
        (record.call, record.counters, record.staleness) = (word.call, word.counters, word.staleness);
        record.waits = word.waits;
        if !word.failure.is_empty() {
            self.fail(word.failure);
        }
        if word.is_leaving {
            self.is_changed |= self.wishes.leaving.insert(pserver);
        }
        let Some(job) = &mut self.job else { return Ok(()) };
        self.is_changed |= !word.admissions.is_empty() || word.copies.iter().any(|copies| copies.is_broken);
        self.admissions.extend(word.admissions);
        let is_first = job.reports.hear(pserver, word.progress, word.copies);
        job.dispatch.hear(&job.reports, is_first, now);
        job.verify_up_to_front(now);
        let lowest = job.reports.lowest_version();
        let is_heard_first = !job.is_heard && lowest.is_some();
        job.is_heard |= lowest.is_some();
        if is_heard_first {
            let front = job.dispatch.front();
            let known = Advance::of(&self.document.job, front);
            self.work.know(known.records);
            self.failed_at = self.failed_at.or(Some(Step(known.step)));
        }
        for sums in word.sums {
            job.reports.hear_sums(pserver, sums);
        }
        let barrier = self.document.open_until();
        let is_near_barrier = lowest.is_some_and(|lowest| lowest.0 + ahead(&self.document.job) >= barrier);
        self.is_changed |= is_near_barrier || self.policy.every_steps > 0 || self.is_checkpoint_demanded();
        word.settled.into_iter().for_each(|settled| self.recording.settled_before(settled));
        self.hear_recorded(pserver, word.recorded, now);
        let has_passed_one = word.has_passed && word.passed.is_empty();
        self.hear_of_checkpoint(word.checkpoint, word.written, &word.passed, has_passed_one);
        self.hear_of_damage(pserver, word.damaged);
        self.note_front(now);
        Ok(())
    }

    /// Names what this master remembers of reports: a pserver that has told it to another number tells everything. 0 while nothing
    /// is remembered.
    pub fn reports_base(&self) -> u64 {
        let number = |job: &Placed| u64::from(self.document.master_term) << 32 | u64::from(job.forgotten + 1);
        self.job.as_ref().map_or(0, number)
    }

    /// Something of what pservers have told is forgotten: they tell it again.
    pub(super) fn forget_reports(&mut self) {
        if let Some(job) = &mut self.job {
            job.forgotten += 1;
        }
    }

    /// Nothing of the plan may be worked out from updates that the plan has not.
    fn check_within_the_job(&self, word: &PserverWord) -> Result<(), Refusal> {
        let end = self.document.job.course().units();
        let is_beyond = |progress: &BlockProgress| {
            let held = progress.held.iter().map(|(step, _)| step.0).max().unwrap_or(0);
            progress.version.0.max(progress.ledger.end()).max(held) > end
        };
        let is_recorded_beyond = word.settled.is_some_and(|(_, below)| below.0 > end + 1)
            || word.recorded.iter().any(|of| of.version.0 > end);
        let is_judged_beyond = word.sums.iter().any(|sums| sums.number > end);
        match word.progress.iter().any(is_beyond) || is_judged_beyond || is_recorded_beyond {
            true => {
                Err(Refusal::new(RefusalKind::OutOfRange, "report", format!("the job ends at update {end}")))
            }
            false => Ok(()),
        }
    }

    /// A pserver has spoken.
    pub fn hear_pserver(&mut self, pserver: Incarnation, now: Duration) -> Result<(), Refusal> {
        let was_live = self.pservers.get(pserver).is_some_and(|member| member.state == State::Live);
        self.pservers.hear(pserver, now)?;
        self.is_changed |= !was_live;
        Ok(())
    }

    /// A pserver has its call open, whose breaking off will tell its end.
    pub fn attend_pserver(&mut self, pserver: Incarnation, now: Duration) -> Result<(), Refusal> {
        self.hear_pserver(pserver, now)?;
        self.pservers.attend(pserver);
        self.is_changed |= self.waits_for_suspects;
        Ok(())
    }

    /// A pserver has no call open: if it has none by `from`, it may be gone.
    pub fn suspect_pserver(&mut self, pserver: Incarnation, from: Duration) {
        self.pservers.suspect(pserver, from);
    }

    /// Pservers that may be gone, with their addresses.
    pub fn suspects(&self, now: Duration) -> Vec<(Incarnation, String)> {
        let address = |who: Incarnation| Some((who, self.pserver_records.get(&who)?.address.clone()));
        self.pservers.suspects(now).filter_map(address).collect()
    }

    /// Nobody listens any more where a pserver was.
    pub fn lose_pserver(&mut self, pserver: Incarnation) {
        self.is_changed |= self.pservers.lose(pserver);
    }

    /// What a pserver is to hold, if that is newer than what it knows.
    pub fn assignment(
        &self,
        pserver: Incarnation,
        master_term: u32,
        routing_version: u64,
    ) -> Option<proto::Assignment> {
        let document = &self.document;
        let is_known = (master_term, routing_version) >= (document.master_term, document.routing_version);
        if is_known || document.blocks.is_empty() {
            return None;
        }
        Some(assignment::to(pserver, document))
    }
}
