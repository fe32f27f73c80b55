//! How far a job is, in the words of people: steps, epochs and records of training, or of what a job that does not train
//! evaluates. Pure.

use shoal_runtime::cluster::plan::EpochShape;
use shoal_runtime::cluster::{JobSettings, Step};

/// How far a job is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Advance {
    /// The lowest step that some block has not applied; in an asynchronous job so many updates that every block has from
    /// the first on, in steps.
    pub(crate) step: u64,
    /// Steps of the whole job.
    pub(crate) steps: u64,
    /// Epochs that are over.
    pub(crate) epoch: u64,
    /// Records of all steps, or microbatches, below that.
    pub(crate) records: u64,
    /// Records of the whole job.
    pub(crate) records_planned: u64,
}

impl Advance {
    /// Of a job whose lowest step, or position, that some block lacks is `front`.
    pub(crate) fn of(job: &JobSettings, front: u64) -> Advance {
        let shape = job.shape();
        // Evaluations are not counted, but where there is nothing else.
        let (cut, epochs, units, records) = if job.epochs > 0 {
            (shape.training(), job.epochs, job.course().trained(front), job.records)
        } else {
            (shape.evaluation(), 1, front, job.all_records())
        };
        let (step, below) = if job.is_sync() {
            (units, steps_below(cut, Step(units % cut.steps())) + units / cut.steps() * records)
        } else {
            let (epochs, within) = (units / cut.microbatches(), units % cut.microbatches());
            let step = epochs * cut.steps() + within / u64::from(cut.slots());
            (step, epochs * records + cut.positions(within).start)
        };
        Advance {
            step,
            steps: epochs * cut.steps(),
            epoch: cut.epoch(Step(step)).min(epochs),
            records: below,
            records_planned: records.saturating_mul(epochs),
        }
    }
}

/// Records of the steps of an epoch before `step`.
fn steps_below(cut: EpochShape, step: Step) -> u64 {
    let slots =
        (0..step.0).map(Step).flat_map(|step| (0..cut.tree(step).present()).map(move |slot| (step, slot)));
    let positions = slots.map(|(step, slot)| cut.positions(cut.microbatch(step, slot)));
    positions.map(|positions| positions.end - positions.start).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use shoal_runtime::cluster::{Evaluated, Mode, Period};

    #[test]
    fn evaluations_are_no_training_and_all_there_is_in_a_job_that_does_not_train() {
        let evaluated = |records, every| Some(Evaluated { records, every, outputs: None });
        // 7 steps of 10 records an epoch but the last, of 3; evaluated after every 3 by 2.
        let job = JobSettings {
            epochs: 2,
            evaluated: evaluated(20, Period::Steps(3)),
            ..fixture::settings(63, 5, 2, 1)
        };
        let at = |front| {
            let advance = Advance::of(&job, front);
            (advance.step, advance.epoch, advance.records)
        };
        assert_eq!([at(3), at(4), at(5), at(6)], [(3, 0, 30), (3, 0, 30), (3, 0, 30), (4, 0, 40)]);
        assert_eq!((at(11), at(12)), ((7, 1, 63), (8, 1, 73)));
        assert_eq!((Advance::of(&job, 24).records_planned, Advance::of(&job, 24).steps), (126, 14));
        let mode = Mode::Async { staleness_window: 4, scale_by_staleness: false };
        let microbatches = JobSettings { mode, ..job.clone() };
        assert_eq!(Advance::of(&microbatches, 13).step, 4, "7 positions of 13 have evaluated 4");
        let only = JobSettings { epochs: 0, records: 0, ..job };
        let advance = Advance::of(&only, 1);
        assert_eq!((advance.step, advance.steps, advance.records, advance.records_planned), (1, 2, 10, 20));
    }
}
