//! What is wrong with settings: with each alone, by its schema, and with several together.

use super::schema::SCHEMA;
use super::{Mode, Naming, Spec};
use crate::numbered::{is_numbered, not_alone, records};
use serde_json::{Value, json};

impl Spec {
    /// Everything that is wrong with the settings, each fault with its place in the words of whoever has said it and the way out.
    ///
    /// What can only be known on the machine (files, places) is not looked at.
    pub fn faults(&self, naming: Naming) -> Vec<String> {
        let mut faults = self.faults_alone(naming);
        faults.extend(self.faults_of_data(naming));
        faults.extend(self.faults_of_the_model(naming));
        faults.extend(self.faults_of_the_mode(naming));
        faults
    }

    /// What is wrong with settings one by one, whatever the others are.
    pub fn faults_alone(&self, naming: Naming) -> Vec<String> {
        let mut faults = Vec::new();
        check_value(&SCHEMA, &json!(self), &mut |path, what| {
            faults.push(format!("{}: {what}", naming.of(path)));
        });
        for (path, names) in [("data", &self.data), ("evalData", &self.eval_data)] {
            faults.extend(numbered(names).map(|fault| format!("{}: {fault}", naming.of(path))));
        }
        faults
    }

    fn faults_of_data(&self, name: Naming) -> Option<String> {
        let has = |names: &[String]| !names.is_empty();
        let is_evaluated_at_times = self.eval_steps.is_some() || self.eval_epochs.is_some();
        match (self.epochs(), has(&self.data), has(&self.eval_data)) {
            _ if self.predict.is_some() && has(&self.eval_data) => Some(format!(
                "{}: name the records to predict by {}, not by it",
                name.of("evalData"),
                name.of("data")
            )),
            (_, false, _) if self.predict.is_some() => {
                Some(format!("{}: name the records to predict", name.of("data")))
            }
            (_, false, false) => Some(format!("{}: name the RecordIO files to train on", name.of("data"))),
            (0, _, false) if self.predict.is_none() => Some(format!(
                "{} trains nothing: give {} to evaluate, or {}",
                name.says("epochs", "0"),
                name.of("evalData"),
                name.of("predict")
            )),
            (1.., false, true) => Some(format!(
                "{}: name what to train on; to evaluate without training, give {}",
                name.of("data"),
                name.says("epochs", "0")
            )),
            _ if self.eval_steps.is_some() && self.eval_epochs.is_some() => {
                Some(format!("{}: give either it or {}", name.of("evalSteps"), name.of("evalEpochs")))
            }
            (_, _, false) if is_evaluated_at_times => {
                let path = if self.eval_steps.is_some() { "evalSteps" } else { "evalEpochs" };
                Some(format!("{} goes with {}", name.of(path), name.of("evalData")))
            }
            _ => None,
        }
    }

    fn faults_of_the_model(&self, name: Naming) -> Option<String> {
        match (self.is_without_training(), self.warm_start.is_some(), self.untrained) {
            (true, false, false) => {
                let what = match self.predict {
                    Some(_) => name.of("predict"),
                    None => name.says("epochs", "0"),
                };
                Some(format!(
                    "{}: name the model, PLACE/FILE.safetensors: for {what} it would be as it begins, untrained; for a baseline, say \
                     {}",
                    name.of("warmStart"),
                    name.sets("untrained")
                ))
            }
            (true, true, true) => Some(format!(
                "{}: {} names a model: give one of the two",
                name.of("untrained"),
                name.of("warmStart")
            )),
            (false, _, true) => Some(format!(
                "{} goes with {} or {}: this job trains",
                name.of("untrained"),
                name.of("predict"),
                name.says("epochs", "0")
            )),
            _ => None,
        }
    }

