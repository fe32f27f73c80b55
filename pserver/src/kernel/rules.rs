//! The update rules, one pass each: old parameters and the step's gradient sum in, new parameters out.
//!
//! On entry `values` holds the gradient sum of the root, on return the new parameters: the buffer of the sum is the
//! buffer that is published. The mean is taken here and nowhere else, by one division. Every operation is a plain
//! IEEE f32 operation in the order written; a rule must never see a step of weight 0.

/// `w - rate * g`.
pub fn sgd(parameters: &[f32], values: &mut [f32], weight: f32, rate: f32) {
    assert_eq!(parameters.len(), values.len());
    for (parameter, value) in parameters.iter().zip(values) {
        let gradient = *value / weight;
        *value = *parameter - rate * gradient;
    }
}

/// Heavy ball (Polyak 1964, in the form of Sutskever et al. 2013): `v = momentum * v + g; w - rate * v`.
pub fn momentum(
    parameters: &[f32],
    values: &mut [f32],
    velocity: &mut [f32],
    weight: f32,
    rate: f32,
    momentum: f32,
) {
    assert!(parameters.len() == values.len() && parameters.len() == velocity.len());
    for ((parameter, value), velocity) in parameters.iter().zip(values).zip(velocity) {
        let gradient = *value / weight;
        *velocity = momentum * *velocity + gradient;
        *value = *parameter - rate * *velocity;
    }
}

/// What Adam needs beside its moments, at one step.
#[derive(Clone, Copy, Debug)]
pub struct AdamStep {
    rate: f32,
    beta1: f32,
    beta2: f32,
    epsilon: f32,
    first_correction: f32,
    second_correction: f32,
}

impl AdamStep {
    /// The constants of the update that makes version `updates`; `updates` counts from 1.
    ///
    /// The bias corrections `1 - beta^updates` are functions of the version, computed in f64 with a pinned libm and
    /// rounded once: nothing is stepped, so a step done again has the same constants.
    pub fn new(updates: u64, rate: f32, beta1: f32, beta2: f32, epsilon: f32) -> AdamStep {
        let correction = |beta: f32| (1.0 - libm::pow(f64::from(beta), updates as f64)) as f32;
        let (first_correction, second_correction) = (correction(beta1), correction(beta2));
        AdamStep { rate, beta1, beta2, epsilon, first_correction, second_correction }
    }
}

/// Adam (Kingma and Ba 2015, algorithm 1), with bias-corrected moments.
pub fn adam(
    parameters: &[f32],
    values: &mut [f32],
    first_moment: &mut [f32],
    second_moment: &mut [f32],
    weight: f32,
    step: AdamStep,
) {
    assert!(parameters.len() == values.len());
    assert!(parameters.len() == first_moment.len() && parameters.len() == second_moment.len());
    let (rest1, rest2) = (1.0 - step.beta1, 1.0 - step.beta2);
    let moments = first_moment.iter_mut().zip(second_moment);
    for ((parameter, value), (first, second)) in parameters.iter().zip(values).zip(moments) {
        let gradient = *value / weight;
        *first = step.beta1 * *first + rest1 * gradient;
        *second = step.beta2 * *second + rest2 * (gradient * gradient);
        let mean = *first / step.first_correction;
        let deviation = (*second / step.second_correction).sqrt() + step.epsilon;
        *value = *parameter - (step.rate * mean) / deviation;
    }
}

/// `w + sum`: the sum is not divided by the weight.
pub fn sum(parameters: &[f32], values: &mut [f32]) {
    assert_eq!(parameters.len(), values.len());
    for (parameter, value) in parameters.iter().zip(values) {
        *value += *parameter;
    }
}

#[cfg(test)]
mod tests {
    //! Each rule against a float64 reference written from its paper, over 1,500 steps. References keep no f32.
    //! Tolerance: relative 2e-5 of the distance travelled (1,500 roundings of 6e-8 each would be 9e-5 if all fell
    //! on one side; they do not).
    use super::*;

    const STEPS: u64 = 1500;
    const ELEMENTS: usize = 37;
    const WEIGHT: f32 = 48.0;

    /// A gradient sum that wanders, so that moments and velocities are neither constant nor zero.
    fn gradient_sum(step: u64, element: usize, pull: f64) -> f32 {
        let phase = step as f64 * 0.01 + element as f64;
        ((libm::sin(phase) + pull + 0.1) * f64::from(WEIGHT)) as f32
    }

    fn start() -> Vec<f32> {
        (0..ELEMENTS).map(|element| element as f32 / 10.0 - 1.5).collect()
    }

