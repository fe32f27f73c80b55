//! Decisions over all blocks of a step: clipping by the global norm, skipping what is not finite, a dynamic loss scale.
//!
//! Pure functions of what was decided before and of the blocks' partial results, combined in block order: the same
//! wherever they are worked out, and worked out again. They must never depend on which block, or pserver, was first.

use super::BlockId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Elements of the parameter that holds the newest decision, and of its slot: see [`Decision`].
pub const DECISION_ELEMENTS: usize = 8;
/// The loss scale is never below and never above these.
const LOSS_SCALE_MIN: f32 = 1.0 / 65536.0;
const LOSS_SCALE_MAX: f32 = 16_777_216.0;
/// Keeps the quotient of a tiny norm finite (Pascanu et al. 2013 have none; common frameworks have this one).
const NORM_EPSILON: f32 = 1e-6;

/// What is decided over all blocks before any of them applies a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Decisions {
    /// The largest norm of a step's gradient; positive. A **mean** gradient (the step's sum divided by its weight, the loss scale
    /// taken out) whose Euclidean norm over all elements of all trained parameters is larger is scaled down to it (Pascanu et
    /// al. 2013). None: nothing is clipped.
    pub clip_norm: Option<f32>,
    /// What becomes of a step whose gradients hold an infinity or not-a-number.
    pub non_finite: NonFinite,
    /// A factor that the program multiplies its loss with, so that small gradients survive a narrow number format; none: 1.
    pub loss_scale: Option<LossScale>,
}

/// What becomes of a step whose gradients hold an infinity or not-a-number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NonFinite {
    /// The job fails, and says where.
    #[default]
    Fail,
    /// The step changes nothing, metrics included, and is counted.
    Skip {
        /// More of them one after the other fail the job.
        in_a_row_max: u32,
    },
}

/// A dynamic loss scale (Micikevicius et al. 2018): halved by a step that is skipped, doubled after so many that were not.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossScale {
    /// The first scale: a power of two from 2^-16 to 2^24.
    pub initial: f32,
    /// Steps without a skipped one after which it is doubled.
    pub growth_interval: u32,
}

/// What one block knows of one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Partial {
    /// Of the gradient **sums** of its trained elements.
    pub sum_of_squares: f64,
    /// Whether all of its sums, metrics included, are finite.
    pub is_finite: bool,
    /// What the step's mean divides by.
    pub weight: u64,
}

/// What all blocks know of one step: the entry of the scalar block's log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tally {
    /// The norm of the mean gradient, the loss scale taken out.
    pub norm: f32,
    /// Whether everything is finite.
    pub is_finite: bool,
    /// The loss scale that the step's gradients were taken with.
    pub loss_scale: f32,
    /// Whether it is of no record: an evaluation, or a step whose records are all left out. Nothing follows from it.
    pub is_empty: bool,
}

/// The newest decision, and what the next ones follow from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// What each trained parameter's mean gradient is multiplied with.
    pub factor: f32,
    /// Whether the step changes nothing.
    pub is_skipped: bool,
    /// The norm before clipping; not finite in a step that is skipped.
    pub norm: f32,
    /// The loss scale of the steps that read this version.
    pub loss_scale: f32,
    /// Steps since the loss scale changed or a step was skipped. Counts are whole numbers up to 2^48: as elements each is an f32, and
    /// what rounding leaves out of it is in the slot.
    pub steady: f64,
    /// Steps skipped so far.
    pub skipped: f64,
    /// Steps clipped so far.
    pub clipped: f64,
    /// Steps skipped one after the other, up to now.
    pub skipped_in_a_row: f64,
}

