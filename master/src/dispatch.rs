//! Who works on what, in either mode: nodes of steps in synchronous jobs, runs of microbatches in asynchronous ones.

use crate::document::Document;
use crate::lease::{self, Leases, Progress};
use crate::reports::Reports;
use crate::runs::{self, Runs};
use crate::suspects::{LOSSES, Suspects};
use shoal_job::counters::LeaseCounters;
use shoal_runtime::cluster::tree::aligned;
use shoal_runtime::cluster::{
    Incarnation, JobShape, LeaseId, Microbatch, Mode, Plan, Rewind, Step, Task, Work,
};
use std::ops::Range;
use std::time::Duration;

/// Bits of a lease's number below the master's term.
const LEASE_BITS: u32 = 40;

/// The lease machine of a job's mode.
#[derive(Debug)]
pub enum Dispatch {
    /// Of a synchronous job.
    Steps(Leases),
    /// Of an asynchronous job.
    Runs {
        /// The leases.
        runs: Runs,
        /// The lowest position that some block lacks, as far as was heard since a block went back.
        front: u64,
    },
}

/// Where a microbatch is that a trainer cannot do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Synchronous jobs: the step.
    pub step: Step,
    /// And the slot in it.
    pub slot: u32,
    /// Asynchronous jobs: the position.
    pub position: u64,
}

impl Refused {
    /// The microbatch of that place, where a step has so many slots.
    pub fn of(place: u64, slots: u64) -> Refused {
        Refused { step: Step(place / slots), slot: (place % slots) as u32, position: place }
    }
}

/// Calls the same method on the machine of either mode.
macro_rules! either {
    ($dispatch:expr, $machine:ident => $call:expr) => {
        match $dispatch {
            Dispatch::Steps($machine) => $call,
            Dispatch::Runs { runs: $machine, .. } => $call,
        }
    };
}

impl Dispatch {
    /// That of the job in `document`, with nothing leased yet.
    pub fn new(document: &Document, now: Duration) -> Dispatch {
        let job = &document.job;
        let ttl = Duration::from_millis(job.lease_ttl_millis);
        let first = LeaseId(u64::from(document.master_term) << LEASE_BITS | 1);
        match job.mode {
            Mode::Sync { .. } => {
                let ahead = 1 + job.mode.delay();
                Dispatch::Steps(Leases::new(job.shape(), document.open_until(), ahead, ttl, first, now))
            }
            Mode::Async { staleness_window, .. } => {
                let mut runs = Runs::new(job.course(), u64::from(staleness_window), ttl, first);
                runs.open(document.open_until());
                Dispatch::Runs { runs, front: 0 }
            }
        }
    }

    /// The lowest step, or position, that some block has not applied.
    pub fn front(&self) -> u64 {
        match self {
            Dispatch::Steps(leases) => leases.front().0,
            Dispatch::Runs { front, .. } => *front,
        }
    }

    /// The first place of the front: all below it are done.
    pub fn front_place(&self, shape: &JobShape) -> u64 {
        match self {
            Dispatch::Steps(leases) => leases.front().0 * u64::from(shape.training().slots()),
            Dispatch::Runs { front, .. } => *front,
        }
    }

