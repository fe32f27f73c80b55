//! Evaluations in words and as JSON, as status and closing output show them. Reads a status and nothing else.

use serde_json::{Value, json};
use shoal_runtime::wire::proto::{EvaluationStatus, StatusReply};

/// So many are shown: the newest.
const SHOWN: usize = 5;

/// The newest evaluations and the best, one line each.
pub fn lines(status: &StatusReply) -> Vec<String> {
    let planned = status.evaluations_planned;
    if planned == 0 {
        return Vec::new();
    }
    let evaluations = &status.evaluations;
    let stopped = if status.is_stopped_early { "; the job ends early: it gets no better" } else { "" };
    let mut lines = vec![format!("evaluated {} of {planned} times{stopped}", evaluations.len())];
    let first = evaluations.len().saturating_sub(SHOWN);
    let shown = |(at, evaluation): &(usize, &EvaluationStatus)| *at >= first || evaluation.is_best;
    lines.extend(evaluations.iter().enumerate().filter(shown).map(|(_, evaluation)| {
        let checkpoint = match evaluation.checkpoint {
            0 => String::new(),
            number => format!(", checkpoint {number}"),
        };
        let best = if evaluation.is_best { ", the best" } else { "" };
        let rate =
            if evaluation.rate < 1.0 { format!(", rates x {}", evaluation.rate) } else { String::new() };
        format!("  at step {:<8} {}{best}{checkpoint}{rate}", evaluation.step, values(evaluation))
    }));
    lines
}

/// The values of one evaluation, in the order in which its metrics were declared. `-` is of no record, `NaN` no number.
pub fn values(evaluation: &EvaluationStatus) -> String {
    let value = |value: Option<f64>| value.map_or_else(|| String::from("-"), |value| format!("{value:.4}"));
    let values = evaluation.values.iter().map(|metric| format!("{} {}", metric.name, value(metric.value)));
    values.collect::<Vec<_>>().join("  ")
}

/// All evaluations, oldest first. What is of no record and what is not finite are null: JSON has no words for these.
pub fn json(status: &StatusReply) -> Value {
    let evaluation = |evaluation: &EvaluationStatus| {
        let values = evaluation.values.iter().map(|metric| (metric.name.clone(), json!(metric.value)));
        json!({
            "step": evaluation.step, "metrics": values.collect::<serde_json::Map<_, _>>(),
            "is_best": evaluation.is_best, "rate": evaluation.rate,
            "checkpoint": Some(evaluation.checkpoint).filter(|checkpoint| *checkpoint > 0),
        })
    };
    status.evaluations.iter().map(evaluation).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_runtime::wire::proto::MetricValue;

    fn status(values: &[f64]) -> StatusReply {
        let evaluation = |(at, value): (usize, &f64)| EvaluationStatus {
            step: 10 * (at as u64 + 1),
            values: vec![
                MetricValue { name: "accuracy".into(), value: Some(*value) },
                MetricValue { name: "auc".into(), value: None },
            ],
            is_best: at == 1,
            rate: if at > 3 { 0.5 } else { 1.0 },
            checkpoint: u64::from(at == 1),
        };
        let evaluations: Vec<EvaluationStatus> = values.iter().enumerate().map(evaluation).collect();
        StatusReply { evaluations, evaluations_planned: 20, is_stopped_early: true, ..Default::default() }
    }

    #[test]
    fn the_newest_and_the_best_are_shown() {
        let lines = lines(&status(&[0.1, 0.9, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]));
        assert_eq!(lines.len(), 7);
        assert!(lines[0].contains("8 of 20") && lines[0].contains("ends early"));
        assert!(
            lines[1].contains("at step 20")
                && lines[1].contains("accuracy 0.9000  auc -, the best, checkpoint 1")
        );
        assert!(lines[6].contains("at step 80") && lines[6].contains("rates x 0.5"));
        assert!(super::lines(&StatusReply::default()).is_empty());
    }

    #[test]
    fn what_is_no_number_is_said_and_json_stays_json() {
        let odd = status(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
        let lines = lines(&odd);
        assert!(lines[1].contains("accuracy NaN  auc -"), "{lines:?}");
        assert!(lines[2].contains("accuracy inf") && lines[3].contains("accuracy -inf"), "{lines:?}");
        let text = json(&odd).to_string();
        let read: Value = serde_json::from_str(&text).unwrap();
        assert!([0, 1, 2].iter().all(|at: &usize| read[at]["metrics"]["accuracy"].is_null()), "{text}");
    }

    #[test]
    fn json_has_all_of_them() {
        let all = json(&status(&[0.1, 0.9]));
        assert_eq!(all[1]["metrics"]["accuracy"], 0.9);
        assert_eq!((&all[0]["metrics"]["auc"], &all[0]["checkpoint"]), (&Value::Null, &Value::Null));
        assert_eq!((&all[1]["is_best"], &all[1]["step"]), (&json!(true), &json!(20)));
    }
}
