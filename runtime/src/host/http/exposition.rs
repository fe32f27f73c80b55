//! The text format of Prometheus (version 0.0.4), under construction: families of samples, each with what it means.
//! It must never write what a strict reader refuses, and never a label whose values grow with the cluster.
//!
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>

use super::super::output;
use shoal_job::counters::Metric;
use std::fmt::Write;
use std::time::Duration;

/// What a page in this format is called.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A page of metrics. Names begin with `shoal_`; it is the caller who keeps to base units and to `_total`.
#[derive(Clone, Debug, Default)]
pub struct Exposition {
    text: String,
}

/// A sample's value.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    /// A count.
    Whole(u64),
    /// Seconds, mostly.
    Real(f64),
}

impl Exposition {
    /// A page with nothing on it.
    pub fn new() -> Exposition {
        Exposition::default()
    }

    /// What only grows while its process lives.
    pub fn counter(&mut self, name: &str, help: &str, value: impl Into<Number>) {
        self.begin(name, "counter", help);
        self.sample(name, &[], value.into());
    }

    /// What comes and goes.
    pub fn gauge(&mut self, name: &str, help: &str, value: impl Into<Number>) {
        self.begin(name, "gauge", help);
        self.sample(name, &[], value.into());
    }

    /// Counters that one label tells apart.
    pub fn counters<N: Into<Number>>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'static str, N)>,
    ) {
        self.begin(name, "counter", help);
        self.samples(name, label, values);
    }

    /// Counters that several labels tell apart. Each of them must have few values, as `counters`' one has.
    pub fn counters_by<const LABELS: usize, N: Into<Number>>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = ([(&'static str, String); LABELS], N)>,
    ) {
        self.begin(name, "counter", help);
        for (labels, number) in values {
            let labels: Vec<(&str, &str)> =
                labels.iter().map(|(label, value)| (*label, value.as_str())).collect();
            self.sample(name, &labels, number.into());
        }
    }

    /// Counters of a group, all names with this prefix.
    pub fn counted(&mut self, prefix: &str, metrics: impl IntoIterator<Item = Metric>) {
        for Metric { name, help, is_gauge, is_in_micros, samples } in metrics {
            let name = format!("{prefix}_{name}");
            self.begin(&name, if is_gauge { "gauge" } else { "counter" }, help);
            for (label, value) in samples {
                let number = match is_in_micros {
                    true => Number::Real(Duration::from_micros(value).as_secs_f64()),
                    false => Number::Whole(value),
                };
                self.sample(&name, label.as_slice(), number);
            }
        }
    }

    /// Gauges that one label tells apart.
    pub fn gauges<N: Into<Number>>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'static str, N)>,
    ) {
        self.begin(name, "gauge", help);
        self.samples(name, label, values);
    }

    /// Who shows this page: always 1, with labels that do not change; and how many lines its log lacks.
    pub fn build(&mut self, role: &str, version: &str) {
        let name = "shoal_build_info";
        self.begin(name, "gauge", "Always 1; what runs here is in the labels.");
        self.sample(name, &[("role", role), ("version", version)], Number::Whole(1));
        let help = "Lines of the log that could not be written: its disk is full, or nobody reads.";
        self.counter("shoal_log_lines_dropped_total", help, output::dropped());
    }

    /// How many observations fell into each bucket, each bucket by the largest value that belongs to it; the last one
    /// has no largest value and its bound is not used. `sum` is that of all observations.
    pub fn histogram(&mut self, name: &str, help: &str, buckets: &[(u64, u64)], sum: u64) {
        self.histogram_of(name, help, buckets, sum.into());
    }

    /// The same of seconds.
    pub fn histogram_of_seconds(&mut self, name: &str, help: &str, buckets: &[(f64, u64)], sum: f64) {
        self.histogram_of(name, help, buckets, sum.into());
    }

    fn histogram_of<B: std::fmt::Display>(
        &mut self,
        name: &str,
        help: &str,
        buckets: &[(B, u64)],
        sum: Number,
    ) {
        self.begin(name, "histogram", help);
        let (bucket, mut so_far) = (format!("{name}_bucket"), 0);
        for (at, (largest, count)) in buckets.iter().enumerate() {
            so_far += count;
            let bound = if at + 1 == buckets.len() { String::from("+Inf") } else { largest.to_string() };
            self.sample(&bucket, &[("le", &bound)], Number::Whole(so_far));
        }
        self.sample(&format!("{name}_sum"), &[], sum);
        self.sample(&format!("{name}_count"), &[], Number::Whole(so_far));
    }

    /// The page.
    pub fn into_text(self) -> String {
        self.text
    }

    fn begin(&mut self, name: &str, kind: &str, help: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn samples<N: Into<Number>>(
        &mut self,
        name: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'static str, N)>,
    ) {
        for (value, number) in values {
            self.sample(name, &[(label, value)], number.into());
        }
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: Number) {
        let pair = |(name, value): &(&str, &str)| format!("{name}=\"{}\"", escaped(value));
        let labels: Vec<String> = labels.iter().map(pair).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = match value {
            Number::Whole(whole) => writeln!(self.text, "{name}{labels} {whole}"),
            Number::Real(real) if real.is_nan() => writeln!(self.text, "{name}{labels} NaN"),
            Number::Real(real) if real.is_infinite() => {
                let sign = if real > 0.0 { '+' } else { '-' };
                writeln!(self.text, "{name}{labels} {sign}Inf")
            }
            Number::Real(real) => writeln!(self.text, "{name}{labels} {real}"),
        };
    }
}

/// A label's value between quotes.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

impl From<u64> for Number {
    fn from(value: u64) -> Number {
        Number::Whole(value)
    }
}

impl From<u32> for Number {
    fn from(value: u32) -> Number {
        Number::Whole(value.into())
    }
}

impl From<bool> for Number {
    fn from(value: bool) -> Number {
        Number::Whole(value.into())
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Number {
        Number::Real(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_job::counters::{Counters as _, TrainerCounters};

    #[test]
    fn what_a_family_means_comes_before_its_samples() {
        let mut page = Exposition::new();
        page.counter("shoal_a_total", "So many.", 7u64);
        page.gauges("shoal_b", "Of a kind.", "kind", [("x", 0.5), ("y", 2.0)]);
        let expected = "# HELP shoal_a_total So many.\n# TYPE shoal_a_total counter\nshoal_a_total 7\n\
                        # HELP shoal_b Of a kind.\n# TYPE shoal_b gauge\nshoal_b{kind=\"x\"} 0.5\nshoal_b{kind=\"y\"} 2\n";
        assert_eq!(page.into_text(), expected);
    }

    #[test]
    fn counters_of_a_group_are_shown_under_the_prefix_and_times_in_seconds() {
        let counters = TrainerCounters { pull_micros: 1_500_000, tasks: 7, ..TrainerCounters::default() };
        let mut page = Exposition::new();
        page.counted("shoal_trainer", counters.metrics());
        let text = page.into_text();
        assert!(text.contains("\nshoal_trainer_seconds_total{activity=\"pull\"} 1.5\n"), "{text}");
        let tasks = "# HELP shoal_trainer_tasks_total Tasks done.\n# TYPE shoal_trainer_tasks_total counter\nshoal_trainer_tasks_total 7\n";
        assert!(text.contains(tasks), "{text}");
    }

    #[test]
    fn quotes_backslashes_and_line_ends_are_escaped() {
        let mut page = Exposition::new();
        page.gauges("shoal_a", "a \\ b\nc \"d\"", "kind", [("say \"so\\n\"\nnow", true)]);
        let text = page.into_text();
        assert_eq!(text.lines().count(), 3);
        assert!(text.contains(r#"# HELP shoal_a a \\ b\nc "d""#), "{text}");
        assert!(text.contains(r#"{kind="say \"so\\n\"\nnow"} 1"#), "{text}");
    }

    #[test]
    fn what_is_no_number_has_a_word() {
        let mut page = Exposition::new();
        let odd = [("a", f64::NAN), ("b", f64::INFINITY), ("c", f64::NEG_INFINITY), ("d", 1e-7)];
        page.gauges("shoal_a", "Odd.", "kind", odd);
        let values: Vec<String> =
            page.into_text().lines().skip(2).map(|line| line[18..].to_owned()).collect();
        assert_eq!(values, ["NaN", "+Inf", "-Inf", "0.0000001"]);
    }

    #[test]
    fn several_labels_stand_in_the_order_in_which_they_are_given() {
        let mut page = Exposition::new();
        page.counters_by(
            "shoal_a_total",
            "So many.",
            [([("verb", "get".to_owned()), ("code", "200".to_owned())], 3u64)],
        );
        assert!(page.into_text().ends_with("\nshoal_a_total{verb=\"get\",code=\"200\"} 3\n"));
    }

    #[test]
    fn a_histogram_of_seconds_has_bounds_below_one() {
        let mut page = Exposition::new();
        page.histogram_of_seconds("shoal_a", "So long.", &[(0.005, 3), (f64::INFINITY, 1)], 1.5);
        let text = page.into_text();
        assert!(
            text.contains("shoal_a_bucket{le=\"0.005\"} 3\nshoal_a_bucket{le=\"+Inf\"} 4\nshoal_a_sum 1.5\n"),
            "{text}"
        );
    }

    #[test]
    fn a_histograms_buckets_add_up_and_end_at_infinity() {
        let mut page = Exposition::new();
        page.histogram("shoal_a", "So stale.", &[(0, 3), (1, 0), (3, 4), (u64::MAX, 1)], 20);
        let samples: Vec<String> = page.into_text().lines().skip(2).map(str::to_owned).collect();
        assert_eq!(
            samples,
            [
                "shoal_a_bucket{le=\"0\"} 3",
                "shoal_a_bucket{le=\"1\"} 3",
                "shoal_a_bucket{le=\"3\"} 7",
                "shoal_a_bucket{le=\"+Inf\"} 8",
                "shoal_a_sum 20",
                "shoal_a_count 8"
            ]
        );
    }
}
