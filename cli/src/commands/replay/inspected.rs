//! What a replay's trainer has written of the steps it was asked to look at: by step, by microbatch, by record. Reads; changes nothing.

use super::page;
use anyhow::Context;
use serde::Deserialize;
use serde_json::{Value, json};
use shoal_runtime::cluster::Manifest;
use std::collections::BTreeMap;
use std::path::Path;

/// The most parameters whose norms are shown for a step.
const PARAMETERS_SHOWN: usize = 6;

/// Columns of the table; of numbers where they begin with `#`.
const HEADINGS: [&str; 10] = [
    "#step",
    "#loss",
    "#norm",
    "#microbatch",
    "#its norm",
    "#record",
    "#its loss",
    "#its norm",
    "record lies in",
    "decided",
];

/// A gradient: norms are of means. Nothing is said of what is not finite.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
struct Measured {
    #[serde(default)]
    records: u64,
    #[serde(default)]
    weight: u64,
    /// Mean per record; none where the program counts none.
    loss: Option<f64>,
    norm: Option<f64>,
    #[serde(default)]
    norms: BTreeMap<String, Option<f64>>,
}

/// A record alone.
#[derive(Clone, Debug, Deserialize, PartialEq)]
struct Alone {
    record: u64,
    #[serde(flatten)]
    of: Measured,
    error: Option<String>,
}

/// What was decided over a step.
#[derive(Clone, Debug, Deserialize, PartialEq)]
struct Decided {
    step: u64,
    factor: Option<f64>,
    skipped: bool,
    norm: Option<f64>,
    loss_scale: f64,
}

/// One line: of a microbatch, or of a whole step.
#[derive(Clone, Debug, Deserialize)]
struct Line {
    step: u64,
    microbatch: Option<u64>,
    #[serde(flatten)]
    of: Measured,
    #[serde(default)]
    alone: Vec<Alone>,
    /// Over an earlier step.
    decided: Option<Decided>,
}

/// One step.
#[derive(Clone, Debug, Default)]
struct Step {
    whole: Option<Measured>,
    microbatches: BTreeMap<u64, (Measured, Vec<Alone>)>,
    decided: Option<Decided>,
}

/// All of them, in order.
#[derive(Debug)]
pub(super) struct Inspected {
    steps: BTreeMap<u64, Step>,
    /// Where each record that is named lies.
    places: BTreeMap<u64, String>,
}

/// What is not finite goes before everything that is.
fn size(of: &Measured) -> f64 {
    of.norm.unwrap_or(f64::INFINITY)
}

impl Inspected {
    /// Reads what lies in `folder` of steps up to `last`. Of one that was computed twice the later counts.
    pub(super) fn read(folder: &Path, last: u64, manifest: &Manifest) -> anyhow::Result<Inspected> {
        let mut text = String::new();
        for file in std::fs::read_dir(folder).into_iter().flatten() {
            let path = file?.path();
            text.push_str(&std::fs::read_to_string(&path).with_context(|| path.display().to_string())?);
        }
        let mut inspected = Inspected::of(&text);
        inspected.steps.retain(|step, _| *step <= last);
        let records = inspected.steps.values().flat_map(|step| step.microbatches.values());
        let records = records.flat_map(|(_, alone)| alone).map(|alone| alone.record);
        inspected.places = records.map(|record| (record, manifest.describe(&(record..record + 1)))).collect();
        Ok(inspected)
    }

    /// Lines that are torn, because their trainer was killed, are passed over.
    fn of(text: &str) -> Inspected {
        let mut steps: BTreeMap<u64, Step> = BTreeMap::new();
        for line in text.lines() {
            let Ok(Line { step, microbatch, of, alone, decided }) = serde_json::from_str(line) else {
                continue;
            };
            if let Some(decided) = decided {
                let decided_over = steps.entry(decided.step).or_default();
                decided_over.decided = Some(decided);
            }
            let seen = steps.entry(step).or_default();
            match microbatch {
                Some(microbatch) => drop(seen.microbatches.insert(microbatch, (of, alone))),
                None => seen.whole = Some(of),
            }
        }
        steps.retain(|_, step| !step.microbatches.is_empty());
        Inspected { steps, places: BTreeMap::new() }
    }

