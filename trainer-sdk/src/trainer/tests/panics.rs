//! A program that panics: which record the master is told of, and how often the program is called again.

use super::fake::{Fake, Slope, settings};
use crate::chunks::{ChunkSource, ReadError};
use crate::{Batch, Declaration, Gradient, Job, Model, Parameters, TrainError};
use shoal_recordio::{Index, Limits, Writer, WriterOptions};
use shoal_runtime::cluster::{LeaseId, Microbatch, Mode, Node, Rewind, Slice, Step, Task, Work};
use shoal_runtime::wire::proto;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

const RECORDS: u8 = 6;

/// Records of one byte, their index, in a chunk.
struct Chunk {
    bytes: Vec<u8>,
    slice: Slice,
}

impl Chunk {
    fn new() -> Chunk {
        let mut writer = Writer::new(Vec::new(), WriterOptions::default());
        (0..RECORDS).for_each(|record| writer.write(&[record]).unwrap());
        let file = writer.finish().unwrap();
        let chunk = Index::of_bytes(Path::new("a"), &file, &Limits::default()).unwrap().chunks[0].clone();
        let slice = Slice {
            chunk: 0,
            file: "a".to_owned(),
            chunk_offset: chunk.offset,
            chunk_bytes: chunk.end() - chunk.offset,
            chunk_records: RECORDS.into(),
            chunk_checksum: chunk.checksum,
            chunk_first_record: 0,
            first_position: 0,
            records: RECORDS.into(),
        };
        Chunk { bytes: file[chunk.offset as usize..chunk.end() as usize].to_vec(), slice }
    }
}

impl ChunkSource for Chunk {
    fn read<'a>(
        &'a self,
        _: &'a Slice,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, ReadError>> + Send + 'a>> {
        Box::pin(async { Ok(self.bytes.clone()) })
    }
}

/// Panics on one record. What it takes away for the time of a step is not there again after that, if it is `brittle`.
struct Panicking {
    on: u8,
    is_brittle: bool,
    buffer: Option<Vec<f32>>,
    calls: Arc<AtomicU32>,
}

impl Model for Panicking {
    fn declare(&mut self, job: &Job) -> Declaration {
        Slope::default().declare(job)
    }
    fn step(&mut self, batch: &Batch<'_>, _: &Parameters, _: &mut Gradient) -> anyhow::Result<()> {
        self.calls.fetch_add(1, Relaxed);
        let buffer = if self.is_brittle { self.buffer.take().unwrap() } else { Vec::new() };
        assert!(batch.records.iter().all(|record| record.bytes != [self.on]), "no such class");
        self.buffer = Some(buffer);
        Ok(())
    }
}

/// What the master was told, how the trainer ended, and how often the program was called.
async fn told(on: u8, is_brittle: bool) -> (proto::LeaveRequest, TrainError, u32) {
    let (fake, chunk) = (Fake::new(Mode::SYNC), Chunk::new());
    fake.state().job.records = RECORDS.into();
    fake.state().job.microbatch_records = RECORDS.into();
    let work = Work::Node { step: Step(0), node: Node::leaf(0), rewind: Rewind(1) };
    let microbatches = vec![Microbatch { index: 0, slices: vec![chunk.slice.clone()] }];
    fake.state().tasks.push_back(Task { lease: LeaseId(1), work, microbatches, is_careful: false });
    let calls = Arc::default();
    let model = Panicking { on, is_brittle, buffer: Some(Vec::new()), calls: Arc::clone(&calls) };
    let never = async |_: &Fake, _| std::future::pending().await;
    let ended = fake.train_on(Arc::new(chunk), settings(), model, never).await;
    let leave = fake.state().leaves[0].clone();
    (leave, ended.unwrap().unwrap_err(), calls.load(Relaxed))
}

#[tokio::test(start_paused = true)]
async fn the_record_on_which_a_program_panics_is_told_and_the_trainer_ends() {
    for on in 0..RECORDS {
        let (leave, ended, calls) = told(on, false).await;
        assert!(matches!(ended, TrainError::Panicked(_)), "{ended}");
        let [complaint] = &leave.complaints[..] else { panic!("{leave:?}") };
        assert!(complaint.why.contains("no such class"), "{complaint:?}");
        let expected = vec![(&(u64::from(on)..u64::from(on) + 1)).into()];
        assert_eq!((&complaint.records, calls), (&expected, 1 + u32::from(RECORDS)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_that_a_panic_has_broken_blames_no_record_and_is_not_called_on_and_on() {
    for on in 0..RECORDS {
        let (leave, ended, calls) = told(on, true).await;
        assert!(matches!(ended, TrainError::Panicked(_)), "{ended}");
        let [complaint] = &leave.complaints[..] else { panic!("{leave:?}") };
        assert!(complaint.why.contains("no such class; no record of it was found"), "{complaint:?}");
        assert_eq!((complaint.records.len(), calls), (0, 3));
    }
}
