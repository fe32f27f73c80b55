//! A task: what a trainer leases, with all it needs to find its records without a manifest.

use super::{LeaseId, Node, Step};

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

/// A leased node of a step's tree with the microbatches of its present slots, in slot order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The lease it is held under.
    pub lease: LeaseId,
    /// The step it belongs to.
    pub step: Step,
    /// The node to push.
    pub node: Node,
    /// One for each present slot.
    pub microbatches: Vec<Microbatch>,
}
