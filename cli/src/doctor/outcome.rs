//! What a check has found, how bad that is and what to do, as lines for people or one object for programs. Pure.

use serde_json::{Map, Value, json};
use std::fmt::Write;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    NotApplicable,
    Ok,
    Warning,
    Failed,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Level::NotApplicable => "not applicable",
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Failed => "failed",
        }
    }
}

/// The outcome of one check.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) level: Level,
    /// In words, with units.
    pub(crate) found: String,
    /// What to do, as far as possible a command; none where nothing is to be done.
    pub(crate) advice: Option<String>,
    /// The same for programs. Names end in the unit.
    pub(crate) facts: Map<String, Value>,
}

impl Outcome {
    pub(crate) fn ok(found: impl Into<String>) -> Outcome {
        Outcome { level: Level::Ok, found: found.into(), advice: None, facts: Map::new() }
    }
    /// Jobs run, and something is going to hurt.
    pub(crate) fn warning(found: impl Into<String>, advice: impl Into<String>) -> Outcome {
        Outcome { level: Level::Warning, advice: Some(advice.into()), ..Outcome::ok(found) }
    }
    /// Jobs do not run like that.
    pub(crate) fn failed(found: impl Into<String>, advice: impl Into<String>) -> Outcome {
        Outcome { level: Level::Failed, ..Outcome::warning(found, advice) }
    }
    /// There is nothing to check, and why.
    pub(crate) fn not_applicable(why: impl Into<String>) -> Outcome {
        Outcome { level: Level::NotApplicable, ..Outcome::ok(why) }
    }
    /// No worse than that.
    pub(crate) fn at_most(self, worst: Level) -> Outcome {
        Outcome { level: self.level.min(worst), ..self }
    }
    /// With what was measured.
    pub(crate) fn with(mut self, facts: Value) -> Outcome {
        if let Value::Object(facts) = facts {
            self.facts = facts;
        }
        self
    }
}

/// A check by its name, with its outcome.
pub(crate) type Checked = (&'static str, Outcome);

/// Whether nothing has failed.
pub(crate) fn is_well(all: &[Checked]) -> bool {
    count(all, Level::Failed) == 0
}

fn count(all: &[Checked], level: Level) -> usize {
    all.iter().filter(|(_, outcome)| outcome.level == level).count()
}

/// For people: one line for each check, what to do below it, and a sum.
pub(crate) fn text(all: &[Checked]) -> String {
    let width = all.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, outcome) in all {
        let _ = writeln!(text, "{:<14}  {name:<width$}  {}", outcome.level.word(), outcome.found);
        for line in outcome.advice.iter().flat_map(|advice| advice.lines()) {
            let _ = writeln!(text, "{:<14}  {:<width$}  -> {line}", "", "");
        }
    }
    let (failed, warnings) = (count(all, Level::Failed), count(all, Level::Warning));
    let plural = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    let _ = write!(text, "{}: {failed} failed, {}", plural(all.len(), "check"), plural(warnings, "warning"));
    text
}

/// For programs. Names and meanings stay; names may be added.
pub(crate) fn object(all: &[Checked]) -> Value {
    let check = |(name, outcome): &Checked| {
        json!({
            "name": name, "result": outcome.level.word().replace(' ', "_"), "found": outcome.found,
            "advice": outcome.advice, "facts": outcome.facts,
        })
    };
    json!({
        "format": 1, "shoal": env!("CARGO_PKG_VERSION"), "is_well": is_well(all),
        "failed": count(all, Level::Failed), "warnings": count(all, Level::Warning),
        "checks": all.iter().map(check).collect::<Vec<_>>(),
    })
}

/// A number of bytes in the largest unit of which there is one.
pub(crate) fn bytes(bytes: u64) -> String {
    let units = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(size, _)| bytes >= *size) {
        Some((size, unit)) => format!("{:.1} {unit}", bytes as f64 / size as f64),
        None => format!("{bytes} bytes"),
    }
}

/// A time in milliseconds, with three digits where it is short.
pub(crate) fn millis(seconds: f64) -> String {
    let millis = seconds * 1000.0;
    if millis < 10.0 { format!("{millis:.2} ms") } else { format!("{millis:.0} ms") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Checked> {
        vec![
            ("disk", Outcome::ok("12.0 GiB free").with(json!({ "free_bytes": 12 }))),
            ("open files", Outcome::failed("64", "ulimit -n 4096\nor ask for more")),
            ("device", Outcome::not_applicable("no driver")),
            ("clock", Outcome::warning("jumps", "chronyc tracking")),
        ]
    }

    #[test]
    fn each_check_is_a_line_and_below_it_stands_what_to_do() {
        assert_eq!(
            text(&all()),
            "ok              disk        12.0 GiB free\n\
             failed          open files  64\n\
            \x20                           -> ulimit -n 4096\n\
            \x20                           -> or ask for more\n\
             not applicable  device      no driver\n\
             warning         clock       jumps\n\
            \x20                           -> chronyc tracking\n\
             4 checks: 1 failed, 1 warning"
        );
    }

    #[test]
    fn one_failed_check_is_enough_and_warnings_are_not() {
        assert!(!is_well(&all()));
        assert!(is_well(&all()[2..]));
        let object = object(&all());
        assert_eq!((object["failed"].as_u64(), object["is_well"].as_bool()), (Some(1), Some(false)));
        assert_eq!(object["checks"][2]["result"], "not_applicable");
        assert_eq!(
            (&object["checks"][0]["facts"]["free_bytes"], &object["checks"][0]["advice"]),
            (&json!(12), &Value::Null)
        );
    }

    #[test]
    fn sizes_and_times_have_units() {
        let sizes = [(1023, "1023 bytes"), (1024, "1.0 KiB"), (3 << 29, "1.5 GiB"), (1 << 40, "1.0 TiB")];
        assert!(sizes.iter().all(|(size, text)| bytes(*size) == *text));
        assert_eq!((millis(0.000_123).as_str(), millis(0.0123).as_str()), ("0.12 ms", "12 ms"));
    }
}
