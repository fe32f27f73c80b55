//! The master's state machine: membership, declaration, placement, leases, ends. Pure: time comes in as an argument.
//!
//! What lasts is the [`Document`]. The machine says what the next one should be ([`Machine::decide`]); the shell swaps
//! it in the store and only then gives it back ([`Machine::adopt`]); only what was adopted is told to anyone.
//! Life of a job: `Waiting` (for the declaration and for pservers) -> `Training` -> `Done`, or `Failed` from
//! anywhere. Invariants: the declaration never changes once taken; the front follows the pservers' reports alone, and
//! goes back only with a rewind; a refused call changes nothing.

mod checkpoints;
mod failures;
mod pservers;
mod recording;
mod suspicions;
mod trainers;
mod verifying;
mod wanted;

use crate::advance::Advance;
use crate::decide::{self, Admission, Damage, Seen, Sums, Wishes};
use crate::dispatch::Dispatch;
use crate::document::{Document, End, PserverAt};
use crate::loads::Loads;
use crate::members::Members;
use crate::recording::Recording;
use crate::reports::Reports;
use crate::suspects::Suspects;
use crate::tally::Tally;
use crate::trouble::Complaint;
use crate::verification::Verification;
use crate::work::Work;
use shoal_job::spec::Spec;
use shoal_runtime::cluster::layout::{BLOCK_ELEMENTS_MAX, BlockLayout};
use shoal_runtime::cluster::{
    CheckpointId, CheckpointManifest, Declaration, Incarnation, JobSettings, Layout, Manifest,
    ManifestRecord, Plan, Refusal, RefusalKind, Routing, Step,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

pub use checkpoints::CheckpointPolicy;
pub use pservers::{PserverRecord, PserverWord, UNATTENDED_MAX};
pub use trainers::{Declared, LeaseOutcome, Refused, TrainerWord};

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
    pub(crate) plan: Plan,
    pub(crate) trainers: Members,
    pub(crate) heard_trainers: BTreeMap<Incarnation, trainers::HeardTrainer>,
    pub(crate) tally: Tally,
    pub(crate) work: Work,
    pub(crate) pservers: Members,
    pub(crate) pserver_records: BTreeMap<Incarnation, PserverRecord>,
    pub(crate) document: Document,
    pub(crate) wishes: Wishes,
    pub(crate) job: Option<Placed>,
    pub(crate) loads: Loads,
    admissions: Vec<Admission>,
    damages: Vec<Damage>,
    complaints: Vec<Complaint>,
    /// The furthest front at which a trainer's failure was counted, or, after an election, where the job was first found: beyond it the
    /// failures before are forgiven. `None` before either.
    failed_at: Option<Step>,
    /// The lowest step, or position, that some block lacks, and since when.
    front_seen: u64,
    pub(crate) front_since: Duration,
    /// Since when some block has no live copy.
    homeless_since: Option<Duration>,
    /// Whether something has happened since the last decision.
    is_changed: bool,
    /// Whether the last decision would have been another, had no pserver been one that may be gone.
    waits_for_suspects: bool,
    /// The live settings by which this master was started.
    started: Spec,
    /// The settings that this master goes by: of those of `document.job` none has changed.
    spec: Spec,
    policy: CheckpointPolicy,
    under_way: checkpoints::UnderWay,
    recording: Recording,
    /// Checkpoints whose files may go.
    removable: Vec<CheckpointId>,
    /// Of the newest checkpoint that this master has made durable, in a job with tables.
    newest_manifest: Option<(ManifestRecord, CheckpointManifest)>,
    /// Where checkpoints lie, for pservers.
    pub(crate) place: String,
}

/// What exists once blocks are placed.
#[derive(Debug)]
pub struct Placed {
    /// How the declaration is cut into blocks.
    pub layout: Layout,
    /// Bytes of each block's parameters.
    pub sizes: Vec<u64>,
    /// Who hosts them.
    pub routing: Arc<Routing>,
    /// What pservers have said of them.
    pub reports: Reports,
    /// Who works on what.
    pub dispatch: Dispatch,
    /// How often pservers had to tell everything anew.
    pub forgotten: u32,
    /// With what trainers are lost.
    pub suspects: Suspects,
    /// What is computed twice; `None`: nothing is.
    pub verification: Option<Verification>,
    /// Whether all blocks were heard of since this master leads, or since the job went back: only then is the front
    /// known, and worth leasing from.
    pub is_heard: bool,
}

