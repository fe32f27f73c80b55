//! Reads the records of the tasks in hand: the first chunks that they lack, several at a time, the lowest task first. It
//! must never read a chunk that it has or is reading, nor give out a task before a lower one.
//!
//! A trainer has two tasks in hand, one that it computes and one whose records are read meanwhile; so as far ahead as there
//! is anything to read are the chunks of those. Tasks are given out whole, but put together slice by slice, so that a task
//! may have more chunks than there is memory for: what finds no room is copied, record by record, and its chunk let go.

#[cfg(test)]
mod tests;

use super::cache::ChunkCache;
use super::depth::{DEPTH_MAX, Depth};
use super::{ChunkSource, InUse, MicrobatchRecords, ReadError, RecordBytes, Unreadable, read_chunk};
use crate::place::MicrobatchPlace;
use futures_util::future::select_all;
use shoal_recordio::Chunk;
use shoal_runtime::cluster::plan::ChunkOrder;
use shoal_runtime::cluster::{Exclusions, JobSettings, Pass, Slice, Task};
use shoal_runtime::host::processors::Processors;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Bytes of chunks that a trainer keeps in memory, as they lie there, with what is asked for of others.
pub(super) const CACHE_BYTES_MAX: u64 = 256 << 20;

/// A task that needs no more reading.
#[derive(Debug)]
pub struct ReadTask {
    /// The task.
    pub task: Arc<Task>,
    /// The records of its microbatches, in their order; or the first of its chunks that cannot be read.
    pub records: Result<Vec<MicrobatchRecords>, Unreadable>,
}

/// Reads the records of tasks. Whoever has it calls [`advance`](Reader::advance) when tasks change and when
/// [`arrived`](Reader::arrived) returns.
pub struct Reader {
    source: Arc<dyn ChunkSource>,
    job: JobSettings,
    processors: Processors,
    began: Instant,
    cache: ChunkCache,
    depth: Depth,
    /// In the order in which they were begun, each of another chunk that is not kept.
    reads: Vec<InFlight>,
    arrivals: Vec<(InFlight, Outcome)>,
    /// Why a chunk could not be read, until a task comes to it.
    failed: BTreeMap<u32, ReadError>,
    /// The tasks that lack records, the lowest first.
    tasks: Vec<Arc<Task>>,
    /// How far the first of them is.
    assembly: Assembly,
    exclusions: Arc<Exclusions>,
    waited: Duration,
    stored_bytes: u64,
    decoded_bytes: u64,
}

