//! Sync: tree nodes that wait for their step's root, by step. They must never say whose turn it is.

use super::state::Update;
use super::words::Unit;
use std::collections::BTreeMap;

/// What is held of steps that are not applied.
#[derive(Clone, Debug, Default)]
pub(crate) struct Held {
    steps: BTreeMap<Unit, Nodes>,
}

#[derive(Clone, Copy, Debug)]
struct Nodes {
    update: Update,
    pushed: u8,
    /// Nodes that the step does not have.
    absent: u8,
}

impl Held {
    /// Takes nodes; of the step's nodes those outside `root` are absent.
    pub(crate) fn take(&mut self, update: Update, slots: u8, root: u8) {
        let nodes = self.steps.entry(update.unit).or_insert(Nodes { update, pushed: 0, absent: 0 });
        nodes.update = update;
        nodes.pushed |= slots;
        nodes.absent |= !root;
    }
    /// The step's update and the nodes that were pushed for it, if with the absent ones they are `all`.
    pub(crate) fn whole(&self, step: Unit, all: u8) -> Option<(Update, u8)> {
        let nodes = self.steps.get(&step).filter(|nodes| (nodes.pushed | nodes.absent) & all == all)?;
        Some((nodes.update, nodes.pushed))
    }
    /// Lets go of what is applied.
    pub(crate) fn forget_before(&mut self, step: Unit) {
        self.steps = self.steps.split_off(&step);
    }
}
