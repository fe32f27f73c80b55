//! What a gradient is of, and which state it was computed from.

use shoal_runtime::cluster::{Node, Rewind, Step, Task, Version, Work};

/// A node of a step's tree, in a history of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeOf {
    pub(crate) step: Step,
    pub(crate) node: Node,
    pub(crate) rewind: Rewind,
}

impl NodeOf {
    /// What a task's gradient is of, in synchronous jobs.
    pub(crate) fn of(task: &Task) -> Option<NodeOf> {
        match task.work {
            Work::Node { step, node, rewind } => Some(NodeOf { step, node, rewind }),
            Work::Run { .. } => None,
        }
    }
}

/// What a gradient is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// A node of a step's tree, in synchronous jobs.
    Node(NodeOf),
    /// The microbatch at this position, in asynchronous jobs.
    Microbatch(u64),
}

/// Which state of a block a gradient was computed from. In synchronous jobs the step says the version, which is 0 here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Base {
    pub(crate) rewind: Rewind,
    pub(crate) version: Version,
}
