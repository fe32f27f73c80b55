//! Learning rates as functions of the step: no state, so that a step computed again has the same rate.

use super::Step;
use serde::{Deserialize, Serialize};

/// A learning rate schedule: a linear warm-up, then a decay.
///
/// With `t` the step (from 0) and `w` the steps of warm-up: `base * (t + 1) / w` while `t < w`, then what the decay says
/// for `t - w`. Computed in f64 with a pinned libm and rounded once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// The rate before any decay; not negative.
    pub base: f32,
    /// Steps over which the rate rises linearly from `base / warmup_steps` to `base`; 0 for none.
    pub warmup_steps: u64,
    /// What happens after the warm-up.
    pub decay: Decay,
}

/// How a rate falls, counted from the end of the warm-up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Decay {
    /// Not at all.
    Constant,
    /// `base * factor^floor(t / every)`: multiplied by `factor` after every `every` steps.
    Step {
        /// Multiplier, positive.
        factor: f32,
        /// Steps between two multiplications.
        every: u64,
    },
    /// `base * factor^(t / every)`: the same curve without its stairs.
    Exponential {
        /// Multiplier over `every` steps, positive.
        factor: f32,
        /// Steps after which the rate is `factor` times as large.
        every: u64,
    },
    /// `floor + (base - floor) * (1 + cos(pi * min(t, over) / over)) / 2`: half a cosine from `base` to `floor` over
    /// `over` steps, then `floor` (Loshchilov and Hutter 2017, no restarts).
    Cosine {
        /// The last rate.
        floor: f32,
        /// Length of the half cosine in steps.
        over: u64,
    },
    /// `floor + (base - floor) * (1 - min(t, over) / over)^power`: a straight line where the power is 1, then `floor`.
    Polynomial {
        /// The last rate.
        floor: f32,
        /// Positive.
        power: f32,
        /// Length of the decay in steps.
        over: u64,
    },
    /// `base * sqrt(over / (t + over))`: after a warm-up of `over` steps, the schedule of the Transformer (Vaswani et al. 2017).
    InverseRoot {
        /// Steps after which the rate is `1 / sqrt(2)` of the base.
        over: u64,
    },
    /// `base` until the first stage begins, then the rate of the stage that began last.
    Piecewise {
        /// In ascending order of their first steps; at most [`STAGES_MAX`].
        stages: Vec<Stage>,
    },
}

/// One stretch of a piecewise constant rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// Its first step, counted from the end of the warm-up.
    pub first_step: u64,
    /// Its rate.
    pub rate: f32,
}

/// The most stages of one piecewise constant rate.
pub const STAGES_MAX: usize = 1000;

impl Schedule {
    /// The same rate at every step.
    pub const fn constant(rate: f32) -> Schedule {
        Schedule { base: rate, warmup_steps: 0, decay: Decay::Constant }
    }
    /// Multiplied by `factor` after every `every` steps.
    pub const fn step(base: f32, factor: f32, every: u64) -> Schedule {
        Schedule { base, warmup_steps: 0, decay: Decay::Step { factor, every } }
    }
    /// `factor` times as large after every `every` steps, falling at each.
    pub const fn exponential(base: f32, factor: f32, every: u64) -> Schedule {
        Schedule { base, warmup_steps: 0, decay: Decay::Exponential { factor, every } }
    }
    /// Half a cosine from `base` to `floor` over `over` steps.
    pub const fn cosine(base: f32, floor: f32, over: u64) -> Schedule {
        Schedule { base, warmup_steps: 0, decay: Decay::Cosine { floor, over } }
    }
    /// A straight line from `base` to `last` over `over` steps.
    pub const fn linear(base: f32, last: f32, over: u64) -> Schedule {
        Schedule::polynomial(base, last, 1.0, over)
    }
    /// From `base` to `floor` over `over` steps, by a power of what is left of them.
    pub const fn polynomial(base: f32, floor: f32, power: f32, over: u64) -> Schedule {
        Schedule { base, warmup_steps: 0, decay: Decay::Polynomial { floor, power, over } }
    }
    /// As one over the root of the steps, `over` of which have been before the first.
    pub const fn inverse_root(base: f32, over: u64) -> Schedule {
        Schedule { base, warmup_steps: 0, decay: Decay::InverseRoot { over } }
    }
    /// `base`, then the rates of the stages (first step, rate).
    pub fn piecewise(base: f32, stages: impl IntoIterator<Item = (u64, f32)>) -> Schedule {
        let stages = stages.into_iter().map(|(first_step, rate)| Stage { first_step, rate }).collect();
        Schedule { base, warmup_steps: 0, decay: Decay::Piecewise { stages } }
    }
    /// The same schedule after a linear warm-up of so many steps.
    pub fn after_warmup(self, warmup_steps: u64) -> Schedule {
        Schedule { warmup_steps, ..self }
    }