    /// A table for people: a line for each step, and one of its parameters.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = vec![HEADINGS.map(|heading| heading.trim_start_matches('#').to_owned())];
        lines.extend(self.rows());
        let widths: Vec<usize> =
            (0..HEADINGS.len()).map(|at| lines.iter().map(|row| row[at].len()).max().unwrap_or(0)).collect();
        let numbers = HEADINGS.iter().filter(|heading| heading.starts_with('#')).count();
        let line = |row: &[String; HEADINGS.len()]| {
            let aligned =
                row.iter().zip(&widths).take(numbers).map(|(cell, width)| format!("{cell:>width$}"));
            let rest = row[numbers..].iter().filter(|cell| !cell.is_empty()).cloned();
            aligned.chain(rest).collect::<Vec<String>>().join("  ")
        };
        let mut shown = vec![line(&lines[0])];
        for (row, norms) in lines[1..].iter().zip(self.norms()) {
            shown.extend([line(row), format!("{:>width$}  by parameter: {norms}", "", width = widths[0])]);
        }
        shown.extend(self.spike());
        shown
    }

    /// One for each step, in the columns of [`HEADINGS`].
    fn rows(&self) -> Vec<[String; HEADINGS.len()]> {
        let row = |(number, step): (&u64, &Step)| {
            let whole = step.whole.clone().unwrap_or_default();
            let (microbatch, (of, _)) = step.largest()?;
            let alone = step.largest_record();
            let measured =
                |of: fn(&Measured) -> Option<f64>| alone.map_or(String::new(), |alone| short(of(&alone.of)));
            let place = alone.and_then(|alone| self.places.get(&alone.record)).cloned().unwrap_or_default();
            let error = alone
                .and_then(|alone| alone.error.as_ref())
                .map(|why| format!(": {why}"))
                .unwrap_or_default();
            Some([
                number.to_string(),
                short(whole.loss),
                short(whole.norm),
                microbatch.to_string(),
                short(of.norm),
                alone.map_or(String::new(), |alone| alone.record.to_string()),
                measured(|of| of.loss),
                measured(|of| of.norm),
                format!("{place}{error}"),
                step.decided.as_ref().and_then(in_words).unwrap_or_default(),
            ])
        };
        self.steps.iter().filter_map(row).collect()
    }

    /// Of each step the norms of the gradient by parameter, the largest first.
    fn norms(&self) -> Vec<String> {
        let of = |step: &Step| {
            let whole = step.whole.clone().unwrap_or_default();
            let mut norms: Vec<(&String, &Option<f64>)> = whole.norms.iter().collect();
            norms.sort_by(|(_, one), (_, other)| {
                other.unwrap_or(f64::MAX).total_cmp(&one.unwrap_or(f64::MAX))
            });
            let more = norms.len().saturating_sub(PARAMETERS_SHOWN);
            let shown =
                norms.iter().take(PARAMETERS_SHOWN).map(|(name, norm)| format!("{name} {}", short(**norm)));
            let more = if more > 0 { format!(", and {more} smaller") } else { String::new() };
            format!("{}{more}", shown.collect::<Vec<_>>().join(", "))
        };
        self.steps.values().map(of).collect()
    }

    /// The same as a page.
    pub(super) fn html(&self, title: &str) -> String {
        let drawn = |(number, step): (&u64, &Step)| {
            let record = step.largest_record();
            let norms = [
                step.whole.as_ref().and_then(|whole| whole.norm),
                step.largest().and_then(|(_, (of, _))| of.norm),
                record.and_then(|record| record.of.norm),
            ];
            let place = |record: u64| self.places.get(&record).map_or("", String::as_str);
            let record = record
                .map_or(String::new(), |alone| format!("record {}, {}", alone.record, place(alone.record)));
            page::Drawn { step: *number, norms, record }
        };
        let rows: Vec<Vec<String>> = (self.rows().into_iter().zip(self.norms()))
            .map(|(row, norms)| row.into_iter().chain([norms]).collect())
            .collect();
        let headings: Vec<&str> = HEADINGS.into_iter().chain(["norms by parameter"]).collect();
        let lines: Vec<String> = self.spike().into_iter().collect();
        let steps: Vec<page::Drawn> = self.steps.iter().map(drawn).collect();
        page::html(title, &lines, &steps, &headings, &rows)
    }

    /// The step whose largest record is largest, beside the usual one.
    fn spike(&self) -> Option<String> {
        let each = self.steps.iter().filter_map(|(number, step)| Some((*number, step.largest_record()?)));
        let mut each: Vec<(u64, &Alone)> = each.filter(|(_, alone)| alone.error.is_none()).collect();
        each.sort_by(|(_, one), (_, other)| size(&one.of).total_cmp(&size(&other.of)));
        let (number, alone) = each.last()?;
        let usual = each[each.len() / 2].1.of.norm.filter(|usual| *usual > 0.0);
        let times =
            alone.of.norm.zip(usual).map(|(norm, usual)| {
                format!(", {} times the median of the steps' largest", tenth(norm / usual))
            });
        let place = self.places.get(&alone.record).map_or("", String::as_str);
        Some(format!(
            "The largest gradient of one record is record {}'s, in step {number}{}: {place}",
            alone.record,
            times.unwrap_or_default()
        ))
    }

    pub(super) fn json(&self) -> Value {
        let measured = |of: &Measured| json!({ "records": of.records, "weight": of.weight, "loss": of.loss, "norm": of.norm, "norms": of.norms });
        let record = |alone: &Alone| {
            let mut object = measured(&alone.of);
            object["record"] = json!(alone.record);
            object["place"] = json!(self.places.get(&alone.record));
            object["error"] = json!(alone.error);
            object
        };
        let steps = self.steps.iter().map(|(number, step)| {
            let microbatches = step.microbatches.iter().map(|(microbatch, (of, alone))| {
                let mut object = measured(of);
                object["microbatch"] = json!(microbatch);
                object["alone"] = alone.iter().map(record).collect();
                object
            });
            let decided = step.decided.as_ref().map(|Decided { factor, skipped, norm, loss_scale, .. }| {
                json!({ "factor": factor, "skipped": skipped, "norm": norm, "loss_scale": loss_scale })
            });
            json!({
                "step": number, "whole": step.whole.as_ref().map(measured), "decided": decided,
                "microbatches": microbatches.collect::<Vec<_>>(),
            })
        });
        steps.collect()
    }
}

