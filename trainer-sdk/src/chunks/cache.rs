//! Decoded chunks that are kept, and the bytes of memory that they take. Pure. A chunk whose records a task in hand uses is
//! never let go, for that would free nothing and count for nothing: so the bytes here are all that there are, but for chunks of which
//! the program keeps records.

use super::InUse;
use shoal_recordio::Chunk;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The chunks that are kept, by their index in the data set.
pub(super) struct ChunkCache {
    chunks: BTreeMap<u32, CachedChunk>,
    bytes: u64,
    bytes_max: u64,
    clock: u64,
}

/// A chunk that is kept.
pub(super) struct CachedChunk {
    pub(super) chunk: Arc<InUse>,
    /// Bytes of memory that it takes.
    pub(super) bytes: u64,
    used: u64,
}

impl CachedChunk {
    /// Whether a task has records in it.
    pub(super) fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.chunk) > 1
    }
}

impl ChunkCache {
    pub(super) fn new(bytes_max: u64) -> ChunkCache {
        ChunkCache { chunks: BTreeMap::new(), bytes: 0, bytes_max, clock: 0 }
    }

    /// The chunk, used now.
    pub(super) fn chunk(&mut self, chunk: u32) -> Option<&CachedChunk> {
        self.clock += 1;
        let kept = self.chunks.get_mut(&chunk)?;
        kept.used = self.clock;
        Some(kept)
    }

    pub(super) fn has(&self, chunk: u32) -> bool {
        self.chunks.contains_key(&chunk)
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn keep(&mut self, chunk: u32, decoded: Chunk<'static>) {
        self.clock += 1;
        let bytes = decoded.memory_bytes() as u64;
        self.bytes += bytes;
        let kept = CachedChunk { chunk: Arc::new(InUse(Arc::new(decoded))), bytes, used: self.clock };
        if let Some(before) = self.chunks.insert(chunk, kept) {
            self.bytes -= before.bytes;
        }
    }

    /// Bytes that cannot be let go, for tasks have records in them.
    pub(super) fn bytes_in_use(&self) -> u64 {
        self.chunks.values().filter(|kept| kept.is_in_use()).map(|kept| kept.bytes).sum()
    }

    /// How many bytes may be in use: three quarters, so that there is always room to read ahead.
    pub(super) fn in_use_max(&self) -> u64 {
        self.bytes_max / 4 * 3
    }

    /// Whether there is room for `more` bytes.
    pub(super) fn has_room(&self, more: u64) -> bool {
        self.bytes + more <= self.bytes_max
    }

    /// Lets go of chunks until there is room for `more` bytes, the one that was used least lately first, and of none that
    /// `is_wanted`. The last one stays unless others are to come. Returns whether there is room.
    pub(super) fn make_room(&mut self, more: u64, is_wanted: impl Fn(u32) -> bool) -> bool {
        while !self.has_room(more) && self.chunks.len() > usize::from(more == 0) {
            let free = self.chunks.iter().filter(|(id, kept)| !kept.is_in_use() && !is_wanted(**id));
            let Some(oldest) = free.min_by_key(|(_, kept)| kept.used).map(|(id, _)| *id) else {
                return false;
            };
            self.let_go(oldest);
        }
        self.has_room(more)
    }

    /// Lets go of a chunk, unless its records are in use.
    pub(super) fn let_go(&mut self, chunk: u32) {
        if self.chunks.get(&chunk).is_some_and(|kept| !kept.is_in_use())
            && let Some(kept) = self.chunks.remove(&chunk)
        {
            self.bytes -= kept.bytes;
        }
    }
}

impl std::fmt::Debug for ChunkCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ChunkCache({} chunks, {} bytes)", self.chunks.len(), self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::RecordBytes;
    use super::*;
    use shoal_recordio::{Limits, Writer, WriterOptions, decode_chunk};
    use std::path::Path;

    /// A chunk of one record, and what it takes.
    fn chunk(bytes: usize) -> (Chunk<'static>, u64) {
        let mut writer = Writer::new(Vec::new(), WriterOptions::default());
        writer.write(&vec![7; bytes]).unwrap();
        let chunk = decode_chunk(Path::new("a"), writer.finish().unwrap(), 0, 0, &Limits::default()).unwrap();
        // A copy has no memory to spare.
        let bytes = chunk.clone().memory_bytes() as u64;
        (chunk, bytes)
    }

    fn kept(cache: &ChunkCache) -> Vec<u32> {
        cache.chunks.keys().copied().collect()
    }

    #[test]
    fn room_is_made_by_those_used_least_lately_and_never_by_wanted_ones_or_those_in_use() {
        let (one, bytes) = chunk(1000);
        let mut cache = ChunkCache::new(4 * bytes);
        (0..4).for_each(|id| cache.keep(id, one.clone()));
        let in_use = cache.chunk(0).map(|kept| kept.chunk.clone());
        cache.chunk(1);
        assert!(cache.make_room(bytes, |id| id == 2));
        assert_eq!(kept(&cache), [0, 1, 2], "3 was used least lately but for 2, which is wanted, and 0");
        assert!(cache.make_room(2 * bytes, |id| id == 2));
        assert!(!cache.make_room(3 * bytes, |id| id == 2), "what is left is wanted, or in use");
        assert_eq!((kept(&cache), cache.bytes), (vec![0, 2], 2 * bytes));
        drop(in_use);
        assert!(cache.make_room(3 * bytes, |id| id == 2));
        assert_eq!(kept(&cache), [2]);
    }

    #[test]
    fn the_last_chunk_stays_however_large_it_is_until_another_is_to_come() {
        let (large, bytes) = chunk(5000);
        let mut cache = ChunkCache::new(bytes / 2);
        cache.keep(9, large.clone());
        assert!(!cache.make_room(0, |_| false) && cache.has(9));
        assert!(cache.make_room(1, |_| false) && !cache.has(9));
    }

    #[test]
    fn a_chunk_that_comes_again_is_counted_once() {
        let (one, bytes) = chunk(10);
        let mut cache = ChunkCache::new(1 << 20);
        (0..3).for_each(|_| cache.keep(4, one.clone()));
        assert_eq!((kept(&cache), cache.bytes), (vec![4], bytes));
    }

    #[test]
    fn a_record_that_the_program_keeps_does_not_keep_its_chunk_in_use() {
        let (one, bytes) = chunk(1000);
        let mut cache = ChunkCache::new(2 * bytes);
        cache.keep(0, one);
        let kept = RecordBytes::Shared(cache.chunk(0).unwrap().chunk.clone(), 0).keep();
        assert_eq!(cache.bytes_in_use(), 0);
        assert!(cache.make_room(2 * bytes, |_| false));
        assert_eq!((cache.bytes, &*kept), (0, &[7; 1000][..]), "and is there when the chunk was let go");
    }
}
