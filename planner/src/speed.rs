//! How a job's speed depends on its trainers, from what was measured, and how many of them are worth their room. Pure.
//!
//! A step takes `T(n) = w/n + c + d·n` seconds with n trainers: work that is divided among them, work that is not, and what
//! each of them adds (their traffic through the pservers: 2·n·P bytes a step). The three are fitted by least squares with none
//! below 0; each sample counts by its relative error, so that slow and fast ones weigh alike.

/// A speed that was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpeedSample {
    /// With so many trainers.
    pub trainers: u32,
    /// Steps in a second, or any other measure of work that does not depend on how many trainers share it.
    pub per_second: f64,
}

/// A trainer is worth its room while it adds at least so much of what one of them does on average: DLRover's threshold.
pub const MARGINAL_LEAST: f64 = 0.2;
/// Of two numbers of trainers that differ by less than this factor, the difference in speed is mostly noise.
const SPREAD_LEAST: f64 = 1.5;
/// A fit says nothing of more trainers than so many times as many as were measured.
const REACH: u32 = 2;

/// What was fitted; all three in seconds, none negative.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpeedCurve {
    /// Work of a step that trainers share.
    pub shared: f64,
    /// Work of a step that is the same for any number of them.
    pub fixed: f64,
    /// What each of them adds to a step.
    pub each: f64,
    /// The most trainers that were measured.
    pub measured_most: u32,
}

impl SpeedCurve {
    /// The curve through what was measured. None unless two numbers of trainers were that are far enough apart.
    pub fn fitted(samples: &[SpeedSample]) -> Option<SpeedCurve> {
        let usable =
            |one: &&SpeedSample| one.trainers > 0 && one.per_second.is_finite() && one.per_second > 0.0;
        let samples: Vec<&SpeedSample> = samples.iter().filter(usable).collect();
        let measured_most = samples.iter().map(|one| one.trainers).max()?;
        let measured_least = samples.iter().map(|one| one.trainers).min()?;
        if f64::from(measured_most) < SPREAD_LEAST * f64::from(measured_least) {
            return None;
        }
        // Row by row: what T(n) is made of, in units of the time that was measured.
        let rows: Vec<[f64; 3]> = samples
            .iter()
            .map(|one| {
                let n = f64::from(one.trainers);
                [one.per_second / n, one.per_second, one.per_second * n]
            })
            .collect();
        let [shared, fixed, each] = least_squares(&rows);
        let is_usable = shared + fixed + each > 0.0;
        is_usable.then_some(SpeedCurve { shared, fixed, each, measured_most })
    }

    /// Steps in a second with so many trainers.
    pub fn per_second(&self, trainers: u32) -> f64 {
        let n = f64::from(trainers);
        if trainers == 0 { 0.0 } else { 1.0 / (self.shared / n + self.fixed + self.each * n) }
    }

    /// What one more would add, as a share of what one of so many does on average.
    pub fn marginal(&self, trainers: u32) -> f64 {
        let now = self.per_second(trainers);
        let average = now / f64::from(trainers.max(1));
        if average > 0.0 { (self.per_second(trainers + 1) - now) / average } else { 1.0 }
    }

    /// The most trainers of which each is worth its room, not more than `most`. What lies beyond the fit's reach is unknown,
    /// and so not denied.
    pub fn useful(&self, most: u32) -> u32 {
        let reach = self.measured_most.saturating_mul(REACH);
        // The marginal share falls with every trainer, so that halving finds its end.
        let (mut good, mut bad) = (1, reach.min(most).max(1) + 1);
        while bad - good > 1 {
            let middle = good + (bad - good) / 2;
            if self.marginal(middle - 1) >= MARGINAL_LEAST { good = middle } else { bad = middle }
        }
        if good >= reach { most } else { good.min(most) }
    }
}

/// The `x` of least |Ax − 1| with no part below 0: of all choices of parts that may be more than 0, the best that is allowed.
fn least_squares(rows: &[[f64; 3]]) -> [f64; 3] {
    let error = |x: &[f64; 3]| -> f64 {
        rows.iter().map(|row| square(row[0] * x[0] + row[1] * x[1] + row[2] * x[2] - 1.0)).sum()
    };
    let mut best = [0.0; 3];
    for free in 1..8_u32 {
        let parts: Vec<usize> = (0..3).filter(|part| free & (1 << part) != 0).collect();
        let Some(x) = solved(rows, &parts) else { continue };
        // Of choices that are as good but for rounding the first is taken: two samples are divided into shared and fixed work.
        if x.iter().all(|part| *part >= 0.0) && error(&x) + 1e-12 < error(&best) {
            best = x;
        }
    }
    best
}

fn square(number: f64) -> f64 {
    number * number
}

