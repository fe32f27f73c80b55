//! What to break, and when: a seeded plan of faults on trainers, pservers and the master. Pure: it is shown the job and
//! told the time, and injects nothing itself.
//!
//! Candidates of every kind of fault are shuffled, and each time the first is injected that the present permits: even a short
//! run meets most kinds. Rules:
//! - with copies, one pserver at a time is down or out of reach, and the next is hit only when all copies are in-sync
//!   again: more than that, redundancy does not promise to survive ("hard" chaos does it nevertheless). A master that is
//!   out of reach loses sight of all pservers at once, so the same holds of it;
//! - without copies a lost pserver sends the job back, so only a few are lost, or it would never end;
//! - what lasts ends, and until then its host is not hit again; only the master may be while its disk is full.

use super::kind::{Kind, Kinds};
use super::timed_fault::{self, Impairment, TimedFault};
use shoal_job::Role;
use shoal_runner::plan::Bounds;
use shoal_runtime::host::random::Random;
use std::time::Duration;

/// Which faults are injected into what kind of job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScheduleSettings {
    pub(crate) seed: u64,
    pub(crate) ttl: Duration,
    pub(crate) trainers: Bounds,
    pub(crate) pservers: Bounds,
    /// Whether blocks have copies beside their primary.
    pub(crate) has_copies: bool,
    /// Whether pservers are hit although copies are missing.
    pub(crate) is_hard: bool,
    /// Which faults there are.
    pub(crate) kinds: Kinds,
}

/// The job as chaos sees it at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct TargetState {
    /// Trainers that take part and are not leaving.
    pub(crate) trainers: Vec<String>,
    /// The same of pservers.
    pub(crate) pservers: Vec<String>,
    /// Whether all pservers that are wanted are there, and all copies in-sync.
    pub(crate) is_whole: bool,
    pub(crate) is_master_here: bool,
    /// Whether the last steps are being made: a pserver that is lost now may be lost after the end.
    pub(crate) is_ending: bool,
}

/// One thing to do to the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Injection {
    Kill(Role, String),
    /// A trainer is asked to leave.
    Leave(String),
    /// So many are wanted.
    Scale(Role, u32),
    /// A pserver's blocks go to another that takes its place.
    Migrate(String),
    /// A fault begins that lasts.
    Inject(TimedFault),
    /// It ends.
    Recover(TimedFault),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FaultCandidate {
    Kill(Role),
    Pause(Role),
    LimitMemory(Role),
    Partition(Role),
    Throttle(Role),
    FillDisk,
    Leave,
    Scale(Role),
    Migrate,
}

impl FaultCandidate {
    fn kind(self) -> Kind {
        match self {
            FaultCandidate::Kill(_) => Kind::Kill,
            FaultCandidate::Pause(_) => Kind::Freeze,
            FaultCandidate::LimitMemory(_) => Kind::Memory,
            FaultCandidate::Partition(_) => Kind::Partition,
            FaultCandidate::Throttle(_) => Kind::Slow,
            FaultCandidate::FillDisk => Kind::Disk,
            FaultCandidate::Leave => Kind::Leave,
            FaultCandidate::Scale(_) => Kind::Scale,
            FaultCandidate::Migrate => Kind::Migrate,
        }
    }
}

const CANDIDATES: [FaultCandidate; 24] = [
    FaultCandidate::Kill(Role::Trainer),
    FaultCandidate::Kill(Role::Trainer),
    FaultCandidate::Pause(Role::Trainer),
    FaultCandidate::Pause(Role::Trainer),
    FaultCandidate::LimitMemory(Role::Trainer),
    FaultCandidate::Partition(Role::Trainer),
    FaultCandidate::Partition(Role::Trainer),
    FaultCandidate::Throttle(Role::Trainer),
    FaultCandidate::Leave,
    FaultCandidate::Scale(Role::Trainer),
    FaultCandidate::Kill(Role::Pserver),
    FaultCandidate::Pause(Role::Pserver),
    FaultCandidate::LimitMemory(Role::Pserver),
    FaultCandidate::Partition(Role::Pserver),
    FaultCandidate::Partition(Role::Pserver),
    FaultCandidate::Throttle(Role::Pserver),
    FaultCandidate::Kill(Role::Master),
    FaultCandidate::Pause(Role::Master),
    FaultCandidate::LimitMemory(Role::Master),
    FaultCandidate::Partition(Role::Master),
    FaultCandidate::Throttle(Role::Master),
    FaultCandidate::FillDisk,
    FaultCandidate::Migrate,
    FaultCandidate::Scale(Role::Pserver),
];

/// Pservers that may be lost where that sends the job back.
const LOSSES_MAX: u32 = 6;
/// Faults of one run, so that every run ends.
const INJECTIONS_MAX: u32 = 60;

/// The plan of one run.
#[derive(Debug)]
pub(crate) struct Schedule {
    settings: ScheduleSettings,
    random: Random,
    candidates: Vec<FaultCandidate>,
    next: Duration,
    /// With when they end.
    active: Vec<(Duration, TimedFault)>,
    injected: u32,
    losses: u32,
}

