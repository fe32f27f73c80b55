//! Sync: tree nodes that wait for their step's root, by step. They must never say whose turn it is.

use super::state::Root;
use super::words::Unit;
use std::collections::BTreeMap;

/// What is held of steps that are not applied.
#[derive(Clone, Debug, Default)]
pub(crate) struct Held {
    steps: BTreeMap<Unit, Nodes>,
}

#[derive(Clone, Copy, Debug)]
struct Nodes {
    gradient: Root,
    pushed: u8,
    /// Nodes that the step does not have.
    absent: u8,
}

impl Held {
    /// Takes nodes, and says what is held of the step already; of the step's nodes those outside `mask` are absent.
    pub(crate) fn take(&mut self, gradient: Root, slots: u8, mask: u8) -> Option<Root> {
        let before = self.steps.get(&gradient.unit).copied();
        let (pushed, absent) = before.map_or((0, 0), |nodes| (nodes.pushed, nodes.absent));
        let nodes = Nodes { gradient, pushed: pushed | slots, absent: absent | !mask };
        self.steps.insert(gradient.unit, nodes);
        before.map(|nodes| nodes.gradient)
    }
    /// The step's root and the nodes that were pushed for it, if with the absent ones they are `all`.
    pub(crate) fn whole(&self, step: Unit, all: u8) -> Option<(Root, u8)> {
        let nodes = self.steps.get(&step).filter(|nodes| (nodes.pushed | nodes.absent) & all == all)?;
        Some((nodes.gradient, nodes.pushed))
    }
    /// Lets go of what is applied.
    pub(crate) fn forget_before(&mut self, step: Unit) {
        self.steps = self.steps.split_off(&step);
    }
}
