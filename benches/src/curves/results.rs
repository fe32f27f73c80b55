//! What was trained, as it is printed and read again: a curve for each job. It must never fill in what a job did not tell. Pure.

use super::sets::Set;
use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// The result of one run, or of several put together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Results {
    /// The machine's load averages (1, 5, 15 minutes) as the run began, where the system tells them.
    pub(crate) load_before: Option<String>,
    /// And as it ended.
    pub(crate) load_after: Option<String>,
    pub(crate) sets: Vec<OfSet>,
}

/// What was trained on one set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct OfSet {
    pub(crate) set: Set,
    pub(crate) network: String,
    pub(crate) records: u64,
    pub(crate) held_out: u64,
    pub(crate) epochs: u32,
    /// In the order in which they were trained.
    pub(crate) curves: Vec<Curve>,
}

/// One job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Curve {
    pub(crate) mode: Mode,
    pub(crate) trainers: Trainers,
    pub(crate) seed: u64,
    /// After each epoch in turn.
    pub(crate) evaluations: Vec<Evaluation>,
    /// How many trainers were live, from which epoch on.
    pub(crate) live: Vec<Live>,
    pub(crate) seconds: f64,
    /// How often the job went back.
    pub(crate) rewinds: u64,
    pub(crate) parameters_sha256: String,
}

/// What the model was on the records held out.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Evaluation {
    pub(crate) accuracy: f64,
    pub(crate) log_loss: f64,
}

/// So many trainers, seen first when so many epochs were done.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Live {
    pub(crate) epoch: f64,
    pub(crate) trainers: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    Sync,
    Async,
}

/// How many trainers a job has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Trainers {
    #[serde(rename = "2")]
    Few,
    #[serde(rename = "4")]
    Many,
    #[serde(rename = "2-4")]
    Elastic,
}

impl Trainers {
    pub(crate) const ALL: [Trainers; 3] = [Trainers::Few, Trainers::Many, Trainers::Elastic];
}

impl Curve {
    /// Of a job that has ended, from its closing object.
    pub(crate) fn of(
        (mode, trainers, seed): (Mode, Trainers, u64),
        epochs: u32,
        live: Vec<Live>,
        closing: &Value,
    ) -> anyhow::Result<Curve> {
        let number = |of: &Value, name: &str| {
            of[name].as_f64().with_context(|| format!("its closing object has no {name}"))
        };
        ensure!(closing["records_excluded"] == 0, "records were left out of it");
        let told = closing["evaluations"].as_array().context("its closing object has no evaluations")?;
        let evaluation = |evaluation: &Value| {
            let metrics = &evaluation["metrics"];
            let (accuracy, log_loss) = (number(metrics, "accuracy")?, number(metrics, "log_loss")?);
            Ok(Evaluation { accuracy, log_loss })
        };
        let evaluations: Vec<Evaluation> = told.iter().map(evaluation).collect::<anyhow::Result<_>>()?;
        ensure!(
            evaluations.len() == epochs as usize,
            "{} evaluations of {epochs} epochs: not one after each",
            evaluations.len()
        );
        let rewinds = closing["rewinds"].as_u64().context("its closing object has no rewinds")?;
        let hash = closing["parameters_sha256"].as_str().context("its closing object has no hash")?;
        let (seconds, parameters_sha256) = (number(closing, "seconds")?, hash.to_owned());
        Ok(Curve { mode, trainers, seed, evaluations, live, seconds, rewinds, parameters_sha256 })
    }

    /// By the last evaluation.
    pub(crate) fn accuracy(&self) -> f64 {
        self.evaluations.last().map_or(0.0, |evaluation| evaluation.accuracy)
    }

    /// How often the number of live trainers changed between [`FEW`](super::changes::FEW) and
    /// [`MANY`](super::changes::MANY), whatever it was on the way.
    pub(crate) fn changes(&self) -> usize {
        let ends = [super::changes::FEW, super::changes::MANY];
        let mut reached: Vec<u32> =
            self.live.iter().map(|live| live.trainers).filter(|trainers| ends.contains(trainers)).collect();
        reached.dedup();
        reached.len().saturating_sub(1)
    }
}

impl Results {
    /// Puts curves of sets that are there already behind theirs.
    pub(crate) fn add(&mut self, sets: Vec<OfSet>) {
        for set in sets {
            let is_same = |other: &&mut OfSet| {
                (other.set, other.records, other.epochs) == (set.set, set.records, set.epochs)
            };
            match self.sets.iter_mut().find(is_same) {
                Some(other) => other.curves.extend(set.curves),
                None => self.sets.push(set),
            }
        }
    }
}

impl OfSet {
    pub(crate) fn of(&self, mode: Mode, trainers: Trainers) -> impl Iterator<Item = &Curve> {
        self.curves.iter().filter(move |curve| (curve.mode, curve.trainers) == (mode, trainers))
    }

