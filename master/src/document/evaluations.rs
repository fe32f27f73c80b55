//! Evaluations that are judged, and what follows from them for the job. Pure.
//!
//! Their values are persisted before anything beyond them is leased; all else is worked out from the values whenever it is
//! asked for, so that no verdict can be lost, or contradict another.

use super::Document;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use shoal_runtime::cluster::{Judged, Version};

/// The values of one evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Of each metric, in the order in which they were declared; none of one that was of no record.
    pub values: Vec<Value>,
}

/// A value that is read back with the bits that it was written with: verdicts hang on them. One that is no number is the same as
/// itself, so that a document with one is not taken for a changed one.
#[derive(Clone, Copy, Debug)]
pub struct Value(pub Option<f64>);

impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        self.0.map(f64::to_bits) == other.0.map(f64::to_bits)
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.map(f64::to_bits).serialize(to)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Value, D::Error> {
        Option::<u64>::deserialize(from).map(|bits| Value(bits.map(f64::from_bits)))
    }
}

impl Document {
    /// What follows from the evaluations so far, if the job aims at a metric.
    pub fn judged(&self) -> Judged {
        let metrics = self.declaration.iter().flat_map(|declaration| declaration.metrics());
        let aimed =
            metrics.enumerate().find_map(|(at, declared)| Some((at, declared.metric, declared.target?)));
        let Some((at, metric, target)) = aimed else { return Judged::default() };
        let values = self.evaluations.iter().map(|evaluation| evaluation.values.get(at)?.0);
        target.judge(metric.better(), values)
    }

    /// Whether there is nothing left to judge.
    pub fn is_judged(&self) -> bool {
        let all = self.job.course().evaluations();
        self.evaluations.len() as u64 >= all || self.judged().last.is_some()
    }

    /// Whether the checkpoint of the best evaluation is kept.
    pub fn keeps_best(&self) -> bool {
        let mut metrics = self.declaration.iter().flat_map(|declaration| declaration.metrics());
        metrics.any(|declared| declared.target.is_some_and(|target| target.keep_best))
    }

    /// The version that an evaluation leaves behind.
    pub fn version_after(&self, evaluation: u64) -> Version {
        Version(self.job.course().evaluation(evaluation).end)
    }

    /// The version at which every block is complete: the last of the plan, or that of the evaluation that ended the job.
    pub fn last_version(&self) -> Version {
        self.judged().last.map_or(self.job.last_version(), |last| self.version_after(last))
    }

    /// The first step, or position, that may not be worked on yet: what lies beyond an evaluation is open once that is
    /// judged. The job's last version when all is.
    pub fn open_until(&self) -> u64 {
        let (course, last) = (self.job.course(), self.last_version());
        let next = self.evaluations.len() as u64;
        if next < course.evaluations() { course.evaluation(next).end.min(last.0) } else { last.0 }
    }

    /// The version whose checkpoint is kept because none is better.
    pub fn best_version(&self) -> Option<Version> {
        self.judged().best.filter(|_| self.keeps_best()).map(|best| self.version_after(best))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Wanted;
    use crate::fixture;
    use shoal_runtime::cluster::{Evaluated, JobSettings, Metric, Parameter, Period, Target};

    /// 16 steps, evaluated after every 5 by 2 steps.
    fn document(target: Target, values: &[f64]) -> Document {
        let evaluated = Some(Evaluated { records: 32, every: Period::Steps(5), outputs: None });
        let job = JobSettings { evaluated, epochs: 1, ..fixture::settings(256, 2, 8, 2) };
        let mut declaration = fixture::declaration();
        declaration.parameters.push(Parameter::metric("auc", Metric::Auc { bins: 10 }));
        declaration.parameters.push(Parameter::metric("right", Metric::Accuracy).aiming(target));
        let evaluation = |value: &f64| Evaluation { values: vec![Value(None), Value(Some(*value))] };
        let wanted = Wanted { pservers: 1, trainers: 1, replicas: 0, exclude_max: 0 };
        let mut document = Document::new(job, wanted);
        document.declaration = Some(declaration);
        document.evaluations = values.iter().map(evaluation).collect();
        document
    }

    #[test]
    fn what_lies_beyond_an_evaluation_is_open_once_it_is_judged() {
        let keep = Target { keep_best: true, ..Target::default() };
        let until = |values: &[f64]| document(keep, values).open_until();
        assert_eq!([until(&[]), until(&[0.1]), until(&[0.1, 0.2]), until(&[0.1, 0.2, 0.3])], [7, 14, 21, 24]);
        assert_eq!(document(keep, &[0.1, 0.2, 0.3, 0.4]).open_until(), 24);
        assert_eq!(document(keep, &[0.1, 0.3, 0.2]).best_version(), Some(Version(14)));
    }

    #[test]
    fn an_early_stop_is_the_end_of_the_job_and_of_what_is_open() {
        let stop = Target { stop_after: Some(1), ..Target::default() };
        let stopped = document(stop, &[0.2, 0.1]);
        assert_eq!((stopped.last_version(), stopped.open_until()), (Version(14), 14));
        assert_eq!(document(stop, &[0.2, 0.3]).last_version(), Version(24));
        assert_eq!(stopped.best_version(), None, "nobody asked for it to be kept");
    }

    #[test]
    fn a_value_is_read_back_with_its_bits() {
        let mut document = document(Target { keep_best: true, ..Target::default() }, &[0.1 + 0.2, 1e-310]);
        document.evaluations[0].values[0] = Value(None);
        document.evaluations[1].values[0] = Value(Some(f64::NAN));
        assert_eq!(Document::from_bytes(&document.to_bytes()).unwrap(), document);
    }
}
