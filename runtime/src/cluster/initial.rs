//! Initial values: a function of (seed, parameter name, element), so that nobody has to be elected to make them.

use super::permutation::{key, mix};
use serde::{Deserialize, Serialize};

/// The values of a parameter before the first step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Initial {
    /// All zero.
    Zeros,
    /// All the same.
    Constant {
        /// Finite.
        value: f32,
    },
    /// Uniform in `-limit..limit`.
    Uniform {
        /// Half the width; finite, not negative.
        limit: f32,
    },
    /// Normal with mean 0 (Box and Muller 1958, with a pinned libm).
    Normal {
        /// Standard deviation; finite, not negative.
        deviation: f32,
    },
    /// The same normal, drawn again where it lies more than two deviations from 0 (rejection, von Neumann 1951). The
    /// standard deviation of what is left is `0.8796 * deviation`.
    TruncatedNormal {
        /// Standard deviation before the truncation; finite, not negative.
        deviation: f32,
    },
}

/// How many inputs an output of a layer sums up, and how many outputs an input goes to. What scales initial values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fans {
    /// Inputs of one output, kernel included.
    pub fan_in: u64,
    /// Outputs of one input, kernel included.
    pub fan_out: u64,
}

impl Fans {
    /// Of weights whose shape is `[outputs, inputs, kernel...]`, as PyTorch and candle have it. A vector counts as both
    /// its inputs and its outputs.
    pub fn outputs_first(shape: &[u64]) -> Fans {
        match shape {
            [outputs, inputs, kernel @ ..] => Fans::of(*inputs, *outputs, kernel),
            vector => Fans::of(product(vector), product(vector), &[]),
        }
    }
    /// Of weights whose shape is `[kernel..., inputs, outputs]`, as TensorFlow, Keras and JAX have it. A vector counts as
    /// both its inputs and its outputs.
    pub fn outputs_last(shape: &[u64]) -> Fans {
        match shape {
            [kernel @ .., inputs, outputs] => Fans::of(*inputs, *outputs, kernel),
            vector => Fans::of(product(vector), product(vector), &[]),
        }
    }

    fn of(inputs: u64, outputs: u64, kernel: &[u64]) -> Fans {
        let field = product(kernel);
        Fans { fan_in: inputs.saturating_mul(field), fan_out: outputs.saturating_mul(field) }
    }
}

fn product(dimensions: &[u64]) -> u64 {
    dimensions.iter().fold(1, |product, dimension| product.saturating_mul(*dimension))
}

/// `sqrt(numerator / fans)`; a fan of 0 counts as 1, and its shape is refused elsewhere.
fn scale(numerator: f64, fans: u64) -> f32 {
    libm::sqrt(numerator / fans.max(1) as f64) as f32
}

/// Rejections in a row after which a truncated value is 0: less likely than 1e-80.
const DRAWS_MAX: u64 = 64;

impl Initial {
    /// For layers before a ReLU (He et al. 2015): uniform with deviation `sqrt(2 / fan_in)`, limit `sqrt(6 / fan_in)`.
    pub fn kaiming_uniform(fans: Fans) -> Initial {
        Initial::Uniform { limit: scale(6.0, fans.fan_in) }
    }
    /// For layers before a ReLU (He et al. 2015): normal with deviation `sqrt(2 / fan_in)`.
    pub fn kaiming_normal(fans: Fans) -> Initial {
        Initial::Normal { deviation: scale(2.0, fans.fan_in) }
    }
    /// For layers before a sigmoid or tanh (Glorot and Bengio 2010, their equation 16): uniform with limit
    /// `sqrt(6 / (fan_in + fan_out))`.
    pub fn xavier_uniform(fans: Fans) -> Initial {
        Initial::Uniform { limit: scale(6.0, fans.fan_in.saturating_add(fans.fan_out)) }
    }
    /// For layers before a sigmoid or tanh (Glorot and Bengio 2010, their equation 12): normal with deviation
    /// `sqrt(2 / (fan_in + fan_out))`.
    pub fn xavier_normal(fans: Fans) -> Initial {
        Initial::Normal { deviation: scale(2.0, fans.fan_in.saturating_add(fans.fan_out)) }
    }

    /// Writes elements `first .. first + values.len()` of the parameter `name` into `values`.
    pub fn fill(&self, seed: u64, name: &str, first: u64, values: &mut [f32]) {
        self.draw(name_key(seed, name), first, values);
    }

    /// The values of rows of the table `name`: a function of (seed, name, key).
    pub fn of_rows(self, seed: u64, name: &str) -> RowInitial {
        RowInitial { initial: self, name_key: name_key(seed, name) }
    }

