//! Microbatches that a trainer cannot do: of records that it cannot read, or that its program cannot use. The trainer tells the
//! master, hands the task back and goes on with others; it never leaves anything out by itself. Pure.

use shoal_runtime::cluster::{Task, Work};
use shoal_runtime::wire::proto;
use std::ops::Range;

/// The longest reason that is told, in bytes.
const WHY_MAX: usize = 2000;

/// Why a microbatch of a task cannot be done here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Complaint {
    /// The index of the microbatch in its task.
    pub(crate) at: usize,
    /// Records that cannot be used, each alone; empty if no single one was found.
    pub(crate) records: Vec<Range<u64>>,
    pub(crate) why: String,
}

impl Complaint {
    /// The complaint as a message to the master.
    pub(crate) fn word(&self, task: &Task) -> proto::Complaint {
        let mut why = self.why.clone();
        why.truncate(why.floor_char_boundary(WHY_MAX));
        let (step, slot, position) = match task.work {
            Work::Node { step, node, .. } => (step.0, node.first() + self.at as u32, 0),
            Work::Run { first } => (0, 0, first + self.at as u64),
        };
        let records = self.records.iter().map(Into::into).collect();
        proto::Complaint { lease: task.lease.0, step, slot, position, records, why }
    }
}
