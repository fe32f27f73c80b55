//! One microbatch through the step function: its place in the job, its batch, its gradient; and where that fails, which
//! record it is that cannot be used. Probing pushes nothing.

use super::Trainer;
use crate::activities::Activity;
use crate::complaint::Complaint;
use crate::desk::Ready;
use crate::error::TrainError;
use crate::model::{Batch, Gradient, Model, Parameters, Record};
use crate::reduce::{NodeSum, NonFinite, first_non_finite};
use crate::settings::Compute;
use shoal_runtime::cluster::permutation::key;
use shoal_runtime::cluster::{Exclusions, JobSettings, Step, Task, Work};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
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

/// What came of a microbatch. The model is handed back, whatever it was.
pub(super) enum Computed {
    Sum(NodeSum),
    /// It cannot be done here; the trainer goes on with others.
    Refused(Complaint),
    /// The step function panicked: nobody knows what state the model is in.
    Panicked(Complaint),
}

/// Why the step function gave no gradient.
enum Fault {
    Said(String),
    Panicked(String),
}

/// One microbatch, ready for the step function.
struct Attempt {
    ready: Ready,
    at: usize,
    place: Place,
    parameters: Parameters,
    exclusions: Arc<Exclusions>,
    takes_non_finite: bool,
}

impl Trainer {
    /// The gradient of microbatch `at` of the task, after the trainer's pause. Hands the model back.
    pub(super) async fn compute(
        &self,
        model: Box<dyn Model>,
        ready: &Ready,
        at: usize,
        parameters: &Parameters,
    ) -> Result<(Box<dyn Model>, Computed), TrainError> {
        self.session.meter.enter(Activity::Compute);
        if !self.settings.pace.is_zero() {
            tokio::time::sleep(self.settings.pace).await;
        }
        let attempt = Attempt {
            place: Place::of(&self.session.master.job, &ready.task, at),
            ready: ready.clone(),
            at,
            parameters: parameters.clone(),
            exclusions: self.session.exclusions.present(),
            takes_non_finite: self.session.names.pushes_non_finite(),
        };
        let compute = move || attempt.compute(model);
        let (model, computed) = match self.settings.compute {
            Compute::InPlace => compute(),
            Compute::Thread => tokio::task::spawn_blocking(compute)
                .await
                .map_err(|stopped| TrainError::Settings(format!("the computing thread ended: {stopped}")))?,
        };
        self.session.meter.microbatches.fetch_add(1, Relaxed);
        self.session.meter.records.fetch_add(ready.records[at].iter().len() as u64, Relaxed);
        Ok((model, computed))
    }
}

impl Attempt {
    fn compute(&self, mut model: Box<dyn Model>) -> (Box<dyn Model>, Computed) {
        let records: Vec<Record<'_>> = self.ready.records[self.at]
            .iter()
            .filter(|(index, _)| !self.exclusions.excludes(*index, Step(self.place.step)))
            .map(|(index, bytes)| Record { index, bytes })
            .collect();
        let computed = match self.step(&mut *model, &records) {
            Ok(gradient) => {
                let Gradient { values, weight, .. } = gradient;
                Computed::Sum(NodeSum { values, weight, exclusions: self.exclusions.number })
            }
            Err(fault) => {
                let (why, is_panic) = match fault {
                    Fault::Said(why) => (why, false),
                    Fault::Panicked(why) => (why, true),
                };
                let complaint = Complaint { at: self.at, records: self.probe(&mut *model, &records), why };
                if is_panic { Computed::Panicked(complaint) } else { Computed::Refused(complaint) }
            }
        };
        (model, computed)
    }

    /// Runs the step function. Where all records are left out it is not asked: their sum is zero.
    fn step(&self, model: &mut dyn Model, records: &[Record<'_>]) -> Result<Gradient, Fault> {
        let mut gradient = Gradient::zeros(&self.parameters.names, records.len() as u64);
        if records.is_empty() && self.exclusions.number > 0 {
            return Ok(gradient);
        }
        let Place { epoch, step, seed } = self.place;
        let microbatch = self.ready.records[self.at].microbatch;
        let batch = Batch { epoch, step, microbatch, seed, records };
        let stepped = catch_unwind(AssertUnwindSafe(|| model.step(&batch, &self.parameters, &mut gradient)));
        match stepped {
            Err(panic) => Err(Fault::Panicked(format!("the step function panicked: {}", words(&*panic)))),
            Ok(Err(error)) => Err(Fault::Said(format!("the step function failed: {error:#}"))),
            Ok(Ok(())) => match first_non_finite(&gradient.values).filter(|_| !self.takes_non_finite) {
                Some(NonFinite(parameter, element)) => {
                    let name = &self.parameters.names.declaration.parameters[parameter].name;
                    let why = format!("the gradient of {name:?} is not finite at element {element}");
                    Err(Fault::Said(why))
                }
                None => Ok(gradient),
            },
        }
    }

    /// The records that fail alone. If all of them do, it is not the records.
    fn probe(&self, model: &mut dyn Model, records: &[Record<'_>]) -> Vec<std::ops::Range<u64>> {
        let fails = |record: &&Record<'_>| self.step(model, std::slice::from_ref(*record)).is_err();
        let poison: Vec<&Record<'_>> = records.iter().filter(fails).collect();
        if poison.len() == records.len() && records.len() > 1 {
            return Vec::new();
        }
        poison.into_iter().map(|record| record.index..record.index + 1).collect()
    }
}

/// What a panic says.
fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a word")
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
            mode: Mode::SYNC,
            warm_start: None,
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
