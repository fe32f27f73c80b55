//! Plain descent and its two momenta. Slots: none, or the velocity.

use super::Pass;

/// `w - rate * g`.
#[inline(always)]
pub(super) fn sgd(pass: Pass, parameters: &[f32], values: &mut [f32]) {
    let rate = pass.scaled_rate();
    for (parameter, value) in parameters.iter().zip(values) {
        let gradient = pass.gradient(*value, *parameter);
        *value = *parameter - rate * gradient;
    }
}

/// Heavy ball (Polyak 1964, in the form of Sutskever et al. 2013): `v = momentum * v + g; w - rate * v`.
#[inline(always)]
pub(super) fn momentum(
    pass: Pass,
    momentum: f32,
    parameters: &[f32],
    values: &mut [f32],
    velocity: &mut [f32],
) {
    let rate = pass.scaled_rate();
    for ((parameter, value), velocity) in parameters.iter().zip(values).zip(velocity) {
        let gradient = pass.gradient(*value, *parameter);
        *velocity = momentum * *velocity + gradient;
        *value = *parameter - rate * *velocity;
    }
}

/// Nesterov's momentum (Sutskever et al. 2013), at the point where gradients are taken: `v = momentum * v + g;`
/// `w - rate * (g + momentum * v)`.
#[inline(always)]
pub(super) fn nesterov(
    pass: Pass,
    momentum: f32,
    parameters: &[f32],
    values: &mut [f32],
    velocity: &mut [f32],
) {
    let rate = pass.scaled_rate();
    for ((parameter, value), velocity) in parameters.iter().zip(values).zip(velocity) {
        let gradient = pass.gradient(*value, *parameter);
        *velocity = momentum * *velocity + gradient;
        *value = *parameter - rate * (gradient + momentum * *velocity);
    }
}

#[cfg(test)]
mod tests {
    use super::super::reference::{Now, Trial, error};
    use shoal_runtime::cluster::Rule;

    const DECAY: f32 = 0.04;

    /// The gradient of the loss with the L2 penalty.
    fn penalised(trial: Trial, now: Now) -> f64 {
        now.g + trial.lambda() * now.w
    }

    fn sgd_error(trial: Trial) -> f64 {
        error(trial, |_| (), |(), now| now.w - trial.rate() * penalised(trial, now))
    }

    fn momentum_error(trial: Trial) -> f64 {
        let reference = |velocity: &mut f64, now: Now| {
            *velocity = f64::from(0.9f32) * *velocity + penalised(trial, now);
            now.w - trial.rate() * *velocity
        };
        error(trial, |_| 0.0, reference)
    }

    /// The paper's theta and v (equations 3 and 4); ours is the point theta + mu * v, where it takes its gradient.
    struct Iterate {
        theta: f64,
        velocity: f64,
    }

    fn nesterov_error(trial: Trial) -> f64 {
        let mu = f64::from(0.9f32);
        let reference = |iterate: &mut Iterate, now: Now| {
            iterate.velocity = mu * iterate.velocity - trial.rate() * penalised(trial, now);
            iterate.theta += iterate.velocity;
            iterate.theta + mu * iterate.velocity
        };
        error(trial, |start| Iterate { theta: start, velocity: 0.0 }, reference)
    }

    #[test]
    fn sgd_follows_its_reference() {
        let worst = sgd_error(Trial::new(Rule::Sgd, 0.05));
        assert!(worst < 2e-5, "{worst}");
    }

    #[test]
    fn sgd_with_weight_decay_follows_its_reference() {
        let worst = sgd_error(Trial::new(Rule::Sgd, 0.05).decaying(DECAY));
        assert!(worst < 2e-5, "{worst}");
    }

    #[test]
    fn momentum_follows_its_reference() {
        let worst = momentum_error(Trial::new(Rule::Momentum { momentum: 0.9 }, 0.01));
        assert!(worst < 2e-5, "{worst}");
    }

    #[test]
    fn momentum_with_weight_decay_follows_its_reference() {
        let worst = momentum_error(Trial::new(Rule::Momentum { momentum: 0.9 }, 0.01).decaying(DECAY));
        assert!(worst < 2e-5, "{worst}");
    }

    #[test]
    fn nesterov_follows_the_iterates_of_its_paper() {
        let worst = nesterov_error(Trial::new(Rule::Nesterov { momentum: 0.9 }, 0.01));
        assert!(worst < 2e-5, "{worst}");
    }

    #[test]
    fn nesterov_with_weight_decay_follows_the_iterates_of_its_paper() {
        let worst = nesterov_error(Trial::new(Rule::Nesterov { momentum: 0.9 }, 0.01).decaying(DECAY));
        assert!(worst < 2e-5, "{worst}");
    }
}
