//! Messages: the first byte says which, the others are it. Read, written and read again they are the same; what converts is
//! used as a role would use it, and converts back to the same.

use super::assert_same;
use super::messages::{self, NAMES};
use prost::Message;
use shoal_runtime::cluster::checkpoint::WrittenFile;
use shoal_runtime::cluster::plan::ChunkOrder;
use shoal_runtime::cluster::{
    BlockCopy, DamagedCheckpoint, Declaration, Exclusions, JobSettings, Layout, Ledger, Node, Parameter,
    Pass, Refusal, Routing, Rule, Schedule, Slice, Staleness, Step, Task, Version, Work,
};
use shoal_runtime::wire::{Fault, proto};
use std::fmt::Debug;

/// Blocks beyond which a layout is not made here: it would be sound and slow.
const BLOCKS_MADE_MAX: u64 = 1 << 12;

/// See the file's first lines.
pub(crate) fn wire(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let name = NAMES[usize::from(*kind) % NAMES.len()];
    let Some(Ok(read)) = messages::read(name, bytes) else { return };
    let again = messages::read(name, &read.bytes).expect("the same name").expect("what was written is read");
    assert_eq!(again.bytes, read.bytes, "{name}: another message after a round trip");
    match name {
        "JobSettings" => converted::<proto::JobSettings, JobSettings>(bytes, settings),
        "Declaration" => converted::<proto::Declaration, Declaration>(bytes, declaration),
        "Parameter" => converted::<proto::Parameter, Parameter>(bytes, |_| {}),
        "Rule" => one_way::<proto::Rule, Rule>(bytes),
        "Schedule" => converted::<proto::Schedule, Schedule>(bytes, |_| {}),
        "Routing" => converted::<proto::Routing, Routing>(bytes, routing),
        "Task" => one_way_with::<proto::Task, Task>(bytes, task),
        "Slice" => one_way_with::<proto::Slice, Slice>(bytes, slice),
        "Node" => one_way::<proto::Node, Node>(bytes),
        "Exclusions" => converted::<proto::Exclusions, Exclusions>(bytes, exclusions),
        "Ledger" => converted::<proto::Ledger, Ledger>(bytes, ledger),
        "BlockCopy" => one_way::<proto::BlockCopy, BlockCopy>(bytes),
        "WrittenFile" => converted::<proto::WrittenFile, WrittenFile>(bytes, |_| {}),
        "DamagedCheckpoint" => converted::<proto::DamagedCheckpoint, DamagedCheckpoint>(bytes, |_| {}),
        "Staleness" => staleness(bytes),
        "Refusal" => refusal(bytes),
        _ => {}
    }
}

/// A conversion and its inverse from a reference.
fn converted<M, T>(bytes: &[u8], used: fn(&T))
where
    M: Message + Default + for<'a> From<&'a T>,
    T: TryFrom<M, Error = Refusal> + Debug,
{
    let Ok(taken) = T::try_from(M::decode(bytes).unwrap_or_default()) else { return };
    let again = T::try_from(M::from(&taken)).expect("what was taken is taken again");
    assert_same(&again, &taken);
    used(&taken);
}

/// The same where the inverse takes the value.
fn one_way<M, T>(bytes: &[u8])
where
    M: Message + Default + From<T>,
    T: TryFrom<M, Error = Refusal> + Debug + Clone,
{
    one_way_with::<M, T>(bytes, |_| {});
}

fn one_way_with<M, T>(bytes: &[u8], used: fn(&T))
where
    M: Message + Default + From<T>,
    T: TryFrom<M, Error = Refusal> + Debug + Clone,
{
    let Ok(taken) = T::try_from(M::decode(bytes).unwrap_or_default()) else { return };
    let again = T::try_from(M::from(taken.clone())).expect("what was taken is taken again");
    assert_same(&again, &taken);
    used(&taken);
}

