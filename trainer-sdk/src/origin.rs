//! The origin of a gradient: its node or microbatch, and the state of blocks that it was computed from.

use shoal_runtime::cluster::{Node, Rewind, Step, Task, Version, Work};

/// A node of a step's tree, in one history of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StepNode {
    pub(crate) step: Step,
    pub(crate) node: Node,
    pub(crate) rewind: Rewind,
}

impl StepNode {
    /// The node that a task is of whose sum is pushed; `None` in asynchronous jobs, and of second computations.
    pub(crate) fn of(task: &Task) -> Option<StepNode> {
        match task.work {
            Work::Node { .. } if task.is_second => None,
            Work::Node { step, node, rewind } => Some(StepNode { step, node, rewind }),
            Work::Run { .. } => None,
        }
    }
}

/// The node or the microbatch that a gradient is the sum of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A node of a step's tree, in synchronous jobs.
    Node(StepNode),
    /// The microbatch at this position, in asynchronous jobs.
    Microbatch(u64),
}

/// The state of a block that a gradient was computed from. In synchronous jobs the step says the version, which is 0 here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BaseState {
    pub(crate) rewind: Rewind,
    pub(crate) version: Version,
}
