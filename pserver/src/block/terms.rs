//! What never changes about the copies of a job's blocks. Pure.

use super::held::HeldNodes;
use super::held_steps::HeldSteps;
use super::memory::Budget;
use super::shape::Pace;
use shoal_runtime::cluster::plan::EpochShape;
use shoal_runtime::cluster::{JobSettings, Mode, Step, Version};
use std::sync::Arc;

/// What never changes about the copies of a job's blocks.
#[derive(Clone, Debug)]
pub struct Terms {
    pub(super) epoch: EpochShape,
    pub(super) microbatches_per_step: u32,
    pub(super) seed: u64,
    pub(super) window: usize,
    pub(super) mode: Mode,
    pub(super) budget: Arc<Budget>,
}

impl Terms {
    /// Of a job whose blocks hold at most `window` nodes beyond the lowest missing slot of a step.
    pub fn new(job: &JobSettings, window: usize) -> Terms {
        let (epoch, microbatches_per_step) = (job.shape(), job.microbatches_per_step);
        let budget = Budget::of(u64::MAX);
        Terms { epoch, microbatches_per_step, seed: job.seed, window, mode: job.mode, budget }
    }

    /// The same with a bound on what pieces of checkpoints hold beyond what training needs.
    pub fn with_budget(&self, budget: Arc<Budget>) -> Terms {
        Terms { budget, ..self.clone() }
    }

    /// What pieces of checkpoints may hold.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Nothing held of the steps that a block at `version` may hold nodes of; asynchronous jobs hold none.
    pub(super) fn nothing_held(&self, version: Version) -> HeldSteps {
        let first = Step(version.0);
        let steps = match self.mode {
            Mode::Sync { .. } => 1 + self.mode.delay(),
            Mode::Async { .. } => 0,
        };
        HeldSteps::new(first, (0..steps).map(|after| self.nothing_of(Step(version.0 + after))))
    }

    /// The last step that a block at `version` may hold nodes of.
    pub(super) fn last_held(&self, version: Version) -> Step {
        Step(version.0 + self.mode.delay())
    }

    /// Nothing held of one step.
    pub(super) fn nothing_of(&self, step: Step) -> HeldNodes {
        HeldNodes::new(self.epoch.tree(step), self.window)
    }

    /// The version that a step's gradients are taken at.
    pub(super) fn reads(&self, step: Step) -> Version {
        step.reads(self.mode.delay())
    }

    /// Where in the job the update of `version` is.
    pub(super) fn pace(&self, version: Version, staleness: u64) -> Pace {
        let updates = version.0 + 1;
        match self.mode {
            Mode::Sync { .. } => Pace { step: Step(version.0), updates, scale: 1.0 },
            Mode::Async { scale_by_staleness, .. } => {
                let step = Step(version.0 / u64::from(self.microbatches_per_step));
                let scale = if scale_by_staleness { 1.0 / (1.0 + staleness as f32) } else { 1.0 };
                Pace { step, updates, scale }
            }
        }
    }
}
