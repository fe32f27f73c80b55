//! How much a file may ask of the machine that reads it.
//! It must never be widened silently: a file beyond a limit is refused by name.

/// Ceilings that hold whatever a file claims. Reading one chunk takes up to eight times `max_chunk_bytes` of memory
/// (stored and plain form, and four bytes for each of many empty records, in buffers that grow by doubling), and
/// about twice the chunk's own size in the ordinary case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one chunk's payload, both as stored and decompressed. Values above 4 GiB - 1 mean 4 GiB - 1.
    pub max_chunk_bytes: u64,
    /// Bytes of one record.
    pub max_record_bytes: u64,
    /// Chunks in one index (32 bytes of memory each).
    pub max_chunks: usize,
}

impl Default for Limits {
    /// 256 MiB a chunk, 64 MiB a record, 4 Mi chunks (4 TiB of data at the writer's default of 1 MiB a chunk).
    fn default() -> Self {
        Self { max_chunk_bytes: 256 << 20, max_record_bytes: 64 << 20, max_chunks: 4 << 20 }
    }
}

impl Limits {
    /// The payload ceiling, kept where record positions fit in a `u32`.
    pub(crate) fn chunk_ceiling(&self) -> u64 {
        self.max_chunk_bytes.min(u64::from(u32::MAX))
    }
}
