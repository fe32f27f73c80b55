//! What is counted or averaged rather than learnt. No slots, no learning rate, and no scale of one.

use super::Pass;

/// `decay * w + (1 - decay) * g`, where `g` is the mean of the step.
#[inline(always)]
pub(super) fn ema(pass: Pass, decay: f32, parameters: &[f32], values: &mut [f32]) {
    let rest = 1.0 - decay;
    for (parameter, value) in parameters.iter().zip(values) {
        *value = decay * *parameter + rest * pass.mean(*value);
    }
}

/// `w + sum`: the sum is not divided by the weight.
#[inline(always)]
pub(super) fn sum(parameters: &[f32], values: &mut [f32]) {
    for (parameter, value) in parameters.iter().zip(values) {
        *value += *parameter;
    }
}

/// The same. What is no number has the same bits whoever found it, for the model's hash is over metrics too.
#[inline(always)]
pub(super) fn metric(parameters: &[f32], values: &mut [f32]) {
    sum(parameters, values);
    values.iter_mut().filter(|value| value.is_nan()).for_each(|value| *value = f32::NAN);
}

#[cfg(test)]
mod tests {
    use super::super::reference::{Trial, WEIGHT, error};
    use super::super::{Pass, run};
    use shoal_runtime::cluster::Rule;

    #[test]
    fn ema_follows_its_reference() {
        let decay = f64::from(0.97f32);
        // A rate, to see that it is not looked at.
        let trial = Trial::new(Rule::Ema { decay: 0.97 }, 0.3);
        let worst = error(trial, |_| (), |(), now| decay * now.w + (1.0 - decay) * now.g);
        assert!(worst < 2e-5, "{worst}");
    }

    #[test]
    fn sum_follows_its_reference_and_ignores_weight_and_rate() {
        let trial = Trial { pull: 0.0, ..Trial::new(Rule::Sum, 0.3) };
        let worst = error(trial, |_| (), |(), now| now.w + now.g * f64::from(WEIGHT));
        assert!(worst < 2e-5, "{worst}");
    }

    #[test]
    fn staleness_scales_neither_counts_nor_statistics() {
        for rule in [Rule::Sum, Rule::Ema { decay: 0.5 }] {
            let made = [1.0, 0.25].map(|scale| {
                let mut values = [6.0];
                run(
                    rule,
                    Pass { weight: 2.0, rate: 0.1, scale, weight_decay: 0.0, update: 1 },
                    &[1.0],
                    &mut values,
                    &mut [],
                );
                values
            });
            assert_eq!(made[0], made[1], "{rule:?}");
        }
    }
}
