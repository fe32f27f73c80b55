//! Initial values: a function of (seed, parameter name, element), so that nobody has to be elected to make them.

use super::permutation::{key, mix};
use serde::{Deserialize, Serialize};

/// The values of a parameter before the first step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Initial {
    /// All zero.
    Zeros,
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
}

impl Initial {
    /// Writes elements `first .. first + values.len()` of the parameter `name` into `values`.
    pub fn fill(&self, seed: u64, name: &str, first: u64, values: &mut [f32]) {
        let name_key = name.bytes().fold(key(&[seed]), |state, byte| mix(state ^ u64::from(byte)));
        let draw = |element: u64, which: u64| unit(key(&[name_key, element, which]));
        for (at, value) in values.iter_mut().enumerate() {
            let element = first + at as u64;
            *value = match *self {
                Initial::Zeros => 0.0,
                Initial::Uniform { limit } => ((2.0 * draw(element, 0) - 1.0) * f64::from(limit)) as f32,
                Initial::Normal { deviation } => {
                    let radius = libm::sqrt(-2.0 * libm::log(1.0 - draw(element, 0)));
                    let angle = 2.0 * std::f64::consts::PI * draw(element, 1);
                    (radius * libm::cos(angle) * f64::from(deviation)) as f32
                }
            };
            // -0.0 would make x + 0.0 change bits later.
            *value += 0.0;
        }
    }

    pub(super) fn fault(&self) -> Option<&'static str> {
        match *self {
            Initial::Uniform { limit: scale } | Initial::Normal { deviation: scale }
                if !(scale.is_finite() && scale >= 0.0) =>
            {
                Some("the initial values' scale must be finite and not negative")
            }
            _ => None,
        }
    }
}

/// A number in `0..1` with 53 random bits.
fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(initial: Initial) -> Vec<f32> {
        let mut values = vec![0.0; 20_000];
        initial.fill(3, "w", 0, &mut values);
        values
    }
    fn mean(values: impl Iterator<Item = f64>) -> f64 {
        values.sum::<f64>() / 20_000.0
    }

    #[test]
    fn values_do_not_depend_on_how_the_parameter_is_cut() {
        let whole = drawn(Initial::Normal { deviation: 0.5 });
        let mut piece = vec![0.0; 300];
        Initial::Normal { deviation: 0.5 }.fill(3, "w", 1234, &mut piece);
        assert_eq!(piece, whole[1234..1534]);
    }

    #[test]
    fn distributions_have_their_moments() {
        // Five standard errors of 20,000 draws.
        let normal = drawn(Initial::Normal { deviation: 2.0 });
        assert!(mean(normal.iter().map(|x| f64::from(*x))).abs() < 0.071);
        assert!((mean(normal.iter().map(|x| f64::from(*x) * f64::from(*x))) - 4.0).abs() < 0.2);
        let uniform = drawn(Initial::Uniform { limit: 3.0 });
        assert!(mean(uniform.iter().map(|x| f64::from(*x))).abs() < 0.062);
        assert!((mean(uniform.iter().map(|x| f64::from(*x).abs())) - 1.5).abs() < 0.031);
        assert!(uniform.iter().all(|x| x.abs() <= 3.0));
    }

    #[test]
    fn another_name_or_seed_gives_other_values() {
        let (mut a, mut b, mut c) = ([0.0], [0.0], [0.0]);
        Initial::Uniform { limit: 1.0 }.fill(1, "w", 0, &mut a);
        Initial::Uniform { limit: 1.0 }.fill(1, "v", 0, &mut b);
        Initial::Uniform { limit: 1.0 }.fill(2, "w", 0, &mut c);
        assert!(a != b && a != c && b != c);
    }
}
