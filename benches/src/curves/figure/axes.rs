//! From values to pixels, and the round numbers worth a tick. It must never divide by an empty range. Pure.

/// A straight mapping of a range of values to a range of pixels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) from: f64,
    pub(super) to: f64,
}

impl Axis {
    /// Where a value lies; values beyond the range are drawn at its ends.
    pub(super) fn at(&self, value: f64) -> f64 {
        let span = self.high - self.low;
        let share = if span > 0.0 { ((value - self.low) / span).clamp(0.0, 1.0) } else { 0.0 };
        self.from + share * (self.to - self.from)
    }

    /// Multiples of 1, 2 or 5 times a power of ten inside the range, at most so many.
    pub(super) fn ticks(&self, most: u32) -> Vec<f64> {
        let span = self.high - self.low;
        if !(span > 0.0 && span.is_finite()) {
            return vec![self.low];
        }
        let step = round_step(span / f64::from(most.max(1)));
        let first = libm::ceil(self.low / step - 1e-9);
        let ticks = (0..=most).map(|index| (first + f64::from(index)) * step);
        ticks.take_while(|tick| *tick <= self.high + step * 1e-6).collect()
    }
}

/// The smallest of 1, 2 and 5 times a power of ten that is not below `rough`.
fn round_step(rough: f64) -> f64 {
    let power = libm::pow(10.0, libm::floor(libm::log10(rough)));
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= rough).unwrap_or(10.0);
    factor * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_inside_and_few() {
        let axis = |low, high| Axis { low, high, from: 0.0, to: 100.0 };
        assert_eq!(axis(0.0, 10.0).ticks(5), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        let ticks = axis(97.13, 99.06).ticks(5);
        assert_eq!(
            ticks.iter().map(|tick| format!("{tick:.1}")).collect::<Vec<_>>(),
            ["97.5", "98.0", "98.5", "99.0"]
        );
        assert_eq!(axis(1.0, 1.0).ticks(5), [1.0]);
    }

    #[test]
    fn values_lie_between_the_ends_and_upside_down_where_the_ends_are() {
        let axis = Axis { low: 90.0, high: 100.0, from: 200.0, to: 0.0 };
        assert_eq!([90.0, 95.0, 100.0, 80.0].map(|value| axis.at(value)), [200.0, 100.0, 0.0, 200.0]);
    }
}
