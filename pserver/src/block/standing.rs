//! How a copy stands, for the master's ears. Changes nothing.

use super::primary::Primary;
use super::state::State;
use super::{Block, Role, Standing};
use shoal_runtime::cluster::{Mode, Node, Step, Version};
use std::collections::BTreeMap;

impl Block {
    /// How it stands.
    pub fn standing(&self) -> Standing {
        // What is filled in part cannot be gone on from.
        let name = self.state.as_ref().filter(|state| state.filled().is_none()).map(State::name);
        match (&self.role, name) {
            (Role::Primary(primary), Some(name)) => {
                let held = self.standing_held(primary, name.version);
                let Some(ledger) = self.standing_ledger(primary) else { return Standing::Nothing };
                Standing::Primary { term: self.placement.term, published: self.published, held, ledger }
            }
            (Role::Follower { is_broken }, name) => {
                Standing::Follower { fill: self.placement.fill, name, is_broken: *is_broken }
            }
            (Role::Primary(_), None) | (Role::Retired, _) => Standing::Nothing,
        }
    }

    /// What is held, by step: what is applied and not published yet is held whole.
    fn standing_held(&self, primary: &Primary, version: Version) -> Vec<(Step, Vec<Node>)> {
        let mut steps: BTreeMap<Step, Vec<Node>> = BTreeMap::new();
        if matches!(self.job.mode, Mode::Sync { .. }) {
            let unpublished = (self.published.0..version.0).map(Step);
            steps.extend(unpublished.map(|step| (step, vec![self.job.nothing_of(step).tree().root()])));
        }
        for (step, held) in primary.held.nodes() {
            steps.entry(step).or_default().push(held.node);
        }
        steps.into_iter().collect()
    }
}