impl Machine {
    /// The master that was elected with `document`, and was started with `spec`.
    pub fn new(document: Document, manifest: Manifest, spec: Spec, place: String, now: Duration) -> Machine {
        let (term, settings) = (document.master_term, &document.job);
        let started = spec.live();
        let told = document.told.as_ref().filter(|told| told.started == started);
        // What was told was held against what is pinned then.
        let spec = told.and_then(|told| spec.with_live(&told.live).ok()).unwrap_or(spec);
        let policy = CheckpointPolicy::of(&spec.checkpoint);
        let ttl = Duration::from_millis(settings.lease_ttl_millis);
        let mut pservers = Members::new("pserver", term, ttl);
        let mut pserver_records = BTreeMap::new();
        for (incarnation, at) in &document.pservers {
            pservers.remember(*incarnation, &at.name, now);
            // It may have ended since; until it has a call open it is worth asking.
            pservers.suspect(*incarnation, now);
            pserver_records.insert(*incarnation, PserverRecord::at(&at.address));
        }
        let wishes = Wishes {
            declaration: None,
            environment: None,
            wanted: document.wanted,
            checks: document.checks,
            told: document.told.clone(),
            leaving: BTreeSet::new(),
            replacing: BTreeSet::new(),
            end: document.end.clone(),
            committed: None,
            keep_last: policy.keep_last,
            is_checkpoint_due: false,
            base: None,
            failures: document.failures,
        };
        let mut machine = Machine {
            plan: Plan::new(manifest, settings.clone()),
            trainers: Members::new("trainer", term, ttl),
            heard_trainers: BTreeMap::new(),
            tally: Tally::default(),
            work: Work::default(),
            pservers,
            pserver_records,
            wishes,
            job: None,
            loads: Loads::default(),
            admissions: Vec::new(),
            damages: Vec::new(),
            complaints: Vec::new(),
            failed_at: None,
            front_seen: 0,
            front_since: now,
            homeless_since: None,
            is_changed: true,
            waits_for_suspects: false,
            started,
            spec,
            policy,
            under_way: checkpoints::UnderWay::default(),
            recording: Recording::of(document.rewind(), now),
            removable: Vec::new(),
            newest_manifest: None,
            place,
            document: Document { blocks: Vec::new(), ..document.clone() },
        };
        machine.adopt(document, now);
        machine
    }

    /// The job's settings.
    pub fn settings(&self) -> &JobSettings {
        &self.document.job
    }
    /// What lasts, as it was adopted.
    pub fn document(&self) -> &Document {
        &self.document
    }
    /// What the first trainer declared.
    pub fn declaration(&self) -> Option<&Declaration> {
        self.document.declaration.as_ref().or(self.wishes.declaration.as_ref())
    }
    /// Where the job stands.
    pub fn phase(&self) -> Phase {
        match (&self.document.end, &self.job) {
            (Some(End::Failed(why)), _) => Phase::Failed(why.clone()),
            (Some(End::Done), _) => Phase::Done,
            (None, None) => Phase::Waiting,
            (None, Some(_)) => Phase::Training,
        }
    }
    /// The lowest step that some block has not applied; in an asynchronous job what would be one.
    pub fn front(&self) -> Step {
        Step(self.advance().step)
    }
    /// How far it is, in the words of people.
    pub(crate) fn advance(&self) -> Advance {
        Advance::of(self.settings(), self.job.as_ref().map_or(0, |job| job.dispatch.front()))
    }
    /// Notes when the front has moved.
    pub(super) fn note_front(&mut self, now: Duration) {
        let front = self.job.as_ref().map_or(0, |job| job.dispatch.front());
        if front != self.front_seen {
            (self.front_seen, self.front_since) = (front, now);
        }
    }
    /// Records of all steps below the front.
    pub fn records_trained(&self) -> u64 {
        self.advance().records
    }

    /// Refuses a call that names another job.
    pub fn check_job(&self, job: &str) -> Result<(), Refusal> {
        let ours = &self.settings().job;
        if job == ours.0 {
            return Ok(());
        }
        let detail = format!("this master runs {:?}: check SHOAL_JOB and the master's address", ours.0);
        Err(Refusal::new(RefusalKind::WrongJob, format!("job {job:?}"), detail))
    }

    /// What time alone brings about: members lost, leases expired, an end that waits for nothing any more.
    pub fn tick(&mut self, now: Duration) {
        self.lose_the_silent(now);
        self.is_changed |= !self.pservers.expire(now).is_empty();
        if let Some(job) = &mut self.job {
            job.dispatch.expire(now, &job.reports);
        }
        self.end_if_complete(now);
    }

    /// When [`tick`](Self::tick) has something to do next.
    pub fn next_deadline(&self) -> Option<Duration> {
        let of_job = |job: &Placed| [job.dispatch.next_deadline(), job.suspects.next_deadline()];
        let members = [self.trainers.next_deadline(), self.pservers.next_deadline()];
        members.into_iter().chain(self.job.iter().flat_map(of_job)).flatten().min()
    }

