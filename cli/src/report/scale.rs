//! Axes: from values to pixels, and the round numbers worth a tick.
//! It must never divide by an empty range, and never make more ticks than fit.

/// A straight or logarithmic mapping of a range of values to a range of pixels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    logarithmic: bool,
}

impl Scale {
    /// `low` is drawn at `from`, `high` at `to`.
    pub(crate) fn linear((low, high): (f64, f64), from: f64, to: f64) -> Self {
        Self { low, high, from, to, logarithmic: false }
    }

    /// The same with equal factors equally far apart; both ends above zero.
    pub(super) fn logarithmic((low, high): (f64, f64), from: f64, to: f64) -> Self {
        Self { low: libm::log10(low), high: libm::log10(high), from, to, logarithmic: true }
    }

    /// Where a value lies; values outside the range are drawn at its ends.
    pub(crate) fn at(&self, value: f64) -> f64 {
        let value = if self.logarithmic { libm::log10(value) } else { value };
        let span = self.high - self.low;
        let share = if span > 0.0 && span.is_finite() { (value - self.low) / span } else { 0.0 };
        let share = if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) };
        self.from + share * (self.to - self.from)
    }
}

/// Multiples of 1, 2 or 5 times a power of ten within a range: about `count` of them, never above twice as many.
pub(crate) fn ticks((low, high): (f64, f64), count: u32) -> Vec<f64> {
    let span = high - low;
    if !(span > 0.0 && span.is_finite()) {
        return vec![low];
    }
    let step = round_step(span / f64::from(count.max(1)));
    let first = libm::ceil(low / step);
    (0..=2 * count)
        .map(|index| (first + f64::from(index)) * step)
        .take_while(|tick| *tick <= high + step * 1e-6)
        .collect()
}

/// Powers of ten within a range above zero, or 1, 2 and 5 times them where those are few.
pub(super) fn logarithmic_ticks((low, high): (f64, f64)) -> Vec<f64> {
    // Bounded at both ends: an infinite range would be walked decade by decade for ever.
    let (low, high) = (low.max(f64::MIN_POSITIVE), high.min(f64::MAX));
    let (first, last) = (libm::floor(libm::log10(low)), libm::ceil(libm::log10(high)));
    let decades = last - first;
    let every = libm::ceil(decades / 8.0).max(1.0);
    let factors: &[f64] = if decades <= 3.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let mut ticks = Vec::new();
    let mut exponent = first;
    while exponent <= last {
        let power = libm::pow(10.0, exponent);
        ticks
            .extend(factors.iter().map(|factor| factor * power).filter(|tick| *tick >= low && *tick <= high));
        exponent += every;
    }
    ticks
}

/// A tick as short as it can be told from its neighbours.
pub(super) fn tick_text(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-4..1e6).contains(&size) {
        return format!("{value:e}");
    }
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The unit in which a duration is best read: its name and its seconds.
pub(super) fn time_unit(seconds: f64) -> (&'static str, f64) {
    match seconds {
        s if s >= 10_800.0 => ("hours", 3_600.0),
        s if s >= 300.0 => ("minutes", 60.0),
        _ => ("seconds", 1.0),
    }
}

fn round_step(rough: f64) -> f64 {
    let power = libm::pow(10.0, libm::floor(libm::log10(rough)));
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= rough).unwrap_or(10.0);
    factor * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(ticks((0.0, 25.0), 6), [0.0, 5.0, 10.0, 15.0, 20.0, 25.0]);
        assert_eq!(ticks((0.0, 0.0), 6), [0.0]);
        assert_eq!(ticks((0.0, f64::INFINITY), 6), [0.0]);
    }

    #[test]
    fn logarithmic_ticks_stay_few_over_many_decades() {
        assert_eq!(
            logarithmic_ticks((0.05, 2.3)).iter().map(|tick| tick_text(*tick)).collect::<Vec<_>>(),
            ["0.05", "0.1", "0.2", "0.5", "1", "2"]
        );
        for range in [(1e-300, 1e300), (0.0, 1.0), (1.0, f64::INFINITY), (0.0, f64::INFINITY)] {
            assert!(logarithmic_ticks(range).len() <= 10, "{range:?}");
        }
    }

    #[test]
    fn a_scale_of_one_value_or_none_is_still_a_place() {
        for range in [(1.0, 1.0), (0.0, f64::INFINITY), (f64::NAN, 1.0)] {
            assert_eq!(Scale::linear(range, 10.0, 20.0).at(5.0), 10.0);
        }
        assert_eq!(Scale::logarithmic((1.0, 10.0), 0.0, 1.0).at(-1.0), 0.0);
    }
}
