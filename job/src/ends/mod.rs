//! What the end of a process means for its job: by exit code, signal or the cluster's word, by what the process was told, and by how far it
//! had come. `shoal run` and the operator both go by this table.
//!
//! No end is without a cost: [`Strikes`] counts it, the next process waits for a pause that grows, and where ends are too many without a
//! step made in between, the job fails. The cluster's own doing ([`Meaning::Displaced`]) costs pauses alone.

mod signal;
mod strikes;
mod words;

pub use strikes::{Account, Pauses, Strikes};
pub use words::{sentence, word_to_master};

use crate::Role;
use signal::{HUP, INT, KILL, TERM};

/// The exit code of who was called wrongly, by the habit of `getopt`, clap and argparse.
pub const WRONG_USAGE_CODE: u8 = 2;
/// The exit code of a trainer whose master has not answered for too long. Pservers wait for theirs.
pub const UNREACHED_CODE: u8 = 3;
/// The exit code of a trainer that the master has not let into the job: its declaration or its environment is not the job's.
pub const NOT_OF_THE_JOB_CODE: u8 = 5;

/// A shell's exit codes for a file that is no program, and for one that is not there.
const NOT_EXECUTABLE: i32 = 126;
const NOT_FOUND: i32 = 127;
const WRONG_USAGE: i32 = WRONG_USAGE_CODE as i32;
const UNREACHED: i32 = UNREACHED_CODE as i32;
const NOT_OF_THE_JOB: i32 = NOT_OF_THE_JOB_CODE as i32;
/// Shells and containers say so of a program that a signal ended: this, and the signal's number.
const BY_SIGNAL: i32 = 128;

/// How a process has ended, as far as who keeps it was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With this exit code.
    Exited(i32),
    /// By this signal.
    Signalled(i32),
    /// By the cluster, which needed or lost its place.
    Displaced(Displacement),
    /// By its container's limit of memory, as the cluster says.
    OutOfMemory,
    /// Before it began: its container could not be started.
    Unstarted,
}

/// Why a cluster has ended a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Displacement {
    /// For something of a higher priority.
    Preempted,
    /// By its node, or by whoever deleted it.
    Evicted,
    /// With its node.
    NodeLost,
}

/// How far a process had come in its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The master has never heard of it.
    NeverJoined,
    /// It has registered, and computed nothing as far as that is known.
    Joined,
    /// It has computed something.
    Worked,
}

/// What is known of a process that has ended, beside its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// What it was.
    pub role: Role,
    /// How far it had come.
    pub part: Part,
    /// Whether no process of its role has joined the job so far: others of the same command line have, or have not.
    pub is_first: bool,
    /// Whether it was told to leave.
    pub was_told: bool,
    /// Whether who keeps it ended it.
    pub was_killed: bool,
    /// Whether it has said goodbye, as after SIGTERM; a trainer that calls `exit` does not.
    pub has_left: bool,
    /// Whether the job has no trainer that takes part.
    pub is_alone: bool,
}

/// What an end means for the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Meaning {
    /// It ended as it should.
    Left,
    /// Who keeps it ended it.
    Killed,
    /// The cluster ended it: it says nothing of the job.
    Displaced,
    /// Somebody else took it away: a person, a scheduler, the kernel when memory is short. Another one does better.
    Preempted,
    /// It gave up waiting for its master.
    Unreached,
    /// It was not let into the job, which has trainers of its own and goes on without it.
    Refused,
    /// Its container had too little memory: with more another one does better.
    OutOfMemory,
    /// Its node could not start it, as it started others of its role: another node does better.
    Unstarted,
    /// It failed by itself. Another one may do better.
    Failed,
    /// It failed by itself, and the next would in the same way: it was called wrongly, or is no program. Where processes are on several
    /// machines, that is one machine's word until another says the same.
    Hopeless,
}

impl End {
    /// The signal that ended the program, also where a shell or a container tells of it.
    pub fn signal(self) -> Option<i32> {
        match self {
            End::Signalled(signal) => Some(signal),
            End::Exited(code) if (1..=64).contains(&(code - BY_SIGNAL)) => Some(code - BY_SIGNAL),
            End::Exited(_) | End::Displaced(_) | End::OutOfMemory | End::Unstarted => None,
        }
    }

    /// Whether every process of the same command line would end so, unless it was its machine's doing: it was called wrongly, is no
    /// program, or could not be started.
    pub fn would_recur(self) -> bool {
        matches!(self, End::Exited(WRONG_USAGE | NOT_EXECUTABLE | NOT_FOUND) | End::Unstarted)
    }

    /// A word for the record: `left`, `ended` or `killed`.
    pub fn word(self, was_told: bool) -> &'static str {
        match (self, self.signal()) {
            (End::Exited(0), _) | (_, Some(TERM)) if was_told => "left",
            (End::Exited(0), _) => "ended",
            _ => "killed",
        }
    }
}

impl Life {
    /// Whether a trainer that says so was not let into the job: the master has never heard of one of its name.
    pub fn is_refused(self) -> bool {
        self.role == Role::Trainer && self.part == Part::NeverJoined
    }
}

/// What an end means in a job that is not done. In one that is, every end is right.
pub fn meaning(end: End, life: Life) -> Meaning {
    if life.was_killed {
        return Meaning::Killed;
    }
    match (end, end.signal()) {
        (End::Displaced(_), _) => Meaning::Displaced,
        (End::OutOfMemory, _) => Meaning::OutOfMemory,
        // A pserver leaves when nothing is left on it.
        (End::Exited(0), _) if life.was_told => Meaning::Left,
        // A program between who keeps it and the trainer that does not wait for it.
        (_, Some(TERM)) if life.was_told => Meaning::Left,
        (End::Exited(0), _) if life.has_left || life.role == Role::Pserver => Meaning::Preempted,
        (_, Some(TERM | KILL | INT | HUP)) => Meaning::Preempted,
        (End::Exited(UNREACHED), _) if life.role == Role::Trainer => Meaning::Unreached,
        (End::Exited(NOT_OF_THE_JOB), _) if life.is_refused() && !life.is_alone => Meaning::Refused,
        _ if end.would_recur() && life.is_first => Meaning::Hopeless,
        (End::Unstarted, _) => Meaning::Unstarted,
        _ => Meaning::Failed,
    }
}

#[cfg(test)]
mod tests;
