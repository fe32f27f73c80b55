//! The resources' definitions, as they are installed: from the Rust types, with the rules that a server with CEL checks.

use super::job::TrainingJob;
use super::plan::ScalePlan;
use super::validate::PINNED;
use kube::CustomResourceExt;
use serde_json::{Value, json};

/// The definitions of all resources, in the order in which they are installed.
pub fn definitions() -> Vec<Value> {
    let mut job = json!(TrainingJob::crd());
    let mut plan = json!(ScalePlan::crd());
    for definition in [&mut job, &mut plan] {
        without_defaults(definition);
    }
    rule(&mut job, "/properties/spec", job_rules());
    let owner = json!([{ "rule": "has(self.ownerJob) && size(self.ownerJob) > 0", "message": "spec.ownerJob: name the job" }]);
    rule(&mut plan, "/properties/spec", owner);
    vec![job, plan]
}

/// All definitions as one YAML file, which `kubectl apply -f` takes.
///
/// # Errors
/// None that a definition made of JSON can bring about.
pub fn definitions_as_yaml() -> Result<String, String> {
    let head = "# Made of operator/src/api: cargo run -p shoal-operator -- --crds > deploy/crds.yaml\n";
    let documents =
        definitions().into_iter().map(|one| serde_saphyr::to_string(&one).map_err(|why| why.to_string()));
    let documents = documents.collect::<Result<Vec<_>, _>>()?;
    Ok(format!("{head}{}", documents.join("---\n")))
}

/// Defaults are the operator's: written into objects they would outlive its next version.
fn without_defaults(value: &mut Value) {
    match value {
        Value::Object(map) => {
            // A property may be called "default"; a schema's default stands beside its type.
            if map.contains_key("type") || map.contains_key("enum") {
                map.remove("default");
            }
            map.values_mut().for_each(without_defaults);
        }
        Value::Array(list) => list.iter_mut().for_each(without_defaults),
        _ => {}
    }
}

fn rule(definition: &mut Value, at: &str, rules: Value) {
    let schema = format!("/spec/versions/0/schema/openAPIV3Schema{at}");
    if let Some(schema) = definition.pointer_mut(&schema) {
        schema["x-kubernetes-validations"] = rules;
    }
}

/// The rules of a job's spec that CEL can say.
fn job_rules() -> Value {
    let mut rules = vec![json!({
        "rule": "(has(self.data) && size(self.data) > 0) || (has(self.evalData) && size(self.evalData) > 0)",
        "message": "spec.data: name the RecordIO files to train on",
    })];
    for role in ["pserver", "trainer"] {
        let (min, max) = (format!("self.{role}.minReplicas"), format!("self.{role}.maxReplicas"));
        rules.push(json!({
            "rule": format!("!has(self.{role}) || !has({min}) || !has({max}) || {min} <= {max}"),
            "message": format!("spec.{role}.maxReplicas: below minReplicas: raise it or lower that"),
        }));
    }
    rules.extend(PINNED.iter().map(|path| {
        let has = |who: &str| {
            let parts: Vec<&str> = path.split('.').collect();
            let heads = (1..=parts.len()).map(|n| format!("has({who}.{})", parts[..n].join(".")));
            heads.collect::<Vec<_>>().join(" && ")
        };
        let (now, before) = (has("self"), has("oldSelf"));
        json!({
            "rule": format!("({now}) == ({before}) && (!({now}) || self.{path} == oldSelf.{path})"),
            "message": format!("spec.{path}: may not change once a job has begun: make another job"),
        })
    }));
    Value::Array(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_structural_and_sets_no_defaults() {
        for definition in definitions() {
            let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            let text = schema.to_string();
            assert!(
                !text.contains("\"default\"")
                    && !text.contains("$ref")
                    && text.contains("x-kubernetes-validations")
            );
        }
    }

    #[test]
    fn the_installed_definitions_are_those_of_the_types() {
        let committed = include_str!("../../../deploy/crds.yaml");
        let is_same = committed == definitions_as_yaml().unwrap();
        assert!(is_same, "out of date: cargo run -p shoal-operator -- --crds > deploy/crds.yaml");
        let read: Vec<Value> = serde_saphyr::from_multiple(committed).unwrap();
        assert_eq!(read, definitions());
    }

    #[test]
    fn every_pinned_field_is_one_of_the_schema() {
        let job = &definitions()[0];
        for path in PINNED {
            let at = path.replace('.', "/properties/");
            let at = format!("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/{at}");
            assert!(job.pointer(&at).is_some(), "{path}");
        }
    }
}
