//! The judgement: counts beside the baseline's. It must never pass what is cheaper either: a baseline that nobody writes anew
//! no longer tells what the next change costs.

use crate::instructions::baseline::{Baseline, Count, Origin};
use serde::Serialize;
use std::fmt;

/// By how much a count may differ from its baseline. Code that has nothing to do with a path moves it by up to 0.6 %, as calls
/// are inlined otherwise; one division more for each parameter is 2.1 % and more of any rule.
const TOLERANCE_PERCENT: f64 = 2.0;

/// Every path of this run or of the baseline, and whether all are as they were.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) holds: bool,
    tolerance_percent: f64,
    origin: Origin,
    differences: Vec<String>,
    paths: Vec<Judged>,
}

#[derive(Debug, Serialize)]
struct Judged {
    name: String,
    unit: String,
    instructions: Option<f64>,
    baseline: Option<f64>,
    change_percent: Option<f64>,
    verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Same,
    More,
    Less,
    /// The baseline has no such path with this unit.
    New,
    /// Only the baseline has it.
    Gone,
}

impl Report {
    pub(crate) fn new(counted: Baseline, baseline: Baseline) -> Report {
        let same = |a: &Count, b: &Count| a.name == b.name && a.unit == b.unit;
        let mut paths = Vec::new();
        for count in &counted.counts {
            let before = baseline.counts.iter().find(|before| same(before, count));
            paths.push(Judged::new(
                count,
                Some(count.instructions),
                before.map(|before| before.instructions),
            ));
        }
        for before in &baseline.counts {
            if !counted.counts.iter().any(|count| same(before, count)) {
                paths.push(Judged::new(before, None, Some(before.instructions)));
            }
        }
        Report {
            holds: paths.iter().all(|path| path.verdict == Verdict::Same),
            tolerance_percent: TOLERANCE_PERCENT,
            differences: baseline.origin.differences(&counted.origin),
            origin: counted.origin,
            paths,
        }
    }

    fn names(&self, verdict: Verdict) -> Vec<&str> {
        let paths = self.paths.iter().filter(|path| path.verdict == verdict);
        paths.map(|path| path.name.as_str()).collect()
    }
}

impl Judged {
    fn new(Count { name, unit, .. }: &Count, now: Option<f64>, baseline: Option<f64>) -> Judged {
        let change = now.zip(baseline).map(|(now, baseline)| 100.0 * (now / baseline - 1.0));
        let verdict = match change {
            Some(change) if change > TOLERANCE_PERCENT => Verdict::More,
            Some(change) if change < -TOLERANCE_PERCENT => Verdict::Less,
            Some(_) => Verdict::Same,
            None if now.is_some() => Verdict::New,
            None => Verdict::Gone,
        };
        let (name, unit) = (name.clone(), unit.clone());
        Judged { name, unit, instructions: now, baseline, change_percent: change, verdict }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<28} {:<10} {:>14} {:>14} {:>9}",
            "path", "unit", "instructions", "baseline", "change"
        )?;
        for path in &self.paths {
            let count = |count: Option<f64>| count.map_or("-".to_owned(), |count| format!("{count:.4}"));
            let (now, baseline) = (count(path.instructions), count(path.baseline));
            let change = path.change_percent.map_or("-".to_owned(), |change| format!("{change:+.2} %"));
            let mark = if path.verdict == Verdict::Same { "" } else { "  <--" };
            writeln!(f, "{:<28} {:<10} {now:>14} {baseline:>14} {change:>9}{mark}", path.name, path.unit)?;
        }
        for difference in &self.differences {
            writeln!(f, "note: {difference}: counts may differ because of it")?;
        }
        for verdict in [Verdict::More, Verdict::Less, Verdict::New, Verdict::Gone] {
            let names = self.names(verdict);
            if !names.is_empty() {
                writeln!(f, "{}: {verdict}", names.join(", "))?;
            }
        }
        if self.holds { writeln!(f, "all are within {TOLERANCE_PERCENT} % of the baseline") } else { Ok(()) }
    }
}

/// What it means, and what is to be done.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let anew = "write it anew with --write and commit it";
        match self {
            Verdict::Same => write!(f, "within {TOLERANCE_PERCENT} % of the baseline"),
            Verdict::More => write!(
                f,
                "more than {TOLERANCE_PERCENT} % above the baseline: make it cheaper again, or {anew} with the reason"
            ),
            Verdict::Less => write!(
                f,
                "more than {TOLERANCE_PERCENT} % below the baseline, which no longer tells the truth: {anew}"
            ),
            Verdict::New => write!(f, "not in the baseline: {anew}"),
            Verdict::Gone => write!(f, "in the baseline alone: {anew}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn baseline(counts: &[(&str, f64, &str)]) -> Baseline {
        let count = |(name, instructions, unit): &(&str, f64, &str)| Count {
            name: (*name).into(),
            instructions: *instructions,
            unit: (*unit).into(),
        };
        Baseline { origin: Origin::default(), counts: counts.iter().map(count).collect() }
    }
    fn verdicts(now: &[(&str, f64, &str)], before: &[(&str, f64, &str)]) -> (bool, Vec<Verdict>) {
        let report = Report::new(baseline(now), baseline(before));
        (report.holds, report.paths.iter().map(|path| path.verdict).collect())
    }

    #[test]
    fn what_is_within_the_tolerance_holds_on_both_sides() {
        let before = [("a", 100.0, "byte"), ("b", 100.0, "byte")];
        let now = [("a", 101.9, "byte"), ("b", 98.1, "byte")];
        assert_eq!(verdicts(&now, &before), (true, vec![Verdict::Same; 2]));
    }

    #[test]
    fn more_and_less_than_the_tolerance_both_fail() {
        let before = [("a", 100.0, "byte")];
        assert_eq!(verdicts(&[("a", 102.1, "byte")], &before), (false, vec![Verdict::More]));
        assert_eq!(verdicts(&[("a", 97.9, "byte")], &before), (false, vec![Verdict::Less]));
    }

    #[test]
    fn a_path_that_only_one_side_has_fails_and_so_does_another_unit() {
        let a = [("a", 100.0, "byte")];
        assert_eq!(verdicts(&a, &[]), (false, vec![Verdict::New]));
        assert_eq!(verdicts(&[], &a), (false, vec![Verdict::Gone]));
        assert_eq!(verdicts(&[("a", 100.0, "row")], &a), (false, vec![Verdict::New, Verdict::Gone]));
    }

    #[test]
    fn what_is_printed_names_the_path_and_what_to_do() {
        let report = Report::new(baseline(&[("a", 110.0, "byte")]), baseline(&[("a", 100.0, "byte")]));
        let text = report.to_string();
        assert!(text.contains("+10.00 %  <--\n"), "{text}");
        assert!(text.contains("\na: more than 2 % above the baseline: make it cheaper again"), "{text}");
        assert!(!text.contains("all are within"), "{text}");
    }
}
