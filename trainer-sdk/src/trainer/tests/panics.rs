//! A program that panics or gives an error: which record the master is told of, and how often the program is called again.

use super::fake::{Fake, Slope, settings};
use crate::chunks::{ChunkSource, ReadError};
use crate::program::Program;
use crate::{Batch, Declaration, Ended, Gradient, Job, Leave, Model, Parameters, TrainError, Unfit};
use anyhow::anyhow;
use shoal_recordio::{Index, Limits, Writer, WriterOptions};
use shoal_runtime::cluster::{LeaseId, Microbatch, Mode, Node, Rewind, Slice, Step, Task, Work};
use shoal_runtime::wire::proto;
use std::io::ErrorKind;
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
    fn declare(&mut self, job: &Job) -> anyhow::Result<Declaration> {
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

/// A master that leases one task of all records.
fn one_task() -> (Fake, Chunk) {
    let (fake, chunk) = (Fake::new(Mode::SYNC), Chunk::new());
    fake.state().job.records = RECORDS.into();
    fake.state().job.microbatch_records = RECORDS.into();
    let work = Work::Node { step: Step(0), node: Node::leaf(0), rewind: Rewind(1) };
    let microbatches = vec![Microbatch { index: 0, slices: vec![chunk.slice.clone()] }];
    fake.state().tasks.push_back(Task {
        lease: LeaseId(1),
        work,
        microbatches,
        is_careful: false,
        verified: Vec::new(),
        is_second: false,
    });
    (fake, chunk)
}

/// A master that leases one task of two records a microbatch.
fn a_task_of_pairs() -> (Fake, Chunk) {
    let (fake, chunk) = one_task();
    let mut state = fake.state();
    let pairs = u32::from(RECORDS / 2);
    (state.job.microbatch_records, state.job.microbatches_per_step) = (2, pairs);
    let task = &mut state.tasks[0];
    task.work = Work::Node { step: Step(0), node: Node { level: 2, index: 0 }, rewind: Rewind(1) };
    let slice = |pair: u32| Slice { first_position: 2 * pair, records: 2, ..chunk.slice.clone() };
    let microbatch = |pair| Microbatch { index: u64::from(pair), slices: vec![slice(pair)] };
    task.microbatches = (0..pairs).map(microbatch).collect();
    drop(state);
    (fake, chunk)
}

#[test]
fn no_microbatch_of_a_task_is_computed_after_one_that_has_panicked() {
    let mut slots = Vec::new();
    for (on, is_brittle) in (0..RECORDS).flat_map(|on| [(on, false), (on, true)]) {
        let calls = Arc::default();
        let mut model = Panicking { on, is_brittle, buffer: Some(Vec::new()), calls: Arc::clone(&calls) };
        let (program, served) = Program::apart();
        let loops = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let (fake, chunk) = a_task_of_pairs();
                let never = async |_: &Fake, _| std::future::pending().await;
                let ended = fake.train_program(Arc::new(chunk), settings(), program, never).await;
                (fake.state().leaves.first().cloned().unwrap(), ended.unwrap().unwrap_err())
            })
        });
        served.serve(&mut model);
        let (leave, ended) = loops.join().unwrap();
        assert!(matches!(ended, TrainError::Panicked(_)), "{ended}");
        let [complaint] = &leave.complaints[..] else { panic!("{leave:?}") };
        // Those before it are done, it panics, and its two records are tried.
        assert_eq!(calls.load(Relaxed), complaint.slot + 1 + 2, "{complaint:?}, brittle: {is_brittle}");
        slots.push(complaint.slot);
    }
    slots.sort_unstable();
    assert_eq!(slots, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]);
}

/// What the master was told by a trainer that computes a chunk in one microbatch, and how it ended.
async fn trained(
    model: impl Model + Send + 'static,
) -> (Option<proto::LeaveRequest>, Result<Ended, TrainError>) {
    let (fake, chunk) = one_task();
    let never = async |_: &Fake, _| std::future::pending().await;
    let ended = fake.train_on(Arc::new(chunk), settings(), model, never).await;
    let leave = fake.state().leaves.first().cloned();
    (leave, ended.unwrap())
}