    /// Whether something has happened that [`decide`](Self::decide) has not seen.
    pub fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// The document that should be next, if the present one should change. Nothing of it holds before it is adopted.
    pub fn decide(&mut self, now: Duration) -> Option<Document> {
        let ttl = Duration::from_millis(self.settings().lease_ttl_millis);
        let is_patience_over = self.homeless_since.is_some_and(|since| now >= since + ttl);
        let is_timely = self.is_late_for_a_checkpoint(now);
        if !std::mem::take(&mut self.is_changed) && !is_patience_over && !is_timely {
            return None;
        }
        let hosts: BTreeMap<Incarnation, PserverAt> = self
            .pservers
            .live()
            .filter_map(|(incarnation, member)| {
                let address = self.pserver_records.get(&incarnation)?.address.clone();
                Some((incarnation, PserverAt { name: member.name.clone(), address }))
            })
            .collect();
        let has_suspects = self.pservers.suspects(now).next().is_some();
        self.waits_for_suspects = has_suspects && hosts.len() > self.wishes.wanted.pservers as usize;
        let is_homeless = |block: &crate::document::PlacedBlock| {
            block.in_sync().all(|copy| !hosts.contains_key(&copy.pserver))
        };
        // A master that hears nobody may be out of reach itself: whoever comes first is not all who will.
        self.homeless_since = match !hosts.is_empty() && self.document.blocks.iter().any(is_homeless) {
            true => self.homeless_since.or(Some(now)),
            false => None,
        };
        let (sizes, copies, sums) = match &self.job {
            Some(job) => (job.sizes.clone(), job.reports.copies().clone(), job.reports.sums()),
            None => (self.declaration().map(sizes).unwrap_or_default(), BTreeMap::new(), Sums::new()),
        };
        let (admissions, damages) = (std::mem::take(&mut self.admissions), std::mem::take(&mut self.damages));
        let front = self.job.as_ref().and_then(|job| job.reports.lowest_version());
        // While nothing is known of the front, nobody can say which steps they are about.
        let complaints = if front.is_some() { std::mem::take(&mut self.complaints) } else { Vec::new() };
        self.wishes.is_checkpoint_due = self.is_checkpoint_due(front, now);
        self.wishes.base = self.base();
        let seen = Seen {
            hosts: &hosts,
            has_suspects,
            copies: &copies,
            admissions: &admissions,
            damages: &damages,
            complaints: &complaints,
            able_trainers: self.able_trainers(now),
            sizes: &sizes,
            sums: &sums,
            front,
            is_abandoned: self.is_abandoned(),
            is_patience_over,
        };
        decide::next(&self.document, &self.wishes, &seen)
    }

    /// The store holds `document` now.
    pub fn adopt(&mut self, document: Document, now: Duration) {
        // What was decided may call for more: moves begin where others ended.
        self.is_changed = true;
        let is_rewound = document.rewind() != self.document.rewind();
        if is_rewound && self.job.as_ref().is_some_and(|job| job.is_heard) {
            self.work.go_back(self.records_trained());
        }
        self.tell_of_damage(&document);
        self.note_removable(&document);
        self.document = document;
        // Who leaves is being replaced: the wish is fulfilled.
        self.wishes.replacing.retain(|pserver| !self.document.leaving.contains(pserver));
        let (Some(routing), Some(declaration)) = (self.document.routing(), &self.document.declaration) else {
            return;
        };
        let (routing, shape) = (Arc::new(routing), self.document.job.shape());
        match &mut self.job {
            Some(job) => {
                job.routing = routing;
                job.reports.place(&self.document.blocks);
                job.dispatch.replace(&self.document, is_rewound, now);
                job.verify_as_said(&self.document, now);
                if is_rewound {
                    job.is_heard = false;
                    job.verify_from_here(&self.document, now);
                }
            }
            None => {
                let layout = Layout::new(declaration);
                self.job = Some(Placed {
                    sizes: sizes(declaration),
                    routing,
                    reports: Reports::new(shape, &self.document.blocks, layout.scalars()),
                    layout,
                    dispatch: Dispatch::new(&self.document, now),
                    forgotten: 0,
                    suspects: Suspects::default(),
                    verification: verifying::begin(&self.document, now),
                    is_heard: false,
                });
            }
        }
        if is_rewound {
            self.front_since = now;
        }
        self.note_front(now);
        let sizes = self.job.as_ref().map_or(&[][..], |job| &job.sizes);
        self.loads = Loads::of_blocks(&self.document.blocks, sizes);
        if is_rewound {
            self.forget_pieces();
            self.forget_reports();
        }
        self.settle_committed(is_rewound);
        self.record_this_history();
        self.end_if_complete(now);
    }
}

/// Bytes of each block's parameters. A bucket counts as the largest dense block, from the first row on: it is to grow.
fn sizes(declaration: &Declaration) -> Vec<u64> {
    let bytes = |block: &BlockLayout| match block.bucket {
        Some(_) => 4 * BLOCK_ELEMENTS_MAX,
        None => 4 * block.elements as u64,
    };
    Layout::new(declaration).iter().map(|(_, block)| bytes(block)).collect()
}

#[cfg(test)]
pub(crate) mod tests;
