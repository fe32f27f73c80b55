//! What the steps of a replay were made of: of each microbatch, and of records alone, the loss and the norms of the gradient, as lines of
//! JSON in a file. It must never change what is pushed.
//!
//! Norms are Euclidean, of **mean** gradients with the loss scale taken out, as [`Decisions`](crate::Decisions) clip them: of a sum over
//! records divided by its weight. What is not finite is `null`.

use crate::error::TrainError;
use crate::names::Names;
use serde_json::{Map, Value, json};
use shoal_runtime::cluster::decisions::Decision;
use shoal_runtime::cluster::{Rows, Rule};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Steps under way of which a sum is kept.
const OPEN_MAX: usize = 4;
/// The counter that holds losses, if a program counts them.
const LOSS: &str = "loss";

/// Which records of a microbatch are put through the step function alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alone {
    /// The one with the largest gradient, found by halves: of `n` records with 2 log2(n) calls.
    Largest,
    /// Each.
    All,
}

/// What is inspected, and where it is written.
#[derive(Clone, Debug)]
pub struct InspectionSettings {
    /// The folder: a file for each trainer.
    pub folder: std::path::PathBuf,
    /// The first and the last step, counted from 1.
    pub steps: RangeInclusive<u64>,
    /// Which records are put through alone.
    pub alone: Alone,
}

impl InspectionSettings {
    /// As a replay says them in `SHOAL_INSPECT`: `largest:FIRST..LAST:FOLDER`, or `all:...`.
    pub(crate) fn parse(said: &str) -> Result<InspectionSettings, TrainError> {
        let parsed = || {
            let mut parts = said.splitn(3, ':');
            let alone = match parts.next()? {
                "largest" => Alone::Largest,
                "all" => Alone::All,
                _ => return None,
            };
            let (first, last) = parts.next()?.split_once("..")?;
            let steps = first.parse().ok()?..=last.parse().ok()?;
            Some(InspectionSettings { folder: parts.next()?.into(), steps, alone })
        };
        let wrong = || {
            TrainError::Settings(format!(
                "SHOAL_INSPECT={said:?}: give largest:FIRST..LAST:FOLDER or all:FIRST..LAST:FOLDER"
            ))
        };
        parsed().ok_or_else(wrong)
    }
}

/// An inspection under way.
#[derive(Debug)]
pub(crate) struct Inspection {
    settings: InspectionSettings,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    file: File,
    /// Of the steps that are under way, the microbatches that were seen, and their sum.
    steps: BTreeMap<u64, (BTreeSet<u64>, Sum)>,
}

/// A gradient sum as it is looked at: values by parameter, as declared.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sum {
    /// Of dense parameters.
    pub(crate) dense: Vec<Vec<f32>>,
    /// Of rows, by key.
    pub(crate) rows: Vec<BTreeMap<u64, Vec<f32>>>,
    pub(crate) weight: u64,
    pub(crate) records: u64,
}

impl Sum {
    pub(crate) fn of(dense: Vec<Vec<f32>>, rows: &[Rows], weight: u64, records: u64) -> Sum {
        let by_key = |rows: &Rows| {
            let dimension = rows.values().len() / rows.len().max(1);
            let each = rows.values().chunks(dimension.max(1)).map(<[f32]>::to_vec);
            rows.keys().iter().copied().zip(each).collect()
        };
        Sum { dense, rows: rows.iter().map(by_key).collect(), weight, records }
    }

    /// Adds another, in no order that a model could be made in.
    fn add(&mut self, other: &Sum) {
        let add = |ours: &mut Vec<f32>, theirs: &[f32]| {
            ours.resize(theirs.len().max(ours.len()), 0.0);
            ours.iter_mut().zip(theirs).for_each(|(ours, theirs)| *ours += theirs);
        };
        self.dense.resize(other.dense.len().max(self.dense.len()), Vec::new());
        self.rows.resize(other.rows.len().max(self.rows.len()), BTreeMap::new());
        self.dense.iter_mut().zip(&other.dense).for_each(|(ours, theirs)| add(ours, theirs));
        for (ours, theirs) in self.rows.iter_mut().zip(&other.rows) {
            theirs.iter().for_each(|(key, row)| add(ours.entry(*key).or_default(), row));
        }
        self.weight += other.weight;
        self.records += other.records;
    }

    /// The sum of squares of a parameter's elements.
    fn square(&self, parameter: usize) -> f64 {
        let dense = self.dense.get(parameter).into_iter().flatten();
        let rows = self.rows.get(parameter).into_iter().flat_map(BTreeMap::values).flatten();
        dense.chain(rows).map(|value| f64::from(*value) * f64::from(*value)).sum()
    }

