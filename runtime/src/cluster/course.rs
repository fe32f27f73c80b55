//! The course of a job: training, interrupted after every so many units and at the end by an evaluation. Pure.
//!
//! A unit is a step; in asynchronous jobs it is a position. Evaluations are units of the plan like any other: leased,
//! pushed, counted once, kept, moved and gone back to by the same mechanism.

use std::ops::Range;

/// Which units of a job train, and which evaluate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Course {
    training: u64,
    period: u64,
    evaluation: u64,
}

/// What a unit does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It trains.
    Training {
        /// Its number among the units that train.
        unit: u64,
    },
    /// It evaluates.
    Evaluation {
        /// Which evaluation.
        number: u64,
        /// Its number in the evaluation.
        unit: u64,
    },
}

impl Course {
    /// `training` units, with an evaluation of `evaluation` units after every `period` of them and after the last. None is
    /// made where `evaluation` is 0.
    pub fn new(training: u64, period: u64, evaluation: u64) -> Course {
        Course { training, period: period.clamp(1, training.max(1)), evaluation }
    }

    /// How many evaluations there are. Without training there is one.
    pub fn evaluations(&self) -> u64 {
        if self.evaluation == 0 { 0 } else { self.training.div_ceil(self.period).max(1) }
    }

    /// All units.
    pub fn units(&self) -> u64 {
        self.training + self.evaluations() * self.evaluation
    }

    /// What a unit does; none of one beyond the last.
    pub fn stage(&self, unit: u64) -> Option<Stage> {
        if unit >= self.units() {
            return None;
        }
        if self.evaluation == 0 {
            return Some(Stage::Training { unit });
        }
        let number = (unit / (self.period + self.evaluation)).min(self.evaluations() - 1);
        let evaluated = self.evaluation(number);
        Some(match unit.checked_sub(evaluated.start) {
            Some(unit) => Stage::Evaluation { number, unit },
            None => Stage::Training { unit: unit - number * self.evaluation },
        })
    }

    /// The units of an evaluation that there is.
    pub fn evaluation(&self, number: u64) -> Range<u64> {
        let trained = ((number + 1) * self.period).min(self.training);
        let start = trained + number * self.evaluation;
        start..start + self.evaluation
    }

    /// Of the units below `unit`, how many train.
    pub fn trained(&self, unit: u64) -> u64 {
        match self.stage(unit) {
            Some(Stage::Training { unit }) => unit,
            Some(Stage::Evaluation { number, .. }) => ((number + 1) * self.period).min(self.training),
            None => self.training + unit.saturating_sub(self.units()),
        }
    }

    /// How many evaluations lie wholly below `unit`.
    pub fn evaluated(&self, unit: u64) -> u64 {
        match self.stage(unit) {
            Some(Stage::Training { unit }) if self.evaluation > 0 => unit / self.period,
            Some(Stage::Evaluation { number, .. }) => number,
            Some(Stage::Training { .. }) => 0,
            None => self.evaluations(),
        }
    }

    /// The end of the stretch of training, or of the evaluation, that a unit is in: a barrier, which nothing crosses before
    /// all that lies below it is done.
    pub fn barrier(&self, unit: u64) -> u64 {
        match self.stage(unit) {
            Some(Stage::Training { .. }) if self.evaluation > 0 => {
                self.evaluation(self.evaluated(unit)).start
            }
            Some(Stage::Evaluation { number, .. }) => self.evaluation(number).end,
            Some(Stage::Training { .. }) | None => self.units(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_evaluation_follows_every_period_and_the_last_unit() {
        let course = Course::new(5, 2, 3);
        let letters: String = (0..course.units())
            .map(|unit| match course.stage(unit).unwrap() {
                Stage::Training { .. } => 't',
                Stage::Evaluation { .. } => 'e',
            })
            .collect();
        assert_eq!((letters.as_str(), course.evaluations()), ("tteeetteeeteee", 3));
        assert_eq!(Course::new(5, 2, 0).units(), 5);
        assert_eq!((Course::new(0, 2, 3).units(), Course::new(0, 2, 3).evaluations()), (3, 1));
    }

    proptest! {
        #[test]
        fn a_course_is_what_walking_it_finds(training in 0u64..40, period in 1u64..50, evaluation in 0u64..5) {
            let course = Course::new(training, period, evaluation);
            let (mut trained, mut ended, mut open) = (0, 0, None);
            for unit in 0..course.units() {
                let stage = course.stage(unit).unwrap();
                // An evaluation ends where the next unit is none of its own.
                if let Some(number) = open && !matches!(stage, Stage::Evaluation { number: at, .. } if at == number) {
                    (ended, open) = (ended + 1, None);
                }
                prop_assert_eq!((course.trained(unit), course.evaluated(unit)), (trained, ended));
                let barrier = course.barrier(unit);
                prop_assert!(barrier > unit);
                let is_same = |other: u64| match (course.stage(other), stage) {
                    (Some(Stage::Training { .. }), Stage::Training { .. }) => true,
                    (Some(Stage::Evaluation { number, .. }), Stage::Evaluation { number: ours, .. }) => number == ours,
                    _ => false,
                };
                prop_assert!((unit..barrier).all(is_same) && !is_same(barrier));
                match stage {
                    Stage::Training { unit } => {
                        prop_assert_eq!(unit, trained);
                        trained += 1;
                    }
                    Stage::Evaluation { number, unit: within } => {
                        prop_assert_eq!((number, course.evaluation(number).start + within), (ended, unit));
                        prop_assert!(trained == training || trained == (number + 1) * period);
                        open = Some(number);
                    }
                }
            }
            prop_assert_eq!(trained, training);
            prop_assert_eq!(ended + u64::from(open.is_some()), course.evaluations());
            prop_assert_eq!((course.stage(course.units()), course.evaluated(course.units())), (None, course.evaluations()));
            prop_assert_eq!(course.trained(course.units()), training);
        }
    }
}
