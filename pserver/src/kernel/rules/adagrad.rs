//! AdaGrad (Duchi, Hazan and Singer 2011). Slot: the summed squares, which must only grow.

use super::Pass;

/// The diagonal form: `s = s + g^2; w - rate * g / (sqrt(s) + epsilon)`.
pub(super) fn adagrad(pass: Pass, epsilon: f32, parameters: &[f32], values: &mut [f32], squares: &mut [f32]) {
    let rate = pass.scaled_rate();
    for ((parameter, value), squares) in parameters.iter().zip(values).zip(squares) {
        let gradient = pass.gradient(*value);
        *squares += gradient * gradient;
        *value = *parameter - (rate * gradient) / (squares.sqrt() + epsilon);
    }
}

#[cfg(test)]
mod tests {
    use super::super::reference::{Trial, error};
    use shoal_runtime::cluster::Rule;

    #[test]
    fn adagrad_follows_its_reference() {
        // An epsilon large enough to be seen.
        let trial = Trial::new(Rule::Adagrad { epsilon: 0.1 }, 0.05);
        let worst = error(
            trial,
            |_| 0.0,
            |squares, now| {
                *squares += now.g * now.g;
                now.w - trial.rate() * now.g / (libm::sqrt(*squares) + f64::from(0.1f32))
            },
        );
        assert!(worst < 2e-5, "{worst}");
    }
}
