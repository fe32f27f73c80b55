//! The figures of an experiment as one JSON object.

use crate::series::Experiment;
use serde_json::{Value, json};

/// The closing figures, `jobs_table` with a row for each job, `notes`, and `samples` if the series is wanted.
pub fn object(experiment: &Experiment, has_series: bool) -> Value {
    let mut figures = json!(experiment.summary());
    figures["jobs_table"] = json!(experiment.jobs);
    figures["notes"] = experiment.notes.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    if has_series {
        figures["samples"] = json!(experiment.samples);
    }
    figures
}