impl Decisions {
    /// Why these cannot be, if so: what to change.
    pub fn fault(&self) -> Option<&'static str> {
        let is_norm = |norm: f32| norm.is_finite() && norm > 0.0;
        let is_scale =
            |scale: f32| (LOSS_SCALE_MIN..=LOSS_SCALE_MAX).contains(&scale) && scale.to_bits() << 9 == 0;
        match *self {
            Decisions { clip_norm: Some(norm), .. } if !is_norm(norm) => Some("clip_norm must be positive"),
            Decisions { loss_scale: Some(scale), .. } if !is_scale(scale.initial) => {
                Some("the loss scale must be a power of two between 2^-16 and 2^24")
            }
            Decisions { loss_scale: Some(scale), .. } if scale.growth_interval == 0 => {
                Some("the loss scale's growth interval must be at least 1")
            }
            Decisions { loss_scale: Some(_), non_finite: NonFinite::Fail, .. } => {
                Some("a loss scale needs steps that may be skipped: say NonFinite::Skip")
            }
            _ => None,
        }
    }

    /// Whether gradients that are not finite are taken in.
    pub fn takes_non_finite(&self) -> bool {
        matches!(self.non_finite, NonFinite::Skip { .. })
    }

    /// What stands before the first step.
    pub fn initial(&self) -> Decision {
        let loss_scale = self.loss_scale.map_or(1.0, |scale| scale.initial);
        Decision {
            factor: 1.0,
            is_skipped: false,
            norm: 0.0,
            loss_scale,
            steady: 0.0,
            skipped: 0.0,
            clipped: 0.0,
            skipped_in_a_row: 0.0,
        }
    }

    /// The decision that follows `before`.
    pub fn next(&self, before: Decision, tally: Tally) -> Decision {
        match tally {
            Tally { is_empty: true, .. } => Decision { factor: 1.0, is_skipped: false, ..before },
            Tally { is_finite: true, .. } => self.go_on(before, tally),
            Tally { is_finite: false, .. } => self.skip(before, tally),
        }
    }

    fn skip(&self, before: Decision, tally: Tally) -> Decision {
        // Where there is a delay, several steps were taken with the scale that was too large: it is halved once.
        let halved = (tally.loss_scale * 0.5).max(LOSS_SCALE_MIN);
        let loss_scale =
            if self.loss_scale.is_some() { before.loss_scale.min(halved) } else { before.loss_scale };
        Decision {
            factor: 1.0,
            is_skipped: true,
            norm: f32::INFINITY,
            loss_scale,
            steady: 0.0,
            skipped: before.skipped + 1.0,
            clipped: before.clipped,
            skipped_in_a_row: before.skipped_in_a_row + 1.0,
        }
    }

    fn go_on(&self, before: Decision, tally: Tally) -> Decision {
        let clip = self.clip_norm.map_or(1.0, |most| most / (tally.norm + NORM_EPSILON));
        let steady = before.steady + 1.0;
        let grows = self.loss_scale.is_some_and(|scale| steady >= f64::from(scale.growth_interval));
        let loss_scale =
            if grows { (before.loss_scale * 2.0).min(LOSS_SCALE_MAX) } else { before.loss_scale };
        Decision {
            factor: clip.min(1.0) / tally.loss_scale,
            is_skipped: false,
            norm: tally.norm,
            loss_scale,
            steady: if grows { 0.0 } else { steady },
            skipped: before.skipped,
            clipped: before.clipped + f64::from(u8::from(clip < 1.0)),
            skipped_in_a_row: 0.0,
        }
    }

    /// Why the job cannot go on after this tally, if so.
    pub fn failure(&self, before: Decision, tally: Tally) -> Option<String> {
        match self.non_finite {
            _ if tally.is_finite => None,
            NonFinite::Fail => Some(String::from(
                "the sum of its gradients is not finite: lower the learning rate, or allow such steps to be skipped",
            )),
            NonFinite::Skip { in_a_row_max } if before.skipped_in_a_row >= f64::from(in_a_row_max) => {
                Some(format!(
                    "its gradients are not finite, and {in_a_row_max} steps before it were skipped for that already: lower the learning rate"
                ))
            }
            NonFinite::Skip { .. } => None,
        }
    }
}

