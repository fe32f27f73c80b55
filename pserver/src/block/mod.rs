//! One block: its published versions, its update rules' state, and what it holds of the step under way.
//!
//! A pure state machine: version `v + 1` is a function of version `v` and the root of step `v`, whatever order,
//! repetition or cover the root came in. It must never know of time, messages or other blocks, and nothing in it
//! changes when it refuses.

pub mod held;
pub mod published;
pub mod shape;

use bytes::Bytes;
use held::{Arrival, Difference, HeldNodes, Judgement};
use published::{Published, bytes_of};
use shape::{BlockShape, NodeGradient};
use shoal_runtime::cluster::plan::EpochShape;
use shoal_runtime::cluster::{JobSettings, Node, Refusal, RefusalKind, Step, Version};
use std::sync::Arc;

/// The state of one block.
#[derive(Debug)]
pub struct Block {
    shape: Arc<BlockShape>,
    epoch: EpochShape,
    microbatches_per_step: u32,
    window: usize,
    version: Version,
    current: Published,
    /// The version before, for trainers that are still to pull it: kept until the next root is reached.
    previous: Option<Published>,
    slots: Vec<Vec<f32>>,
    held: HeldNodes,
}

/// What became of a gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushOutcome {
    /// Held, and lost if this pserver is; it took the place of `replaced` descendants.
    Held {
        /// How many held nodes it covered.
        replaced: usize,
    },
    /// It made the root: the step is applied.
    Published {
        /// How many held nodes it covered.
        replaced: usize,
        /// Whether some slots of the step were absent.
        is_short: bool,
    },
    /// A held node covers it; dropped.
    Covered,
    /// Its step was applied before; dropped.
    Late,
    /// No room; send it again after a pause.
    Busy,
}

/// A block at rest: parameters and every state slot, as little-endian f32.
#[derive(Clone, Debug)]
pub struct BlockState {
    /// The parameters.
    pub parameters: Bytes,
    /// The slots, each as long as the parameters.
    pub slots: Vec<Bytes>,
}

impl Block {
    /// The block at version 0. At most `window` nodes are held beyond the lowest missing slot of a step.
    pub fn new(shape: Arc<BlockShape>, job: &JobSettings, window: usize) -> Block {
        let epoch = job.shape();
        let microbatches_per_step = job.microbatches_per_step;
        let current = Published::new(shape.initial(job.seed));
        let slots = vec![vec![0.0; shape.elements]; shape.slots];
        let held = HeldNodes::new(epoch.tree(Step(0)), window);
        Block {
            shape,
            epoch,
            microbatches_per_step,
            window,
            version: Version(0),
            current,
            previous: None,
            slots,
            held,
        }
    }

    /// The number of updates applied.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The nodes held of the step under way, in slot order.
    pub fn held(&self) -> impl Iterator<Item = Node> {
        self.held.nodes().map(|held| held.node)
    }

    /// Refuses what [`push`](Self::push) would refuse, and changes nothing.
    pub fn check(&self, arriving: &NodeGradient<'_>) -> Result<(), Refusal> {
        let NodeGradient { step, node, weight, words } = *arriving;
        if step.reads() > self.version {
            let detail = format!("the push is for step {step}, the block is at version {}", self.version);
            return Err(Refusal::new(RefusalKind::Ahead, &self.shape, detail));
        }
        if step.reads() < self.version {
            return Ok(());
        }
        match self.held.judge(node, weight, words) {
            Judgement::Nondeterministic(difference) => Err(self.nondeterministic(arriving, difference)),
            Judgement::Take | Judgement::Covered | Judgement::Busy => Ok(()),
        }
    }

    /// Takes in a gradient that has passed the shape's check.
    pub fn push(&mut self, arriving: &NodeGradient<'_>) -> Result<PushOutcome, Refusal> {
        self.check(arriving)?;
        if arriving.step.reads() < self.version {
            return Ok(PushOutcome::Late);
        }
        match self.held.arrive(arriving.node, arriving.weight, arriving.words) {
            Arrival::Held { replaced } => Ok(PushOutcome::Held { replaced }),
            Arrival::Covered => Ok(PushOutcome::Covered),
            Arrival::Busy => Ok(PushOutcome::Busy),
            Arrival::Nondeterministic(difference) => Err(self.nondeterministic(arriving, difference)),
            Arrival::Complete { weight, sum, replaced } => {
                let is_short = self.held.tree().present() < self.microbatches_per_step;
                self.apply(weight, sum);
                Ok(PushOutcome::Published { replaced, is_short })
            }
        }
    }

    /// The parameters that step `step` reads: `None` while they are not published.
    pub fn published(&self, step: Step) -> Result<Option<Bytes>, Refusal> {
        let wanted = step.reads();
        if wanted > self.version {
            return Ok(None);
        }
        if wanted == self.version {
            return Ok(Some(self.current.bytes()));
        }
        let previous = self.previous.as_ref().filter(|_| wanted.0 + 1 == self.version.0);
        previous.map(|previous| Some(previous.bytes())).ok_or_else(|| {
            let detail = format!("the block is at version {}, step {step} is done", self.version);
            Refusal::new(RefusalKind::StepGone, &self.shape, detail)
        })
    }

    /// Parameters and slots at exactly `version`. Copies the slots, so it is for a block at rest.
    pub fn state(&self, version: Version) -> Result<BlockState, Refusal> {
        if version != self.version {
            let is_past = version < self.version;
            let kind = if is_past { RefusalKind::StepGone } else { RefusalKind::NotReady };
            let detail = format!("the block is at version {}, asked was {version}", self.version);
            return Err(Refusal::new(kind, &self.shape, detail));
        }
        let slots = self.slots.iter().map(|slot| bytes_of(slot.clone())).collect();
        Ok(BlockState { parameters: self.current.bytes(), slots })
    }

    /// The root is there: version `t + 1` is made, and version `t - 1` released.
    fn apply(&mut self, weight: u64, sum: Vec<f32>) {
        let step = Step(self.version.0);
        // A root of weight 0 has no mean: the version advances, the rule does not run.
        let next = if weight == 0 {
            self.current.clone()
        } else {
            let mut values = sum;
            self.shape.update(step, self.current.values(), &mut values, &mut self.slots, weight);
            Published::new(values)
        };
        self.previous = Some(std::mem::replace(&mut self.current, next));
        self.version = Version(step.0 + 1);
        self.held = HeldNodes::new(self.epoch.tree(step.next()), self.window);
    }

    fn nondeterministic(&self, arriving: &NodeGradient<'_>, difference: Difference) -> Refusal {
        let (subject, what) = match difference {
            Difference::Weight { held, came } => {
                (self.shape.to_string(), format!("one result has weight {held}, another {came}"))
            }
            Difference::Element { element, held, came } => {
                let (name, index) = self.shape.place(element);
                let bits = format!(
                    "{held:e} ({:#010x}), another {came:e} ({:#010x})",
                    held.to_bits(),
                    came.to_bits()
                );
                (format!("parameter {name:?}"), format!("element {index} is {bits}"))
            }
        };
        let (step, node) = (arriving.step, arriving.node);
        let detail = format!(
            "two results for node {node} of step {step} differ in block {}: {what}; the step function must give the \
             same bits wherever it runs (same processor kind, thread count and math library)",
            self.shape.id
        );
        Refusal::new(RefusalKind::Nondeterministic, subject, detail)
    }
}

#[cfg(test)]
pub(crate) mod tests;
