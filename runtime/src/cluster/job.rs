//! What a job is: the few numbers that master, pservers and trainers must agree on.

use super::{Evaluated, JobId, Precision, WarmStart};
use serde::{Deserialize, Serialize};

/// How updates follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// One update for each step, of the sum over all of its microbatches: bits do not depend on who computed what.
    Sync {
        /// How many versions before the one that a step replaces its gradients are taken at; 0 for none. It hides the
        /// network behind the computation of the next steps.
        delay: u32,
    },
    /// One update for each microbatch, as it comes.
    Async {
        /// Microbatches beyond the lowest unapplied one that may be under way: the bound on staleness.
        staleness_window: u32,
        /// Whether the learning rate of an update is divided by 1 + its staleness.
        scale_by_staleness: bool,
    },
}

pub use shoal_job::spec::DELAY_MAX;

impl Mode {
    /// Synchronous, each step's gradients taken at the version that it replaces.
    pub const SYNC: Mode = Mode::Sync { delay: 0 };

    /// Versions between the one that a step's gradients are taken at and the one that it replaces; asynchronous jobs
    /// have no such number.
    pub fn delay(self) -> u64 {
        match self {
            Mode::Sync { delay } => delay.into(),
            Mode::Async { .. } => 0,
        }
    }

    /// How many states before the newest a block keeps: a block that is furthest ahead is `delay + 1` updates ahead of
    /// one that lacks a gradient, and that gradient is taken `delay` versions further back.
    pub fn earlier_states(self) -> u64 {
        2 * self.delay() + 1
    }
}

/// A job's settings, fixed when its master starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSettings {
    /// The job's identity.
    pub job: JobId,
    /// Seeds the shuffle, the initial values and the randomness inside trainers.
    pub seed: u64,
    /// Passes over the data that are trained on; 0 of a job that only evaluates or predicts.
    pub epochs: u64,
    /// Records in a microbatch.
    pub microbatch_records: u32,
    /// Microbatches in a step (M).
    pub microbatches_per_step: u32,
    /// Records that stay together when a chunk is shuffled.
    pub shuffle_run: u32,
    /// Records in the data that are trained on.
    pub records: u64,
    /// SHA-256 of the data set's [manifest](super::Manifest).
    pub manifest_fingerprint: [u8; 32],
    /// How long a lease lives without progress, in milliseconds.
    pub lease_ttl_millis: u64,
    /// How updates follow one another.
    pub mode: Mode,
    /// In which precision gradients of dense parameters travel and are summed. Another one gives other bits.
    #[serde(default)]
    pub gradients: Precision,
    /// Where parameters begin, if not at their initial values.
    #[serde(default)]
    pub warm_start: Option<WarmStart>,
    /// What is evaluated and when, if anything is.
    #[serde(default)]
    pub evaluated: Option<Evaluated>,
}

impl JobSettings {
    /// Whether updates follow one another step by step.
    pub fn is_sync(&self) -> bool {
        matches!(self.mode, Mode::Sync { .. })
    }
}