/// The chunk and the bytes that were stored.
type Outcome = Result<(Chunk<'static>, u64), ReadError>;
type Reading = Pin<Box<dyn Future<Output = Outcome> + Send>>;

struct InFlight {
    chunk: u32,
    /// Bytes of memory that the decoded chunk is expected to take.
    bytes: u64,
    /// How long the trainer had waited for records when the read was begun.
    waited: Duration,
    reading: Reading,
}

/// A task's records, as far as they are there: the next slice is `slice` of microbatch `at`.
#[derive(Default)]
struct Assembly {
    at: usize,
    slice: usize,
    whole: Vec<MicrobatchRecords>,
    records: Vec<(u64, RecordBytes)>,
}

impl Reader {
    /// A reader for a trainer of `job`. Chunks are decoded on `processors`.
    pub fn new(source: Arc<dyn ChunkSource>, job: JobSettings, processors: Processors) -> Reader {
        Reader {
            source,
            job,
            processors,
            began: Instant::now(),
            cache: ChunkCache::new(CACHE_BYTES_MAX),
            depth: Depth::new(),
            reads: Vec::new(),
            arrivals: Vec::new(),
            failed: BTreeMap::new(),
            tasks: Vec::new(),
            assembly: Assembly::default(),
            exclusions: Arc::default(),
            waited: Duration::ZERO,
            stored_bytes: 0,
            decoded_bytes: 0,
        }
    }

    /// Goes on with `tasks`, which lack records, the lowest first: gives out the first if that needs no more reading, and is
    /// to be called again without it; or else begins what may be read. Reads that none of them needs are dropped. Chunks of which `exclusions` leave out all
    /// records are not read. `waited` is how long the trainer has waited for records in its life.
    pub fn advance(
        &mut self,
        tasks: &[Arc<Task>],
        exclusions: Arc<Exclusions>,
        waited: Duration,
    ) -> Option<ReadTask> {
        (self.exclusions, self.waited) = (exclusions, waited);
        for (read, result) in std::mem::take(&mut self.arrivals) {
            self.keep(&read, result);
        }
        self.follow(tasks);
        let read = self.assemble();
        if read.is_none() {
            let is_held_back = self.begin();
            self.depth.under_way(self.reads.len(), is_held_back, self.began.elapsed());
        }
        read
    }

    /// Returns when a chunk has come, or cannot be read; never while none is being read. Dropped before its end, it has
    /// changed nothing.
    pub async fn arrived(&mut self) {
        if self.reads.is_empty() {
            std::future::pending::<()>().await;
        }
        let (result, at, _) = select_all(self.reads.iter_mut().map(|read| &mut read.reading)).await;
        let read = self.reads.remove(at);
        self.arrivals.push((read, result));
    }

    /// Stored bytes read so far.
    pub fn bytes_read(&self) -> u64 {
        self.stored_bytes
    }

    /// How many chunks may be read at a time at present.
    pub fn depth(&self) -> usize {
        self.depth.present()
    }

    fn keep(&mut self, read: &InFlight, result: Outcome) {
        match result {
            Ok((chunk, stored)) => {
                self.depth.came(self.waited.saturating_sub(read.waited));
                self.stored_bytes += stored;
                self.decoded_bytes += chunk.memory_bytes() as u64;
                self.cache.keep(read.chunk, chunk);
                // The chunk takes more memory than was expected.
                if self.trim() {
                    self.depth.crowded();
                }
            }
            Err(error) => {
                self.failed.insert(read.chunk, error);
            }
        }
    }

    /// Takes note of the tasks; of what they no longer need reads and failures are forgotten.
    fn follow(&mut self, tasks: &[Arc<Task>]) {
        if tasks.len() == self.tasks.len() && tasks.iter().zip(&self.tasks).all(|(a, b)| Arc::ptr_eq(a, b)) {
            return;
        }
        let is_known = |task: &Arc<Task>| self.tasks.iter().any(|known| Arc::ptr_eq(known, task));
        if tasks.iter().any(|task| !is_known(task)) {
            self.depth.asked(self.began.elapsed());
        }
        if !tasks.first().zip(self.tasks.first()).is_some_and(|(new, old)| Arc::ptr_eq(new, old)) {
            self.assembly = Assembly::default();
        }
        self.tasks = tasks.to_vec();
        let wanted: BTreeSet<u32> = self.wanted().map(|slice| slice.chunk).collect();
        self.reads.retain(|read| wanted.contains(&read.chunk));
        self.failed.retain(|chunk, _| wanted.contains(chunk));
    }

    /// The slices that are still to be taken, in order.
    fn wanted(&self) -> impl Iterator<Item = &Slice> {
        self.tasks.iter().enumerate().flat_map(move |(number, task)| {
            let (first, taken) = if number == 0 { (self.assembly.at, self.assembly.slice) } else { (0, 0) };
            task.microbatches.iter().enumerate().skip(first).flat_map(move |(at, microbatch)| {
                let slices = microbatch.slices.iter().skip(if at == first { taken } else { 0 });
                slices.filter(move |slice| !self.is_excluded(task, at, slice))
            })
        })
    }

    fn is_excluded(&self, task: &Task, at: usize, slice: &Slice) -> bool {
        !self.exclusions.list.is_empty()
            && self.exclusions.excludes_all(&of_chunk(slice), MicrobatchPlace::of(&self.job, task, at).unit)
    }

    /// Begins to read the first chunks that are missing, up to the depth and while there is room for them; the very first
    /// whatever room there is, or nothing would go on. Returns whether only the depth keeps others from being read.
    fn begin(&mut self) -> bool {
        let depth = self.depth.present();
        let (mut missing, mut is_held_back) = (Vec::<&Slice>::new(), false);
        for slice in self.wanted() {
            let is_there = self.cache.has(slice.chunk) || self.failed.contains_key(&slice.chunk);
            if is_there || missing.iter().any(|other| other.chunk == slice.chunk) {
                continue;
            }
            is_held_back = missing.len() == depth;
            if is_held_back {
                break;
            }
            missing.push(slice);
        }
        let chunks: BTreeSet<u32> = missing.iter().map(|slice| slice.chunk).collect();
        let missing: Vec<Slice> = missing.into_iter().cloned().collect();
        for (number, slice) in missing.into_iter().enumerate() {
            if self.reads.iter().any(|read| read.chunk == slice.chunk) {
                continue;
            }
            let bytes = self.expected(&slice);
            let under_way: u64 = self.reads.iter().map(|read| read.bytes).sum();
            if !self.make_room(under_way + bytes, slice.chunk) && number > 0 {
                is_held_back = false;
                break;
            }
            let (source, processors) = (self.source.clone(), self.processors.clone());
            let (chunk, waited) = (slice.chunk, self.waited);
            let reading: Reading = Box::pin(async move { read_chunk(&*source, slice, &processors).await });
            self.reads.push(InFlight { chunk, bytes, waited, reading });
        }
        // Reads for a higher task, which were begun before a lower one came, are dropped.
        while self.reads.len() > DEPTH_MAX {
            let Some(last) = self.reads.iter().rposition(|read| !chunks.contains(&read.chunk)) else { break };
            self.reads.remove(last);
        }
        is_held_back
    }

    /// Bytes of memory that a chunk is expected to take when decoded: its stored bytes times the growth of those before it.
    fn expected(&self, slice: &Slice) -> u64 {
        let growth = self.decoded_bytes as f64 / self.stored_bytes.max(1) as f64;
        (slice.chunk_bytes as f64 * growth.max(1.0)) as u64
    }

    /// Makes room for `bytes` more: lets go of what no task wants, then of what is wanted last, down to `chunk`. Returns
    /// whether there is room.
    fn make_room(&mut self, bytes: u64, chunk: u32) -> bool {
        if self.cache.has_room(bytes) {
            return true;
        }
        let wanted = self.wanted_chunks();
        let is_wanted: BTreeSet<u32> = wanted.iter().copied().collect();
        if self.cache.make_room(bytes, |chunk| is_wanted.contains(&chunk)) {
            return true;
        }
        for later in wanted.into_iter().rev().take_while(|later| *later != chunk) {
            self.cache.let_go(later);
            if self.cache.has_room(bytes) {
                return true;
            }
        }
        false
    }

    /// Keeps to the budget, but for what is wanted next. Returns whether something had to go that is wanted.
    fn trim(&mut self) -> bool {
        if self.cache.has_room(0) {
            return false;
        }
        let wanted: BTreeSet<u32> = self.wanted().map(|slice| slice.chunk).collect();
        let is_enough = self.cache.make_room(0, |chunk| wanted.contains(&chunk));
        let next = self.wanted().next().map(|slice| slice.chunk);
        if let Some(next) = next.filter(|_| !is_enough) {
            self.make_room(0, next);
        }
        !is_enough
    }

    /// The chunks of the slices that are still to be taken, in order, each once.
    fn wanted_chunks(&self) -> Vec<u32> {
        let mut seen = BTreeSet::new();
        self.wanted().map(|slice| slice.chunk).filter(|chunk| seen.insert(*chunk)).collect()
    }

    /// Puts together as much of the first task as its chunks are there for, in order; gives it out if that is all.
    fn assemble(&mut self) -> Option<ReadTask> {
        let task = self.tasks.first()?.clone();
        let mut in_use = self.cache.bytes_in_use();
        while let Some(microbatch) = task.microbatches.get(self.assembly.at) {
            let Some(slice) = microbatch.slices.get(self.assembly.slice) else {
                self.assembly.end_microbatch(microbatch.index);
                continue;
            };
            if !self.is_excluded(&task, self.assembly.at, slice) {
                if let Some(source) = self.failed.remove(&slice.chunk) {
                    let unreadable = Unreadable { at: self.assembly.at, records: of_chunk(slice), source };
                    return Some(ReadTask { task, records: Err(unreadable) });
                }
                let in_use_max = self.cache.in_use_max();
                let kept = self.cache.chunk(slice.chunk)?;
                let more = if kept.is_in_use() { 0 } else { kept.bytes };
                let shares = in_use + more <= in_use_max;
                in_use += if shares { more } else { 0 };
                let pass = MicrobatchPlace::of(&self.job, &task, self.assembly.at).pass;
                self.assembly.take(&self.job, pass, slice, &kept.chunk, shares);
            }
            self.assembly.slice += 1;
            self.trim();
        }
        Some(ReadTask { task, records: Ok(std::mem::take(&mut self.assembly).whole) })
    }
}

impl Assembly {
    /// Takes the records of a slice: where they are, or copies of them.
    fn take(&mut self, job: &JobSettings, pass: Pass, slice: &Slice, chunk: &Arc<InUse>, shares: bool) {
        let order = ChunkOrder::new(job, pass, slice.chunk, slice.chunk_records);
        for position in slice.first_position..slice.first_position + slice.records {
            let record = order.record(position);
            let place = if shares {
                RecordBytes::Shared(chunk.clone(), record)
            } else {
                RecordBytes::Own(chunk.0.record(record as usize).into())
            };
            self.records.push((slice.chunk_first_record + u64::from(record), place));
        }
    }

    fn end_microbatch(&mut self, microbatch: u64) {
        let records = std::mem::take(&mut self.records);
        self.whole.push(MicrobatchRecords { microbatch, records });
        (self.at, self.slice) = (self.at + 1, 0);
    }
}

/// The indexes in the data set of the records of the slice's chunk.
fn of_chunk(slice: &Slice) -> Range<u64> {
    slice.chunk_first_record..slice.chunk_first_record + u64::from(slice.chunk_records)
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reader({:?}, {} reads)", self.cache, self.reads.len())
    }
}
