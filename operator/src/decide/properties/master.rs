//! The master in the model of a cluster: whom it knows, and what it says of itself. For the properties beside it.

use super::super::*;
use shoal_job::spec::{Document, Spec};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, Default)]
pub(super) struct Master {
    /// By name, whether it was told to leave.
    pub(super) pservers: BTreeMap<String, bool>,
    pub(super) replaced: BTreeSet<String>,
    pub(super) wanted: (u32, u32),
    pub(super) step: u64,
    pub(super) checkpoint: u64,
    pub(super) live: Spec,
}

impl Master {
    /// Does what it is told.
    pub(super) fn hear(&mut self, command: Command) {
        match command {
            Command::GoBy { spec } => {
                self.live = Document::parse(&spec).unwrap().0;
            }
            Command::Scale { trainers, pservers } => {
                self.wanted = (trainers, pservers.unwrap_or(self.wanted.1));
            }
            Command::Drain { pserver, is_replaced } => {
                if is_replaced {
                    self.replaced.insert(pserver);
                } else if self.wanted.1 > 1
                    && let Some(is_leaving) = self.pservers.get_mut(&pserver)
                {
                    self.wanted.1 -= u32::from(!*is_leaving);
                    *is_leaving = true;
                }
            }
            Command::Checkpoint => self.checkpoint += 1,
        }
    }

    /// What it says of its job.
    pub(super) fn view(&self) -> MasterView {
        let pending = self.replaced.iter().filter(|name| self.pservers.get(*name) == Some(&false));
        let member = |(name, is_leaving): (&String, &bool)| MemberView {
            name: name.clone(),
            is_live: true,
            is_leaving: *is_leaving,
            ..MemberView::default()
        };
        MasterView {
            phase: "training".to_owned(),
            is_progress_known: true,
            step: self.step,
            steps: u64::MAX,
            trainers_wanted: self.wanted.0,
            pservers_wanted: self.wanted.1 + pending.count() as u32,
            pservers: self.pservers.iter().map(member).collect(),
            checkpoint: self.checkpoint,
            live: Some(self.live.clone()),
            ..MasterView::default()
        }
    }
}
