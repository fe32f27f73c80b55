//! Adam, AdamW and AMSGrad. Slots: first and second moment; AMSGrad's third is the largest second moment so far.
//!
//! Nothing here is stepped: an update done again has the same constants.

use super::Pass;

/// The scalar constants of one update.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moments {
    rate: f32,
    beta1: f32,
    beta2: f32,
    rest1: f32,
    rest2: f32,
    epsilon: f32,
    correction1: f32,
    correction2: f32,
}

impl Moments {
    /// The bias corrections `1 - beta^t` are functions of the update's number, computed in f64 with a pinned libm and
    /// rounded once.
    pub(super) fn new(pass: Pass, beta1: f32, beta2: f32, epsilon: f32) -> Moments {
        let correction = |beta: f32| (1.0 - libm::pow(f64::from(beta), pass.update as f64)) as f32;
        Moments {
            rate: pass.scaled_rate(),
            beta1,
            beta2,
            rest1: 1.0 - beta1,
            rest2: 1.0 - beta2,
            epsilon,
            correction1: correction(beta1),
            correction2: correction(beta2),
        }
    }

    /// In the order in which device code names them.
    pub(super) fn constants(&self) -> [f32; 7] {
        let Moments { beta1, rest1, beta2, rest2, epsilon, correction1, correction2, .. } = *self;
        [beta1, rest1, beta2, rest2, epsilon, correction1, correction2]
    }

    #[inline(always)]
    fn take(&self, gradient: f32, first: &mut f32, second: &mut f32) {
        *first = self.beta1 * *first + self.rest1 * gradient;
        *second = self.beta2 * *second + self.rest2 * (gradient * gradient);
    }

    /// What the parameter goes down by.
    #[inline(always)]
    fn change(&self, first: f32, second: f32) -> f32 {
        let mean = first / self.correction1;
        let deviation = (second / self.correction2).sqrt() + self.epsilon;
        (self.rate * mean) / deviation
    }
}

/// Adam (Kingma and Ba 2015, algorithm 1).
#[inline(always)]
pub(super) fn adam(
    pass: Pass,
    moments: Moments,
    parameters: &[f32],
    values: &mut [f32],
    first: &mut [f32],
    second: &mut [f32],
) {
    let slots = first.iter_mut().zip(second);
    for ((parameter, value), (first, second)) in parameters.iter().zip(values).zip(slots) {
        moments.take(pass.gradient(*value, *parameter), first, second);
        *value = *parameter - moments.change(*first, *second);
    }
}

/// AdamW (Loshchilov and Hutter 2019, algorithm 2, the decay multiplied with the rate as usual today).
#[inline(always)]
pub(super) fn adamw(
    pass: Pass,
    moments: Moments,
    parameters: &[f32],
    values: &mut [f32],
    first: &mut [f32],
    second: &mut [f32],
) {
    let shrink = pass.scaled_rate() * pass.weight_decay;
    let slots = first.iter_mut().zip(second);
    for ((parameter, value), (first, second)) in parameters.iter().zip(values).zip(slots) {
        moments.take(pass.mean(*value), first, second);
        *value = (*parameter - shrink * *parameter) - moments.change(*first, *second);
    }
}

/// AMSGrad (Reddi, Kale and Kumar 2018, algorithm 2), with Adam's bias corrections.
#[inline(always)]
pub(super) fn amsgrad(
    pass: Pass,
    moments: Moments,
    parameters: &[f32],
    values: &mut [f32],
    [first, second, largest]: [&mut [f32]; 3],
) {
    let slots = first.iter_mut().zip(second).zip(largest);
    for ((parameter, value), ((first, second), largest)) in parameters.iter().zip(values).zip(slots) {
        moments.take(pass.gradient(*value, *parameter), first, second);
        *largest = if *second > *largest { *second } else { *largest };
        *value = *parameter - moments.change(*first, *largest);
    }
}

#[cfg(test)]
mod tests {
    use super::super::reference::{Now, Trial, error};
    use super::super::{Pass, run};
    use shoal_runtime::cluster::Rule;

    const BETA1: f32 = 0.9;
    const BETA2: f32 = 0.99;
    const EPSILON: f32 = 1e-3;
    const RATE: f32 = 0.003;
    const DECAY: f32 = 0.04;
    const ADAM: Rule = Rule::Adam { beta1: BETA1, beta2: BETA2, epsilon: EPSILON };
    const ADAMW: Rule = Rule::AdamW { beta1: BETA1, beta2: BETA2, epsilon: EPSILON };
    const AMSGRAD: Rule = Rule::AmsGrad { beta1: BETA1, beta2: BETA2, epsilon: EPSILON };

    #[derive(Default)]
    struct Exact {
        m: f64,
        v: f64,
        v_max: f64,
    }

