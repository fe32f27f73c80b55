//! Reading ahead from far away: a trainer that computes for a while on each task, eight chunks, each of which takes 20 ms to
//! come; beside one to which records cost nothing, and beside one that reads chunk after chunk. Computing is a pause.

use crate::measure::in_turn;
use crate::report::Row;
use anyhow::Context;
use shoal_recordio::{Index, Limits, Writer, WriterOptions, decode_chunk};
use shoal_runtime::cluster::{
    Exclusions, JobId, JobSettings, LeaseId, Microbatch, Mode, Precision, Slice, Task, Work,
};
use shoal_runtime::host::processors::Processors;
use shoal_trainer_sdk::chunks::{ChunkSource, MicrobatchRecords, ReadError, ReadTask, Reader};
use std::cell::Cell;
use std::collections::VecDeque;
use std::future::Future;
use std::hint::black_box;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

/// What a chunk takes to come, and a task to be computed.
const LATENCY: Duration = Duration::from_millis(20);
const COMPUTING: Duration = Duration::from_millis(20);
const TASKS: u64 = 16;
const TASK_CHUNKS: u64 = 8;
const CHUNK_RECORDS: u32 = 16;
const RECORD_BYTES: usize = 1 << 10;

pub(crate) fn rows(rounds: u32) -> anyhow::Result<Vec<Row>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let far = Arc::new(Far::new()?);
    // It lives as long as its trainer, as what it has learnt does; no chunk comes twice.
    let mut reader = Reader::new(far.clone(), settings(), Processors::all());
    let mut waited = Duration::ZERO;
    let chunks = Cell::new(0);
    let tasks = || (0..TASKS).map(|_| far.task(&chunks)).collect::<Vec<Arc<Task>>>();
    let mut ahead = || runtime.block_on(read_ahead(&mut reader, tasks(), &mut waited));
    let mut alone = || {
        runtime.block_on(async {
            for _ in 0..TASKS {
                sleep(COMPUTING).await;
            }
        });
        Ok(())
    };
    let mut one_by_one = || runtime.block_on(read_one_by_one(&far, &tasks()));
    let measured = in_turn(rounds, [&mut ahead, &mut alone, &mut one_by_one])?;
    let records = (TASKS * TASK_CHUNKS) as f64 * f64::from(CHUNK_RECORDS);
    let row = |name: &str, other: usize| {
        let pairs: Vec<[f64; 2]> = measured.iter().map(|round| [round[0], round[other]]).collect();
        Row::against_limit(name, "records/s", records, &pairs)
    };
    Ok(vec![
        row("reading, 20 ms a chunk / computing alone", 1),
        row("reading, 20 ms a chunk / one by one", 2),
    ])
}

/// Chunks without end, all of the same bytes.
struct Far {
    stored: Vec<u8>,
    slice: Slice,
}

impl Far {
    fn new() -> anyhow::Result<Far> {
        let mut writer = Writer::new(Vec::new(), WriterOptions::default());
        for record in 0..CHUNK_RECORDS {
            writer.write(&[record as u8; RECORD_BYTES])?;
        }
        let file = writer.finish()?;
        let index = Index::of_bytes(Path::new("far"), &file, &Limits::default())?;
        let entry = index.chunks.first().context("there is one chunk")?;
        let slice = Slice {
            chunk: 0,
            file: "far".to_owned(),
            chunk_offset: entry.offset,
            chunk_bytes: entry.end() - entry.offset,
            chunk_records: CHUNK_RECORDS,
            chunk_checksum: entry.checksum,
            chunk_first_record: 0,
            first_position: 0,
            records: CHUNK_RECORDS,
        };
        let stored = file[entry.offset as usize..entry.end() as usize].to_vec();
        Ok(Far { stored, slice })
    }

    /// The next task: of chunks that no other has.
    fn task(&self, chunks: &Cell<u64>) -> Arc<Task> {
        let first = chunks.replace(chunks.get() + TASK_CHUNKS);
        let microbatch = |index: u64| {
            let chunk_first_record = index * u64::from(CHUNK_RECORDS);
            let slice = Slice { chunk: index as u32, chunk_first_record, ..self.slice.clone() };
            Microbatch { index, slices: vec![slice] }
        };
        let microbatches = (first..first + TASK_CHUNKS).map(microbatch).collect();
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
        _: &'a Slice,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, ReadError>> + Send + 'a>> {
        Box::pin(async move {
            sleep(LATENCY).await;
            Ok(self.stored.clone())
        })
    }
}

fn settings() -> JobSettings {
    JobSettings {
        job: JobId("reading".into()),
        seed: 7,
        epochs: 1,
        microbatch_records: CHUNK_RECORDS,
        microbatches_per_step: TASK_CHUNKS as u32,
        shuffle_run: 1,
        records: u64::from(u32::MAX),
        manifest_fingerprint: [0; 32],
        lease_ttl_millis: 60_000,
        mode: Mode::SYNC,
        gradients: Precision::F32,
        warm_start: None,
        evaluated: None,
    }
}

/// As a trainer does: two tasks in hand, one computed and one read meanwhile. `waited` is how long it waited in its life.
async fn read_ahead(reader: &mut Reader, tasks: Vec<Arc<Task>>, waited: &mut Duration) -> anyhow::Result<()> {
    let (mut left, mut leased) = (tasks.len(), tasks.into_iter());
    let mut unread: Vec<Arc<Task>> = leased.by_ref().take(2).collect();
    let (mut ready, mut idle_since, mut computed) = (VecDeque::new(), Instant::now(), None);
    while left > 0 {
        let idle = if computed.is_none() { idle_since.elapsed() } else { Duration::ZERO };
        if let Some(ReadTask { records, .. }) =
            reader.advance(&unread, Arc::<Exclusions>::default(), *waited + idle)
        {
            unread.remove(0);
            ready.push_back(records.map_err(|unreadable| unreadable.source)?);
        } else if computed.is_none()
            && let Some(records) = ready.pop_front()
        {
            *waited += idle;
            computed = Some((Instant::now() + COMPUTING, records));
        } else {
            let until = computed.as_ref().map(|(until, _)| *until);
            tokio::select! {
                biased;
                () = reader.arrived() => {}
                () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => {
                    if let Some((_, records)) = computed.take() {
                        look_at(&records);
                    }
                    (left, idle_since) = (left - 1, Instant::now());
                    unread.extend(leased.next());
                }
            }
        }
    }
    Ok(())
}

fn look_at(records: &[MicrobatchRecords]) {
    for (index, bytes) in records.iter().flat_map(MicrobatchRecords::iter) {
        black_box((index, bytes[0]));
    }
}

/// Chunk after chunk, beside computing.
async fn read_one_by_one(far: &Far, tasks: &[Arc<Task>]) -> anyhow::Result<()> {
    let (sender, mut read) = mpsc::channel(1);
    let reading = async move {
        for task in tasks {
            let mut chunks = Vec::new();
            for slice in task.microbatches.iter().flat_map(|microbatch| &microbatch.slices) {
                let bytes = far.read(slice).await?;
                let (file, chunk) = (Path::new(&slice.file), slice.chunk as usize);
                chunks.push(decode_chunk(file, bytes, slice.chunk_offset, chunk, &Limits::default())?);
            }
            sender.send(chunks).await?;
        }
        anyhow::Ok(())
    };
    let computing = async {
        while let Some(chunks) = read.recv().await {
            sleep(COMPUTING).await;
            for record in chunks.iter().flat_map(|chunk| chunk.iter()) {
                black_box(record[0]);
            }
        }
    };
    let (read, ()) = tokio::join!(reading, computing);
    read
}
