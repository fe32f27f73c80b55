//! What is printed: rows with ours beside the limit. It must never round a ratio up to 1.

use crate::measure::{Spread, Took};
use serde::Serialize;
use std::fmt;

/// The result of one run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Measured rounds of every row.
    pub rounds: u32,
    /// The machine's load averages (1, 5, 15 minutes) as the run began, where the system tells them.
    pub load_before: Option<String>,
    /// And as it ended.
    pub load_after: Option<String>,
    /// In the order in which they were measured.
    pub rows: Vec<Row>,
    /// What one lease costs among the most, in costs of one among the fewest.
    pub lease_growth: Option<LeaseGrowth>,
}

/// How the cost of a lease grows.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LeaseGrowth {
    /// Among trainers.
    pub by_trainers: Spread,
    /// Among chunks of the data set, with the task that it is of.
    pub by_chunks: Spread,
}

/// One measurement. Rates are medians over the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What.
    pub name: String,
    /// In what.
    pub unit: &'static str,
    /// Shoal's.
    pub ours: f64,
    /// The machine's.
    pub limit: Option<f64>,
    /// Median over the rounds of ours / limit: 1 is the limit reached.
    pub ratio: Option<f64>,
    /// Least and greatest ratio of a round; of `ours` where there is no limit.
    pub spread: [f64; 2],
    /// Processor seconds per GB, in all processes that took part: ours and the limit's.
    pub processor_seconds_per_gb: Option<[f64; 2]>,
}

impl Row {
    /// So many bytes moved, by ours and at the limit.
    pub fn of_bytes(name: &str, bytes: usize, rounds: &[[Took; 2]]) -> Row {
        let gigabytes = bytes as f64 / 1e9;
        let seconds: Vec<[f64; 2]> = rounds.iter().map(|round| round.map(|took| took.seconds)).collect();
        let processors = [0, 1].map(|which| {
            Spread::of(rounds.iter().map(|round| round[which].processor_seconds / gigabytes).collect()).median
        });
        let row = Row::against_limit(name, "GB/s", gigabytes, &seconds);
        Row { processor_seconds_per_gb: Some(processors), ..row }
    }

    /// `rounds` are seconds of ours and of the limit; either did `amount` units in them.
    pub fn against_limit(name: &str, unit: &'static str, amount: f64, rounds: &[[f64; 2]]) -> Row {
        let rates: Vec<[f64; 2]> = rounds.iter().map(|round| round.map(|seconds| amount / seconds)).collect();
        // Of the seconds as they were measured: a rate more would be a rounding more.
        Row::of(name, unit, &rates, rounds.iter().map(|[ours, limit]| limit / ours).collect())
    }

    /// `rounds` are rates of ours and of the limit.
    pub fn of_rates(name: &str, unit: &'static str, rounds: &[[f64; 2]]) -> Row {
        Row::of(name, unit, rounds, rounds.iter().map(|[ours, limit]| ours / limit).collect())
    }

    fn of(name: &str, unit: &'static str, rates: &[[f64; 2]], ratios: Vec<f64>) -> Row {
        let rate = |which: usize| Spread::of(rates.iter().map(|round| round[which]).collect());
        let ratio = Spread::of(ratios);
        Row {
            name: name.to_owned(),
            unit,
            ours: rate(0).median,
            limit: Some(rate(1).median),
            ratio: Some(ratio.median),
            spread: [ratio.min, ratio.max],
            processor_seconds_per_gb: None,
        }
    }

    /// Rates of something that has no limit to stand beside it.
    pub fn alone(name: String, unit: &'static str, rates: Vec<f64>) -> Row {
        let rate = Spread::of(rates);
        let (limit, ratio, processor_seconds_per_gb) = (None, None, None);
        let spread = [rate.min, rate.max];
        Row { name, unit, ours: rate.median, limit, ratio, spread, processor_seconds_per_gb }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let load = |load: &Option<String>| load.clone().unwrap_or_else(|| "unknown".to_owned());
        let (before, after) = (load(&self.load_before), load(&self.load_after));
        writeln!(f, "{} rounds; load before {before}, after {after}", self.rounds)?;
        writeln!(
            f,
            "{:<48} {:>12} {:>12} {:>6}  spread  CPU s/GB, ours / limit",
            "name", "ours", "limit", "ratio"
        )?;
        for row in &self.rows {
            writeln!(f, "{row}")?;
        }
        let Some(LeaseGrowth { by_trainers, by_chunks }) = self.lease_growth else { return Ok(()) };
        for (what, Spread { median, min, max }) in [("trainers", by_trainers), ("chunks", by_chunks)] {
            writeln!(
                f,
                "a lease among the most {what} costs {median:.1} ({min:.1}-{max:.1}) of one among the fewest"
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [min, max] = self.spread;
        let name = format!("{} [{}]", self.name, self.unit);
        let digits = if self.ours < 100.0 { 2 } else { 0 };
        match (self.limit, self.ratio) {
            (Some(limit), Some(ratio)) => {
                let ours = self.ours;
                // Cut, not rounded: 0.998 is not the limit.
                let cut = |x: f64| (x * 100.0).floor() / 100.0;
                let (ratio, min, max) = (cut(ratio), cut(min), cut(max));
                write!(f, "{name:<48} {ours:>12.2} {limit:>12.2} {ratio:>6.2}  {min:.2}-{max:.2}")?;
                match self.processor_seconds_per_gb {
                    Some([ours, limit]) => write!(f, "  {ours:.2} / {limit:.2}"),
                    None => Ok(()),
                }
            }
            _ => write!(
                f,
                "{name:<48} {:>12.digits$} {:>12} {:>6}  {min:.digits$}-{max:.digits$} (of ours)",
                self.ours, "-", "-"
            ),
        }
    }
}

/// The load averages, where the system tells them.
pub fn load() -> Option<String> {
    let line = std::fs::read_to_string("/proc/loadavg").ok()?;
    Some(line.split_whitespace().take(3).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_taken_inside_a_round_and_printed_cut() {
        let row = Row::against_limit("scan", "GB/s", 8.0, &[[2.0, 1.0], [4.0, 3.998], [8.0, 7.0]]);
        assert_eq!((row.ours, row.limit, row.ratio), (2.0, Some(8.0 / 3.998), Some(0.875)));
        assert_eq!(row.spread, [0.5, 0.9995]);
        assert!(row.to_string().ends_with("0.87  0.50-0.99"), "{row}");
        let rates = Row::of_rates("steps", "steps/s", &[[4.0, 8.0], [2.0, 2.001], [1.0, 8.0 / 7.0]]);
        assert_eq!((rates.ours, rates.limit, rates.ratio), (2.0, Some(2.001), Some(0.875)));
        assert_eq!(rates.spread, [0.5, 2.0 / 2.001]);
    }

    #[test]
    fn small_figures_without_a_limit_keep_their_digits() {
        let text = |figure: f64| Row::alone("memory".to_owned(), "parameters", vec![figure]).to_string();
        assert!(text(5.574).contains(" 5.57 ") && text(2_256_000.4).contains(" 2256000 "), "{}", text(5.574));
    }
}
