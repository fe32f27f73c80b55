//! FTRL-Proximal (McMahan et al. 2013, algorithm 1). Slots: the linear term z and the summed squares n.
//!
//! The value is a function of z, n and the learning rate: the rate must be the same at every update, and only gradients
//! may be scaled.

use super::Pass;

/// The constants of the rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Penalties {
    pub(super) l1: f32,
    pub(super) l2: f32,
    pub(super) beta: f32,
}

/// `z = z + (g - sigma * w)` with `sigma = (sqrt(n + g^2) - sqrt(n)) / rate`, then the value that z and n give.
#[inline(always)]
pub(super) fn ftrl(
    pass: Pass,
    penalties: Penalties,
    parameters: &[f32],
    values: &mut [f32],
    linear: &mut [f32],
    squares: &mut [f32],
) {
    let Penalties { l1, l2, beta } = penalties;
    let slots = linear.iter_mut().zip(squares);
    for ((parameter, value), (linear, squares)) in parameters.iter().zip(values).zip(slots) {
        let gradient = pass.scale * pass.gradient(*value, *parameter);
        if *linear == 0.0 && *squares == 0.0 && *parameter != 0.0 {
            // Untouched so far, and not at the algorithm's start: the z that gives the present value.
            *linear = -(*parameter * (beta / pass.rate + l2) + l1.copysign(*parameter));
        }
        let before = squares.sqrt();
        *squares += gradient * gradient;
        let after = squares.sqrt();
        let sigma = (after - before) / pass.rate;
        *linear += gradient - sigma * *parameter;
        *value = if linear.abs() <= l1 {
            0.0
        } else {
            -(*linear - l1.copysign(*linear)) / ((beta + after) / pass.rate + l2)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::super::reference::{Now, Trial, error};
    use super::super::{Pass, run};
    use shoal_runtime::cluster::Rule;

    const L1: f32 = 0.05;
    const L2: f32 = 0.3;
    const BETA: f32 = 1.0;
    const RULE: Rule = Rule::Ftrl { l1: L1, l2: L2, beta: BETA };

    #[derive(Default)]
    struct Exact {
        z: f64,
        n: f64,
    }

    /// The paper's loop body: sigma, z, n of this gradient, then the w that the next round begins with.
    fn step(exact: &mut Exact, w: f64, g: f64, alpha: f64) -> f64 {
        let (l1, l2, beta) = (f64::from(L1), f64::from(L2), f64::from(BETA));
        let sigma = (libm::sqrt(exact.n + g * g) - libm::sqrt(exact.n)) / alpha;
        exact.z += g - sigma * w;
        exact.n += g * g;
        if exact.z.abs() <= l1 {
            return 0.0;
        }
        let sign = if exact.z < 0.0 { -1.0 } else { 1.0 };
        -(exact.z - sign * l1) / ((beta + libm::sqrt(exact.n)) / alpha + l2)
    }

    fn ftrl_error(trial: Trial) -> f64 {
        let trial = Trial { start: 0.0, ..trial };
        let reference =
            |exact: &mut Exact, now: Now| step(exact, now.w, now.g + trial.lambda() * now.w, trial.rate());
        error(trial, |_| Exact::default(), reference)
    }

    #[test]
    fn ftrl_follows_its_reference() {
        let worst = ftrl_error(Trial::new(RULE, 0.05));
        assert!(worst < 2e-5, "{worst}");
    }

    #[test]
    fn ftrl_with_weight_decay_follows_its_reference() {
        let worst = ftrl_error(Trial::new(RULE, 0.05).decaying(0.04));
        assert!(worst < 2e-5, "{worst}");
    }

    #[test]
    fn a_stale_gradient_is_scaled_for_ftrl_and_its_rate_is_not() {
        let made = [(0.5, 8.0), (1.0, 4.0)].map(|(scale, sum)| {
            let (mut values, mut linear, mut squares) = ([sum], [0.3], [0.5]);
            let pass = Pass { weight: 1.0, rate: 0.1, scale, weight_decay: 0.0, update: 2 };
            run(RULE, pass, &[0.2], &mut values, &mut [&mut linear, &mut squares]);
            (values, linear, squares)
        });
        assert_eq!(made[0], made[1]);
    }

    #[test]
    fn ftrl_keeps_at_zero_what_its_l1_penalty_outweighs() {
        let (mut values, mut linear, mut squares) = ([0.04, 0.06], [0.0; 2], [0.0; 2]);
        let pass = Pass { weight: 1.0, rate: 0.1, scale: 1.0, weight_decay: 0.0, update: 1 };
        run(RULE, pass, &[0.0; 2], &mut values, &mut [&mut linear, &mut squares]);
        assert_eq!((values[0], linear[0]), (0.0, 0.04));
        assert!(values[1] < 0.0, "{values:?}");
    }

    #[test]
    fn ftrl_keeps_an_initial_value_until_a_gradient_comes() {
        let (start, mut slots) = ([0.7, -0.2], [[0.0; 2]; 2]);
        let mut values = start;
        for update in 1..=50 {
            let (before, pass) =
                (values, Pass { weight: 1.0, rate: 0.1, scale: 1.0, weight_decay: 0.0, update });
            values = [0.0; 2];
            let [linear, squares] = &mut slots;
            run(RULE, pass, &before, &mut values, &mut [linear, squares]);
        }
        assert!(values.iter().zip(start).all(|(now, then)| (now - then).abs() < 1e-6), "{values:?}");
    }
}