    /// The norm of the sum over all trained parameters; what is not finite is larger than anything.
    pub(crate) fn norm_of_sum(&self, names: &Names) -> f64 {
        let norm = trained(names).map(|(parameter, _)| self.square(parameter)).sum::<f64>().sqrt();
        if norm.is_finite() { norm } else { f64::INFINITY }
    }

    /// What is told of it.
    fn measured(&self, names: &Names, loss_scale: f32) -> Map<String, Value> {
        let divisor = (self.weight as f64 * f64::from(loss_scale)).max(f64::MIN_POSITIVE);
        let norm = |square: f64| square.sqrt() / divisor;
        let squares: Vec<(&str, f64)> =
            trained(names).map(|(parameter, name)| (name, self.square(parameter))).collect();
        let norms: Map<String, Value> =
            squares.iter().map(|(name, square)| ((*name).to_owned(), json!(norm(*square)))).collect();
        let losses = names.declaration.parameters.iter().zip(&self.dense);
        let losses = losses.filter(|(parameter, _)| parameter.name == LOSS && parameter.rule == Rule::Sum);
        let loss = losses.map(|(_, sums)| sums.iter().map(|sum| f64::from(*sum)).sum::<f64>()).next();
        let mut measured = Map::new();
        measured.insert("records".to_owned(), json!(self.records));
        measured.insert("weight".to_owned(), json!(self.weight));
        measured.insert("loss".to_owned(), json!(loss.map(|loss| loss / (self.records as f64).max(1.0))));
        measured.insert("norm".to_owned(), json!(norm(squares.iter().map(|(_, square)| square).sum())));
        measured.insert("norms".to_owned(), norms.into());
        measured
    }
}

/// Parameters that are trained by gradients: counters, metrics and running statistics have no norm that would mean anything.
fn trained(names: &Names) -> impl Iterator<Item = (usize, &str)> {
    let all = names.declaration.parameters.iter().enumerate();
    all.filter(|(_, parameter)| parameter.rule.has_rate())
        .map(|(at, parameter)| (at, parameter.name.as_str()))
}

/// One microbatch of a step.
pub(crate) struct Seen<'a> {
    /// Counted from 1.
    pub(crate) step: u64,
    /// Of the epoch.
    pub(crate) microbatch: u64,
    /// Microbatches that the step has.
    pub(crate) of: u32,
    pub(crate) sum: &'a Sum,
    /// What was decided over an earlier step, the one that made the parameters, and which that is.
    pub(crate) decision: Option<(u64, Decision)>,
    pub(crate) loss_scale: f32,
    /// Records alone, by their indexes, or why they have no gradient.
    pub(crate) alone: Vec<(u64, Result<Sum, String>)>,
}

impl Inspection {
    /// Begins a file of this trainer's name.
    pub(crate) fn begin(settings: &InspectionSettings, trainer: &str) -> Result<Inspection, TrainError> {
        let path = settings.folder.join(format!("{trainer}.jsonl"));
        let file = open(&path)
            .map_err(|error| TrainError::Settings(format!("SHOAL_INSPECT: {}: {error}", path.display())))?;
        Ok(Inspection {
            settings: settings.clone(),
            inner: Mutex::new(Inner { file, steps: BTreeMap::new() }),
        })
    }

    /// Which records of a step are to be put through alone; none where the step is not looked at.
    pub(crate) fn alone(&self, step: u64) -> Option<Alone> {
        self.settings.steps.contains(&step).then_some(self.settings.alone)
    }