    /// What happened so far.
    pub fn counters(&self) -> LeaseCounters {
        either!(self, machine => machine.counters())
    }
    /// Leases that a trainer holds and has not pushed.
    pub fn in_hand(&self, trainer: Incarnation) -> u32 {
        either!(self, machine => machine.in_hand(trainer))
    }
    /// When [`expire`](Self::expire) has something to do next.
    pub fn next_deadline(&self) -> Option<Duration> {
        either!(self, machine => machine.next_deadline())
    }
    /// Ends the leases that made no progress in time.
    pub fn expire(&mut self, now: Duration, reports: &Reports) {
        either!(self, machine => machine.expire(now, reports));
    }
    /// A trainer fell silent: what blocks lack of its leases is free again.
    pub fn lose(&mut self, trainer: Incarnation, reports: &Reports) {
        either!(self, machine => machine.lose(trainer, reports));
    }
    /// A trainer leaves and hands back what it has not pushed.
    pub fn hand_back(&mut self, trainer: Incarnation, reports: &Reports) {
        either!(self, machine => machine.hand_back(trainer, reports));
    }
    /// A trainer says how far it is.
    pub fn progress(&mut self, trainer: Incarnation, progress: &[Progress], now: Duration) {
        either!(self, machine => machine.progress(trainer, progress, now));
    }
    /// A trainer cannot do a microbatch of what it was leased: others go first. False if there is nothing to do there.
    pub fn refuse(
        &mut self,
        trainer: Incarnation,
        lease: LeaseId,
        place: &Refused,
        now: Duration,
        reports: &Reports,
    ) -> bool {
        match self {
            Dispatch::Steps(leases) => leases.refuse(trainer, lease, (place.step, place.slot), now, reports),
            Dispatch::Runs { runs, .. } => runs.refuse(trainer, lease, place.position, now, reports),
        }
    }
    /// Suspect places are leased by themselves from now on, and nobody helps with those with which one was lost.
    pub fn mind(&mut self, suspects: &Suspects) {
        match self {
            Dispatch::Steps(leases) => leases.withhold(suspects.places(LOSSES), suspects.places(1)),
            Dispatch::Runs { runs, .. } => runs.withhold(suspects.places(LOSSES)),
        }
    }
    /// A trainer gets on with a lease, though it has computed no further microbatch of it.
    pub fn attend(&mut self, trainer: Incarnation, lease: LeaseId, now: Duration) {
        either!(self, machine => machine.attend(trainer, lease, now));
    }
    /// Leases a withheld place that is free and that the trainer `may` have, if it has nothing else to compute.
    pub fn lease_alone(
        &mut self,
        trainer: Incarnation,
        live: u32,
        now: Duration,
        may: &dyn Fn(u64) -> bool,
        reports: &Reports,
    ) -> Option<Grant> {
        match self {
            Dispatch::Steps(leases) => leases.lease_alone(trainer, live, now, may).map(Grant::Node),
            Dispatch::Runs { runs, .. } => runs.lease_alone(trainer, live, now, may, reports).map(Grant::Run),
        }
    }
    /// The stretches of places, all of one step where there are steps, that some block lacks, in order.
    pub fn lacking(&self, places: Range<u64>, shape: &JobShape, reports: &Reports) -> Vec<Range<u64>> {
        match self {
            Dispatch::Steps(_) => lacking_slots(places, shape, reports),
            Dispatch::Runs { .. } => {
                let mut rest = places;
                let next = || {
                    let found =
                        runs::Lacking::lacking(reports, Some(rest.clone()).filter(|rest| !rest.is_empty())?)?;
                    rest.start = found.end;
                    Some(found)
                };
                std::iter::from_fn(next).collect()
            }
        }
    }
    /// Ends the leases of `trainer` that it does not know of: their grant was lost on the way.
    pub fn forget_unknown(&mut self, trainer: Incarnation, known: &[Progress], reports: &Reports) {
        either!(self, machine => machine.forget_unknown(trainer, known, reports));
    }

    /// Pservers have reported; `is_first`: some block for the first time under its term.
    pub fn hear(&mut self, reports: &Reports, is_first: bool, now: Duration) {
        match self {
            Dispatch::Steps(leases) => {
                if is_first {
                    leases.reclaim(reports);
                }
                if let Some(lowest) = reports.lowest_version() {
                    leases.advance(Step(lowest.0), now);
                }
            }
            // A block's new primary has published less at first than the one before had, and loses nothing of it.
            Dispatch::Runs { front, .. } => {
                *front = runs::Lacking::front(reports).map_or(*front, |heard| heard.max(*front));
            }
        }
    }
    /// There is another document: some blocks may have other terms, an evaluation may be judged; the job, or some blocks of
    /// it, may have gone back.
    pub fn replace(&mut self, document: &Document, is_rewound: bool, now: Duration) {
        match self {
            Dispatch::Steps(leases) => {
                leases.open(document.open_until());
                if is_rewound {
                    leases.rewind(Step(document.restored_version().0), now);
                }
            }
            Dispatch::Runs { runs, front } => {
                runs.open(document.open_until());
                runs.relack();
                // How far a block has gone back, only it can say.
                *front = if is_rewound { 0 } else { *front };
            }
        }
    }

    /// The lowest place of the front that some block lacks; `None`: none lacks any, or nothing is open.
    pub fn lowest_lacking(&self, shape: &JobShape, reports: &Reports) -> Option<u64> {
        match self {
            Dispatch::Steps(leases) => {
                let (step, root) = leases.front_root()?;
                let lacking = lease::Lacking::lacking(reports, step, root);
                let first = step.0 * u64::from(shape.training().slots());
                lacking.iter().map(|node| first + u64::from(node.first())).min()
            }
            Dispatch::Runs { runs, .. } => {
                let open = runs.open_positions(reports).filter(|open| !open.is_empty())?;
                runs::Lacking::lacking(reports, open).map(|lacking| lacking.start)
            }
        }
    }

