//! What a job is: the few numbers that master, pservers and trainers must agree on.

use super::JobId;
use super::plan::EpochShape;

/// A job's settings, fixed when its master starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSettings {
    /// The job's identity.
    pub job: JobId,
    /// Seeds the shuffle, the initial values and the randomness inside trainers.
    pub seed: u64,
    /// Passes over the data.
    pub epochs: u64,
    /// Records in a microbatch.
    pub microbatch_records: u32,
    /// Microbatches in a step (M).
    pub microbatches_per_step: u32,
    /// Records that stay together when a chunk is shuffled.
    pub shuffle_run: u32,
    /// Records in the data set.
    pub records: u64,
    /// SHA-256 of the data set's [manifest](super::Manifest).
    pub manifest_fingerprint: [u8; 32],
    /// How long a lease lives without progress, in milliseconds.
    pub lease_ttl_millis: u64,
}

impl JobSettings {
    /// How every epoch is cut into steps and microbatches.
    pub fn shape(&self) -> EpochShape {
        EpochShape::new(self.records, self.microbatch_records, self.microbatches_per_step)
    }
    /// Steps in the whole job.
    pub fn steps(&self) -> u64 {
        self.epochs * self.shape().steps()
    }
}
