//! The nodes held of the step that replaces the newest version and, where there is a delay, of those after it. Pure.
//!
//! Whether a slot is there or absent is the node's step's to say, never the block's place. A later step's root may be
//! whole before its turn has come: it waits.

use super::held::{HeldNode, HeldNodes};
use crate::device::DeviceError;
use shoal_runtime::cluster::Step;
use std::collections::VecDeque;

/// The steps of which nodes may be held, in order.
#[derive(Debug)]
pub(super) struct HeldSteps {
    first: Step,
    /// Nodes taken in so far, also of steps that are done.
    taken: u64,
    steps: VecDeque<HeldNodes>,
}

impl HeldSteps {
    /// Nothing held of the steps from `first` on.
    pub(super) fn new(first: Step, steps: impl IntoIterator<Item = HeldNodes>) -> HeldSteps {
        HeldSteps { first, taken: 0, steps: steps.into_iter().collect() }
    }

    /// A node was taken in.
    pub(super) fn note_taken(&mut self) {
        self.taken += 1;
    }

    /// Nodes taken in so far, also of steps that are done.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// The nodes of one step; none of a step that is done or too far ahead.
    pub(super) fn of(&self, step: Step) -> Option<&HeldNodes> {
        self.steps.get(step.0.checked_sub(self.first.0)? as usize)
    }

    /// The same, to take in an arrival.
    pub(super) fn of_mut(&mut self, step: Step) -> Option<&mut HeldNodes> {
        self.steps.get_mut(step.0.checked_sub(self.first.0)? as usize)
    }

    /// The root of a step that has to wait lets go of the message that made it.
    pub(super) fn settle(&mut self, step: Step) {
        if let Some(held) = self.of_mut(step) {
            held.settle();
        }
    }

    /// Copies the root of the first step here, if it is on a device.
    ///
    /// # Errors
    /// The device has failed; it is there still.
    pub(super) fn bring_root(&mut self) -> Result<(), DeviceError> {
        self.steps.front_mut().map_or(Ok(()), HeldNodes::bring_root)
    }

    /// All nodes by step.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (Step, &HeldNode)> {
        let steps = (self.first.0..).map(Step).zip(&self.steps);
        steps.flat_map(|(step, held)| held.nodes().map(move |node| (step, node)))
    }

    /// The root of the first step, if it is whole.
    pub(super) fn root(&self) -> Option<&HeldNode> {
        self.steps.front().and_then(HeldNodes::root)
    }

    /// Gives the root of the first step away; from now on that is the step after it. `last` is the one that may be held
    /// now as well.
    pub(super) fn advance(&mut self, last: HeldNodes) -> Option<HeldNode> {
        self.root()?;
        self.steps.push_back(last);
        self.first = self.first.next();
        self.steps.pop_front().and_then(HeldNodes::into_root)
    }
}
