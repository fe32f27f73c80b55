//! Where a microbatch stands in its job: which reading of the data it is of, at which step. Pure: a function of task and
//! settings, never of who holds the task.

use shoal_runtime::cluster::permutation::key;
use shoal_runtime::cluster::{JobSettings, Pass, Stage, Step, Task, Work};

/// Where a microbatch stands in its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MicrobatchPlace {
    /// The reading of the data that it is of.
    pub(crate) pass: Pass,
    /// The step of the plan, by which records are left out.
    pub(crate) unit: Step,
    /// The epoch and the step that trains, as the program is told.
    pub(crate) epoch: u64,
    pub(crate) step: u64,
    pub(crate) seed: u64,
}

impl MicrobatchPlace {
    /// The place of microbatch `at` of the task.
    pub(crate) fn of(job: &JobSettings, task: &Task, at: usize) -> MicrobatchPlace {
        let (index, shape) = (task.microbatches[at].index, job.shape());
        let per_step = u64::from(job.microbatches_per_step);
        let (unit, stage, trained, steps_per_unit, an_epoch) = match task.work {
            Work::Node { step, .. } => {
                let (course, an_epoch) = (shape.steps(), shape.training().steps());
                (step, course.stage(step.0), course.trained(step.0), 1, an_epoch)
            }
            Work::Run { first } => {
                let (position, course) = (first + at as u64, shape.positions());
                let unit = Step(position / per_step);
                let an_epoch = shape.training().microbatches();
                (unit, course.stage(position), course.trained(position), per_step, an_epoch)
            }
        };
        let epoch = trained.checked_div(an_epoch).unwrap_or(0);
        let (pass, seed) = match stage {
            Some(Stage::Evaluation { number, .. }) => {
                (Pass::Evaluation(number), key(&[job.seed, EVALUATED, index]))
            }
            Some(Stage::Training { .. }) | None => (Pass::Epoch(epoch), key(&[job.seed, trained, index])),
        };
        MicrobatchPlace { pass, unit, epoch, step: trained / steps_per_unit, seed }
    }
}

/// Tells seeds of evaluations, which are the same in each, from those of steps.
const EVALUATED: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_runtime::cluster::{JobId, LeaseId, Microbatch, Mode, Node, Precision, Rewind};

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
            gradients: Precision::F32,
            warm_start: None,
            evaluated: None,
        }
    }
    fn task(work: Work, indexes: &[u64]) -> Task {
        let microbatches = indexes.iter().map(|index| Microbatch { index: *index, slices: vec![] }).collect();
        Task {
            lease: LeaseId(1),
            work,
            microbatches,
            is_careful: false,
            verified: Vec::new(),
            is_second: false,
        }
    }

    #[test]
    fn a_run_goes_over_the_end_of_an_epoch() {
        // 10 microbatches an epoch: positions 19 and 20 are of epochs 1 and 2.
        let task = task(Work::Run { first: 19 }, &[9, 0]);
        let places = [0, 1].map(|at| MicrobatchPlace::of(&job(), &task, at));
        assert_eq!(places.map(|place| (place.epoch, place.step)), [(1, 4), (2, 5)]);
    }

    #[test]
    fn seeds_differ_between_epochs_and_are_the_same_whoever_holds_the_task() {
        let run = |first: u64, index: u64| {
            MicrobatchPlace::of(&job(), &task(Work::Run { first }, &[index]), 0).seed
        };
        assert_ne!(run(3, 3), run(13, 3));
        let two = task(Work::Run { first: 2 }, &[2, 3]);
        assert_eq!(MicrobatchPlace::of(&job(), &two, 1).seed, run(3, 3));
        let node = |node| Work::Node { step: Step(4), node, rewind: Rewind(1) };
        let (leaf, pair) =
            (task(node(Node::leaf(1)), &[3]), task(node(Node { level: 1, index: 0 }), &[0, 3]));
        assert_eq!(MicrobatchPlace::of(&job(), &leaf, 0), MicrobatchPlace::of(&job(), &pair, 1));
    }
}