    fn draw(&self, stream: u64, first: u64, values: &mut [f32]) {
        for (at, value) in values.iter_mut().enumerate() {
            let element = first + at as u64;
            let draw = |which: u64| unit(key(&[stream, element, which]));
            *value = match *self {
                Initial::Zeros => 0.0,
                Initial::Constant { value } => value,
                Initial::Uniform { limit } => ((2.0 * draw(0) - 1.0) * f64::from(limit)) as f32,
                Initial::Normal { deviation } => (normal(draw(0), draw(1)) * f64::from(deviation)) as f32,
                Initial::TruncatedNormal { deviation } => {
                    let mut drawn =
                        (0..DRAWS_MAX).map(|attempt| normal(draw(2 * attempt), draw(2 * attempt + 1)));
                    let kept = drawn.find(|value| value.abs() <= 2.0).unwrap_or(0.0);
                    (kept * f64::from(deviation)) as f32
                }
            };
            // -0.0 would make x + 0.0 change bits later.
            *value += 0.0;
        }
    }

    pub(super) fn fault(&self) -> Option<&'static str> {
        match *self {
            Initial::Uniform { limit: scale }
            | Initial::Normal { deviation: scale }
            | Initial::TruncatedNormal { deviation: scale }
                if !(0.0..=SCALE_MAX).contains(&scale) =>
            {
                Some("the initial values' scale must be from 0 to 1e37")
            }
            Initial::Constant { value } if !value.is_finite() => Some("the initial value must be finite"),
            _ => None,
        }
    }
}

/// The values of a table's rows before their keys occur.
#[derive(Clone, Copy, Debug)]
pub struct RowInitial {
    initial: Initial,
    name_key: u64,
}

impl RowInitial {
    /// Writes the row of a key, as long as `values`.
    pub fn fill(&self, row: u64, values: &mut [f32]) {
        match self.initial {
            Initial::Zeros => values.fill(0.0),
            initial => initial.draw(key(&[self.name_key, row]), 0, values),
        }
    }
}

fn name_key(seed: u64, name: &str) -> u64 {
    name.bytes().fold(key(&[seed]), |state, byte| mix(state ^ u64::from(byte)))
}

/// No normal value of 53 random bits is nine deviations away: none of this scale is infinite.
const SCALE_MAX: f32 = 1e37;