/// The same of a program that panics, and how often it was called.
async fn told(on: u8, is_brittle: bool) -> (proto::LeaveRequest, TrainError, u32) {
    let calls = Arc::default();
    let model = Panicking { on, is_brittle, buffer: Some(Vec::new()), calls: Arc::clone(&calls) };
    let (leave, ended) = trained(model).await;
    (leave.unwrap(), ended.unwrap_err(), calls.load(Relaxed))
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

/// An error of a program.
type Says = fn() -> anyhow::Error;

/// A program that says the same at each call.
struct Unable {
    says: Says,
    calls: Arc<AtomicU32>,
}

impl Model for Unable {
    fn declare(&mut self, job: &Job) -> anyhow::Result<Declaration> {
        Slope::default().declare(job)
    }
    fn step(&mut self, _: &Batch<'_>, _: &Parameters, _: &mut Gradient) -> anyhow::Result<()> {
        self.calls.fetch_add(1, Relaxed);
        Err((self.says)())
    }
}

#[tokio::test(start_paused = true)]
async fn a_program_that_says_that_its_trainer_cannot_ends_it_at_once_and_blames_no_record() {
    let ways: [(Says, &str); 5] = [
        (|| Unfit("no such thing here".into()).into(), "no such thing here"),
        (
            || anyhow!("lost").context(Unfit("the cache is gone".into())).context("caching"),
            "the cache is gone",
        ),
        (|| anyhow::Error::from(std::io::Error::from(ErrorKind::StorageFull)).context("scratch"), "scratch"),
        (|| std::io::Error::from_raw_os_error(24).into(), "files"),
        (|| Vec::<u64>::new().try_reserve(usize::MAX).unwrap_err().into(), "capacity"),
    ];
    for (says, words) in ways {
        let calls = Arc::default();
        let (leave, ended) = trained(Unable { says, calls: Arc::clone(&calls) }).await;
        let (leave, ended) = (leave.unwrap(), ended.unwrap_err());
        assert!(matches!(ended, TrainError::Unfit(_)) && ended.to_string().contains(words), "{ended}");
        assert_eq!((&leave.ended, &*leave.failure, leave.complaints.len()), (&ended.to_string(), "", 0));
        assert_eq!(calls.load(Relaxed), 1, "no record is tried alone");
    }
}

#[tokio::test(start_paused = true)]
async fn a_program_that_was_asked_to_stop_hands_its_tasks_back_without_a_complaint() {
    let ways: [Says; 2] = [|| Leave.into(), || anyhow!("interrupted").context(Leave).context("training")];
    for says in ways {
        let calls = Arc::default();
        let (leave, ended) = trained(Unable { says, calls: Arc::clone(&calls) }).await;
        let leave = leave.unwrap();
        assert_eq!((ended.unwrap(), calls.load(Relaxed)), (Ended::Left, 1));
        assert_eq!((&*leave.ended, &*leave.failure, leave.complaints.len()), ("", "", 0));
        assert!(leave.progress.iter().all(|word| !word.pushed), "{leave:?}");
    }
}

/// A program that declares nothing: it says why, or panics.
struct Undeclared(fn() -> anyhow::Result<Declaration>);

impl Model for Undeclared {
    fn declare(&mut self, _: &Job) -> anyhow::Result<Declaration> {
        (self.0)()
    }
    fn step(&mut self, _: &Batch<'_>, _: &Parameters, _: &mut Gradient) -> anyhow::Result<()> {
        panic!("it has not joined")
    }
}

#[tokio::test(start_paused = true)]
async fn a_program_that_cannot_declare_ends_before_it_joins_and_says_why() {
    let ended = async |declare| {
        let (leave, ended) = trained(Undeclared(declare)).await;
        assert!(leave.is_none(), "nobody knows of it: {leave:?}");
        ended.map_err(|error| (error.to_string(), error.exit_code()))
    };
    let why = |why: &str, code| Err((format!("the program cannot begin: {why}"), code));
    assert_eq!(
        ended(|| Err(anyhow!("no such file").context("weights"))).await,
        why("weights: no such file", 2)
    );
    assert_eq!(ended(|| panic!("at once")).await, why("it panicked: at once", 2));
    let unfit = ended(|| Err(Unfit("no device".into()).into())).await.unwrap_err();
    assert!(unfit.0.starts_with("no device") && unfit.1 == 1, "others may: {unfit:?}");
    assert_eq!(ended(|| Err(Leave.into())).await, Ok(Ended::Left));
}

/// Gives an error on every record, or on one.
struct Failing {
    on: Option<u8>,
    calls: Arc<AtomicU32>,
}

impl Model for Failing {
    fn declare(&mut self, job: &Job) -> anyhow::Result<Declaration> {
        Slope::default().declare(job)
    }
    fn step(&mut self, batch: &Batch<'_>, _: &Parameters, _: &mut Gradient) -> anyhow::Result<()> {
        self.calls.fetch_add(1, Relaxed);
        let fails = |bytes: &[u8]| self.on.is_none_or(|on| bytes == [on]);
        anyhow::ensure!(!batch.records.iter().any(|record| fails(record.bytes)), "no such class");
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_that_is_none_of_the_records_is_told_after_three_calls_and_any_other_after_all() {
    for (on, calls) in [(None, 3), (Some(0), 7), (Some(3), 7)] {
        let ((fake, chunk), counted) = (one_task(), Arc::default());
        let model = Failing { on, calls: Arc::clone(&counted) };
        let heard = async |fake: &Fake, _| {
            let complains = |state: &super::fake::State| {
                state.leases.iter().any(|(_, lease)| !lease.complaints.is_empty())
            };
            fake.until("a complaint", complains).await;
        };
        fake.train_on(Arc::new(chunk), settings(), model, heard).await;
        let state = fake.state();
        let [complaint, ..] =
            &state.leases.iter().find(|(_, lease)| !lease.complaints.is_empty()).unwrap().1.complaints[..]
        else {
            panic!("{on:?}")
        };
        let told: Vec<proto::RecordRange> =
            on.iter().map(|on| (&(u64::from(*on)..u64::from(*on) + 1)).into()).collect();
        assert_eq!((&complaint.records, counted.load(Relaxed)), (&told, calls), "{complaint:?}");
        let is_said =
            complaint.why.contains("so it is not the records: the step function failed: no such class");
        assert_eq!(is_said, on.is_none(), "{complaint:?}");
    }
}

/// Gives an error on all records together, and cannot go on with one alone.
struct Tired(fn() -> anyhow::Error);

impl Model for Tired {
    fn declare(&mut self, job: &Job) -> anyhow::Result<Declaration> {
        Slope::default().declare(job)
    }
    fn step(&mut self, batch: &Batch<'_>, _: &Parameters, _: &mut Gradient) -> anyhow::Result<()> {
        anyhow::ensure!(batch.records.len() == 1, "too many");
        Err((self.0)())
    }
}

#[tokio::test(start_paused = true)]
async fn what_ends_the_trainer_while_records_are_tried_blames_none_of_them() {
    let (leave, ended) = trained(Tired(|| Unfit("no memory is left".into()).into())).await;
    assert!(matches!(ended, Err(TrainError::Unfit(_))), "{ended:?}");
    assert_eq!(leave.unwrap().complaints.len(), 0);
    let (leave, ended) = trained(Tired(|| Leave.into())).await;
    assert_eq!((ended.unwrap(), leave.unwrap().complaints.len()), (Ended::Left, 0));
}

/// Says that its microbatches weigh more than can be added up.
struct Heavy;

impl Model for Heavy {
    fn declare(&mut self, job: &Job) -> anyhow::Result<Declaration> {
        Slope::default().declare(job)
    }
    fn step(&mut self, _: &Batch<'_>, _: &Parameters, gradient: &mut Gradient) -> anyhow::Result<()> {
        gradient.set_weight(u64::MAX);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_weight_that_no_sum_can_hold_is_told_and_not_added() {
    let (fake, chunk) = one_task();
    let complained = |state: &super::fake::State| {
        let complaints = state.leases.iter().flat_map(|(_, lease)| &lease.complaints);
        complaints.clone().any(|complaint| complaint.why.contains("at most 2^40 are taken"))
    };
    let heard = async |fake: &Fake, _| fake.until("a complaint", complained).await;
    assert!(fake.train_on(Arc::new(chunk), settings(), Heavy, heard).await.is_none());
}
