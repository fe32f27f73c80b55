//! What the tests of all rules share: a rule and its float64 reference run side by side over 1,500 updates. It tests
//! nothing by itself and must never know a rule's formula; references, written from the papers, keep no f32.
//!
//! Tolerance of all: 2e-5 of the distance travelled (1,500 roundings of 6e-8 each would be 9e-5 if all fell on one side;
//! they do not).

use super::{Pass, run};
use shoal_runtime::cluster::Rule;

const UPDATES: u64 = 1500;
pub(super) const ELEMENTS: usize = 37;
/// Records in every sum.
pub(super) const WEIGHT: f32 = 48.0;

/// One of each.
pub(super) const EVERY_RULE: [Rule; 10] = [
    Rule::Sgd,
    Rule::Momentum { momentum: 0.9 },
    Rule::Nesterov { momentum: 0.9 },
    Rule::Adagrad { epsilon: 1e-8 },
    Rule::ADAM,
    Rule::ADAMW,
    Rule::AMSGRAD,
    Rule::Ftrl { l1: 0.01, l2: 0.1, beta: 1.0 },
    Rule::Ema { decay: 0.9 },
    Rule::Sum,
];

/// What a rule and its reference are given.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial {
    pub(super) rule: Rule,
    pub(super) rate: f32,
    pub(super) weight_decay: f32,
    /// How much of the parameter's value is in its gradient.
    pub(super) pull: f64,
    /// What the initial values are multiplied with.
    pub(super) start: f32,
}

/// One element at one update, exactly.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    /// The update's number, from 1.
    pub(super) t: u64,
    /// The value before it.
    pub(super) w: f64,
    /// The mean gradient.
    pub(super) g: f64,
}

impl Trial {
    pub(super) fn new(rule: Rule, rate: f32) -> Trial {
        Trial { rule, rate, weight_decay: 0.0, pull: 0.3, start: 1.0 }
    }
    pub(super) fn decaying(self, weight_decay: f32) -> Trial {
        Trial { weight_decay, ..self }
    }
    /// The weight decay, exactly.
    pub(super) fn lambda(&self) -> f64 {
        f64::from(self.weight_decay)
    }
    /// The learning rate, exactly.
    pub(super) fn rate(&self) -> f64 {
        f64::from(self.rate)
    }
}

/// A gradient sum that wanders, so that moments and velocities are neither constant nor zero; of every third stretch of
/// 100 updates ten times as large, so that the largest are not the latest.
pub(super) fn gradient_sum(update: u64, element: usize, pull: f64) -> f32 {
    let phase = update as f64 * 0.01 + element as f64;
    let size = if update / 100 % 3 == 1 { 10.0 } else { 1.0 };
    (size * (libm::sin(phase) + pull + 0.1) * f64::from(WEIGHT)) as f32
}

pub(super) fn start() -> Vec<f32> {
    (0..ELEMENTS).map(|element| element as f32 / 10.0 - 1.5).collect()
}

/// Runs the rule and its reference on the same gradients; `state` makes what the reference keeps for an element. Returns
/// the largest difference relative to the distance travelled.
pub(super) fn error<S>(
    trial: Trial,
    state: impl Fn(f64) -> S,
    mut reference: impl FnMut(&mut S, Now) -> f64,
) -> f64 {
    let mut parameters: Vec<f32> = start().iter().map(|value| trial.start * value).collect();
    let first: Vec<f64> = parameters.iter().map(|value| f64::from(*value)).collect();
    let mut exact = first.clone();
    let mut states: Vec<S> = first.iter().map(|value| state(*value)).collect();
    let mut slots = vec![vec![0.0f32; ELEMENTS]; trial.rule.slots().len()];
    let (mut worst, mut travel) = (0.0f64, 0.0f64);
    for update in 1..=UPDATES {
        let mut values: Vec<f32> =
            (0..ELEMENTS).map(|e| gradient_sum(update, e, trial.pull * exact[e])).collect();
        for element in 0..ELEMENTS {
            let g = f64::from(values[element]) / f64::from(WEIGHT);
            exact[element] = reference(&mut states[element], Now { t: update, w: exact[element], g });
            travel = travel.max((exact[element] - first[element]).abs());
        }
        let Trial { rule, rate, weight_decay, .. } = trial;
        let pass = Pass { weight: WEIGHT, rate, scale: 1.0, weight_decay, update };
        let mut borrowed: Vec<&mut [f32]> = slots.iter_mut().map(Vec::as_mut_slice).collect();
        run(rule, pass, &parameters, &mut values, &mut borrowed);
        parameters = values;
        for (ours, theirs) in parameters.iter().zip(&exact) {
            worst = worst.max((f64::from(*ours) - theirs).abs());
        }
    }
    assert!(travel > 0.1, "nothing moved: {travel}");
    worst / travel
}