/// Least squares over some parts, by the normal equations; none if they do not tell the parts apart.
fn solved(rows: &[[f64; 3]], parts: &[usize]) -> Option<[f64; 3]> {
    let count = parts.len();
    // Columns of one size: w/n and d·n may differ by thousands.
    let scale: Vec<f64> =
        parts.iter().map(|part| rows.iter().map(|row| square(row[*part])).sum::<f64>().sqrt()).collect();
    let mut matrix = vec![vec![0.0; count + 1]; count];
    for (i, a) in parts.iter().enumerate() {
        for (j, b) in parts.iter().enumerate() {
            matrix[i][j] = rows.iter().map(|row| row[*a] / scale[i] * row[*b] / scale[j]).sum();
        }
        matrix[i][count] = rows.iter().map(|row| row[*a] / scale[i]).sum();
    }
    for i in 0..count {
        let pivot = (i..count).max_by(|a, b| matrix[*a][i].abs().total_cmp(&matrix[*b][i].abs()))?;
        matrix.swap(i, pivot);
        if !matrix[i][i].is_finite() || matrix[i][i].abs() < 1e-9 {
            return None;
        }
        let lead = matrix[i].clone();
        for (_, other) in matrix.iter_mut().enumerate().filter(|(row, _)| *row != i) {
            let factor = other[i] / lead[i];
            other.iter_mut().zip(&lead).for_each(|(mine, lead)| *mine -= factor * lead);
        }
    }
    let mut x = [0.0; 3];
    for (i, part) in parts.iter().enumerate() {
        x[*part] = matrix[i][count] / matrix[i][i] / scale[i];
    }
    Some(x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn samples(curve: impl Fn(f64) -> f64, at: &[u32]) -> Vec<SpeedSample> {
        at.iter().map(|n| SpeedSample { trainers: *n, per_second: 1.0 / curve(f64::from(*n)) }).collect()
    }

    #[test]
    fn one_number_of_trainers_says_nothing_of_others() {
        assert_eq!(SpeedCurve::fitted(&[]), None);
        assert_eq!(SpeedCurve::fitted(&samples(|n| 1.0 / n, &[4, 4, 4])), None);
        let broken =
            [SpeedSample { trainers: 0, per_second: 1.0 }, SpeedSample { trainers: 2, per_second: f64::NAN }];
        assert_eq!(SpeedCurve::fitted(&broken), None);
    }

    #[test]
    fn a_job_that_scales_is_not_bounded() {
        let curve = SpeedCurve::fitted(&samples(|n| 8.0 / n, &[1, 2, 4])).unwrap();
        assert_eq!(curve.useful(500), 500);
        assert!((curve.per_second(16) - 2.0).abs() < 1e-6);
    }

    #[test]
    fn growing_ends_where_a_trainer_adds_a_fifth_of_the_average() {
        // T = 8/n + 1: the marginal share of n trainers is about 8/(8 + n).
        let curve = SpeedCurve::fitted(&samples(|n| 8.0 / n + 1.0, &[8, 16, 40])).unwrap();
        let useful = curve.useful(500);
        assert!((30..=34).contains(&useful), "{useful}");
        assert!(curve.marginal(useful - 1) >= MARGINAL_LEAST && curve.marginal(useful) < MARGINAL_LEAST);
        assert_eq!(curve.useful(20), 20, "never more than the most");
    }

    #[test]
    fn a_pserver_that_is_full_bounds_a_job_before_it_becomes_slower() {
        let curve = SpeedCurve::fitted(&samples(|n| 10.0 / n + 0.1 * n, &[2, 8, 16])).unwrap();
        // The fastest is at 10; beyond it every trainer costs.
        assert!((4..10).contains(&curve.useful(100)), "{}", curve.useful(100));
    }

    #[test]
    fn what_lies_beyond_what_was_measured_is_not_denied() {
        // From 1 and 2 the end at 32 could be foretold, but by no more than twice what was measured.
        let curve = SpeedCurve::fitted(&samples(|n| 8.0 / n + 1.0, &[1, 2])).unwrap();
        assert_eq!(curve.useful(500), 500);
    }

    proptest! {
        #[test]
        fn a_fit_finds_the_curve_that_was_measured(
            shared in 0.1_f64..100.0, fixed in 0.0_f64..10.0, each in 0.0_f64..0.5,
            at in proptest::collection::btree_set(1_u32..200, 3..8).prop_filter("apart", |at| 2 * at.first().unwrap() <= *at.last().unwrap()),
        ) {
            let truth = |n: f64| shared / n + fixed + each * n;
            let at: Vec<u32> = at.into_iter().collect();
            let curve = SpeedCurve::fitted(&samples(truth, &at)).unwrap();
            for n in at {
                let wanted = 1.0 / truth(f64::from(n));
                prop_assert!((curve.per_second(n) / wanted - 1.0).abs() < 1e-3, "{n}: {} for {wanted}", curve.per_second(n));
            }
        }

        #[test]
        fn no_measurement_breaks_it(
            samples in proptest::collection::vec((0_u32..1000, proptest::num::f64::ANY), 0..12), most in 1_u32..10_000,
        ) {
            let samples: Vec<SpeedSample> =
                samples.into_iter().map(|(trainers, per_second)| SpeedSample { trainers, per_second }).collect();
            if let Some(curve) = SpeedCurve::fitted(&samples) {
                prop_assert!((1..=most).contains(&curve.useful(most)));
            }
        }
    }
}