impl Step {
    fn largest(&self) -> Option<(u64, &(Measured, Vec<Alone>))> {
        let all = self.microbatches.iter().map(|(number, seen)| (*number, seen));
        all.max_by(|(_, (one, _)), (_, (other, _))| size(one).total_cmp(&size(other)))
    }

    fn largest_record(&self) -> Option<&Alone> {
        let all = self.microbatches.values().flat_map(|(_, alone)| alone);
        all.max_by(|one, other| size(&one.of).total_cmp(&size(&other.of)))
    }
}

/// Of what changed nothing, nothing.
fn in_words(decided: &Decided) -> Option<String> {
    let norm = short(decided.norm);
    match decided.factor {
        _ if decided.skipped => {
            Some(format!("skipped: not finite at a loss scale of {}", decided.loss_scale))
        }
        Some(factor) if factor < 1.0 => Some(format!(
            "clipped: a norm of {norm} to {}",
            short(Some(factor * decided.norm.unwrap_or(f64::NAN)))
        )),
        _ => None,
    }
}

/// With one digit, as far as that tells anything.
fn tenth(number: f64) -> String {
    if number.is_finite() { format!("{number:.1}") } else { "many".to_owned() }
}

fn short(number: Option<f64>) -> String {
    match number {
        Some(number) if number != 0.0 && !(0.001..100_000.0).contains(&number.abs()) => {
            format!("{number:.3e}")
        }
        Some(number) => format!("{number:.4}"),
        None => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITTEN: &str = r#"
{"step":1,"microbatch":4,"records":2,"weight":2,"loss":0.5,"norm":0.1,"norms":{"w":0.1},"alone":[{"record":3,"records":1,"weight":1,"loss":0.6,"norm":0.2,"norms":{"w":0.2}}],"decided":null}
{"step":1,"microbatch":5,"records":2,"weight":2,"loss":9.5,"norm":7.0,"norms":{"w":7.0},"alone":[{"record":9,"records":1,"weight":1,"loss":19.0,"norm":14.0,"norms":{"w":14.0}}],"decided":null}
{"step":1,"records":4,"weight":4,"loss":5.0,"norm":3.5,"norms":{"w":3.5,"b":0.0}}
{"step":2,"microbatch":6,"records":2,"weight":2,"loss":0.5,"norm":null,"norms":{"w":null},"alone":[{"record":11,"error":"no digit"}],"decided":{"step":1,"factor":0.5,"skipped":false,"norm":3.5,"loss_scale":1.0}}
{"step":3,"microbatch":7,"reco"#;

    #[test]
    fn each_step_is_told_by_its_largest_microbatch_and_record() {
        let mut inspected = Inspected::of(WRITTEN);
        inspected.places = [(9, "a, chunk 1".to_owned()), (11, "b, chunk 0".to_owned())].into();
        let lines = inspected.lines();
        let columns = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(
            columns(&lines[1])[..8],
            ["1", "5.0000", "3.5000", "5", "7.0000", "9", "19.0000", "14.0000"]
        );
        assert!(lines[1].ends_with("a, chunk 1  clipped: a norm of 3.5000 to 1.7500"), "{}", lines[1]);
        assert!(lines[2].ends_with("by parameter: w 3.5000, b 0.0000"), "{}", lines[2]);
        assert!(lines[3].contains("b, chunk 0: no digit"), "{}", lines[3]);
        assert!(
            lines[5].starts_with("The largest gradient of one record is record 9's, in step 1"),
            "{}",
            lines[5]
        );
        let json = inspected.json();
        assert_eq!(json[0]["microbatches"][1]["alone"][0]["place"], "a, chunk 1");
        assert_eq!(json[1]["microbatches"][0]["norm"], Value::Null);
        assert_eq!(json.as_array().unwrap().len(), 2, "what was torn is none");
    }
}
