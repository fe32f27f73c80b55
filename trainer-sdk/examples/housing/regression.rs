//! Linear regression: price = weight · features + bias, by least squares. Pure mathematics on flat slices.

use super::records::FEATURES;

/// The price that a row's features tell.
pub(crate) fn price(weight: &[f32], bias: f32, features: &[f32; FEATURES]) -> f32 {
    weight.iter().zip(features).fold(bias, |sum, (weight, feature)| sum + weight * feature)
}

/// Adds the gradient of one row's squared error to the sums for weight and bias, and returns the squared error.
pub(crate) fn add(
    (weight, bias): (&[f32], f32),
    (features, target): (&[f32; FEATURES], f32),
    (weight_sum, bias_sum): (&mut [f32], &mut f32),
) -> f32 {
    let error = price(weight, bias, features) - target;
    weight_sum.iter_mut().zip(features).for_each(|(sum, feature)| *sum += 2.0 * error * feature);
    *bias_sum += 2.0 * error;
    error * error
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows that a plane tells but for a regular error, features of unlike sizes that hang together a little.
    fn rows() -> Vec<([f32; FEATURES], f32)> {
        let row = |number: usize| {
            let features = std::array::from_fn(|index| {
                let wave = libm::sinf((number * (index + 2)) as f32) * (1.0 + index as f32 / 10.0);
                wave + 0.3 * libm::cosf(number as f32)
            });
            let plane: f32 = features.iter().enumerate().map(|(index, x)| x * (index as f32 - 6.0)).sum();
            (features, plane + 22.0 + libm::sinf(number as f32 * 7.7))
        };
        (0..150).map(row).collect()
    }

    /// Weights and bias by the normal equations, in f64, by elimination with pivots.
    fn least_squares(rows: &[([f32; FEATURES], f32)]) -> Vec<f64> {
        const UNKNOWNS: usize = FEATURES + 1;
        let mut system = vec![[0.0; UNKNOWNS + 1]; UNKNOWNS];
        for (features, target) in rows {
            let row: Vec<f64> =
                features.iter().map(|x| f64::from(*x)).chain([1.0, f64::from(*target)]).collect();
            for (equation, left) in system.iter_mut().zip(&row) {
                equation.iter_mut().zip(&row).for_each(|(slot, right)| *slot += left * right);
            }
        }
        for column in 0..UNKNOWNS {
            let size = |row: &usize| system[*row][column].abs();
            let pivot = (column..UNKNOWNS).max_by(|a, b| size(a).total_cmp(&size(b))).unwrap();
            system.swap(column, pivot);
            let pivot = system[column].map(|value| value / system[column][column]);
            for (row, equation) in system.iter_mut().enumerate() {
                let factor = if row == column { 0.0 } else { equation[column] };
                equation.iter_mut().zip(&pivot).for_each(|(slot, value)| *slot -= factor * value);
            }
            system[column] = pivot;
        }
        system.iter().map(|equation| equation[UNKNOWNS]).collect()
    }

    #[test]
    fn descent_along_the_sums_arrives_at_the_least_squares_in_closed_form() {
        let rows = rows();
        let (mut weight, mut bias) = (vec![0.0; FEATURES], 0.0);
        let mut loss = 0.0;
        for _ in 0..3000 {
            let (mut weight_sum, mut bias_sum) = (vec![0.0; FEATURES], 0.0);
            let mut row_loss = |(features, target): &([f32; FEATURES], f32)| {
                add((&weight, bias), (features, *target), (&mut weight_sum, &mut bias_sum))
            };
            loss = rows.iter().map(&mut row_loss).sum();
            let rate = 0.1 / rows.len() as f32;
            weight.iter_mut().zip(&weight_sum).for_each(|(weight, sum)| *weight -= rate * sum);
            bias -= rate * bias_sum;
        }
        let exact = least_squares(&rows);
        for (found, exact) in weight.iter().chain([&bias]).zip(&exact) {
            assert!((f64::from(*found) - exact).abs() < 1e-3, "{found} but {exact}");
        }
        // Of a sine's square the mean is a half, and the plane cannot tell it.
        assert!((loss / rows.len() as f32 - 0.5).abs() < 0.1, "{loss}");
    }

    #[test]
    fn the_gradient_agrees_with_finite_differences() {
        let (row, weight, bias) = (rows()[7], [0.5; FEATURES], 2.0);
        let (mut weight_sum, mut bias_sum) = (vec![1.0; FEATURES], 1.0);
        let loss = add((&weight, bias), (&row.0, row.1), (&mut weight_sum, &mut bias_sum));
        let exact = |weight: &[f64], bias: f64| {
            let told = weight.iter().zip(&row.0).fold(bias, |sum, (w, x)| sum + w * f64::from(*x));
            (told - f64::from(row.1)) * (told - f64::from(row.1))
        };
        assert!((f64::from(loss) - exact(&[0.5; FEATURES], 2.0)).abs() < 1e-3);
        for index in 0..=FEATURES {
            let beside = |step: f64| {
                let mut weight = [0.5; FEATURES];
                if index < FEATURES {
                    weight[index] += step;
                }
                exact(&weight, if index == FEATURES { 2.0 + step } else { 2.0 })
            };
            let slope = (beside(1e-6) - beside(-1e-6)) / 2e-6;
            let found = f64::from(if index < FEATURES { weight_sum[index] } else { bias_sum }) - 1.0;
            assert!((slope - found).abs() < 1e-3 + 1e-4 * slope.abs(), "{index}: {slope} but {found}");
        }
    }
}