    /// The lease of a place of the front that was renewed last; `None`: it is free.
    pub fn holder(&self, place: u64, shape: &JobShape) -> Option<Holder> {
        match self {
            Dispatch::Steps(leases) => leases.holder((place % u64::from(shape.training().slots())) as u32),
            Dispatch::Runs { runs, .. } => runs.holder(place),
        }
    }

    /// When an idle trainer may next be given a part of a task that is late.
    pub fn next_late(&self, now: Duration) -> Option<Duration> {
        match self {
            Dispatch::Steps(leases) => leases.next_late(now),
            Dispatch::Runs { .. } => None,
        }
    }

    /// Leases up to `want` tasks to `trainer`, one of `live` live trainers.
    pub fn lease(
        &mut self,
        trainer: Incarnation,
        live: u32,
        want: u32,
        now: Duration,
        reports: &Reports,
    ) -> Vec<Grant> {
        match self {
            Dispatch::Steps(leases) => {
                let grants = leases.lease(trainer, live, want, now, reports);
                grants.into_iter().map(Grant::Node).collect()
            }
            Dispatch::Runs { runs, .. } => {
                let grants = runs.lease(trainer, live, want, now, reports);
                grants.into_iter().map(Grant::Run).collect()
            }
        }
    }
}

fn lacking_slots(places: Range<u64>, shape: &JobShape, reports: &Reports) -> Vec<Range<u64>> {
    let slots = u64::from(shape.training().slots());
    let step = Step(places.start / slots);
    let (first, mut nodes) = (step.0 * slots, Vec::new());
    aligned((places.start - first) as u32, (places.end - first) as u32, &mut nodes);
    let lacking = nodes.into_iter().flat_map(|node| lease::Lacking::lacking(reports, step, node));
    lacking.map(|node| first + u64::from(node.first())..first + u64::from(node.end())).collect()
}

/// The progress of the trainer that holds a place, by its newest report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The trainer.
    pub trainer: Incarnation,
    /// Microbatches computed, of how many of the lease.
    pub computed: u32,
    /// Microbatches of the lease.
    pub width: u32,
    /// `true` once every block has acknowledged the sum.
    pub is_pushed: bool,
    /// `true` while the sum is computed and pservers have no room for it.
    pub waits: bool,
    /// The time of its last progress.
    pub renewed: Duration,
}

/// A lease just given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// Of a node of a step.
    Node(lease::Grant),
    /// Of a run of microbatches.
    Run(runs::Grant),
}

impl Grant {
    /// Its identity.
    pub fn lease(self) -> LeaseId {
        match self {
            Grant::Node(grant) => grant.lease,
            Grant::Run(grant) => grant.lease,
        }
    }

    /// Its microbatches: step × slots of a step + slot, or the position.
    pub fn places(self, shape: &JobShape) -> Range<u64> {
        match self {
            Grant::Node(lease::Grant { step, node, .. }) => {
                let first = step.0 * u64::from(shape.training().slots());
                let end = node.end().min(shape.tree(step).present());
                first + u64::from(node.first())..first + u64::from(end)
            }
            Grant::Run(runs::Grant { first, count, .. }) => first..first + u64::from(count),
        }
    }

    /// The task that was leased. `rewind`: the history it belongs to.
    pub fn task(self, plan: &mut Plan, rewind: Rewind) -> Task {
        match self {
            Grant::Node(lease::Grant { lease, step, node }) => {
                let tree = plan.shape().tree(step);
                let slots = node.first()..node.end().min(tree.present());
                let microbatches: Vec<Microbatch> = slots.map(|slot| plan.microbatch(step, slot)).collect();
                Task {
                    lease,
                    work: Work::Node { step, node, rewind },
                    microbatches,
                    is_careful: false,
                    verified: Vec::new(),
                    is_second: false,
                }
            }
            Grant::Run(runs::Grant { lease, first, count }) => {
                let positions = first..first + u64::from(count);
                let microbatches = positions.map(|position| plan.microbatch_at(position)).collect();
                Task {
                    lease,
                    work: Work::Run { first },
                    microbatches,
                    is_careful: false,
                    verified: Vec::new(),
                    is_second: false,
                }
            }
        }
    }
}
