//! One microbatch through the step function: its place in the job, its batch, its gradient.

use super::Trainer;
use crate::activities::Activity;
use crate::desk::Ready;
use crate::error::TrainError;
use crate::model::{Batch, Gradient, Model, Parameters, Record};
use crate::reduce::{NodeSum, NonFinite};
use crate::settings::Compute;
use shoal_runtime::cluster::permutation::key;
use shoal_runtime::cluster::{JobSettings, Task, Work};
use std::sync::atomic::Ordering::Relaxed;

/// Where a microbatch stands in its job, as the step function is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) epoch: u64,
    pub(super) step: u64,
    pub(super) seed: u64,
}

impl Place {
    /// The place of microbatch `at` of the task.
    pub(super) fn of(job: &JobSettings, task: &Task, at: usize) -> Place {
        let microbatch = task.microbatches[at].index;
        match task.work {
            Work::Node { step, .. } => {
                let seed = key(&[job.seed, step.0, microbatch]);
                Place { epoch: job.shape().epoch(step), step: step.0, seed }
            }
            Work::Run { first } => {
                let position = first + at as u64;
                Place {
                    epoch: position / job.shape().microbatches(),
                    step: position / u64::from(job.microbatches_per_step),
                    seed: key(&[job.seed, position, microbatch]),
                }
            }
        }
    }
}

impl Trainer {
    /// The gradient of microbatch `at` of the task, after the trainer's pause. Hands the model back.
    pub(super) async fn compute(
        &self,
        model: Box<dyn Model>,
        ready: &Ready,
        at: usize,
        parameters: &Parameters,
    ) -> Result<(Box<dyn Model>, NodeSum), TrainError> {
        self.session.meter.enter(Activity::Compute);
        if !self.settings.pace.is_zero() {
            tokio::time::sleep(self.settings.pace).await;
        }
        let (model, gradient) = self.step(model, ready, at, parameters).await?;
        self.session.meter.microbatches.fetch_add(1, Relaxed);
        self.session.meter.records.fetch_add(ready.records[at].iter().len() as u64, Relaxed);
        Ok((model, NodeSum { values: gradient.values, weight: gradient.weight }))
    }

    async fn step(
        &self,
        mut model: Box<dyn Model>,
        ready: &Ready,
        at: usize,
        parameters: &Parameters,
    ) -> Result<(Box<dyn Model>, Gradient), TrainError> {
        let place = Place::of(&self.session.master.job, &ready.task, at);
        let (records, parameters) = (ready.records.clone(), parameters.clone());
        let fail = {
            let (step, microbatch, first) = (place.step, records[at].microbatch, first(ready, at));
            move |source| TrainError::Step { step, microbatch, first, source }
        };
        let step = move || {
            let records_at = &records[at];
            let batch_records: Vec<Record<'_>> =
                records_at.iter().map(|(index, bytes)| Record { index, bytes }).collect();
            let batch = Batch {
                epoch: place.epoch,
                step: place.step,
                microbatch: records_at.microbatch,
                seed: place.seed,
                records: &batch_records,
            };
            let mut gradient = Gradient::zeros(&parameters.names, batch_records.len() as u64);
            model.step(&batch, &parameters, &mut gradient).map(|()| (model, gradient))
        };
        let computed = match self.settings.compute {
            Compute::InPlace => step(),
            Compute::Thread => match tokio::task::spawn_blocking(step).await {
                Ok(computed) => computed,
                Err(panic) => Err(anyhow::Error::new(panic).context("the step function panicked")),
            },
        };
        computed.map_err(fail)
    }

    pub(super) fn non_finite(&self, ready: &Ready, at: usize, element: NonFinite) -> TrainError {
        let NonFinite(parameter, element) = element;
        TrainError::NonFinite {
            step: Place::of(&self.session.master.job, &ready.task, at).step,
            microbatch: ready.records[at].microbatch,
            first: first(ready, at),
            parameter: self.session.names.declaration.parameters[parameter].name.clone(),
            element,
        }
    }
}

/// Index in the data set of a microbatch's first record.
fn first(ready: &Ready, at: usize) -> u64 {
    ready.records[at].iter().next().map_or(0, |(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_runtime::cluster::{JobId, LeaseId, Microbatch, Mode, Node, Rewind, Step};

    fn job() -> JobSettings {
        JobSettings {
            job: JobId("j".to_owned()),
            seed: 7,
            epochs: 3,
            microbatch_records: 2,
            microbatches_per_step: 4,
            shuffle_run: 1,
            records: 20,
            manifest_fingerprint: [0; 32],
            lease_ttl_millis: 1000,
            mode: Mode::Sync,
        }
    }
    fn task(work: Work, indexes: &[u64]) -> Task {
        let microbatches = indexes.iter().map(|index| Microbatch { index: *index, slices: vec![] }).collect();
        Task { lease: LeaseId(1), work, microbatches }
    }

    #[test]
    fn a_run_goes_over_the_end_of_an_epoch() {
        // 10 microbatches an epoch: positions 19 and 20 are of epochs 1 and 2.
        let task = task(Work::Run { first: 19 }, &[9, 0]);
        let places = [0, 1].map(|at| Place::of(&job(), &task, at));
        assert_eq!(places.map(|place| (place.epoch, place.step)), [(1, 4), (2, 5)]);
    }

    #[test]
    fn seeds_differ_between_epochs_and_are_the_same_whoever_holds_the_task() {
        let run = |first: u64, index: u64| Place::of(&job(), &task(Work::Run { first }, &[index]), 0).seed;
        assert_ne!(run(3, 3), run(13, 3));
        let two = task(Work::Run { first: 2 }, &[2, 3]);
        assert_eq!(Place::of(&job(), &two, 1).seed, run(3, 3));
        let node = |node| Work::Node { step: Step(4), node, rewind: Rewind(1) };
        let (leaf, pair) =
            (task(node(Node::leaf(1)), &[3]), task(node(Node { level: 1, index: 0 }), &[0, 3]));
        assert_eq!(Place::of(&job(), &leaf, 0), Place::of(&job(), &pair, 1));
    }
}