    impl Exact {
        fn take(&mut self, g: f64) {
            let (b1, b2) = (f64::from(BETA1), f64::from(BETA2));
            self.m = b1 * self.m + (1.0 - b1) * g;
            self.v = b2 * self.v + (1.0 - b2) * g * g;
            self.v_max = self.v_max.max(self.v);
        }

        /// The corrected first moment over the root of `v`, corrected.
        fn quotient(&self, v: f64, t: u64) -> f64 {
            let correction = |beta: f32| 1.0 - libm::pow(f64::from(beta), t as f64);
            (self.m / correction(BETA1)) / (libm::sqrt(v / correction(BETA2)) + f64::from(EPSILON))
        }
    }

    fn adam_error(trial: Trial) -> f64 {
        let reference = |exact: &mut Exact, now: Now| {
            exact.take(now.g + trial.lambda() * now.w);
            now.w - trial.rate() * exact.quotient(exact.v, now.t)
        };
        error(trial, |_| Exact::default(), reference)
    }

    fn adamw_error(trial: Trial) -> f64 {
        let reference = |exact: &mut Exact, now: Now| {
            exact.take(now.g);
            now.w - trial.rate() * (exact.quotient(exact.v, now.t) + trial.lambda() * now.w)
        };
        error(trial, |_| Exact::default(), reference)
    }

    fn amsgrad_error(trial: Trial) -> f64 {
        let reference = |exact: &mut Exact, now: Now| {
            exact.take(now.g + trial.lambda() * now.w);
            now.w - trial.rate() * exact.quotient(exact.v_max, now.t)
        };
        error(trial, |_| Exact::default(), reference)
    }

    #[test]
    fn adam_follows_its_reference() {
        let worst = adam_error(Trial::new(ADAM, RATE));
        assert!(worst < 2e-5, "{worst}");
    }

    #[test]
    fn adam_with_weight_decay_follows_its_reference() {
        let worst = adam_error(Trial::new(ADAM, RATE).decaying(DECAY));
        assert!(worst < 2e-5, "{worst}");
    }

    #[test]
    fn adamw_follows_its_reference() {
        let worst = adamw_error(Trial::new(ADAMW, RATE));
        assert!(worst < 2e-5, "{worst}");
    }

    #[test]
    fn adamw_with_weight_decay_follows_its_reference() {
        let worst = adamw_error(Trial::new(ADAMW, RATE).decaying(DECAY));
        assert!(worst < 2e-5, "{worst}");
    }

    #[test]
    fn amsgrad_follows_its_reference() {
        let worst = amsgrad_error(Trial::new(AMSGRAD, RATE));
        assert!(worst < 2e-5, "{worst}");
    }

    #[test]
    fn amsgrad_with_weight_decay_follows_its_reference() {
        let worst = amsgrad_error(Trial::new(AMSGRAD, RATE).decaying(DECAY));
        assert!(worst < 2e-5, "{worst}");
    }

    #[test]
    fn amsgrad_remembers_the_largest_second_moment_after_adam_has_forgotten_it() {
        let epsilon = 1e-8;
        let mut steps = [0.0f32; 2];
        for (rule, step) in [Rule::ADAM, Rule::AMSGRAD].into_iter().zip(&mut steps) {
            let mut slots = vec![vec![0.0f32]; rule.slots().len()];
            let (mut before, mut after) = ([0.0f32], [0.0f32]);
            // One gradient of 100, then small ones for longer than beta2 remembers.
            for update in 1..=12_000 {
                before = after;
                after = [if update == 1 { 100.0 } else { 0.01 }];
                let pass = Pass { weight: 1.0, rate: 0.001, scale: 1.0, weight_decay: 0.0, update };
                let mut borrowed: Vec<&mut [f32]> = slots.iter_mut().map(Vec::as_mut_slice).collect();
                run(rule, pass, &before, &mut after, &mut borrowed);
            }
            *step = (before[0] - after[0]).abs();
            if let [_, second, largest] = slots.as_slice() {
                assert!(largest[0] > 9.9 && second[0] < 1e-3, "{second:?} {largest:?}");
            }
        }
        assert!(steps[0] > 5e-4, "Adam's steps are near the rate: {steps:?}");
        assert!(steps[1] < 1e-5 && steps[1] > epsilon, "AMSGrad's stay small: {steps:?}");
    }

    #[test]
    fn the_first_step_of_adam_has_the_size_of_the_rate() {
        let pass = Pass { weight: 1.0, rate: 0.1, scale: 1.0, weight_decay: 0.0, update: 1 };
        let mut values = [5.0, -0.25];
        run(Rule::ADAM, pass, &[1.0, 1.0], &mut values, &mut [&mut [0.0; 2], &mut [0.0; 2]]);
        assert!((values[0] - 0.9).abs() < 1e-6 && (values[1] - 1.1).abs() < 1e-6, "{values:?}");
    }
}