    /// Writes what was seen; of a step that is whole now, too.
    pub(crate) fn see(&self, names: &Names, seen: Seen<'_>) {
        let Seen { step, microbatch, of, sum, decision, loss_scale, alone } = seen;
        let mut line = sum.measured(names, loss_scale);
        line.insert("step".to_owned(), json!(step));
        line.insert("microbatch".to_owned(), json!(microbatch));
        let alone: Vec<Value> = alone
            .into_iter()
            .map(|(index, sum)| {
                let mut of = match &sum {
                    Ok(sum) => sum.measured(names, loss_scale),
                    Err(why) => Map::from_iter([("error".to_owned(), json!(why))]),
                };
                of.insert("record".to_owned(), json!(index));
                Value::from(of)
            })
            .collect();
        line.insert("alone".to_owned(), alone.into());
        let decided = decision.map(|(step, Decision { factor, is_skipped, norm, loss_scale, .. })| {
            json!({ "step": step, "factor": factor, "skipped": is_skipped, "norm": norm, "loss_scale": loss_scale })
        });
        line.insert("decided".to_owned(), decided.into());
        let mut inner = self.inner();
        let mut lines = format!("{}\n", Value::from(line));
        let (seen, whole) = inner.steps.entry(step).or_default();
        // One that is computed again counts once.
        if seen.insert(microbatch) {
            whole.add(sum);
        }
        let is_whole = seen.len() as u32 == of;
        while inner.steps.len() > OPEN_MAX && inner.steps.pop_first().is_some() {}
        if is_whole && let Some((_, whole)) = inner.steps.remove(&step) {
            let mut line = whole.measured(names, loss_scale);
            line.insert("step".to_owned(), json!(step));
            lines.push_str(&format!("{}\n", Value::from(line)));
        }
        if let Err(error) = inner.file.write_all(lines.as_bytes()) {
            tracing::warn!(%error, "what was inspected cannot be written");
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
    let mut file = File::options().append(true).create(true).open(path)?;
    // After a line that was torn.
    file.write_all(b"\n")?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_runtime::cluster::initial::Initial;
    use shoal_runtime::cluster::{Declaration, Parameter, Precision, Schedule, Table};

    /// A trained parameter of two elements, a table of rows of one, and the losses.
    fn names() -> Names {
        let of = |name: &str, shape: &[u64]| {
            Parameter::new(name, shape, Rule::Sgd, Schedule::constant(0.1), Initial::Zeros)
        };
        let parameters =
            vec![of("w", &[2]), of("t", &[1]).as_table(Table::default()), Parameter::sum(LOSS, &[3])];
        Names::new(Declaration { parameters, block_elements: 0 }, 1, Precision::F32)
    }

    fn sum(dense: [f32; 2], losses: [f32; 3], weight: u64) -> Sum {
        let mut rows = Rows::zeros(1, [7]);
        rows.values_mut()[0] = 12.0;
        Sum::of(vec![dense.to_vec(), vec![], losses.to_vec()], &[Rows::default(), rows], weight, weight)
    }

    #[test]
    fn norms_are_of_means_without_the_loss_scale_and_losses_are_by_record() {
        let (names, sum) = (names(), sum([3.0, 4.0], [0.0, 5.0, 0.0], 2));
        let measured = Value::from(sum.measured(&names, 4.0));
        assert_eq!(measured["norms"], json!({ "w": 5.0 / 8.0, "t": 12.0 / 8.0 }));
        assert_eq!((&measured["norm"], &measured["loss"]), (&json!(13.0 / 8.0), &json!(2.5)));
        let spoiled = Sum { dense: vec![vec![f32::NAN, 1.0]], ..sum };
        assert_eq!(Value::from(spoiled.measured(&names, 1.0))["norm"], Value::Null);
        assert_eq!(spoiled.norm_of_sum(&names), f64::INFINITY);
    }

    #[test]
    fn a_step_is_whole_with_its_last_microbatch_and_steps_beyond_are_not_looked_at() {
        let (names, folder) = (names(), tempfile::tempdir().unwrap());
        let to = folder.path().join("inspected");
        let settings = InspectionSettings::parse(&format!("all:3..4:{}", to.display())).unwrap();
        let inspection = Inspection::begin(&settings, "trainer-0").unwrap();
        assert_eq!(
            [2, 3, 4, 5].map(|step| inspection.alone(step)),
            [None, Some(Alone::All), Some(Alone::All), None]
        );
        let see = |microbatch, dense: [f32; 2], alone| {
            let (sum, decision, loss_scale) = (&sum(dense, [1.0, 0.0, 0.0], 1), None, 1.0);
            inspection.see(&names, Seen { step: 3, microbatch, of: 2, sum, decision, loss_scale, alone });
        };
        see(8, [3.0, 0.0], vec![(40, Err("no digit".to_owned()))]);
        see(8, [3.0, 0.0], vec![]);
        see(9, [-3.0, 4.0], vec![]);
        let text = std::fs::read_to_string(to.join("trainer-0.jsonl")).unwrap();
        let lines: Vec<Value> =
            text.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0]["alone"], json!([{ "record": 40, "error": "no digit" }]));
        assert_eq!(
            (lines.len(), &lines[3]["microbatch"], &lines[3]["records"]),
            (4, &Value::Null, &json!(2))
        );
        assert_eq!(lines[3]["norms"], json!({ "w": 2.0, "t": 12.0 }), "of the mean of both");
    }

    #[test]
    fn what_is_no_inspection_is_refused_by_the_variables_name() {
        for wrong in ["", "all", "all:1..2", "some:1..2:/tmp", "all:1-2:/tmp", "all:1..x:/tmp"] {
            let error = InspectionSettings::parse(wrong).unwrap_err().to_string();
            assert!(error.contains("SHOAL_INSPECT"), "{error}");
        }
    }
}
