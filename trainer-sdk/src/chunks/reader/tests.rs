//! A trainer with two tasks in hand before a source that takes its time, on a clock that tests pause.

use super::*;
use shoal_recordio::{Compressor, Index, Limits, Writer, WriterOptions};
use shoal_runtime::cluster::{Exclusion, JobId, LeaseId, Microbatch, Mode, Precision, Step, Work};
use shoal_runtime::host::processors::Processors;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Mutex;
use tokio::time::sleep_until;

const MILLIS: fn(u64) -> Duration = Duration::from_millis;

/// Chunks of one record each, in one file; what reading takes, and what was read.
struct Far {
    file: Vec<u8>,
    slices: Vec<Slice>,
    latency: Duration,
    /// Chunks that take longer, or are damaged.
    slow: Vec<u32>,
    damaged: Vec<u32>,
    log: Arc<Mutex<Log>>,
}

#[derive(Default)]
struct Log {
    begun: Vec<u32>,
    under_way: Vec<u32>,
    most: usize,
}

/// As long as it is read.
struct UnderWay(Arc<Mutex<Log>>, u32);

impl Drop for UnderWay {
    fn drop(&mut self) {
        // A test that has failed drops it, too.
        if let Ok(mut log) = self.0.lock() {
            log.under_way.retain(|chunk| *chunk != self.1);
        }
    }
}

impl Far {
    fn new(chunks: u32, bytes: usize, latency: u64, compressor: Compressor) -> Far {
        let options = WriterOptions { chunk_bytes: 1, compressor, ..WriterOptions::default() };
        let mut writer = Writer::new(Vec::new(), options);
        (0..chunks).for_each(|chunk| writer.write(&vec![chunk as u8; bytes]).unwrap());
        let file = writer.finish().unwrap();
        let index = Index::of_bytes(Path::new("a"), &file, &Limits::default()).unwrap();
        let slice = |(chunk, entry): (usize, &shoal_recordio::ChunkEntry)| Slice {
            chunk: chunk as u32,
            file: "a".to_owned(),
            chunk_offset: entry.offset,
            chunk_bytes: entry.end() - entry.offset,
            chunk_records: 1,
            chunk_checksum: entry.checksum,
            chunk_first_record: chunk as u64,
            first_position: 0,
            records: 1,
        };
        let slices = index.chunks.iter().enumerate().map(slice).collect();
        let (slow, damaged, log) = (Vec::new(), Vec::new(), Arc::default());
        Far { file, slices, latency: MILLIS(latency), slow, damaged, log }
    }

    /// A task of a microbatch for each of these chunks.
    fn task(&self, first: u64, chunks: impl IntoIterator<Item = u32>) -> Arc<Task> {
        let slices = chunks.into_iter().map(|chunk| vec![self.slices[chunk as usize].clone()]);
        let microbatches = slices.zip(first..).map(|(slices, index)| Microbatch { index, slices }).collect();
        Arc::new(Task {
            lease: LeaseId(first),
            work: Work::Run { first },
            microbatches,
            is_careful: false,
            verified: Vec::new(),
            is_second: false,
        })
    }
}

impl ChunkSource for Far {
    fn read<'a>(
        &'a self,
        slice: &'a Slice,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, ReadError>> + Send + 'a>> {
        Box::pin(async move {
            let _under_way = {
                let mut log = self.log.lock().unwrap();
                log.begun.push(slice.chunk);
                log.under_way.push(slice.chunk);
                log.most = log.most.max(log.under_way.len());
                UnderWay(self.log.clone(), slice.chunk)
            };
            let times = if self.slow.contains(&slice.chunk) { 100 } else { 1 };
            tokio::time::sleep(self.latency * times).await;
            let from = slice.chunk_offset as usize;
            let mut bytes = self.file[from..from + slice.chunk_bytes as usize].to_vec();
            if self.damaged.contains(&slice.chunk)
                && let Some(last) = bytes.last_mut()
            {
                *last ^= 1;
            }
            Ok(bytes)
        })
    }
}