    /// Whether it never changes.
    pub fn is_constant(&self) -> bool {
        self.warmup_steps == 0 && self.decay == Decay::Constant
    }

    /// The rate at `step`. Computed in f64 with a pinned libm and rounded once.
    pub fn at(&self, step: Step) -> f32 {
        let base = f64::from(self.base);
        if step.0 < self.warmup_steps {
            return (base * (step.0 + 1) as f64 / self.warmup_steps as f64) as f32;
        }
        let past = step.0 - self.warmup_steps;
        match &self.decay {
            Decay::Constant => self.base,
            Decay::Step { factor, every } => {
                grown(base, libm::pow(f64::from(*factor), (past / every.max(&1)) as f64))
            }
            Decay::Exponential { factor, every } => {
                grown(base, libm::pow(f64::from(*factor), past as f64 / *every.max(&1) as f64))
            }
            Decay::Cosine { floor, over } => {
                let part = past.min(*over) as f64 / *over.max(&1) as f64;
                let floor = f64::from(*floor);
                (floor + (base - floor) * 0.5 * (1.0 + libm::cos(std::f64::consts::PI * part))) as f32
            }
            Decay::Polynomial { floor, power, over } => {
                let left = 1.0 - past.min(*over) as f64 / *over.max(&1) as f64;
                let floor = f64::from(*floor);
                (floor + (base - floor) * libm::pow(left, f64::from(*power))) as f32
            }
            Decay::InverseRoot { over } => {
                let over = *over.max(&1) as f64;
                (base * libm::sqrt(over / (past as f64 + over))) as f32
            }
            Decay::Piecewise { stages } => {
                let begun = stages.partition_point(|stage| stage.first_step <= past);
                begun.checked_sub(1).map_or(self.base, |last| stages[last].rate)
            }
        }
    }

    pub(super) fn fault(&self) -> Option<&'static str> {
        let is_rate = |x: f32| x.is_finite() && x >= 0.0;
        let is_factor = |x: f32| x.is_finite() && x > 0.0;
        match &self.decay {
            _ if !is_rate(self.base) => Some("the learning rate must be finite and not negative"),
            Decay::Step { factor, every } if !is_factor(*factor) || *every == 0 => {
                Some("step decay needs a positive factor and a positive number of steps")
            }
            Decay::Exponential { factor, every } if !is_factor(*factor) || *every == 0 => {
                Some("exponential decay needs a positive factor and a positive number of steps")
            }
            Decay::Cosine { floor, over } if !is_rate(*floor) || *over == 0 => {
                Some("cosine decay needs a floor that is not negative and a positive number of steps")
            }
            Decay::Polynomial { floor, power, over }
                if !is_rate(*floor) || !is_factor(*power) || *over == 0 =>
            {
                Some(
                    "polynomial decay needs a floor that is not negative, a positive power and a positive number of steps",
                )
            }
            Decay::InverseRoot { over: 0 } => Some("inverse root decay needs a positive number of steps"),
            Decay::Piecewise { stages } if stages.is_empty() || stages.len() > STAGES_MAX => {
                Some("a piecewise rate needs at least one stage and at most 1,000")
            }
            Decay::Piecewise { stages } if !stages.iter().all(|stage| is_rate(stage.rate)) => {
                Some("the rates of all stages must be finite and not negative")
            }
            Decay::Piecewise { stages } if !stages.is_sorted_by(|a, b| a.first_step < b.first_step) => {
                Some("stages must be in ascending order, each with its own first step")
            }
            _ => None,
        }
    }
}

