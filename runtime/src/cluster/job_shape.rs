//! How a whole job is cut: which microbatch of which pass over which data fills which slot of which step. Pure.

use super::course::{Course, Stage};
use super::plan::EpochShape;
use super::tree::StepTree;
use super::{JobSettings, Mode, Step, Version};
use serde::{Deserialize, Serialize};

/// What is evaluated and when. Evaluated data are read in the order of their records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evaluated {
    /// Records in the evaluated data, which follow those that are trained on in the manifest.
    pub records: u64,
    /// After how much training.
    pub every: Period,
    /// Where a program's outputs go, of a job that predicts: it does not train.
    pub outputs: Option<String>,
}

/// A stretch of training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Period {
    /// In passes over the data.
    Epochs(u64),
    /// In steps (in asynchronous jobs, in as many microbatches as steps would have).
    Steps(u64),
}

/// One reading of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// A shuffled pass over the data that are trained on.
    Epoch(u64),
    /// A pass over the evaluated data, in the order of their records.
    Evaluation(u64),
}

/// How a job is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobShape {
    training: EpochShape,
    evaluation: EpochShape,
    steps: Course,
    positions: Course,
}

impl JobShape {
    /// Of a job that trains for so many epochs.
    pub fn new(training: EpochShape, epochs: u64) -> JobShape {
        let nothing = EpochShape::new(0, 1, training.slots());
        JobShape::evaluated(training, epochs, nothing, Period::Epochs(1))
    }

    /// The same with evaluations.
    pub fn evaluated(training: EpochShape, epochs: u64, evaluation: EpochShape, every: Period) -> JobShape {
        let course = |an_epoch: u64, a_step: u64, an_evaluation| {
            let period = match every {
                Period::Epochs(epochs) => epochs.saturating_mul(an_epoch),
                Period::Steps(steps) => steps.saturating_mul(a_step),
            };
            Course::new(epochs * an_epoch, period, an_evaluation)
        };
        JobShape {
            training,
            evaluation,
            steps: course(training.steps(), 1, evaluation.steps()),
            positions: course(training.microbatches(), training.slots().into(), evaluation.microbatches()),
        }
    }

    /// How an epoch is cut.
    pub fn training(&self) -> EpochShape {
        self.training
    }
    /// How an evaluation is cut.
    pub fn evaluation(&self) -> EpochShape {
        self.evaluation
    }
    /// What the steps of a synchronous job do.
    pub fn steps(&self) -> Course {
        self.steps
    }
    /// What the positions of an asynchronous job do.
    pub fn positions(&self) -> Course {
        self.positions
    }
    /// What the updates of a job of this mode do.
    pub fn course(&self, mode: Mode) -> Course {
        match mode {
            Mode::Sync { .. } => self.steps,
            Mode::Async { .. } => self.positions,
        }
    }

    /// Whether a step evaluates.
    pub fn evaluates(&self, step: Step) -> bool {
        matches!(self.steps.stage(step.0), Some(Stage::Evaluation { .. }))
    }

    /// The tree of a step: absence is a function of the plan. Steps beyond the last have some tree.
    pub fn tree(&self, step: Step) -> StepTree {
        match self.steps.stage(step.0) {
            Some(Stage::Training { unit }) => self.training.tree(Step(unit)),
            Some(Stage::Evaluation { unit, .. }) => self.evaluation.tree(Step(unit)),
            None => StepTree::new(self.training.slots(), self.training.slots()),
        }
    }

    /// The microbatch (index in its pass) that fills a present slot of a step of the job.
    pub fn microbatch(&self, step: Step, slot: u32) -> (Pass, u64) {
        match self.steps.stage(step.0) {
            Some(Stage::Evaluation { number, unit }) => {
                (Pass::Evaluation(number), self.evaluation.microbatch(Step(unit), slot))
            }
            stage => {
                let unit = Step(trained(stage, step.0));
                (Pass::Epoch(self.training.epoch(unit)), self.training.microbatch(unit, slot))
            }
        }
    }