impl Tally {
    /// All blocks' partial results in block order. `loss_scale`: what the step's gradients were taken with.
    pub fn of(partials: &BTreeMap<BlockId, Partial>, loss_scale: f32) -> Tally {
        let mut total = 0.0;
        let mut is_finite = true;
        for partial in partials.values() {
            total += partial.sum_of_squares;
            is_finite &= partial.is_finite;
        }
        let weight = partials.values().map(|partial| partial.weight).max().unwrap_or(0);
        let norm = libm::sqrt(total) / weight.max(1) as f64 / f64::from(loss_scale);
        // Of what is not finite the bits are anybody's.
        let norm = if is_finite { norm as f32 } else { f32::INFINITY };
        Tally { norm, is_finite, loss_scale, is_empty: weight == 0 }
    }

    /// As the entry of a log carries it.
    pub fn to_values(self) -> Vec<f32> {
        let mut values = vec![0.0; DECISION_ELEMENTS];
        let flag = |is: bool| f32::from(u8::from(is));
        let own = [self.norm, flag(self.is_finite), self.loss_scale, flag(self.is_empty)];
        values[..4].copy_from_slice(&own);
        values
    }

    /// As [`to_values`](Self::to_values) made it; none of another length.
    pub fn from_values(values: &[f32]) -> Option<Tally> {
        let [norm, is_finite, loss_scale, is_empty, ..] = *values else { return None };
        let (is_finite, is_empty) = (is_finite != 0.0, is_empty != 0.0);
        (values.len() == DECISION_ELEMENTS).then_some(Tally { norm, is_finite, loss_scale, is_empty })
    }
}

impl Decision {
    fn counts(self) -> [f64; 4] {
        [self.steady, self.skipped, self.clipped, self.skipped_in_a_row]
    }

    /// As the parameter's elements.
    pub fn to_values(self) -> [f32; DECISION_ELEMENTS] {
        let [steady, skipped, clipped, in_a_row] = self.counts().map(|count| count as f32);
        let is_skipped = f32::from(u8::from(self.is_skipped));
        [self.factor, is_skipped, self.norm, self.loss_scale, steady, skipped, clipped, in_a_row]
    }

    /// As the elements of the parameter's slot: what rounding leaves out of the counts.
    pub fn to_remainders(self) -> [f32; DECISION_ELEMENTS] {
        let [steady, skipped, clipped, in_a_row] =
            self.counts().map(|count| (count - f64::from(count as f32)) as f32);
        [0.0, 0.0, 0.0, 0.0, steady, skipped, clipped, in_a_row]
    }

    /// As [`to_values`](Self::to_values) made it, counts rounded; none of another length.
    pub fn from_values(values: &[f32]) -> Option<Decision> {
        Decision::from_elements(values, &[0.0; DECISION_ELEMENTS])
    }