    /// Runs a rule and its reference on the same gradients, each with `pull` times the parameter in it; returns the
    /// largest error relative to the travel.
    fn error(
        pull: f64,
        mut rule: impl FnMut(u64, &[f32], &mut [f32]),
        mut reference: impl FnMut(u64, usize, f64, f64) -> f64,
    ) -> f64 {
        let mut parameters = start();
        let mut exact: Vec<f64> = parameters.iter().map(|p| f64::from(*p)).collect();
        let (mut worst, mut travel) = (0.0f64, 1.0f64);
        for step in 1..=STEPS {
            let mut values: Vec<f32> =
                (0..ELEMENTS).map(|e| gradient_sum(step, e, pull * exact[e])).collect();
            for element in 0..ELEMENTS {
                let before = exact[element];
                exact[element] = reference(step, element, before, f64::from(values[element]));
                travel = travel.max((exact[element] - f64::from(start()[element])).abs());
            }
            rule(step, &parameters, &mut values);
            parameters = values;
            for (ours, theirs) in parameters.iter().zip(&exact) {
                worst = worst.max((f64::from(*ours) - theirs).abs());
            }
        }
        worst / travel
    }

    #[test]
    fn sgd_follows_its_reference() {
        let worst = error(
            0.3,
            |_, parameters, values| sgd(parameters, values, WEIGHT, 0.05),
            |_, _, w, sum| w - f64::from(0.05f32) * (sum / f64::from(WEIGHT)),
        );
        assert!(worst < 2e-5, "{worst}");
    }

    #[test]
    fn momentum_follows_its_reference() {
        let (mut velocity, mut exact) = (vec![0.0; ELEMENTS], [0.0f64; ELEMENTS]);
        let worst = error(
            0.3,
            |_, parameters, values| momentum(parameters, values, &mut velocity, WEIGHT, 0.01, 0.9),
            |_, e, w, sum| {
                exact[e] = f64::from(0.9f32) * exact[e] + sum / f64::from(WEIGHT);
                w - f64::from(0.01f32) * exact[e]
            },
        );
        assert!(worst < 2e-5, "{worst}");
        assert!(velocity.iter().any(|v| v.abs() > 0.1));
    }

    #[test]
    fn adam_follows_its_reference() {
        let (rate, beta1, beta2, epsilon) = (0.003f32, 0.9f32, 0.999f32, 1e-8f32);
        let (mut first, mut second) = (vec![0.0; ELEMENTS], vec![0.0; ELEMENTS]);
        let (mut m, mut v) = ([0.0f64; ELEMENTS], [0.0f64; ELEMENTS]);
        let (b1, b2) = (f64::from(beta1), f64::from(beta2));
        let worst = error(
            0.3,
            |step, parameters, values| {
                let step = AdamStep::new(step, rate, beta1, beta2, epsilon);
                adam(parameters, values, &mut first, &mut second, WEIGHT, step);
            },
            |step, e, w, sum| {
                let g = sum / f64::from(WEIGHT);
                m[e] = b1 * m[e] + (1.0 - b1) * g;
                v[e] = b2 * v[e] + (1.0 - b2) * g * g;
                let mean = m[e] / (1.0 - libm::pow(b1, step as f64));
                let square = v[e] / (1.0 - libm::pow(b2, step as f64));
                w - f64::from(rate) * mean / (libm::sqrt(square) + f64::from(epsilon))
            },
        );
        assert!(worst < 2e-5, "{worst}");
    }

    #[test]
    fn the_first_step_of_adam_has_the_size_of_the_rate() {
        let mut values = vec![5.0, -0.25];
        let step = AdamStep::new(1, 0.1, 0.9, 0.999, 1e-8);
        adam(&[1.0, 1.0], &mut values, &mut [0.0; 2], &mut [0.0; 2], 1.0, step);
        assert!((values[0] - 0.9).abs() < 1e-6 && (values[1] - 1.1).abs() < 1e-6, "{values:?}");
    }

    #[test]
    fn sum_follows_its_reference_and_ignores_the_weight() {
        let worst = error(0.0, |_, parameters, values| sum(parameters, values), |_, _, w, sum| w + sum);
        assert!(worst < 2e-5, "{worst}");
        let mut values = vec![2.0];
        sum(&[1.0], &mut values);
        assert_eq!(values, [3.0]);
    }

    #[test]
    fn an_update_does_not_depend_on_how_its_parameter_is_cut() {
        let parameters = start();
        let sums: Vec<f32> = (0..ELEMENTS).map(|e| gradient_sum(3, e, 0.2)).collect();
        let run = |range: std::ops::Range<usize>| {
            let mut values = sums[range.clone()].to_vec();
            let (mut first, mut second) = (vec![0.1; range.len()], vec![0.2; range.len()]);
            let step = AdamStep::new(3, 0.01, 0.9, 0.999, 1e-8);
            adam(&parameters[range], &mut values, &mut first, &mut second, 7.0, step);
            [values, first, second]
        };
        let whole = run(0..ELEMENTS);
        for cut in 1..ELEMENTS {
            let (left, right) = (run(0..cut), run(cut..ELEMENTS));
            for slot in 0..3 {
                let joined: Vec<u32> = left[slot].iter().chain(&right[slot]).map(|x| x.to_bits()).collect();
                assert_eq!(
                    joined,
                    whole[slot].iter().map(|x| x.to_bits()).collect::<Vec<_>>(),
                    "cut at {cut}"
                );
            }
        }
    }
}