    /// The microbatch (index in its pass) at a position of the job.
    pub fn microbatch_at(&self, position: u64) -> (Pass, u64) {
        match self.positions.stage(position) {
            Some(Stage::Evaluation { number, unit }) => (Pass::Evaluation(number), unit),
            stage => {
                let (unit, microbatches) = (trained(stage, position), self.training.microbatches());
                (Pass::Epoch(unit / microbatches), unit % microbatches)
            }
        }
    }
}

fn trained(stage: Option<Stage>, beyond: u64) -> u64 {
    match stage {
        Some(Stage::Training { unit }) => unit,
        Some(Stage::Evaluation { .. }) | None => beyond,
    }
}

impl JobSettings {
    /// How the job is cut into steps, positions and microbatches.
    pub fn shape(&self) -> JobShape {
        let cut = |records| EpochShape::new(records, self.microbatch_records, self.microbatches_per_step);
        match &self.evaluated {
            Some(evaluated) => {
                JobShape::evaluated(cut(self.records), self.epochs, cut(evaluated.records), evaluated.every)
            }
            None => JobShape::new(cut(self.records), self.epochs),
        }
    }
    /// Steps in the whole job.
    pub fn steps(&self) -> u64 {
        self.shape().steps().units()
    }
    /// Microbatches in the whole job, evaluated ones included: positions lie below it.
    pub fn positions(&self) -> u64 {
        self.shape().positions().units()
    }
    /// What the job's updates do: steps of synchronous jobs, positions of asynchronous ones.
    pub fn course(&self) -> Course {
        self.shape().course(self.mode)
    }
    /// The version at which a block is complete.
    pub fn last_version(&self) -> Version {
        Version(self.course().units())
    }
    /// The version that a step reads: one that trains, the version of the delay before the one that it replaces. An
    /// evaluation reads what it is of.
    pub fn reads(&self, step: Step) -> Version {
        let delay = if self.shape().evaluates(step) { 0 } else { self.mode.delay() };
        step.reads(delay)
    }
    /// Records in all data of the job.
    pub fn all_records(&self) -> u64 {
        self.records + self.evaluated.as_ref().map_or(0, |evaluated| evaluated.records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn every_pass_meets_each_of_its_microbatches_once_in_steps_and_in_positions(
            records in 0u64..60, evaluated in 1u64..30, microbatch in 1u32..6, slots in 1u32..7, epochs in 1u64..4,
            every in 1u64..9, by_epochs in any::<bool>()
        ) {
            let cut = |records| EpochShape::new(records, microbatch, slots);
            let epochs = if records == 0 { 0 } else { epochs };
            let every = if by_epochs { Period::Epochs(every) } else { Period::Steps(every) };
            let shape = JobShape::evaluated(cut(records), epochs, cut(evaluated), every);
            let mut by_step: BTreeMap<(bool, u64, u64), u32> = BTreeMap::new();
            for step in (0..shape.steps().units()).map(Step) {
                prop_assert!(shape.tree(step).present() > 0);
                for slot in 0..shape.tree(step).present() {
                    *by_step.entry(key(shape.microbatch(step, slot))).or_default() += 1;
                }
            }
            let mut by_position: BTreeMap<(bool, u64, u64), u32> = BTreeMap::new();
            for position in 0..shape.positions().units() {
                *by_position.entry(key(shape.microbatch_at(position))).or_default() += 1;
            }
            for (seen, course) in [(by_step, shape.steps()), (by_position, shape.positions())] {
                prop_assert!(seen.values().all(|times| *times == 1));
                let of = |is_evaluation| seen.keys().filter(|key| key.0 == is_evaluation).count() as u64;
                prop_assert_eq!(of(false), epochs * cut(records).microbatches());
                prop_assert_eq!(of(true), course.evaluations() * cut(evaluated).microbatches());
            }
        }
    }

    fn key((pass, index): (Pass, u64)) -> (bool, u64, u64) {
        match pass {
            Pass::Epoch(epoch) => (false, epoch, index),
            Pass::Evaluation(number) => (true, number, index),
        }
    }
}