    pub(crate) fn has(&self, mode: Mode) -> bool {
        self.curves.iter().any(|curve| curve.mode == mode)
    }
}

impl fmt::Display for Curve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each: Vec<String> =
            self.evaluations.iter().map(|evaluation| format!("{:.2}", 100.0 * evaluation.accuracy)).collect();
        let (hash, seconds) = (&self.parameters_sha256, self.seconds);
        write!(f, "{} % after each epoch, {seconds:.1} s, {hash:.12}", each.join(" "))
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(if *self == Mode::Sync { "sync" } else { "async" })
    }
}

impl fmt::Display for Trainers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Trainers::Few => "2",
            Trainers::Many => "4",
            Trainers::Elastic => "2-4 elastic",
        })
    }
}

#[cfg(test)]
pub(crate) mod samples {
    //! Made-up results for tests.

    use super::*;

    pub(crate) fn curve(mode: Mode, trainers: Trainers, seed: u64, accuracies: &[f64]) -> Curve {
        let evaluation = |accuracy: &f64| Evaluation { accuracy: *accuracy, log_loss: 0.25 };
        let live = [(0.0, 2), (0.5, 3), (0.6, 4), (1.5, 2)];
        Curve {
            mode,
            trainers,
            seed,
            evaluations: accuracies.iter().map(evaluation).collect(),
            live: live.map(|(epoch, trainers)| Live { epoch, trainers }).to_vec(),
            seconds: 12.5,
            rewinds: 0,
            parameters_sha256: "0123456789abcdef".repeat(4),
        }
    }

    /// Both modes, the asynchronous one with two seeds.
    pub(crate) fn results() -> Results {
        let mut curves = Vec::new();
        for trainers in Trainers::ALL {
            curves.push(curve(Mode::Sync, trainers, 7, &[0.90, 0.95]));
            curves.push(curve(Mode::Async, trainers, 7, &[0.91, 0.95]));
            curves.push(curve(Mode::Async, trainers, 8, &[0.89, 0.97]));
        }
        let network = "LeNet-5".to_owned();
        let set = OfSet { set: Set::Mnist, network, records: 60_000, held_out: 10_000, epochs: 2, curves };
        Results { load_before: Some("0.1 0.2 0.3".to_owned()), load_after: None, sets: vec![set] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn closing() -> Value {
        let metrics = |accuracy: f64| json!({"step": 1, "metrics": {"accuracy": accuracy, "log_loss": 0.5}});
        json!({
            "evaluations": [metrics(0.5), metrics(0.75)], "seconds": 3.5, "rewinds": 1, "records_excluded": 0,
            "parameters_sha256": "ab",
        })
    }

    fn of(closing: &Value, epochs: u32) -> Result<Curve, String> {
        let told = (Mode::Async, Trainers::Elastic, 7);
        Curve::of(told, epochs, Vec::new(), closing).map_err(|error| error.to_string())
    }

    #[test]
    fn a_curve_has_an_evaluation_for_each_epoch() {
        let curve = of(&closing(), 2).unwrap();
        assert_eq!(curve.evaluations.iter().map(|e| e.accuracy).collect::<Vec<_>>(), [0.5, 0.75]);
        assert_eq!((curve.accuracy(), curve.rewinds, curve.seconds), (0.75, 1, 3.5));
        assert!(of(&closing(), 3).unwrap_err().contains("2 evaluations of 3 epochs"));
    }

    #[test]
    fn what_a_job_did_not_tell_is_no_curve() {
        for name in ["evaluations", "seconds", "rewinds", "records_excluded", "parameters_sha256"] {
            let mut closing = closing();
            closing[name] = Value::Null;
            assert!(of(&closing, 2).is_err(), "{name}");
        }
        let mut without = closing();
        without["evaluations"][1]["metrics"]["accuracy"] = Value::Null;
        assert!(of(&without, 2).unwrap_err().contains("accuracy"));
        let mut short = closing();
        short["records_excluded"] = 3.into();
        assert!(of(&short, 2).unwrap_err().contains("left out"));
    }

    #[test]
    fn changes_are_counted_where_they_arrive() {
        let curve = samples::curve(Mode::Sync, Trainers::Elastic, 7, &[0.5]);
        assert_eq!(curve.changes(), 2);
    }

    #[test]
    fn results_are_read_as_they_were_printed_and_put_together() {
        let results = samples::results();
        let read: Results = serde_json::from_str(&serde_json::to_string(&results).unwrap()).unwrap();
        assert_eq!(read, results);
        let (mut both, mut other) = (read, results.sets[0].clone());
        both.add(results.sets.clone());
        assert_eq!((both.sets.len(), both.sets[0].curves.len()), (1, 18));
        other.epochs = 9;
        both.add(vec![other]);
        assert_eq!(both.sets.len(), 2);
    }
}