/// A number in `0..1` with 53 random bits.
fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// A standard normal value of two uniform ones in `0..1`.
fn normal(first: f64, second: f64) -> f64 {
    let radius = libm::sqrt(-2.0 * libm::log(1.0 - first));
    radius * libm::cos(2.0 * std::f64::consts::PI * second)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWN: usize = 20_000;

    fn drawn(initial: Initial) -> Vec<f32> {
        let mut values = vec![0.0; DRAWN];
        initial.fill(3, "w", 0, &mut values);
        values
    }
    fn mean(values: impl Iterator<Item = f64>) -> f64 {
        values.sum::<f64>() / DRAWN as f64
    }
    /// Checks mean and standard deviation against five standard errors of 20,000 draws.
    fn has_moments(initial: Initial, center: f64, deviation: f64) -> Vec<f32> {
        let values = drawn(initial);
        let found = mean(values.iter().map(|x| f64::from(*x)));
        assert!(
            (found - center).abs() < 5.0 * deviation / (DRAWN as f64).sqrt(),
            "{initial:?}: mean {found}"
        );
        let square = |x: f64| x * x;
        let found = mean(values.iter().map(|x| square(f64::from(*x) - center))).sqrt();
        // Of no distribution here is the standard error of the deviation above that of a normal's.
        let error = deviation / (2.0 * DRAWN as f64).sqrt();
        assert!((found - deviation).abs() < 5.0 * error, "{initial:?}: deviation {found}, not {deviation}");
        values
    }
    #[test]
    fn values_do_not_depend_on_how_the_parameter_is_cut() {
        let initials = [
            Initial::Zeros,
            Initial::Constant { value: 0.5 },
            Initial::Uniform { limit: 0.5 },
            Initial::Normal { deviation: 0.5 },
            Initial::TruncatedNormal { deviation: 0.5 },
        ];
        for initial in initials {
            let whole = drawn(initial);
            for (first, length) in [(0, 1), (1, 300), (1234, 300), (19_000, 1000)] {
                let mut piece = vec![0.0; length];
                initial.fill(3, "w", first as u64, &mut piece);
                assert_eq!(piece, whole[first..first + length], "{initial:?} from {first}");
            }
        }
    }

    #[test]
    fn zeros_and_constants_are_what_they_say() {
        assert!(drawn(Initial::Zeros).iter().all(|x| x.to_bits() == 0));
        assert!(drawn(Initial::Constant { value: -0.3 }).iter().all(|x| *x == -0.3));
        assert_eq!(drawn(Initial::Constant { value: -0.0 })[0].to_bits(), 0);
    }

    #[test]
    fn a_uniform_distribution_has_its_moments_and_bounds() {
        let values = has_moments(Initial::Uniform { limit: 3.0 }, 0.0, 3.0 / 3.0f64.sqrt());
        assert!(values.iter().all(|x| x.abs() <= 3.0));
        assert!((mean(values.iter().map(|x| f64::from(x.abs()))) - 1.5).abs() < 0.031);
        assert!(values.iter().any(|x| *x > 2.99) && values.iter().any(|x| *x < -2.99));
    }

    #[test]
    fn a_normal_distribution_has_its_moments_and_tails() {
        let values = has_moments(Initial::Normal { deviation: 2.0 }, 0.0, 2.0);
        // 4.55 % of it lie beyond two deviations; five standard errors.
        let beyond = mean(values.iter().map(|x| f64::from(u8::from(x.abs() > 4.0))));
        assert!((beyond - 0.0455).abs() < 0.0074, "{beyond}");
    }

    #[test]
    fn a_truncated_normal_distribution_has_its_moments_and_bounds() {
        // sqrt(1 - 4 * pdf(2) / (cdf(2) - cdf(-2))) = 0.879626.
        let values = has_moments(Initial::TruncatedNormal { deviation: 0.5 }, 0.0, 0.5 * 0.879_626);
        assert!(values.iter().all(|x| x.abs() <= 1.0));
        assert!(values.iter().any(|x| *x > 0.99) && values.iter().any(|x| *x < -0.99));
        // 68.27 of 95.45 % lie within one deviation.
        let within = mean(values.iter().map(|x| f64::from(u8::from(x.abs() < 0.5))));
        assert!((within - 0.7152).abs() < 0.016, "{within}");
    }

    #[test]
    fn kaiming_and_xavier_have_the_deviations_of_their_papers() {
        let fans = Fans { fan_in: 50, fan_out: 30 };
        has_moments(Initial::kaiming_uniform(fans), 0.0, 0.2);
        has_moments(Initial::kaiming_normal(fans), 0.0, 0.2);
        has_moments(Initial::xavier_uniform(fans), 0.0, 0.025f64.sqrt());
        has_moments(Initial::xavier_normal(fans), 0.0, 0.025f64.sqrt());
        assert!(matches!(Initial::kaiming_uniform(fans), Initial::Uniform { .. }));
        assert!(matches!(Initial::xavier_normal(fans), Initial::Normal { .. }));
    }

    #[test]
    fn fans_follow_the_shape_by_either_convention() {
        let fans = |fan_in, fan_out| Fans { fan_in, fan_out };
        assert_eq!(Fans::outputs_first(&[30, 50]), fans(50, 30));
        assert_eq!(Fans::outputs_last(&[50, 30]), fans(50, 30));
        assert_eq!(Fans::outputs_first(&[64, 3, 5, 7]), fans(3 * 35, 64 * 35));
        assert_eq!(Fans::outputs_last(&[5, 7, 3, 64]), fans(3 * 35, 64 * 35));
        for of in [Fans::outputs_first, Fans::outputs_last] {
            assert_eq!((of(&[7]), of(&[])), (fans(7, 7), fans(1, 1)));
        }
    }

    #[test]
    fn another_name_or_seed_gives_other_values() {
        let (mut a, mut b, mut c) = ([0.0], [0.0], [0.0]);
        Initial::Uniform { limit: 1.0 }.fill(1, "w", 0, &mut a);
        Initial::Uniform { limit: 1.0 }.fill(1, "v", 0, &mut b);
        Initial::Uniform { limit: 1.0 }.fill(2, "w", 0, &mut c);
        assert!(a != b && a != c && b != c);
    }

    #[test]
    fn rows_of_a_table_have_their_distribution_whatever_their_keys() {
        let rows = Initial::Normal { deviation: 2.0 }.of_rows(3, "t");
        let values: Vec<f32> = (0..DRAWN as u64 / 4)
            .flat_map(|row| {
                let mut values = [0.0; 4];
                rows.fill(row << (row % 50), &mut values);
                values
            })
            .collect();
        let square = mean(values.iter().map(|x| f64::from(*x) * f64::from(*x)));
        assert!((square.sqrt() - 2.0).abs() < 5.0 * 2.0 / (2.0 * DRAWN as f64).sqrt(), "{square}");
        let row = |seed: u64, name: &str, key: u64| {
            let mut values = [0.0; 2];
            Initial::Uniform { limit: 1.0 }.of_rows(seed, name).fill(key, &mut values);
            values
        };
        let all = [row(1, "t", 5), row(2, "t", 5), row(1, "u", 5), row(1, "t", 6)];
        assert!(all.iter().enumerate().all(|(at, ours)| !all[at + 1..].contains(ours)));
        assert_eq!(row(1, "t", 5), row(1, "t", 5));
    }

    #[test]
    fn scales_that_make_no_sense_are_refused() {
        let faults = [
            Initial::Uniform { limit: -1.0 },
            Initial::Normal { deviation: f32::NAN },
            Initial::TruncatedNormal { deviation: f32::INFINITY },
            Initial::Constant { value: f32::NAN },
        ];
        assert!(faults.iter().all(|initial| initial.fault().is_some()));
        assert_eq!(Initial::Constant { value: -1.0 }.fault(), None);
    }
}
