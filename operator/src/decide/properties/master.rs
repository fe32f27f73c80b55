//! The master in the model of a cluster: whom it knows, and what it says of itself. For the properties beside it.

use super::super::*;
use shoal_job::spec::Spec;
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
