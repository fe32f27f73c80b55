//! Curves with as many points as a picture has room for, however long a job lasts. Pure.

use shoal_runner::history::AT_ONCE;
use shoal_runner::report::Sample;

/// Points of a curve.
pub(crate) const POINTS_MAX: usize = 240;
/// A rate is the mean over so many stretches, and over so many seconds at least.
const RATE_STRETCHES: f64 = 3.0;
const RATE_SECONDS_MIN: f64 = 2.0;

/// A stretch of time, with what is drawn of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    /// Its end, in seconds.
    pub(crate) at: f64,
    pub(crate) step: u64,
    pub(crate) trainers: u32,
    pub(crate) loss: Option<f64>,
    /// Over the stretch.
    pub(crate) records_per_second: f64,
    pub(crate) steps_per_second: f64,
}

/// At most [`POINTS_MAX`] stretches of equal length, each with its last sample. Rates are means over the time before it: some stretches, and
/// two seconds at least, for a step counts at once.
pub(crate) fn thinned(samples: &[Sample]) -> Vec<Point> {
    let Some(end) = samples.last().map(|last| last.at_seconds) else { return Vec::new() };
    // A job that is looked at from elsewhere had made steps when that began.
    let begun = samples.first().filter(|first| first.at_seconds < AT_ONCE).map_or(0, |first| first.step);
    let width = (end / POINTS_MAX as f64).max(AT_ONCE);
    let window = (RATE_STRETCHES * width).max(RATE_SECONDS_MIN);
    let stretch = |at: f64| (at / width).ceil() as usize;
    let (mut points, mut records, mut first) = (Vec::new(), Vec::with_capacity(samples.len()), 0);
    let (mut before, mut counted) = (0.0, 0.0);
    for (index, sample) in samples.iter().enumerate() {
        counted += sample.records_per_second * (sample.at_seconds - before);
        before = sample.at_seconds;
        records.push(counted);
        let next = samples.get(index + 1);
        if next.is_some_and(|next| stretch(next.at_seconds) <= stretch(sample.at_seconds)) {
            continue;
        }
        while samples[first].at_seconds < sample.at_seconds - window {
            first += 1;
        }
        let since = first.checked_sub(1);
        let (then, records_then, step_then) =
            since.map_or((0.0, 0.0, begun), |at| (samples[at].at_seconds, records[at], samples[at].step));
        let seconds = (sample.at_seconds - then).max(AT_ONCE);
        points.push(Point {
            at: sample.at_seconds,
            step: sample.step,
            trainers: sample.trainers_live,
            loss: sample.loss,
            records_per_second: (counted - records_then) / seconds,
            steps_per_second: sample.step.saturating_sub(step_then) as f64 / seconds,
        });
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at_seconds: f64, step: u64, records_per_second: f64) -> Sample {
        Sample { at_seconds, step, trainers_live: 2, loss: None, records_per_second }
    }

    #[test]
    fn few_samples_are_all_drawn_and_many_with_the_means_of_their_stretches() {
        let few = thinned(&[sample(1.0, 10, 40.0), sample(4.0, 25, 80.0)]);
        assert_eq!(few.iter().map(|point| point.records_per_second).collect::<Vec<_>>(), [40.0, 80.0]);
        assert_eq!(few.iter().map(|point| point.steps_per_second).collect::<Vec<_>>(), [10.0, 5.0]);
        // Ten a second, of which every second has none: rates are those of both.
        let many: Vec<Sample> = (1..=24_000)
            .map(|at| sample(f64::from(at) / 10.0, at as u64, f64::from(at % 2) * 100.0))
            .collect();
        let points = thinned(&many);
        assert!(points.len() <= POINTS_MAX && points.len() > POINTS_MAX / 2, "{}", points.len());
        assert!(points.iter().all(|point| (point.records_per_second - 50.0).abs() < 1.0), "{:?}", points[7]);
        assert!(points.iter().all(|point| (point.steps_per_second - 10.0).abs() < 0.2));
        assert_eq!(points.last().unwrap().step, 24_000, "the newest is always there");
        assert!(thinned(&[]).is_empty());
    }

    #[test]
    fn what_was_made_before_the_first_look_is_no_rate() {
        let points =
            thinned(&[sample(1e-6, 90_000, 0.0), sample(0.5, 90_005, 40.0), sample(1.0, 90_010, 40.0)]);
        assert_eq!(points.iter().map(|point| point.steps_per_second).collect::<Vec<_>>(), [0.0, 10.0, 10.0]);
    }
}