fn reader(source: Far) -> (Reader, Arc<Mutex<Log>>) {
    let job = JobSettings {
        job: JobId("j".to_owned()),
        seed: 7,
        epochs: 1,
        microbatch_records: 1,
        microbatches_per_step: 4,
        shuffle_run: 1,
        records: 1 << 20,
        manifest_fingerprint: [0; 32],
        lease_ttl_millis: 1000,
        mode: Mode::SYNC,
        gradients: Precision::F32,
        warm_start: None,
        evaluated: None,
    };
    let log = source.log.clone();
    (Reader::new(Arc::new(source), job, Processors::in_place()), log)
}

/// Reads until the first of the tasks needs no more.
async fn next(reader: &mut Reader, tasks: &[Arc<Task>]) -> ReadTask {
    loop {
        if let Some(read) = reader.advance(tasks, Arc::default(), Duration::ZERO) {
            return read;
        }
        reader.arrived().await;
    }
}

/// A trainer that takes `step` for each task, with two in hand. How many milliseconds it waited for each.
async fn waits(reader: &mut Reader, tasks: &[Arc<Task>], step: u64) -> Vec<u128> {
    let (mut leased, mut unread) = (tasks.iter().cloned(), Vec::new());
    unread.extend(leased.by_ref().take(2));
    let (mut ready, mut waits, mut before) = (VecDeque::new(), Vec::new(), Duration::ZERO);
    let (mut idle_since, mut computing) = (Instant::now(), None);
    loop {
        let waited = before + computing.as_ref().map_or(idle_since.elapsed(), |_| Duration::ZERO);
        if let Some(ReadTask { task, records }) = reader.advance(&unread, Arc::default(), waited) {
            let records = records.unwrap();
            for (microbatch, records) in task.microbatches.iter().zip(&records) {
                assert_eq!(records.microbatch, microbatch.index);
                let slice = &microbatch.slices[0];
                let read: Vec<(u64, u8)> =
                    records.places().map(|(index, place)| (index, place.bytes()[0])).collect();
                assert_eq!(read, [(slice.chunk_first_record, slice.chunk as u8)]);
            }
            unread.remove(0);
            ready.push_back(records);
        } else if computing.is_none()
            && let Some(records) = ready.pop_front()
        {
            waits.push(idle_since.elapsed().as_millis());
            before += idle_since.elapsed();
            computing = Some((Instant::now() + MILLIS(step), records));
        } else if waits.len() == tasks.len() {
            return waits;
        } else {
            let computed = computing.as_ref().map(|(until, _)| *until);
            tokio::select! {
                biased;
                () = reader.arrived() => {}
                () = sleep_until(computed.unwrap_or_else(Instant::now)), if computed.is_some() => {
                    (computing, idle_since) = (None, Instant::now());
                    unread.extend(leased.next());
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_trainer_waits_for_one_latency_where_it_waited_for_all_and_for_none_once_its_step_is_as_long() {
    for (step, last) in [(1, 29), (30, 0), (100, 0)] {
        let far = Far::new(8 * 20, 10, 30, Compressor::None);
        let tasks: Vec<Arc<Task>> =
            (0..20).map(|at| far.task(8 * at, 8 * at as u32..8 * at as u32 + 8)).collect();
        let (mut reader, log) = reader(far);
        let waits = waits(&mut reader, &tasks, step).await;
        assert!(waits[0] <= 90, "2 at a time, then 4, then all: {waits:?}");
        assert!(waits[3..].iter().all(|wait| *wait <= last), "one at a time waits {}: {waits:?}", 240 - step);
        assert!(log.lock().unwrap().most <= DEPTH_MAX);
    }
}

#[tokio::test(start_paused = true)]
async fn a_near_source_is_read_by_few_at_a_time() {
    let far = Far::new(8 * 20, 10, 0, Compressor::None);
    let tasks: Vec<Arc<Task>> =
        (0..20).map(|at| far.task(8 * at, 8 * at as u32..8 * at as u32 + 8)).collect();
    let (mut reader, log) = reader(far);
    assert_eq!(waits(&mut reader, &tasks, 10).await, [0; 20]);
    assert!(log.lock().unwrap().most <= 2);
    assert_eq!(reader.depth(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_chunk_that_several_slices_need_is_read_once_and_not_again_while_it_is_kept() {
    let far = Far::new(4, 10, 30, Compressor::None);
    let tasks: Vec<Arc<Task>> = (0..9).map(|at| far.task(8 * at, [0, 1, 0, 2, 2, 3, 1, 0])).collect();
    let (mut reader, log) = reader(far);
    let waits = waits(&mut reader, &tasks, 1).await;
    assert_eq!(log.lock().unwrap().begun, [0, 1, 2, 3]);
    assert_eq!(waits[1..], [0; 8]);
}

#[tokio::test(start_paused = true)]
async fn kept_bytes_stay_within_the_budget_whatever_a_task_has_and_whatever_chunks_decode_to() {
    for compressor in [Compressor::None, Compressor::Gzip] {
        let far = Far::new(64, 10_000, 30, compressor);
        let tasks: Vec<Arc<Task>> = (0..3).map(|at| far.task(64 * at, 0..64)).collect();
        let (mut reader, log) = reader(far);
        // A task has eight times as many.
        let max = 85_000;
        reader.cache = ChunkCache::new(max);
        let (mut unread, mut hand) = (tasks.clone(), Vec::new());
        while !unread.is_empty() {
            match reader.advance(&unread[..unread.len().min(2)], Arc::default(), Duration::ZERO) {
                Some(read) => {
                    let records = read.records.unwrap();
                    let first: Vec<u8> = records
                        .iter()
                        .flat_map(|of| of.places().map(|(_, place)| place.bytes()[0]))
                        .collect();
                    assert_eq!(first, (0..64).collect::<Vec<u8>>());
                    unread.remove(0);
                    hand.push(records);
                    hand.drain(..hand.len().saturating_sub(2));
                }
                None => {
                    assert!(reader.cache.bytes() <= max, "{:?}", reader.cache);
                    reader.arrived().await;
                }
            }
        }
        let read = log.lock().unwrap().begun.len();
        assert!(read < 3 * 64 - 5, "what is in use serves the next task too: {read} reads");
    }
}

#[tokio::test(start_paused = true)]
async fn a_chunk_that_cannot_be_read_is_told_by_the_task_and_the_microbatch_that_come_to_it_first() {
    let far = Far { damaged: vec![5], ..Far::new(8, 10, 30, Compressor::None) };
    let tasks = [far.task(0, 0..4), far.task(4, [4, 1, 5, 6]), far.task(8, [5, 7])];
    let (mut reader, log) = reader(far);
    assert!(next(&mut reader, &tasks).await.records.is_ok());
    for (first, at) in [(1, 2), (2, 0)] {
        let read = next(&mut reader, &tasks[first..]).await;
        assert!(Arc::ptr_eq(&read.task, &tasks[first]));
        let Unreadable { at: found, records, source } = read.records.unwrap_err();
        assert_eq!((found, records), (at, 5..6));
        assert!(matches!(source, ReadError::Damaged(_)), "{source}");
    }
    let twice = log.lock().unwrap().begun.iter().filter(|chunk| **chunk == 5).count();
    assert_eq!(twice, 2, "what failed is tried again for another task");
}

#[tokio::test(start_paused = true)]
async fn chunks_that_are_left_out_are_not_read() {
    let far = Far { damaged: vec![1], ..Far::new(3, 10, 30, Compressor::None) };
    let task = far.task(0, 0..3);
    let (mut reader, log) = reader(far);
    let list = vec![Exclusion { records: 1..2, from: Step(0), why: String::new() }];
    let exclusions = Arc::new(Exclusions { number: 1, list });
    let read = loop {
        if let Some(read) = reader.advance(std::slice::from_ref(&task), exclusions.clone(), Duration::ZERO) {
            break read.records.unwrap();
        }
        reader.arrived().await;
    };
    assert_eq!(read.iter().map(|records| records.places().len()).collect::<Vec<_>>(), [1, 0, 1]);
    assert_eq!(log.lock().unwrap().begun, [0, 2]);
}

#[tokio::test(start_paused = true)]
async fn slow_chunks_of_a_higher_task_do_not_hold_up_a_lower_one() {
    let far = Far { slow: (16..32).collect(), ..Far::new(32, 10, 30, Compressor::None) };
    let (lower, higher) = (far.task(0, 0..16), far.task(16, 16..32));
    let (mut reader, log) = reader(far);
    reader.depth = Depth::at(DEPTH_MAX);
    let began = Instant::now();
    assert!(reader.advance(std::slice::from_ref(&higher), Arc::default(), Duration::ZERO).is_none());
    tokio::time::timeout(MILLIS(5), reader.arrived()).await.unwrap_err();
    // Leased later, as one that somebody handed back is.
    let read = next(&mut reader, &[lower.clone(), higher]).await;
    assert!(Arc::ptr_eq(&read.task, &lower));
    assert_eq!((began.elapsed(), log.lock().unwrap().most), (MILLIS(35), DEPTH_MAX));
}

#[tokio::test(start_paused = true)]
async fn the_reads_of_a_task_that_is_handed_back_are_dropped_but_for_those_that_another_needs() {
    let far = Far { slow: (0..4).collect(), ..Far::new(4, 10, 30, Compressor::None) };
    let (one, other) = (far.task(0, [0, 1]), far.task(4, [1, 2]));
    let (mut reader, log) = reader(far);
    reader.depth = Depth::at(8);
    let under_way = || log.lock().unwrap().under_way.clone();
    assert!(reader.advance(&[one, other.clone()], Arc::default(), Duration::ZERO).is_none());
    tokio::time::timeout(MILLIS(5), reader.arrived()).await.unwrap_err();
    assert_eq!(under_way(), [0, 1, 2]);
    assert!(reader.advance(&[other], Arc::default(), Duration::ZERO).is_none());
    assert_eq!(under_way(), [1, 2]);
    assert!(reader.advance(&[], Arc::default(), Duration::ZERO).is_none());
    assert!(under_way().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_chunk_that_could_not_be_read_for_a_task_that_is_gone_is_tried_again_for_the_next() {
    let far = Far { slow: vec![0], damaged: vec![1], ..Far::new(2, 10, 30, Compressor::None) };
    let (gone, later) = (far.task(0, [0, 1]), far.task(2, [1]));
    let (mut reader, log) = reader(far);
    let gone = std::slice::from_ref(&gone);
    assert!(reader.advance(gone, Arc::default(), Duration::ZERO).is_none());
    reader.arrived().await;
    assert!(reader.advance(gone, Arc::default(), Duration::ZERO).is_none(), "chunk 0 is to come yet");
    assert!(reader.advance(&[], Arc::default(), Duration::ZERO).is_none());
    next(&mut reader, &[later]).await.records.unwrap_err();
    assert_eq!(log.lock().unwrap().begun, [0, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn chunks_that_turn_out_to_be_large_make_room_for_those_before_them_and_fewer_are_read_at_a_time() {
    let far = Far { slow: vec![0], ..Far::new(16, 10_000, 30, Compressor::Gzip) };
    let task = far.task(0, 0..16);
    let (mut reader, log) = reader(far);
    (reader.cache, reader.depth) = (ChunkCache::new(85_000), Depth::at(DEPTH_MAX));
    let tasks = std::slice::from_ref(&task);
    for _ in 0..16 {
        assert!(reader.advance(tasks, Arc::default(), Duration::ZERO).is_none());
        assert!(reader.cache.bytes() <= 85_000, "{:?}", reader.cache);
        reader.arrived().await;
    }
    assert_eq!((reader.depth(), log.lock().unwrap().under_way.len()), (1, 0));
    assert_eq!(next(&mut reader, tasks).await.records.unwrap().len(), 16);
    let mut again = log.lock().unwrap().begun.split_off(16);
    again.sort_unstable();
    assert_eq!(again, (5..16).collect::<Vec<u32>>(), "what is wanted last: there is room for five of 16 KiB");
}