/// A factor above 1 ends at the largest rate there is, and nothing grows out of 0.
fn grown(base: f64, by: f64) -> f32 {
    if base == 0.0 { 0.0 } else { (base * by).min(f64::from(f32::MAX)) as f32 }
}

#[cfg(test)]
mod tests {
    //! References are written from the formulas by other means than the code's: by repeated multiplication, by another
    //! identity, by a scan. They keep no f32; a rate may differ from its reference by one rounding, 2^-24.
    use super::*;

    const STEPS: u64 = 2500;

    fn follows(schedule: &Schedule, mut reference: impl FnMut(u64) -> f64) {
        for step in 0..STEPS {
            let (ours, theirs) = (f64::from(schedule.at(Step(step))), reference(step));
            assert!((ours - theirs).abs() <= 6.1e-8 * theirs.abs(), "step {step}: {ours} and {theirs}");
        }
    }

    #[test]
    fn a_constant_rate_follows_its_reference() {
        follows(&Schedule::constant(0.3), |_| f64::from(0.3f32));
    }

    #[test]
    fn step_decay_follows_its_reference() {
        let mut rate = f64::from(0.4f32);
        follows(&Schedule::step(0.4, 0.9, 100), |step| {
            if step > 0 && step.is_multiple_of(100) {
                rate *= f64::from(0.9f32);
            }
            rate
        });
    }

    #[test]
    fn exponential_decay_follows_its_reference() {
        // The 128th root, by seven square roots.
        let root = (0..7).fold(f64::from(0.7f32), |x, _| x.sqrt());
        let mut rate = f64::from(0.4f32) / root;
        follows(&Schedule::exponential(0.4, 0.7, 128), |_| {
            rate *= root;
            rate
        });
    }

    #[test]
    fn a_cosine_follows_its_reference() {
        let (base, floor) = (f64::from(0.8f32), f64::from(0.05f32));
        follows(&Schedule::cosine(0.8, 0.05, 2000), |step| {
            let sine = libm::sin(std::f64::consts::FRAC_PI_2 * step.min(2000) as f64 / 2000.0);
            base - (base - floor) * sine * sine
        });
    }

    #[test]
    fn a_line_follows_its_reference_down_and_up() {
        for (base, last) in [(0.8f32, 0.05f32), (0.05, 0.8)] {
            let (from, to) = (f64::from(base), f64::from(last));
            follows(&Schedule::linear(base, last, 2000), |step| {
                let step = step.min(2000) as f64;
                (from * (2000.0 - step) + to * step) / 2000.0
            });
        }
    }

    #[test]
    fn a_polynomial_follows_its_reference() {
        let (base, floor) = (f64::from(0.8f32), f64::from(0.05f32));
        follows(&Schedule::polynomial(0.8, 0.05, 3.0, 2000), |step| {
            let left = (2000 - step.min(2000)) as f64 / 2000.0;
            floor + (base - floor) * left * left * left
        });
    }

    #[test]
    fn an_inverse_root_follows_its_reference() {
        let base = f64::from(0.8f32);
        follows(&Schedule::inverse_root(0.8, 400), |step| base / ((step + 400) as f64 / 400.0).sqrt());
    }

    #[test]
    fn a_piecewise_rate_follows_its_reference() {
        let stages = [(10, 0.5f32), (11, 0.25), (1000, 0.125), (2400, 0.0)];
        follows(&Schedule::piecewise(0.75, stages), |step| {
            let last = stages.iter().rfind(|(first, _)| *first <= step);
            f64::from(last.map_or(0.75, |(_, rate)| *rate))
        });
    }

