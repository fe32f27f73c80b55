//! What never changes about the copies of a job's blocks. Pure.

use super::evaluate::{MetricTurn, turn};
use super::memory::Budget;
use super::recorder::Recorder;
use super::reduce::{HeldNodes, HeldSteps};
use super::shape::{BlockShape, UpdateContext};
use super::state::{State, Update};
use crate::device::Device;
use shoal_runtime::cluster::{Course, JobSettings, JobShape, Mode, Precision, Step, Version};
use std::sync::Arc;

/// What never changes about the copies of a job's blocks.
#[derive(Clone, Debug)]
pub struct BlockSettings {
    pub(super) shape: JobShape,
    pub(super) course: Course,
    pub(super) microbatches_per_step: u32,
    pub(super) seed: u64,
    gradients: Precision,
    pub(super) window: usize,
    pub(super) mode: Mode,
    pub(super) budget: Arc<Budget>,
    pub(super) recorder: Arc<Recorder>,
    pub(super) segment_bytes: usize,
    pub(super) device: Option<Device>,
}

/// Bytes of a bucket's segment, about.
const SEGMENT_BYTES: usize = 1 << 20;

impl BlockSettings {
    /// Of a job whose blocks hold at most `window` nodes beyond the lowest missing slot of a step.
    pub fn new(job: &JobSettings, window: usize) -> BlockSettings {
        let (shape, course, microbatches_per_step) = (job.shape(), job.course(), job.microbatches_per_step);
        let (budget, segment_bytes) = (Budget::of(u64::MAX), SEGMENT_BYTES);
        let (seed, mode, gradients) = (job.seed, job.mode, job.gradients);
        BlockSettings {
            shape,
            course,
            microbatches_per_step,
            seed,
            gradients,
            window,
            mode,
            budget,
            recorder: Arc::default(),
            segment_bytes,
            device: None,
        }
    }

    /// The same with segments of other sizes, about.
    pub fn with_segments(&self, segment_bytes: usize) -> BlockSettings {
        BlockSettings { segment_bytes, ..self.clone() }
    }

    /// Bytes of a bucket's segment, about.
    pub fn segment_bytes(&self) -> usize {
        self.segment_bytes
    }

    /// The same with a bound on what pieces of checkpoints hold beyond what training needs.
    pub fn with_budget(&self, budget: Arc<Budget>) -> BlockSettings {
        BlockSettings { budget, ..self.clone() }
    }

    /// The same on a pserver with a device.
    pub fn with_device(&self, device: Device) -> BlockSettings {
        BlockSettings { device: Some(device), ..self.clone() }
    }

    /// The device that updates blocks here, if any does.
    pub fn device(&self) -> Option<&Device> {
        self.device.as_ref()
    }

    /// What initial values are a function of.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// How precise gradients of dense parameters are.
    pub fn gradients(&self) -> Precision {
        self.gradients
    }

    /// What is recorded of blocks.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
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
        HeldNodes::new(self.shape.tree(step), self.window)
    }

    /// The version that a step's gradients are taken at.
    pub(super) fn reads(&self, step: Step) -> Version {
        // An evaluation is of the newest version.
        if self.shape.evaluates(step) { step.replaces() } else { step.reads(self.mode.delay()) }
    }

    /// Updates of a block that train, the one after `version` included.
    pub(super) fn updates(&self, version: Version) -> u64 {
        self.course.trained(version.0) + 1
    }

    /// Where in the job an update of `state` is. Schedules and bias corrections count updates that train.
    pub(super) fn context(&self, shape: &BlockShape, state: &State, update: &Update) -> UpdateContext {
        let trained = self.course.trained(state.version().0);
        let turn = match shape.is_metric {
            true => turn(&self.course, state.version(), state.ledger(), update),
            false => MetricTurn::Later,
        };
        let (step, stale) = match self.mode {
            Mode::Sync { .. } => (Step(trained), 1.0),
            Mode::Async { scale_by_staleness, .. } => {
                let step = Step(trained / u64::from(self.microbatches_per_step));
                (step, if scale_by_staleness { 1.0 / (1.0 + update.staleness as f32) } else { 1.0 })
            }
        };
        // A device keeps two versions: where a job keeps more of them, or gives any out, they have to be here.
        let brings = self.mode != Mode::SYNC;
        UpdateContext { step, updates: trained + 1, scale: stale * update.rate, turn, brings }
    }
}
