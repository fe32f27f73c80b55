//! A task: what a trainer leases, with all it needs to find its records without a manifest.

use super::{LeaseId, Node, Rewind, Step};

/// A stretch of one chunk's shuffled order: positions `first_position .. first_position + records`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Index of the chunk in the data set.
    pub chunk: u32,
    /// Path of the file that holds it.
    pub file: String,
    /// Offset of the chunk's header in the file, in bytes.
    pub chunk_offset: u64,
    /// Header and payload, in bytes.
    pub chunk_bytes: u64,
    /// Records in the chunk.
    pub chunk_records: u32,
    /// CRC32 of the chunk's payload as the manifest pinned it.
    pub chunk_checksum: u32,
    /// Index in the data set of the chunk's first record.
    pub chunk_first_record: u64,
    /// First position in the chunk's shuffled order.
    pub first_position: u32,
    /// Number of positions.
    pub records: u32,
}

/// One microbatch: its index in the epoch's shuffled order and where its records lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Microbatch {
    /// Index in the epoch.
    pub index: u64,
    /// In order; together its records.
    pub slices: Vec<Slice>,
}

/// What a task is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A node of a step's tree: its present slots are reduced and pushed as one (synchronous jobs).
    Node {
        /// The step.
        step: Step,
        /// The node to push.
        node: Node,
        /// The step's history: what was computed under another rewind number is refused.
        rewind: Rewind,
    },
    /// Consecutive positions, each pushed by itself (asynchronous jobs).
    Run {
        /// The first position: its microbatch's place in the job.
        first: u64,
    },
}

/// A leased piece of work with its microbatches, in order of slots or positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The lease it is held under.
    pub lease: LeaseId,
    /// What to do.
    pub work: Work,
    /// One for each present slot, or for each position.
    pub microbatches: Vec<Microbatch>,
    /// Whether trainers were lost while they computed it, so that each record is announced and tried alone first.
    pub is_careful: bool,
    /// Slots of the node whose leaves' hashes are to be told.
    pub verified: Vec<u32>,
    /// Whether only the hashes are told, and nothing is pushed: another computation of its one microbatch counts.
    pub is_second: bool,
}

impl Work {
    /// What is done first: the lowest step or position.
    pub fn order(&self) -> u64 {
        match self {
            Work::Node { step, .. } => step.0,
            Work::Run { first } => *first,
        }
    }
}

impl std::fmt::Display for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Work::Node { step, node, .. } => write!(f, "node {node} of step {step}"),
            Work::Run { first } => write!(f, "the run from position {first}"),
        }
    }
}
