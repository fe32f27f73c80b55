//! AdaGrad (Duchi, Hazan and Singer 2011). Slot: the summed squares, which must only grow.

use super::Pass;
use crate::kernel::norm::SquareSum;

/// The diagonal form: `s = s + g^2; w - rate * g / (sqrt(s) + epsilon)`.
#[inline(always)]
pub(super) fn adagrad(pass: Pass, epsilon: f32, parameters: &[f32], values: &mut [f32], squares: &mut [f32]) {
    let rate = pass.scaled_rate();
    for ((parameter, value), squares) in parameters.iter().zip(values).zip(squares) {
        let gradient = pass.gradient(*value, *parameter);
        *squares += gradient * gradient;
        *value = *parameter - (rate * gradient) / (squares.sqrt() + epsilon);
    }
}

/// The form for rows of tables: `s = s + mean(g^2)`, one `s` for the row. Squares are summed in f64 and rounded once.
#[inline(always)]
pub(super) fn rowwise(
    pass: Pass,
    epsilon: f32,
    parameters: &[f32],
    values: &mut [f32],
    summed_squares: &mut f32,
) {
    for (value, parameter) in values.iter_mut().zip(parameters) {
        *value = pass.gradient(*value, *parameter);
    }
    let mut squares = SquareSum::new();
    squares.add(values);
    *summed_squares += (squares.total() / values.len() as f64) as f32;
    let (rate, deviation) = (pass.scaled_rate(), summed_squares.sqrt() + epsilon);
    for (value, parameter) in values.iter_mut().zip(parameters) {
        *value = *parameter - (rate * *value) / deviation;
    }
}

#[cfg(test)]
mod tests {
    use super::super::reference::{Now, Trial, error};
    use shoal_runtime::cluster::Rule;

    // An epsilon large enough to be seen.
    const RULE: Rule = Rule::Adagrad { epsilon: 0.1 };

    fn adagrad_error(trial: Trial) -> f64 {
        let reference = |squares: &mut f64, now: Now| {
            let g = now.g + trial.lambda() * now.w;
            *squares += g * g;
            now.w - trial.rate() * g / (libm::sqrt(*squares) + f64::from(0.1f32))
        };
        error(trial, |_| 0.0, reference)
    }

    #[test]
    fn adagrad_follows_its_reference() {
        let worst = adagrad_error(Trial::new(RULE, 0.05));
        assert!(worst < 2e-5, "{worst}");
    }

    #[test]
    fn adagrad_with_weight_decay_follows_its_reference() {
        let worst = adagrad_error(Trial::new(RULE, 0.05).decaying(0.04));
        assert!(worst < 2e-5, "{worst}");
    }
}