    #[test]
    fn a_warm_up_in_front_of_any_decay_follows_its_reference() {
        let schedules = [
            Schedule::constant(0.3),
            Schedule::step(0.3, 0.5, 10),
            Schedule::exponential(0.3, 0.5, 10),
            Schedule::cosine(0.3, 0.1, 100),
            Schedule::linear(0.3, 0.1, 100),
            Schedule::inverse_root(0.3, 400),
            Schedule::piecewise(0.3, [(0, 0.2), (5, 0.1)]),
        ];
        for cold in schedules {
            let warm = cold.clone().after_warmup(400);
            for step in 400..STEPS {
                assert_eq!(warm.at(Step(step)), cold.at(Step(step - 400)), "{cold:?}");
            }
            let mut rate = 0.0;
            for step in 0..400 {
                rate += f64::from(0.3f32) / 400.0;
                assert!((f64::from(warm.at(Step(step))) - rate).abs() <= 6.1e-8 * rate, "step {step}");
            }
        }
    }

    #[test]
    fn warm_up_rises_to_the_base_and_decay_starts_after_it() {
        let schedule = Schedule::step(0.4, 0.5, 10).after_warmup(4);
        let rates: Vec<f32> = [0, 3, 4, 13, 14, 24].into_iter().map(|step| schedule.at(Step(step))).collect();
        assert_eq!(rates, [0.1, 0.4, 0.4, 0.4, 0.2, 0.1]);
    }

    #[test]
    fn a_cosine_ends_at_its_floor_and_stays() {
        let schedule = Schedule::cosine(1.0, 0.1, 8);
        assert_eq!(schedule.at(Step(0)), 1.0);
        assert!((schedule.at(Step(4)) - 0.55).abs() < 1e-6);
        assert_eq!((schedule.at(Step(8)), schedule.at(Step(80))), (0.1, 0.1));
    }

    #[test]
    fn schedules_that_make_no_sense_are_refused() {
        let faults = [
            (Schedule::constant(-1.0), "learning rate"),
            (Schedule::step(0.1, 0.0, 5), "step decay"),
            (Schedule::step(0.1, 0.5, 0), "step decay"),
            (Schedule::exponential(0.1, f32::NAN, 5), "exponential"),
            (Schedule::exponential(0.1, 0.5, 0), "exponential"),
            (Schedule::cosine(0.1, -0.5, 5), "cosine"),
            (Schedule::cosine(0.1, 0.0, 0), "cosine"),
            (Schedule::linear(0.1, -0.5, 5), "polynomial"),
            (Schedule::linear(0.1, 0.0, 0), "polynomial"),
            (Schedule::polynomial(0.1, 0.0, 0.0, 5), "polynomial"),
            (Schedule::inverse_root(0.1, 0), "inverse root"),
            (Schedule::piecewise(0.1, []), "at least one"),
            (Schedule::piecewise(0.1, (0..1001).map(|step| (step, 0.1))), "at most"),
            (Schedule::piecewise(0.1, [(5, 0.1), (5, 0.2)]), "ascending"),
            (Schedule::piecewise(0.1, [(5, 0.1), (4, 0.2)]), "ascending"),
            (Schedule::piecewise(0.1, [(5, f32::INFINITY)]), "finite"),
        ];
        for (schedule, word) in faults {
            assert!(schedule.fault().is_some_and(|fault| fault.contains(word)), "{schedule:?}");
        }
        let full = Schedule::piecewise(0.1, (0..1000).map(|step| (step, 0.1)));
        assert_eq!((full.fault(), Schedule::exponential(0.1, 0.5, 5).fault()), (None, None));
    }

    #[test]
    fn a_rate_that_grows_stays_a_number() {
        for base in [0.0, 0.1, f32::MAX] {
            for schedule in [Schedule::step(base, 2.0, 1), Schedule::exponential(base, 1e30, 1)] {
                for step in [0, 1000, u64::MAX] {
                    let rate = schedule.at(Step(step));
                    assert!(
                        rate.is_finite() && (rate > 0.0) == (base > 0.0),
                        "{schedule:?} at {step}: {rate}"
                    );
                }
            }
        }
    }
}
