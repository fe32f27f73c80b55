//! What ends cost: how many there may be without a step made in between, and how long the next process waits.

use super::Meaning;
use crate::Role;
use std::time::Duration;

/// Trainers that may fail without a step made in between: more than the five by which the master finds a record that ends them.
const TRAINERS_FAILED_MAX: u32 = 8;
/// What somebody else ends, which may be more often than steps are made; and pservers and masters, whose program is ours.
const TAKEN_MAX: u32 = 20;

/// What ends are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Account {
    /// Trainers that fail by themselves.
    TrainersFailed,
    /// Trainers that are taken away, or reach no master: that says nothing against the program.
    TrainersTaken,
    /// Trainers that are not let into a job that has others: only another command or another machine would do better, whatever steps the
    /// others make.
    TrainersRefused,
    /// Pservers and masters that fail, are taken away, or reach no master.
    Servers,
    /// Trainers that the cluster displaces.
    TrainersDisplaced,
    /// Pservers and masters that it displaces.
    ServersDisplaced,
    /// Trainers that a node could not start, or of which one node alone says that none can run.
    TrainersUnstarted,
    /// The same of pservers and masters.
    ServersUnstarted,
}

impl Account {
    /// All there are.
    pub const ALL: [Account; 8] = [
        Account::TrainersFailed,
        Account::TrainersTaken,
        Account::TrainersRefused,
        Account::Servers,
        Account::TrainersDisplaced,
        Account::ServersDisplaced,
        Account::TrainersUnstarted,
        Account::ServersUnstarted,
    ];

    /// Where an end is counted; none of one that is right.
    pub fn of(role: Role, meaning: Meaning) -> Option<Account> {
        match (role, meaning) {
            (_, Meaning::Left | Meaning::Killed) => None,
            (Role::Trainer, Meaning::Displaced) => Some(Account::TrainersDisplaced),
            (_, Meaning::Displaced) => Some(Account::ServersDisplaced),
            (Role::Trainer, Meaning::Unstarted) => Some(Account::TrainersUnstarted),
            (_, Meaning::Unstarted) => Some(Account::ServersUnstarted),
            (Role::Trainer, Meaning::Preempted | Meaning::Unreached) => Some(Account::TrainersTaken),
            (Role::Trainer, Meaning::Refused) => Some(Account::TrainersRefused),
            (Role::Trainer, _) => Some(Account::TrainersFailed),
            (Role::Pserver | Role::Master, _) => Some(Account::Servers),
        }
    }

    /// Whose next process waits for it.
    pub fn holds_up(self, role: Role) -> bool {
        let is_of_trainers =
            !matches!(self, Account::Servers | Account::ServersDisplaced | Account::ServersUnstarted);
        is_of_trainers == (role == Role::Trainer)
    }

    /// How many end the job; none where no number does.
    pub fn limit(self) -> Option<u32> {
        match self {
            Account::TrainersFailed => Some(TRAINERS_FAILED_MAX),
            Account::TrainersTaken | Account::Servers => Some(TAKEN_MAX),
            Account::TrainersRefused
            | Account::TrainersDisplaced
            | Account::ServersDisplaced
            | Account::TrainersUnstarted
            | Account::ServersUnstarted => None,
        }
    }

    /// Whether a step that is made is a reason to try at once.
    pub fn is_forgiven_by_progress(self) -> bool {
        self != Account::TrainersRefused
    }
}

/// How long the next process waits: nothing after the first end, then one, three, seven… units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pauses {
    /// The pause after the second end.
    pub unit: Duration,
    /// The longest pause.
    pub most: Duration,
}

impl Pauses {
    /// After so many ends.
    pub fn after(self, count: u32) -> Duration {
        let units = 1u32.checked_shl(count.saturating_sub(1)).map_or(u32::MAX, |power| power - 1);
        self.unit.saturating_mul(units).min(self.most)
    }
}

/// Ends that are counted together, since a step was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strikes {
    /// How many.
    pub count: u32,
    /// The furthest step that the job had made at the newest.
    pub step: u64,
    /// When the newest that was counted came.
    pub at: Duration,
}

impl Strikes {
    /// Counts an end. What strikes many at once strikes once: those that end within the pause after one that was counted are not.
    pub fn strike(&mut self, pauses: Pauses, step: u64, now: Duration) {
        if self.may_start(pauses, now) {
            let (count, step) = (self.count.saturating_add(1), self.step.max(step));
            *self = Strikes { count, step, at: now };
        }
    }

    /// The job has made so many steps: one that it had not made before forgives all. Going back, and making the same steps again, does
    /// not; nor does a master that has just come back and shows step 0.
    pub fn see(&mut self, step: u64) {
        if step > self.step {
            self.count = 0;
            self.step = step;
        }
    }

    /// Whether the next process may be started.
    pub fn may_start(&self, pauses: Pauses, now: Duration) -> bool {
        self.count == 0 || now >= self.at.saturating_add(pauses.after(self.count))
    }

    /// Whether the job has had too many of them.
    pub fn is_over(&self, limit: Option<u32>) -> bool {
        limit.is_some_and(|limit| self.count >= limit)
    }
}
