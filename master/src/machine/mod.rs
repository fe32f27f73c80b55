//! The master's state machine: membership, declaration, routing, leases, ends. Pure: time comes in as an argument.
//!
//! Life of a job: `Waiting` (for the declaration and for pservers) -> `Training` -> `Done`, or `Failed` from
//! anywhere. Invariants: the declaration never changes once taken; routing exists once the declaration and the
//! wanted pservers are there; the front follows the pservers' reports alone; `Done` only when every block has
//! applied the last step; a refused call changes nothing.

mod pservers;
mod trainers;

use crate::lease::Leases;
use crate::members::Members;
use crate::reports::Reports;
use shoal_runtime::cluster::{
    Declaration, Incarnation, JobSettings, Layout, Manifest, Plan, Refusal, RefusalKind, Routing, Step,
};
use std::collections::BTreeMap;
use std::time::Duration;

pub use pservers::{Assignment, PserverCounters, PserverRecord};
pub use trainers::{LeaseOutcome, TrainerCounters, TrainerWord};

/// Gradients that trainers may fail to compute, each time ending a trainer, before the job fails.
const FAILURES_MAX: u32 = 3;
/// A pserver silent for so many lease TTLs is taken for dead; without copies that ends the job.
const PSERVER_PATIENCE_TTLS: u32 = 10;

/// What the operator of a job asks for beside its settings.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Pservers to wait for before blocks are placed.
    pub pservers: u32,
    /// Trainers that a supervisor should run.
    pub trainers: u32,
}

/// Where a job stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// For the first trainer's declaration, or for pservers.
    Waiting,
    /// Steps are being made.
    Training,
    /// Every block has applied the last step.
    Done,
    /// It cannot go on, and why.
    Failed(String),
}

/// The master of one job.
#[derive(Debug)]
pub struct Machine {
    pub(crate) settings: JobSettings,
    pub(crate) plan: Plan,
    pub(crate) trainers: Members,
    pub(crate) trainer_words: BTreeMap<Incarnation, TrainerWord>,
    pub(crate) pservers: Members,
    pub(crate) pserver_records: BTreeMap<Incarnation, PserverRecord>,
    pub(crate) wanted: Wanted,
    pub(crate) job: Option<Placed>,
    declaration: Option<Declaration>,
    failures: Vec<String>,
    failed: Option<String>,
}

/// What exists once blocks are placed.
#[derive(Debug)]
pub struct Placed {
    /// How the declaration is cut into blocks.
    pub layout: Layout,
    /// Who hosts them.
    pub routing: Routing,
    /// What pservers have said of them.
    pub reports: Reports,
    /// Who works on what.
    pub leases: Leases,
}

impl Machine {
    /// The master of a job that has not begun. `term` is the master's own.
    pub fn new(settings: JobSettings, manifest: Manifest, wanted: Wanted, term: u32) -> Machine {
        let ttl = Duration::from_millis(settings.lease_ttl_millis);
        Machine {
            plan: Plan::new(manifest, settings.clone()),
            trainers: Members::new("trainer", term, ttl),
            trainer_words: BTreeMap::new(),
            pservers: Members::new("pserver", term, ttl * PSERVER_PATIENCE_TTLS),
            pserver_records: BTreeMap::new(),
            wanted,
            job: None,
            declaration: None,
            failures: Vec::new(),
            failed: None,
            settings,
        }
    }

    /// The job's settings.
    pub fn settings(&self) -> &JobSettings {
        &self.settings
    }
    /// What the first trainer declared.
    pub fn declaration(&self) -> Option<&Declaration> {
        self.declaration.as_ref()
    }
    /// Where the job stands.
    pub fn phase(&self) -> Phase {
        match (&self.failed, &self.job) {
            (Some(why), _) => Phase::Failed(why.clone()),
            (None, None) => Phase::Waiting,
            (None, Some(_)) if self.front().0 >= self.settings.steps() => Phase::Done,
            (None, Some(_)) => Phase::Training,
        }
    }
    /// The lowest step that some block has not applied.
    pub fn front(&self) -> Step {
        self.job.as_ref().map_or(Step(0), |job| job.leases.front())
    }
    /// Records of all steps below the front.
    pub fn records_trained(&self) -> u64 {
        let (shape, front) = (self.settings.shape(), self.front());
        let epochs = front.0 / shape.steps();
        let within = (0..front.0 % shape.steps()).map(Step);
        let in_epoch: u64 = within
            .flat_map(|step| (0..shape.tree(step).present()).map(move |slot| shape.microbatch(step, slot)))
            .map(|microbatch| shape.positions(microbatch))
            .map(|positions| positions.end - positions.start)
            .sum();
        epochs * self.settings.records + in_epoch
    }

    /// Asks for another number of trainers; the supervisor makes it so. Returns the number before.
    pub fn scale(&mut self, trainers: u32) -> u32 {
        std::mem::replace(&mut self.wanted.trainers, trainers)
    }

    /// Refuses a call that names another job.
    pub fn check_job(&self, job: &str) -> Result<(), Refusal> {
        if job == self.settings.job.0 {
            return Ok(());
        }
        let detail =
            format!("this master runs {:?}: check SHOAL_JOB and the master's address", self.settings.job.0);
        Err(Refusal::new(RefusalKind::WrongJob, format!("job {job:?}"), detail))
    }

    /// What time alone brings about: members lost, leases expired.
    pub fn tick(&mut self, now: Duration) {
        for lost in self.trainers.expire(now) {
            if let Some(job) = &mut self.job {
                job.leases.lose(lost, &job.reports);
            }
        }
        for lost in self.pservers.expire(now) {
            if !self.hosts_blocks(lost) {
                continue;
            }
            let name = self.pservers.get(lost).map_or_else(String::new, |member| member.name.clone());
            let address = self.pserver_records.get(&lost).map_or("", |record| record.address.as_str());
            self.fail(format!("pserver {name:?} at {address} is lost, and its blocks have no copy"));
        }
        if let Some(job) = &mut self.job {
            job.leases.expire(now, &job.reports);
        }
    }

    /// When [`tick`](Self::tick) has something to do next.
    pub fn next_deadline(&self) -> Option<Duration> {
        let leases = self.job.as_ref().and_then(|job| job.leases.next_deadline());
        [self.trainers.next_deadline(), self.pservers.next_deadline(), leases].into_iter().flatten().min()
    }

    pub(crate) fn fail(&mut self, why: String) {
        if self.failed.is_none() && self.phase() != Phase::Done {
            self.failed = Some(why);
        }
    }
}

#[cfg(test)]
mod tests;