fn settings(job: &JobSettings) {
    let (shape, course) = (job.shape(), job.course());
    let _ = (job.all_records(), job.steps(), job.positions(), job.last_version());
    let last = course.units().saturating_sub(1);
    for unit in [0, last / 2, last, course.units(), u64::MAX] {
        let _ = (course.stage(unit), course.trained(unit), course.evaluated(unit), course.barrier(unit));
        let _ = (shape.tree(Step(unit)).root(), shape.evaluates(Step(unit)), job.reads(Step(unit)));
    }
    if job.is_sync() {
        let (_, index) = shape.microbatch(Step(last), shape.tree(Step(last)).present() - 1);
        assert!(index <= job.all_records());
    } else {
        assert!(shape.microbatch_at(last).1 <= job.all_records());
    }
    let order = ChunkOrder::new(job, Pass::Epoch(job.epochs), 7, 1000);
    assert!(order.record(0) < 1000 && order.record(999) < 1000);
}

fn declaration(declaration: &Declaration) {
    let elements = declaration.parameters.iter().map(Parameter::elements).fold(0, u64::saturating_add);
    if elements.div_ceil(declaration.block_elements.max(1)) > BLOCKS_MADE_MAX {
        return;
    }
    let layout = Layout::new(declaration);
    let held: u64 = layout.iter().map(|(_, block)| block.elements as u64).sum();
    assert_eq!(held, elements, "every element is in one block");
    for parameter in &declaration.parameters {
        let mut values = [0.0; 4];
        parameter.initial.fill(1, &parameter.name, parameter.elements() - 1, &mut values[..1]);
        let rates = [0, 1, 1 << 20, u64::MAX].map(|step| parameter.learning_rate.at(Step(step)));
        assert!(
            values[0].is_finite() && rates.iter().all(|rate| rate.is_finite()),
            "{parameter:?}: {rates:?}"
        );
    }
    let _ = (declaration.decisions(), declaration.metrics().count(), declaration.difference(declaration));
}

fn routing(routing: &Routing) {
    let led: usize = (0..routing.pservers.len()).map(|pserver| routing.blocks_of(pserver).len()).sum();
    assert_eq!(led, routing.blocks.len(), "every block has one primary in the table");
    let _ = routing.rewind();
}

fn task(task: &Task) {
    if let Work::Run { first } = task.work {
        let _ = first + task.microbatches.len() as u64;
    }
    let _ = (task.work.order(), task.work.to_string());
    task.microbatches.iter().flat_map(|microbatch| &microbatch.slices).for_each(slice);
}

fn slice(slice: &Slice) {
    let _ = slice.chunk_offset + slice.chunk_bytes;
    assert!(slice.first_position + slice.records <= slice.chunk_records);
    let _ = slice.chunk_first_record + u64::from(slice.chunk_records);
}

fn exclusions(exclusions: &Exclusions) {
    let _ = (exclusions.count(), exclusions.excludes(7, Step(3)), exclusions.excludes_all(&(3..9), Step(3)));
}

fn ledger(ledger: &Ledger) {
    let mut ledger = ledger.clone();
    let (low, end) = (ledger.low(), ledger.end());
    assert!(ledger.is_full(low) && low <= end);
    let missing: Vec<_> = ledger.missing(0..end).collect();
    for gap in missing.iter().take(8) {
        assert!(!ledger.contains(gap.start) && ledger.insert(gap.start) && !ledger.insert(gap.start));
    }
    assert_eq!(ledger.intersection(&ledger), ledger);
}

fn staleness(bytes: &[u8]) {
    let taken = Staleness::from(&proto::Staleness::decode(bytes).unwrap_or_default());
    assert_eq!(Staleness::from(&proto::Staleness::from(&taken)), taken);
    let _ = (taken.plus(&taken).count(), taken.sum(), Version(0));
}

fn refusal(bytes: &[u8]) {
    let status = tonic::Status::with_details(tonic::Code::FailedPrecondition, "no", bytes.to_vec().into());
    let fault = Fault::said(&status);
    let _ = (fault.next_move(), fault.to_string());
}
