//! Plain descent and its two momenta. Slots: none, or the velocity.

use super::Pass;

/// `w - rate * g`.
pub(super) fn sgd(pass: Pass, parameters: &[f32], values: &mut [f32]) {
    let rate = pass.scaled_rate();
    for (parameter, value) in parameters.iter().zip(values) {
        let gradient = pass.gradient(*value);
        *value = *parameter - rate * gradient;
    }
}

/// Heavy ball (Polyak 1964, in the form of Sutskever et al. 2013): `v = momentum * v + g; w - rate * v`.
pub(super) fn momentum(
    pass: Pass,
    momentum: f32,
    parameters: &[f32],
    values: &mut [f32],
    velocity: &mut [f32],
) {
    let rate = pass.scaled_rate();
    for ((parameter, value), velocity) in parameters.iter().zip(values).zip(velocity) {
        let gradient = pass.gradient(*value);
        *velocity = momentum * *velocity + gradient;
        *value = *parameter - rate * *velocity;
    }
}

/// Nesterov's momentum (Sutskever et al. 2013), at the point where gradients are taken: `v = momentum * v + g;`
/// `w - rate * (g + momentum * v)`.
pub(super) fn nesterov(
    pass: Pass,
    momentum: f32,
    parameters: &[f32],
    values: &mut [f32],
    velocity: &mut [f32],
) {
    let rate = pass.scaled_rate();
    for ((parameter, value), velocity) in parameters.iter().zip(values).zip(velocity) {
        let gradient = pass.gradient(*value);
        *velocity = momentum * *velocity + gradient;
        *value = *parameter - rate * (gradient + momentum * *velocity);
    }
}

#[cfg(test)]
mod tests {
    use super::super::reference::{Trial, error};
    use shoal_runtime::cluster::Rule;

    #[test]
    fn sgd_follows_its_reference() {
        let trial = Trial::new(Rule::Sgd, 0.05);
        let worst = error(trial, |_| trial.rate(), |rate, now| now.w - *rate * now.g);
        assert!(worst < 2e-5, "{worst}");
    }

    #[test]
    fn momentum_follows_its_reference() {
        let trial = Trial::new(Rule::Momentum { momentum: 0.9 }, 0.01);
        let worst = error(
            trial,
            |_| 0.0,
            |velocity, now| {
                *velocity = f64::from(0.9f32) * *velocity + now.g;
                now.w - trial.rate() * *velocity
            },
        );
        assert!(worst < 2e-5, "{worst}");
    }

    #[test]
    fn nesterov_follows_the_iterates_of_its_paper() {
        // The paper's theta and v (equations 3 and 4); ours is the point theta + mu * v, where it takes its gradient.
        struct Iterate {
            theta: f64,
            velocity: f64,
        }
        let (trial, mu) = (Trial::new(Rule::Nesterov { momentum: 0.9 }, 0.01), f64::from(0.9f32));
        let worst = error(
            trial,
            |start| Iterate { theta: start, velocity: 0.0 },
            |iterate, now| {
                iterate.velocity = mu * iterate.velocity - trial.rate() * now.g;
                iterate.theta += iterate.velocity;
                iterate.theta + mu * iterate.velocity
            },
        );
        assert!(worst < 2e-5, "{worst}");
    }
}