    /// Settings that the other mode knows would do nothing.
    fn faults_of_the_mode(&self, name: Naming) -> Vec<String> {
        let is_async = self.mode() == Mode::Async;
        let of_the_other = [
            ("delay", is_async && self.delay() > 0, "asynchronous jobs have none"),
            (
                "verify",
                is_async && self.verify() > 0.0,
                "in an asynchronous job no two computations of a microbatch read the same parameters, so nothing can be compared",
            ),
            (
                "recordHashes",
                is_async && self.record_hashes() > 0,
                "asynchronous jobs have no version that all blocks share",
            ),
            (
                "stalenessWindow",
                !is_async && self.staleness_window.is_some(),
                "synchronous jobs know no staleness",
            ),
            ("scaleByStaleness", !is_async && self.scale_by_staleness, "synchronous jobs know no staleness"),
        ];
        let mode = name.says("mode", if is_async { "sync" } else { "async" });
        let wrong = of_the_other.into_iter().filter(|(_, is_wrong, _)| *is_wrong);
        wrong.map(|(path, _, why)| format!("{}: {why}: take it out, or give {mode}", name.of(path))).collect()
    }
}

/// What is wrong with records that are numbers.
fn numbered(names: &[String]) -> impl Iterator<Item = String> {
    // Several names in one are told apart by whoever looks for files.
    names.iter().filter(|name| is_numbered(name) && !name.contains(',')).filter_map(|name| {
        match records(name) {
            Ok(_) if names.len() > 1 => Some(not_alone(name)),
            Ok(_) => None,
            Err(fault) => Some(fault),
        }
    })
}

/// Tells what of a value its schema does not permit: the path of the field, and what is wrong with it.
pub fn check_value(schema: &Value, value: &Value, tell: &mut impl FnMut(&str, String)) {
    check_at(schema, value, "", tell);
}

fn check_at(schema: &Value, value: &Value, at: &str, tell: &mut impl FnMut(&str, String)) {
    if value.is_null() {
        return;
    }
    if let Some(fault) = fault_of_one(schema, value) {
        return tell(at, fault);
    }
    if schema["x-kubernetes-preserve-unknown-fields"] == json!(true) {
        return;
    }
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            let path = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
            match schema["properties"].get(key).or(schema.get("additionalProperties")) {
                Some(schema) => check_at(schema, value, &path, tell),
                None => {
                    tell(&path, "there is no such field; see `kubectl explain trainingjob.spec`".to_owned());
                }
            }
        }),
        Value::Array(list) => list.iter().enumerate().for_each(|(number, value)| {
            check_at(&schema["items"], value, &format!("{at}[{number}]"), tell);
        }),
        _ => {}
    }
}

/// What is wrong with a value itself; what it holds is not looked at.
fn fault_of_one(schema: &Value, value: &Value) -> Option<String> {
    let is_of_type = |word: &str| match word {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        // The API server has no larger ones.
        "integer" => value.is_i64(),
        "number" => value.is_number(),
        _ => false,
    };
    // An optional field is of its type or null.
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if value.is_u64() && !value.is_i64() && types.contains(&"integer") {
        return Some(format!("{value} is above {}", i64::MAX));
    }
    if !types.is_empty() && !types.iter().any(|word| is_of_type(word)) {
        return Some(format!("{value} is no {}", types[0]));
    }
    if let Some(words) = words(schema)
        && !words.contains(&value.as_str().unwrap_or_default())
    {
        return Some(format!("{value} is none of {}", words.join(", ")));
    }
    let number = value.as_f64()?;
    let least = schema["minimum"].as_f64().filter(|least| number < *least);
    let most =
        ["maximum", "x-most"].iter().find_map(|word| schema[word].as_f64().filter(|most| number > *most));
    least
        .map(|least| format!("{value} is below {least}"))
        .or_else(|| most.map(|most| format!("{value} is above {most}")))
}

/// The words that a field may have, if it is one of a few: as a list, or each with its own description.
fn words(schema: &Value) -> Option<Vec<&str>> {
    let listed = schema["enum"].as_array().map(|words| words.iter().filter_map(Value::as_str).collect());
    listed.or_else(|| {
        let each = ["oneOf", "anyOf"].iter().find_map(|several| schema[several].as_array())?;
        let words: Vec<&str> = each
            .iter()
            .flat_map(|one| one["const"].as_str().into_iter().chain(words(one).unwrap_or_default()))
            .collect();
        (!words.is_empty()).then_some(words)
    })
}