impl Schedule {
    /// A plan that begins now.
    pub(crate) fn new(settings: ScheduleSettings, now: Duration) -> Schedule {
        let mut random = Random::seeded(settings.seed);
        let next = now + Duration::from_millis(400 + random.below(400));
        Schedule {
            settings,
            random,
            candidates: Vec::new(),
            next,
            active: Vec::new(),
            injected: 0,
            losses: 0,
        }
    }

    /// What is due now.
    pub(crate) fn due(&mut self, now: Duration, state: &TargetState) -> Vec<Injection> {
        let (over, active): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.active).into_iter().partition(|(until, _)| *until <= now);
        self.active = active;
        let mut injections: Vec<Injection> =
            over.into_iter().map(|(_, fault)| Injection::Recover(fault)).collect();
        if now >= self.next && self.injected < INJECTIONS_MAX {
            self.next = now + Duration::from_millis(250 + self.random.below(500));
            injections.extend(self.next_injection(now, state));
        }
        injections
    }

    /// Ends all that lasts, for the end.
    pub(crate) fn recover_all(&mut self) -> Vec<Injection> {
        self.active.drain(..).map(|(_, fault)| Injection::Recover(fault)).collect()
    }

    fn next_injection(&mut self, now: Duration, state: &TargetState) -> Option<Injection> {
        let mut found = self.possible(state);
        if found.is_none() {
            // The candidates that are left wait for what may never come: a new schedule.
            let kinds = self.settings.kinds;
            self.candidates =
                CANDIDATES.into_iter().filter(|candidate| kinds.holds(candidate.kind())).collect();
            for at in (1..self.candidates.len()).rev() {
                self.candidates.swap(at, self.random.below(at as u64 + 1) as usize);
            }
            found = self.possible(state);
        }
        let at = found?;
        let candidate = self.candidates.remove(at);
        self.injected += 1;
        self.inject(candidate, now, state)
    }

    /// The first candidate of the schedule that may be injected now.
    fn possible(&self, state: &TargetState) -> Option<usize> {
        (0..self.candidates.len()).find(|at| self.is_possible(self.candidates[*at], state))
    }

    /// Those of a role that nothing is wrong with.
    fn targets<'a>(&self, role: Role, state: &'a TargetState) -> Vec<&'a str> {
        let names: Vec<&str> = match role {
            Role::Trainer => state.trainers.iter().map(String::as_str).collect(),
            Role::Pserver => state.pservers.iter().map(String::as_str).collect(),
            Role::Master if state.is_master_here => vec!["master"],
            Role::Master => Vec::new(),
        };
        let is_impaired = |name: &str| {
            self.active
                .iter()
                .any(|(_, of)| of.role == role && of.name == name && of.impairment != Impairment::DiskFull)
        };
        names.into_iter().filter(|name| !is_impaired(name)).collect()
    }

    fn is_possible(&self, candidate: FaultCandidate, state: &TargetState) -> bool {
        let range = |bounds: Bounds| bounds.min < bounds.max;
        let may_move_blocks = state.is_master_here && (state.is_whole || self.settings.is_hard);
        match candidate {
            FaultCandidate::Kill(Role::Pserver)
            | FaultCandidate::Pause(Role::Pserver)
            | FaultCandidate::LimitMemory(Role::Pserver)
            | FaultCandidate::Partition(Role::Pserver)
            | FaultCandidate::Throttle(Role::Pserver) => self.may_lose_a_pserver(state),
            FaultCandidate::Partition(Role::Master) | FaultCandidate::Throttle(Role::Master) => {
                self.may_lose_a_pserver(state) && !self.targets(Role::Master, state).is_empty()
            }
            FaultCandidate::Kill(role)
            | FaultCandidate::Pause(role)
            | FaultCandidate::LimitMemory(role)
            | FaultCandidate::Partition(role)
            | FaultCandidate::Throttle(role) => !self.targets(role, state).is_empty(),
            FaultCandidate::FillDisk => {
                state.is_master_here
                    && !self.active.iter().any(|(_, fault)| fault.impairment == Impairment::DiskFull)
            }
            FaultCandidate::Leave => !self.targets(Role::Trainer, state).is_empty(),
            FaultCandidate::Scale(Role::Pserver) => {
                range(self.settings.pservers) && may_move_blocks && !state.is_ending
            }
            FaultCandidate::Scale(_) => range(self.settings.trainers) && state.is_master_here,
            FaultCandidate::Migrate => {
                may_move_blocks && !state.is_ending && !self.targets(Role::Pserver, state).is_empty()
            }
        }
    }

    fn may_lose_a_pserver(&self, state: &TargetState) -> bool {
        let targets = self.targets(Role::Pserver, state);
        if state.is_ending || targets.is_empty() {
            return false;
        }
        if self.settings.has_copies && !self.settings.is_hard {
            return state.is_whole
                && state.is_master_here
                && targets.len() == state.pservers.len()
                && targets.len() > 1
                && !self.is_master_out_of_reach();
        }
        self.losses < LOSSES_MAX
    }

    fn is_master_out_of_reach(&self) -> bool {
        let is_out_of_reach = |fault: &TimedFault| {
            fault.role == Role::Master
                && matches!(fault.impairment, Impairment::Partitioned(_) | Impairment::Throttled(_))
        };
        self.active.iter().any(|(_, fault)| is_out_of_reach(fault))
    }

    fn inject(&mut self, candidate: FaultCandidate, now: Duration, state: &TargetState) -> Option<Injection> {
        let loses = |role| {
            role == Role::Pserver
                || role == Role::Master
                    && matches!(candidate, FaultCandidate::Partition(_) | FaultCandidate::Throttle(_))
        };
        match candidate {
            FaultCandidate::Kill(role) => {
                self.losses += u32::from(loses(role));
                self.target(role, state).map(|name| Injection::Kill(role, name))
            }
            FaultCandidate::Pause(role)
            | FaultCandidate::LimitMemory(role)
            | FaultCandidate::Partition(role)
            | FaultCandidate::Throttle(role) => {
                self.losses += u32::from(loses(role));
                let name = self.target(role, state)?;
                let (impairment, tenths) = self.impairment(candidate, role, &name, state)?;
                Some(self.begin(now, TimedFault { impairment, role, name, tenths }))
            }
            FaultCandidate::FillDisk => {
                let tenths = 5 + self.random.below(25) as u32;
                let (role, name) = (Role::Master, "master".to_owned());
                Some(self.begin(now, TimedFault { impairment: Impairment::DiskFull, role, name, tenths }))
            }
            FaultCandidate::Leave => self.target(Role::Trainer, state).map(Injection::Leave),
            FaultCandidate::Scale(role) => {
                let Bounds { min, max } =
                    if role == Role::Pserver { self.settings.pservers } else { self.settings.trainers };
                Some(Injection::Scale(role, min + self.random.below(u64::from(max - min) + 1) as u32))
            }
            FaultCandidate::Migrate => self.target(Role::Pserver, state).map(Injection::Migrate),
        }
    }

    fn target(&mut self, role: Role, state: &TargetState) -> Option<String> {
        let targets = self.targets(role, state);
        let at = self.random.below(targets.len().max(1) as u64) as usize;
        targets.get(at).map(|name| (*name).to_owned())
    }

    /// What is wrong with that host, and for how many tenths of a lease's time to live.
    fn impairment(
        &mut self,
        candidate: FaultCandidate,
        role: Role,
        name: &str,
        state: &TargetState,
    ) -> Option<(Impairment, u32)> {
        let tenths = |random: &mut Random, from: u32, to: u64| from + random.below(to) as u32;
        let random = &mut self.random;
        match candidate {
            // Past the lease: a pserver that is only slow takes nothing from anybody.
            FaultCandidate::Pause(Role::Pserver) => Some((Impairment::Paused, tenths(random, 12, 15))),
            FaultCandidate::Pause(Role::Trainer) => Some((Impairment::Paused, tenths(random, 5, 25))),
            FaultCandidate::Pause(Role::Master) => Some((Impairment::Paused, tenths(random, 5, 15))),
            FaultCandidate::LimitMemory(_) => Some((Impairment::MemoryLimited, tenths(random, 5, 20))),
            FaultCandidate::Throttle(_) => {
                Some((Impairment::Throttled(timed_fault::link_limits(random)), tenths(random, 10, 25)))
            }
            FaultCandidate::Partition(_) => {
                let peers = Self::peers(random, role, name, state);
                let is_isolation = peers.is_none();
                let others = peers.unwrap_or_else(|| state.others(name));
                let cut = timed_fault::partition(random, others, is_isolation);
                (!cut.peers.is_empty()).then(|| (Impairment::Partitioned(cut), tenths(random, 5, 30)))
            }
            FaultCandidate::Kill(_)
            | FaultCandidate::FillDisk
            | FaultCandidate::Leave
            | FaultCandidate::Scale(_)
            | FaultCandidate::Migrate => None,
        }
    }

    /// Of whom one is cut off from that host; none for all others.
    fn peers(random: &mut Random, role: Role, name: &str, state: &TargetState) -> Option<Vec<String>> {
        let but = |names: &[String]| -> Vec<String> {
            names.iter().filter(|other| *other != name).cloned().collect()
        };
        let peers = match (random.below(4), role) {
            (0, _) => return None,
            (1, Role::Trainer | Role::Pserver) => vec!["master".to_owned()],
            (2, _) => but(&state.pservers),
            (_, Role::Trainer) => but(&state.pservers),
            (_, Role::Pserver | Role::Master) => but(&state.trainers),
        };
        (!peers.is_empty()).then_some(peers)
    }

    fn begin(&mut self, now: Duration, fault: TimedFault) -> Injection {
        self.active.push((now + fault.lasts(self.settings.ttl), fault.clone()));
        Injection::Inject(fault)
    }
}

impl TargetState {
    /// Every host but that one.
    fn others(&self, name: &str) -> Vec<String> {
        let master = ["master".to_owned()];
        self.trainers
            .iter()
            .chain(&self.pservers)
            .chain(&master)
            .filter(|other| *other != name)
            .cloned()
            .collect()
    }
}

#[cfg(test)]
mod tests;
