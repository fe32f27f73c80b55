//! Learning rates as functions of the step: no state, so that a step computed again has the same rate.

use super::Step;
use serde::{Deserialize, Serialize};

/// A learning rate schedule.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// The rate before any decay.
    pub base: f32,
    /// Steps over which the rate rises linearly from `base / warmup_steps` to `base`; 0 for none.
    pub warmup_steps: u64,
    /// What happens after the warm-up.
    pub decay: Decay,
}

/// How a rate falls, counted from the end of the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Decay {
    /// Not at all.
    Constant,
    /// Multiplied by `factor` after every `every` steps.
    Step {
        /// Multiplier, positive.
        factor: f32,
        /// Steps between two multiplications.
        every: u64,
    },
    /// Half a cosine from `base` to `floor` over `over` steps, then `floor` (Loshchilov and Hutter 2017, no restarts).
    Cosine {
        /// The last rate.
        floor: f32,
        /// Length of the half cosine in steps.
        over: u64,
    },
}

impl Schedule {
    /// The same rate at every step.
    pub const fn constant(rate: f32) -> Schedule {
        Schedule { base: rate, warmup_steps: 0, decay: Decay::Constant }
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
        match self.decay {
            Decay::Constant => self.base,
            Decay::Step { factor, every } => {
                (base * libm::pow(f64::from(factor), (past / every.max(1)) as f64)) as f32
            }
            Decay::Cosine { floor, over } => {
                let part = past.min(over) as f64 / over.max(1) as f64;
                let floor = f64::from(floor);
                (floor + (base - floor) * 0.5 * (1.0 + libm::cos(std::f64::consts::PI * part))) as f32
            }
        }
    }

    pub(super) fn fault(&self) -> Option<&'static str> {
        let is_rate = |x: f32| x.is_finite() && x >= 0.0;
        match self.decay {
            _ if !is_rate(self.base) => Some("the learning rate must be finite and not negative"),
            Decay::Step { factor, every } if !(factor.is_finite() && factor > 0.0) || every == 0 => {
                Some("step decay needs a positive factor and a positive number of steps")
            }
            Decay::Cosine { floor, over } if !is_rate(floor) || over == 0 => {
                Some("cosine decay needs a floor that is not negative and a positive number of steps")
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warm_up_rises_to_the_base_and_decay_starts_after_it() {
        let schedule = Schedule { base: 0.4, warmup_steps: 4, decay: Decay::Step { factor: 0.5, every: 10 } };
        let rates: Vec<f32> = [0, 3, 4, 13, 14, 24].into_iter().map(|step| schedule.at(Step(step))).collect();
        assert_eq!(rates, [0.1, 0.4, 0.4, 0.4, 0.2, 0.1]);
    }

    #[test]
    fn a_cosine_ends_at_its_floor_and_stays() {
        let schedule = Schedule { base: 1.0, warmup_steps: 0, decay: Decay::Cosine { floor: 0.1, over: 8 } };
        assert_eq!(schedule.at(Step(0)), 1.0);
        assert!((schedule.at(Step(4)) - 0.55).abs() < 1e-6);
        assert_eq!((schedule.at(Step(8)), schedule.at(Step(80))), (0.1, 0.1));
    }
}