    /// As [`to_values`](Self::to_values) and [`to_remainders`](Self::to_remainders) made it; none of other lengths.
    pub fn from_elements(values: &[f32], remainders: &[f32]) -> Option<Decision> {
        let values: &[f32; DECISION_ELEMENTS] = values.try_into().ok()?;
        let remainders: &[f32; DECISION_ELEMENTS] = remainders.try_into().ok()?;
        let [factor, is_skipped, norm, loss_scale, ..] = *values;
        let count = |at: usize| f64::from(values[at]) + f64::from(remainders[at]);
        let [steady, skipped, clipped, skipped_in_a_row] = [4, 5, 6, 7].map(count);
        let is_skipped = is_skipped != 0.0;
        Some(Decision { factor, is_skipped, norm, loss_scale, steady, skipped, clipped, skipped_in_a_row })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SKIP: NonFinite = NonFinite::Skip { in_a_row_max: 2 };

    fn tally(norm: f32, is_finite: bool, loss_scale: f32) -> Tally {
        Tally { norm, is_finite, loss_scale, is_empty: false }
    }

    #[test]
    fn a_large_norm_is_clipped_to_the_limit_and_a_small_one_is_left_alone() {
        let decisions = Decisions { clip_norm: Some(2.0), ..Decisions::default() };
        let small = decisions.next(decisions.initial(), tally(1.5, true, 1.0));
        assert_eq!((small.factor, small.clipped), (1.0, 0.0));
        let large = decisions.next(small, tally(8.0, true, 1.0));
        assert!((large.factor * 8.0 - 2.0).abs() < 1e-5, "{large:?}");
        assert_eq!((large.norm, large.clipped), (8.0, 1.0));
    }

    #[test]
    fn a_loss_scale_is_halved_once_however_many_steps_overflow_with_it_and_doubled_when_it_is_steady() {
        let loss_scale = Some(LossScale { initial: 1024.0, growth_interval: 3 });
        let decisions = Decisions { non_finite: SKIP, loss_scale, ..Decisions::default() };
        let first = decisions.next(decisions.initial(), tally(f32::NAN, false, 1024.0));
        let second = decisions.next(first, tally(f32::NAN, false, 1024.0));
        assert_eq!((first.loss_scale, second.loss_scale), (512.0, 512.0));
        assert_eq!((second.skipped, second.skipped_in_a_row, second.is_skipped), (2.0, 2.0, true));
        let mut steady = second;
        for _ in 0..3 {
            steady = decisions.next(steady, tally(1.0, true, 512.0));
            assert_eq!((steady.factor, steady.skipped_in_a_row), (1.0 / 512.0, 0.0));
        }
        assert_eq!((steady.loss_scale, steady.steady), (1024.0, 0.0));
        assert_eq!(decisions.next(steady, tally(1.0, true, 1024.0)).loss_scale, 1024.0);
    }

    #[test]
    fn a_step_of_no_record_changes_nothing_and_is_not_a_steady_one() {
        let decisions = Decisions { clip_norm: Some(1.0), ..Decisions::default() };
        let before = decisions.next(decisions.initial(), tally(8.0, true, 1.0));
        let empty = Tally { is_empty: true, ..tally(0.0, true, 1.0) };
        assert_eq!(decisions.next(before, empty), Decision { factor: 1.0, ..before });
        assert_eq!(decisions.failure(before, empty), None);
    }

    #[test]
    fn a_job_fails_at_once_or_after_as_many_skipped_steps_as_it_allows() {
        let (strict, patient) =
            (Decisions::default(), Decisions { non_finite: SKIP, ..Decisions::default() });
        let broken = tally(f32::NAN, false, 1.0);
        assert!(strict.failure(strict.initial(), broken).is_some());
        assert!(strict.failure(strict.initial(), tally(1.0, true, 1.0)).is_none());
        let mut decision = patient.initial();
        for _ in 0..2 {
            assert_eq!(patient.failure(decision, broken), None);
            decision = patient.next(decision, broken);
        }
        assert!(patient.failure(decision, broken).is_some());
        let calm = patient.next(decision, tally(1.0, true, 1.0));
        assert_eq!(patient.failure(calm, broken), None);
    }

    #[test]
    fn the_norm_is_of_the_mean_gradient_without_the_loss_scale() {
        let partial = |sum_of_squares| Partial { sum_of_squares, is_finite: true, weight: 5 };
        let partials =
            BTreeMap::from([(BlockId(2), partial(9.0 * 1600.0)), (BlockId(0), partial(16.0 * 1600.0))]);
        assert_eq!(Tally::of(&partials, 8.0), tally(5.0, true, 8.0));
        let mut broken = partials;
        broken.insert(BlockId(1), Partial { is_finite: false, ..partial(0.0) });
        assert!(!Tally::of(&broken, 8.0).is_finite);
    }

    #[test]
    fn decisions_and_tallies_survive_being_elements() {
        let decision = Decisions::default().next(Decisions::default().initial(), tally(0.25, true, 1.0));
        assert_eq!(Decision::from_values(&decision.to_values()), Some(decision));
        assert_eq!(Tally::from_values(&tally(0.25, true, 2.0).to_values()), Some(tally(0.25, true, 2.0)));
        assert_eq!((Decision::from_values(&[0.0; 7]), Tally::from_values(&[0.0; 9])), (None, None));
        assert_eq!([7, 9].map(|length| Decision::from_elements(&[0.0; 8], &vec![0.0; length])), [None, None]);
    }

    /// The decision after so many more of `tally`, through its elements each time, as a block keeps it.
    fn after(decisions: Decisions, from: Decision, tally: Tally, steps: u32) -> Decision {
        (0..steps).fold(from, |before, _| {
            let next = decisions.next(before, tally);
            Decision::from_elements(&next.to_values(), &next.to_remainders()).unwrap()
        })
    }

    #[test]
    fn counts_go_on_where_an_f32_would_stand_still() {
        let decisions = Decisions { clip_norm: Some(1.0), non_finite: SKIP, loss_scale: None };
        for many in [1u64 << 24, 1 << 40].map(|many| many as f64) {
            let many = Decision {
                skipped: many,
                clipped: many,
                steady: many,
                skipped_in_a_row: many,
                ..decisions.initial()
            };
            let clipped = after(decisions, many, tally(8.0, true, 1.0), 5);
            let all = [clipped.skipped, clipped.clipped, clipped.steady].map(|count| count - many.skipped);
            assert_eq!(all, [0.0, 5.0, 5.0], "{many:?}");
            let skipped = after(decisions, many, tally(f32::NAN, false, 1.0), 5);
            let all = [skipped.skipped, skipped.clipped, skipped.skipped_in_a_row]
                .map(|count| count - many.skipped);
            assert_eq!(all, [5.0, 0.0, 5.0], "{many:?}");
        }
    }

    #[test]
    fn a_loss_scale_grows_and_a_job_fails_after_more_steps_than_an_f32_counts() {
        let interval = (1u32 << 24) + 3;
        let loss_scale = Some(LossScale { initial: 2.0, growth_interval: interval });
        let decisions =
            Decisions { non_finite: NonFinite::Skip { in_a_row_max: interval }, loss_scale, clip_norm: None };
        let steady = Decision { steady: f64::from(interval - 4), ..decisions.initial() };
        let scales = [3, 4].map(|steps| after(decisions, steady, tally(1.0, true, 2.0), steps).loss_scale);
        assert_eq!(scales, [2.0, 4.0]);
        let (broken, failing) =
            (tally(f32::NAN, false, 2.0), Decision { skipped_in_a_row: f64::from(interval - 4), ..steady });
        let fails =
            [3, 4].map(|steps| decisions.failure(after(decisions, failing, broken, steps), broken).is_some());
        assert_eq!(fails, [false, true]);
    }

    #[test]
    fn impossible_decisions_say_what_to_change() {
        let with = |decisions: Decisions| decisions.fault().is_some();
        let scale = |initial, growth_interval| Some(LossScale { initial, growth_interval });
        assert!(with(Decisions { clip_norm: Some(0.0), ..Decisions::default() }));
        assert!(with(Decisions { clip_norm: Some(f32::NAN), ..Decisions::default() }));
        assert!(with(Decisions { loss_scale: scale(1000.0, 5), non_finite: SKIP, clip_norm: None }));
        assert!(with(Decisions { loss_scale: scale(1024.0, 0), non_finite: SKIP, clip_norm: None }));
        assert!(with(Decisions {
            loss_scale: scale(1024.0, 5),
            non_finite: NonFinite::Fail,
            clip_norm: None
        }));
        assert!(!with(Decisions { loss_scale: scale(1024.0, 5), non_finite: SKIP, clip_norm: Some(1.0) }));
    }
}
