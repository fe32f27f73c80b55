//! Batch norm over the images of a microbatch: each channel normalised by its own mean and variance, then scaled and
//! shifted. Pure mathematics in a fixed order on one thread.

/// Added to a variance before its root is taken.
const EPSILON: f32 = 1e-5;
/// Partial sums side by side, so that the compiler may take wide registers.
const SIDE_BY_SIDE: usize = 8;

/// The channels of an image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Channels {
    /// How many.
    pub(crate) count: usize,
    /// Values of each.
    pub(crate) plane: usize,
}

/// Mean and variance of each channel, over all images and pixels.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Statistics {
    pub(crate) mean: Vec<f32>,
    pub(crate) variance: Vec<f32>,
}

impl Channels {
    /// The statistics of these values, image after image.
    pub(crate) fn statistics(self, values: &[f32]) -> Statistics {
        let count = self.values(values);
        let mean = |channel: usize| {
            let planes = self.planes(values, channel);
            (planes.map(|plane| f64::from(sum(plane))).sum::<f64>() / count) as f32
        };
        let mean: Vec<f32> = (0..self.count).map(mean).collect();
        let variance = |channel: usize| {
            let squares = self.planes(values, channel).map(|plane| {
                f64::from(sum_of(plane, plane, |x, _| (x - mean[channel]) * (x - mean[channel])))
            });
            (squares.sum::<f64>() / count) as f32
        };
        let variance = (0..self.count).map(variance).collect();
        Statistics { mean, variance }
    }

    /// Normalises values by these statistics.
    pub(crate) fn normalise(self, statistics: (&[f32], &[f32]), values: &mut [f32]) {
        for (index, plane) in values.chunks_exact_mut(self.plane).enumerate() {
            let channel = index % self.count;
            let (mean, inverse) = (statistics.0[channel], inverse(statistics.1[channel]));
            plane.iter_mut().for_each(|x| *x = (*x - mean) * inverse);
        }
    }

    /// What is handed on of normalised values.
    pub(crate) fn scale(self, scale: &[f32], shift: &[f32], normalised: &[f32]) -> Vec<f32> {
        let mut values = normalised.to_vec();
        for (index, plane) in values.chunks_exact_mut(self.plane).enumerate() {
            let (scale, shift) = (scale[index % self.count], shift[index % self.count]);
            plane.iter_mut().for_each(|x| *x = *x * scale + shift);
        }
        values
    }

    /// Turns the gradient by the scaled values into that by the values before, and adds the gradients by scale and shift to
    /// their sums. Mean and variance depend on the values too.
    pub(crate) fn backward(
        self,
        scale: &[f32],
        variance: &[f32],
        normalised: &[f32],
        error: &mut [f32],
        (scale_sum, shift_sum): (&mut [f32], &mut [f32]),
    ) {
        let count = self.values(error);
        for channel in 0..self.count {
            let (mut by_scale, mut by_shift) = (0.0, 0.0);
            for (error, normalised) in self.planes(error, channel).zip(self.planes(normalised, channel)) {
                by_scale += f64::from(sum_of(error, normalised, |e, x| e * x));
                by_shift += f64::from(sum(error));
            }
            scale_sum[channel] += by_scale as f32;
            shift_sum[channel] += by_shift as f32;
            let factor = scale[channel] * inverse(variance[channel]);
            let (with, without) = ((by_scale / count) as f32, (by_shift / count) as f32);
            let errors = error.chunks_exact_mut(self.plane).skip(channel).step_by(self.count);
            for (error, normalised) in errors.zip(self.planes(normalised, channel)) {
                error.iter_mut().zip(normalised).for_each(|(e, x)| *e = factor * (*e - without - x * with));
            }
        }
    }

    /// Values of one channel over all images.
    fn values(self, values: &[f32]) -> f64 {
        (values.len() / self.count).max(1) as f64
    }

    fn planes(self, values: &[f32], channel: usize) -> impl Iterator<Item = &[f32]> {
        values.chunks_exact(self.plane).skip(channel).step_by(self.count)
    }
}

fn inverse(variance: f32) -> f32 {
    1.0 / (variance + EPSILON).sqrt()
}

fn sum(values: &[f32]) -> f32 {
    sum_of(values, values, |value, _| value)
}

/// The sum of the terms of two values at a time, in an order that depends on their number alone.
fn sum_of(left: &[f32], right: &[f32], term: impl Fn(f32, f32) -> f32) -> f32 {
    let ((left, left_rest), (right, right_rest)) =
        (left.as_chunks::<SIDE_BY_SIDE>(), right.as_chunks::<SIDE_BY_SIDE>());
    let mut sums = [0.0; SIDE_BY_SIDE];
    for (left, right) in left.iter().zip(right) {
        for (at, sum) in sums.iter_mut().enumerate() {
            *sum += term(left[at], right[at]);
        }
    }
    let rest = left_rest.iter().zip(right_rest).map(|(left, right)| term(*left, *right)).sum::<f32>();
    sums.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: Channels = Channels { count: 2, plane: 3 };

    #[test]
    fn statistics_are_of_a_channel_over_all_images() {
        let images = [1.0, 2.0, 3.0, 10.0, 10.0, 10.0, 4.0, 5.0, 6.0, 10.0, 10.0, 16.0];
        let statistics = TWO.statistics(&images);
        assert_eq!(statistics.mean, [3.5, 11.0]);
        assert_eq!(statistics.variance, [35.0 / 12.0, 5.0]);
    }

    #[test]
    fn what_is_normalised_has_mean_0_and_variance_1_then_scale_and_shift() {
        let mut values: Vec<f32> = (0..12).map(|at| ((at * 5) % 12) as f32).collect();
        let Statistics { mean, variance } = TWO.statistics(&values);
        TWO.normalise((&mean, &variance), &mut values);
        let scaled = TWO.statistics(&TWO.scale(&[2.0, 3.0], &[0.5, -1.0], &values));
        for (found, expected) in scaled.mean.iter().zip([0.5, -1.0]) {
            assert!((found - expected).abs() < 1e-5, "{scaled:?}");
        }
        for (found, expected) in scaled.variance.iter().zip([4.0, 9.0]) {
            assert!((found - expected).abs() < 1e-3, "{scaled:?}");
        }
    }

    #[test]
    fn a_sum_takes_every_value_once() {
        for count in [0, 1, 7, 8, 9, 30] {
            let values: Vec<f32> = (1..=count).map(|value| value as f32).collect();
            assert_eq!(sum(&values), (count * (count + 1) / 2) as f32);
        }
    }
}
