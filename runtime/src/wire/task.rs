//! Nodes and tasks on the wire.

use super::{malformed, proto};
use crate::cluster::job_check::{RECORDS_MAX, UNITS_MAX};
use crate::cluster::tree::MICROBATCHES_PER_STEP_MAX;
use crate::cluster::{LeaseId, Microbatch, Node, Refusal, Rewind, Slice, Step, Task, Work};

/// The most bytes of one chunk, header and payload: what a manifest has room for.
const CHUNK_BYTES_MAX: u64 = u32::MAX as u64;

impl From<Node> for proto::Node {
    fn from(node: Node) -> Self {
        proto::Node { level: node.level.into(), index: node.index }
    }
}

impl TryFrom<proto::Node> for Node {
    type Error = Refusal;

    /// A node that some tree may have. Whether a given tree has it, the tree says.
    fn try_from(wire: proto::Node) -> Result<Self, Refusal> {
        let level = u8::try_from(wire.level).ok().filter(|level| *level <= 24);
        let level =
            level.ok_or_else(|| malformed("node.level", format!("{} is above any root", wire.level)))?;
        if (u64::from(wire.index) + 1) << level > u64::from(MICROBATCHES_PER_STEP_MAX) {
            return Err(malformed("node.index", format!("{} is beyond any step", wire.index)));
        }
        Ok(Node { level, index: wire.index })
    }
}

impl From<Task> for proto::Task {
    fn from(task: Task) -> Self {
        let mut wire = proto::Task {
            lease: task.lease.0,
            microbatches: task.microbatches.into_iter().map(Into::into).collect(),
            is_careful: task.is_careful,
            verified: task.verified,
            is_second: task.is_second,
            ..Default::default()
        };
        match task.work {
            Work::Node { step, node, rewind } => {
                (wire.step, wire.node, wire.rewind) = (step.0, Some(node.into()), rewind.0);
            }
            Work::Run { first } => wire.position = first,
        }
        wire
    }
}

impl TryFrom<proto::Task> for Task {
    type Error = Refusal;

    fn try_from(wire: proto::Task) -> Result<Self, Refusal> {
        let (work, most) = match wire.node {
            Some(node) => {
                let node = Node::try_from(node)?;
                let work = Work::Node { step: Step(wire.step), node, rewind: Rewind(wire.rewind) };
                (work, node.width())
            }
            None => (Work::Run { first: wire.position }, MICROBATCHES_PER_STEP_MAX),
        };
        if wire.position.checked_add(wire.microbatches.len() as u64).is_none() || wire.step > UNITS_MAX {
            return Err(malformed("task.position", format!("{work} is beyond any job")));
        }
        if wire.microbatches.is_empty() || wire.microbatches.len() > most as usize {
            return Err(malformed("task.microbatches", format!("{} for {work}", wire.microbatches.len())));
        }
        Ok(Task {
            lease: LeaseId(wire.lease),
            work,
            microbatches: wire.microbatches.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
            is_careful: wire.is_careful,
            verified: wire.verified,
            is_second: wire.is_second,
        })
    }
}

impl From<Microbatch> for proto::Microbatch {
    fn from(microbatch: Microbatch) -> Self {
        proto::Microbatch {
            index: microbatch.index,
            slices: microbatch.slices.into_iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<proto::Microbatch> for Microbatch {
    type Error = Refusal;

    fn try_from(wire: proto::Microbatch) -> Result<Self, Refusal> {
        let slices = wire.slices.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?;
        Ok(Microbatch { index: wire.index, slices })
    }
}

impl From<Slice> for proto::Slice {
    fn from(slice: Slice) -> Self {
        proto::Slice {
            chunk: slice.chunk,
            file: slice.file,
            chunk_offset: slice.chunk_offset,
            chunk_bytes: slice.chunk_bytes,
            chunk_records: slice.chunk_records,
            chunk_checksum: slice.chunk_checksum,
            chunk_first_record: slice.chunk_first_record,
            first_position: slice.first_position,
            records: slice.records,
        }
    }
}

impl TryFrom<proto::Slice> for Slice {
    type Error = Refusal;

    /// A slice that lies inside its chunk, of a chunk that lies inside some file.
    fn try_from(wire: proto::Slice) -> Result<Self, Refusal> {
        if wire.chunk_bytes > CHUNK_BYTES_MAX || wire.chunk_offset.checked_add(wire.chunk_bytes).is_none() {
            let what = format!("{} bytes at offset {}", wire.chunk_bytes, wire.chunk_offset);
            return Err(malformed("slice.chunk_bytes", what));
        }
        if wire.first_position.checked_add(wire.records).is_none_or(|end| end > wire.chunk_records) {
            let what = format!("{} at {} of {}", wire.records, wire.first_position, wire.chunk_records);
            return Err(malformed("slice.records", what));
        }
        if wire.chunk_first_record > RECORDS_MAX {
            return Err(malformed("slice.chunk_first_record", format!("at most {RECORDS_MAX}")));
        }
        Ok(Slice {
            chunk: wire.chunk,
            file: wire.file,
            chunk_offset: wire.chunk_offset,
            chunk_bytes: wire.chunk_bytes,
            chunk_records: wire.chunk_records,
            chunk_checksum: wire.chunk_checksum,
            chunk_first_record: wire.chunk_first_record,
            first_position: wire.first_position,
            records: wire.records,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_beyond_any_tree_is_refused() {
        assert!(Node::try_from(proto::Node { level: 25, index: 0 }).is_err());
        assert!(Node::try_from(proto::Node { level: 24, index: 1 }).is_err());
        assert!(Node::try_from(proto::Node { level: u32::MAX, index: u32::MAX }).is_err());
        assert!(Node::try_from(proto::Node { level: 24, index: 0 }).is_ok());
    }

    fn task(change: impl FnOnce(&mut proto::Task, &mut proto::Slice)) -> Result<Task, Refusal> {
        let mut slice = proto::Slice {
            chunk_offset: 100,
            chunk_bytes: 50,
            chunk_records: 9,
            first_position: 4,
            records: 5,
            ..Default::default()
        };
        let mut task = proto::Task { position: 7, ..Default::default() };
        change(&mut task, &mut slice);
        task.microbatches = vec![proto::Microbatch { index: 3, slices: vec![slice] }];
        task.try_into()
    }

    #[test]
    fn a_slice_lies_inside_its_chunk_and_a_run_inside_some_job() {
        assert!(task(|_, _| {}).is_ok());
        assert!(task(|_, slice| slice.records = 6).is_err());
        assert!(task(|_, slice| slice.first_position = u32::MAX).is_err());
        assert!(task(|_, slice| slice.chunk_offset = u64::MAX).is_err());
        assert!(task(|_, slice| slice.chunk_bytes = 1 << 32).is_err());
        assert!(task(|_, slice| slice.chunk_first_record = u64::MAX).is_err());
        assert!(task(|task, _| task.position = u64::MAX).is_err());
        let node = Some(proto::Node { level: 0, index: 0 });
        assert!(task(|task, _| (task.node, task.step) = (node, u64::MAX)).is_err());
    }
}
