//! Axes: from values to pixels, and the round numbers worth a tick.
//! It must never divide by an empty range, and never make more ticks than fit.

/// A straight or logarithmic mapping of a range of values to a range of pixels.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    logarithmic: bool,
}

impl Scale {
    /// `low` is drawn at `from`, `high` at `to`.
    pub fn linear((low, high): (f64, f64), from: f64, to: f64) -> Self {
        Self { low, high, from, to, logarithmic: false }
    }

    /// The same with equal factors equally far apart; both ends above zero.
    pub fn logarithmic((low, high): (f64, f64), from: f64, to: f64) -> Self {
        Self { low: libm::log10(low), high: libm::log10(high), from, to, logarithmic: true }
    }

    /// Where a value lies; values outside the range are drawn at its ends.
    pub fn at(&self, value: f64) -> f64 {
        let value = if self.logarithmic { libm::log10(value) } else { value };
        let span = self.high - self.low;
        let share = if span > 0.0 && span.is_finite() { (value - self.low) / span } else { 0.0 };
        let share = if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) };
        self.from + share * (self.to - self.from)
    }
}

/// Multiples of 1, 2 or 5 times a power of ten within a range: about `count` of them, never above twice as many.
pub fn ticks((low, high): (f64, f64), count: u32) -> Vec<f64> {
    let span = high - low;
    if !(span > 0.0 && span.is_finite()) {
        return vec![low];
    }
    let step = round_step(span / f64::from(count.max(1)));
    // What is below the first tick by a rounding alone is at it.
    let first = libm::ceil(low / step - 1e-9);
    (0..=2 * count)
        .map(|index| (first + f64::from(index)) * step)
        .take_while(|tick| *tick <= high + step * 1e-6)
        .collect()
}

/// Powers of ten within a range above zero, or 1, 2 and 5 times them where those are few.
pub fn logarithmic_ticks((low, high): (f64, f64)) -> Vec<f64> {
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
pub fn tick_text(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-4..1e6).contains(&size) {
        return format!("{value:e}");
    }
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The unit in which a duration is best read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeUnit {
    /// In the plural.
    pub name: &'static str,
    /// As it stands behind a number.
    pub short: &'static str,
    /// How many seconds it has.
    pub seconds: f64,
}

impl TimeUnit {
    /// The one for so many seconds.
    pub fn of(seconds: f64) -> TimeUnit {
        match seconds {
            s if s >= 10_800.0 => TimeUnit { name: "hours", short: "h", seconds: 3_600.0 },
            s if s >= 300.0 => TimeUnit { name: "minutes", short: "min", seconds: 60.0 },
            _ => TimeUnit { name: "seconds", short: "s", seconds: 1.0 },
        }
    }

    /// Moments of a duration that are round in this unit, about `count`: each in seconds, and as a number of the unit.
    pub fn moments(&self, seconds: f64, count: u32) -> Vec<(f64, String)> {
        let ticks = ticks((0.0, seconds / self.seconds), count);
        ticks.into_iter().map(|tick| (tick * self.seconds, tick_text(tick))).collect()
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
        let ticks = ticks((97.13, 99.06), 5);
        assert_eq!(ticks.into_iter().map(tick_text).collect::<Vec<_>>(), ["97.5", "98", "98.5", "99"]);
    }

    #[test]
    fn a_time_is_told_in_a_unit_in_which_it_is_round() {
        let told = |seconds: f64| {
            let unit = TimeUnit::of(seconds);
            let moments = unit.moments(seconds, 4).into_iter().map(|(at, text)| format!("{at}={text}"));
            format!("{} {}", moments.collect::<Vec<_>>().join(" "), unit.short)
        };
        assert_eq!(told(40.0), "0=0 10=10 20=20 30=30 40=40 s");
        assert_eq!(told(600.0), "0=0 300=5 600=10 min");
        assert_eq!(told(86_400.0), "0=0 36000=10 72000=20 h");
        assert_eq!(told(f64::NAN), "0=0 s");
    }

    #[test]
    fn values_lie_between_the_ends_and_upside_down_where_the_ends_are() {
        let scale = Scale::linear((90.0, 100.0), 200.0, 0.0);
        assert_eq!([90.0, 95.0, 100.0, 80.0].map(|value| scale.at(value)), [200.0, 100.0, 0.0, 200.0]);
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
