//! The resources' definitions, as they are installed: from the Rust types, with the rules that a server with CEL checks.

use super::job::{TrainingJob, TrainingJobSpec};
use super::plan::ScalePlan;
use super::tls;
use super::validate::{NAME_MAX, PINNED};
use kube::CustomResourceExt;
use serde_json::{Value, json};
use shoal_job::spec::{Field, fields};

/// Where a definition has the schema of an object, and of its `spec`.
const OBJECT: &str = "/spec/versions/0/schema/openAPIV3Schema";
const SPEC: &str = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";

/// The definitions of all resources, in the order in which they are installed.
pub fn definitions() -> Vec<Value> {
    let mut job = json!(TrainingJob::crd());
    let mut plan = json!(ScalePlan::crd());
    for definition in [&mut job, &mut plan] {
        without_defaults(definition);
        without_foreign_formats(definition);
        without_null_among_words(definition);
    }
    // The server reads a number at the place that scale names, and refuses null there in words of its own insides.
    let scaled = job.pointer_mut(&format!("{SPEC}/properties/trainer/properties/replicas"));
    scaled.and_then(Value::as_object_mut).map(|field| field.remove("nullable"));
    // Of a field that is one of a few words the definition has what its type says; here it has its own.
    for Field { path, description, .. } in fields::<TrainingJobSpec>() {
        let at = format!("{SPEC}/properties/{}", path.replace('.', "/properties/"));
        if let Some(field) = job.pointer_mut(&at).filter(|_| !description.is_empty()) {
            field["description"] = description.into();
        }
    }
    rule(&mut job, SPEC, spec_rules());
    rule(&mut job, OBJECT, object_rules());
    rule(&mut plan, SPEC, plan_rules());
    for (definition, paths) in
        [(&mut job, &[".status.phase"][..]), (&mut plan, &[".status.phase", ".spec.ownerJob"])]
    {
        let fields: Vec<Value> = paths.iter().map(|path| json!({ "jsonPath": path })).collect();
        definition["spec"]["versions"][0]["selectableFields"] = fields.into();
    }
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

/// Formats that Rust's numbers have and API servers do not know: they warn of each.
fn without_foreign_formats(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if map.get("format").and_then(Value::as_str).is_some_and(|format| format.starts_with("uint")) {
                map.remove("format");
            }
            map.values_mut().for_each(without_foreign_formats);
        }
        Value::Array(list) => list.iter_mut().for_each(without_foreign_formats),
        _ => {}
    }
}

/// A field that is one of a few words, and may be null as well, is refused when it is null: null is none of the words. Of a field that
/// may not be null, a server drops it.
fn without_null_among_words(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if map.get("enum").and_then(Value::as_array).is_some_and(|words| !words.contains(&Value::Null)) {
                map.remove("nullable");
            }
            map.values_mut().for_each(without_null_among_words);
        }
        Value::Array(list) => list.iter_mut().for_each(without_null_among_words),
        _ => {}
    }
}

fn rule(definition: &mut Value, at: &str, rules: Value) {
    if let Some(schema) = definition.pointer_mut(at) {
        schema["x-kubernetes-validations"] = rules;
    }
}

/// The rules of a job's spec that CEL can say, and that all jobs there are keep to.
fn spec_rules() -> Value {
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
    Value::Array(rules)
}

/// The rules of a ScalePlan's spec.
fn plan_rules() -> Value {
    json!([
        { "rule": "has(self.ownerJob) && size(self.ownerJob) > 0", "message": "spec.ownerJob: name the job" },
        {
            "rule": "!has(self.replicaResourceSpecs) || self.replicaResourceSpecs.all(role, role in ['worker', 'trainer', 'ps', 'pserver'])",
            "message": "spec.replicaResourceSpecs: a role is worker or trainer, ps or pserver",
        },
        {
            "rule": "(has(self.replicaResourceSpecs) && size(self.replicaResourceSpecs) > 0) || (has(self.migratePods) && size(self.migratePods) > 0)",
            "message": "spec: it asks for nothing: give replicaResourceSpecs or migratePods",
        },
    ])
}

/// The rules of a job as a whole: of what came later than jobs that are there, and of what may not change.
fn object_rules() -> Value {
    let mut rules = vec![json!({
        "rule": format!(
            "has(self.status) || (size(self.metadata.name) <= {NAME_MAX} && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$'))"
        ),
        "message": format!(
            "metadata.name: it names pods and a service: at most {NAME_MAX} lower-case letters, digits and dashes, a letter first"
        ),
    })];
    rules.extend(of_what_is_new(
        "checkpoint.place",
        "has(self.spec.checkpoint) && has(self.spec.checkpoint.place) && (self.spec.checkpoint.place.startsWith('/') || \
         self.spec.checkpoint.place.contains('://'))",
        "spec.checkpoint.place: say where the model is saved: a folder from the root, on a volume that master and pservers mount, or a URL",
    ));
    rules.extend(tls::rules().into_iter().flat_map(|(rule, message)| of_what_is_new("tls", &rule, message)));
    for role in ["pserver", "trainer"] {
        let number = format!("{role}.replicas");
        let [replicas, min, max] =
            ["replicas", "minReplicas", "maxReplicas"].map(|name| format!("self.spec.{role}.{name}"));
        let is_none = format!("!has(self.spec.{role}) || !has({replicas})");
        rules.extend(of_what_is_new(
            &number,
            &format!("{is_none} || {replicas} >= 1"),
            &format!("spec.{number}: 0 would stop the job: set spec.suspend to do so"),
        ));
        rules.extend(of_what_is_new(
            &number,
            &format!("{is_none} || {replicas} <= (has({max}) ? {max} : has({min}) ? {min} : 1)"),
            &format!("spec.{number}: more than maxReplicas: raise that, or ask for fewer"),
        ));
    }
    rules.extend(pins());
    Value::Array(rules)
}

/// A rule that jobs may break that were there before it, or whose bounds have changed since: it is of jobs that nobody has looked at
/// yet, and of changes of its field. Any other change of a job passes, its status and its end most of all.
fn of_what_is_new(path: &str, rule: &str, message: &str) -> [Value; 2] {
    let of_a_new_job = format!("has(self.status) || ({rule})");
    let of_a_change = format!("!has(self.status) || ({}) || ({rule})", is_same(path));
    [of_a_new_job, of_a_change].map(|rule| json!({ "rule": rule, "message": message }))
}

/// That a field of the spec is as it was.
fn is_same(path: &str) -> String {
    let has = |who: &str| {
        let parts: Vec<&str> = path.split('.').collect();
        let heads = (1..=parts.len()).map(|n| format!("has({who}.spec.{})", parts[..n].join(".")));
        heads.collect::<Vec<_>>().join(" && ")
    };
    let (now, before) = (has("self"), has("oldSelf"));
    format!("({now}) == ({before}) && (!({now}) || self.spec.{path} == oldSelf.spec.{path})")
}

/// What may not change once a job has begun. From the object, for only there a rule sees the status, which says whether it has.
fn pins() -> impl Iterator<Item = Value> {
    PINNED.iter().map(|path| {
        let has_not_begun =
            "!has(oldSelf.status) || !has(oldSelf.status.pinned) || oldSelf.status.pinned == ''";
        json!({
            "rule": format!("{has_not_begun} || ({})", is_same(path)),
            "message": format!("spec.{path}: may not change once a job has begun: make another job"),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::cases::{Case, cases, stored, with};
    use super::*;
    use shoal_job::spec::Change;
    use std::collections::BTreeSet;

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

    /// A definition without what is said of it, and with its rules in one order.
    fn shape(value: Value) -> Value {
        match value {
            Value::Object(map) => {
                let kept = map.into_iter().filter(|(key, value)| key != "description" || !value.is_string());
                let kept = kept.map(|(key, value)| {
                    let mut value = shape(value);
                    if let (true, Value::Array(rules)) = (key == "x-kubernetes-validations", &mut value) {
                        rules.sort_by_key(Value::to_string);
                    }
                    (key, value)
                });
                Value::Object(kept.collect())
            }
            Value::Array(list) => Value::Array(list.into_iter().map(shape).collect()),
            other => other,
        }
    }

    /// `shape.json` is the shape of what is committed: whoever changes it sees there what jobs that people have would have to bear.
    #[test]
    fn a_change_of_the_shape_of_a_definition_is_seen() {
        let before: Value = serde_json::from_str(include_str!("shape.json")).unwrap();
        let (before, now) = (shape(before), shape(Value::Array(definitions())));
        for (before, now) in before.as_array().unwrap().iter().zip(now.as_array().unwrap()) {
            assert_eq!(differences(before, now, ""), Vec::<String>::new());
        }
    }

    fn differences(before: &Value, now: &Value, at: &str) -> Vec<String> {
        match (before, now) {
            (Value::Object(one), Value::Object(other)) => {
                let keys: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
                keys.into_iter()
                    .flat_map(|key| differences(&before[key], &now[key], &format!("{at}/{key}")))
                    .collect()
            }
            (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
                let pairs = one.iter().zip(other).enumerate();
                pairs.flat_map(|(n, (one, other))| differences(one, other, &format!("{at}/{n}"))).collect()
            }
            // Numbers of one value are written in two ways.
            _ if before == now || before.as_f64().is_some_and(|number| now.as_f64() == Some(number)) => {
                Vec::new()
            }
            _ => vec![format!("{at}: {before} is now {now}")],
        }
    }

    #[test]
    fn fields_that_are_one_of_a_few_words_say_what_they_are_for() {
        let mode = &definitions()[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
            ["properties"]["mode"];
        let said = mode["description"].as_str().unwrap();
        assert!(
            said.contains("or async, one for each microbatch")
                && said.ends_with("May not change once the job has begun.")
        );
    }

    /// Each field of a job stands in one row of the table in the document for people, and in the right one.
    #[test]
    fn the_table_of_fields_says_when_a_change_of_each_counts() {
        let page = include_str!("../../../docs/kubernetes.md");
        let row = |begins: &str| {
            let row = page.lines().find(|line| line.starts_with(&format!("| {begins}")));
            let names = row.unwrap().split('`').skip(1).step_by(2).map(str::to_owned);
            names.collect::<BTreeSet<String>>()
        };
        let rows = [
            (Change::Live, row("at once")),
            (Change::NewPods, row("for pods made from then on")),
            (Change::Pinned, row("never")),
        ];
        for (change, written) in rows {
            let is_named =
                |field: &Field| field.change == change && (!field.is_group || change == Change::Pinned);
            let fields = fields::<TrainingJobSpec>().into_iter().filter(is_named).map(|field| field.path);
            let fields: BTreeSet<String> = fields.filter(|path| !path.starts_with("tls.")).collect();
            assert_eq!(written, fields, "{change:?}");
        }
    }

    fn rules(definition: &Value, at: &str) -> Vec<Value> {
        let rules = &definition.pointer(at).unwrap()["x-kubernetes-validations"];
        rules.as_array().cloned().unwrap_or_default()
    }

    /// A rule, compiled: of which part of an object it is, and what it says.
    struct Rule {
        part: &'static str,
        program: cel::Program,
        is_of_changes: bool,
        message: String,
    }

    fn compiled(definition: &Value) -> Vec<Rule> {
        let parts = [(OBJECT, ""), (SPEC, "/spec")].into_iter();
        let rules =
            parts.flat_map(|(at, part)| rules(definition, at).into_iter().map(move |rule| (part, rule)));
        let compiled = rules.map(|(part, rule)| {
            let text = rule["rule"].as_str().unwrap();
            Rule {
                part,
                program: cel::Program::compile(text).unwrap(),
                is_of_changes: text.contains("oldSelf"),
                message: rule["message"].as_str().unwrap().to_owned(),
            }
        });
        compiled.collect()
    }

    /// The messages of the rules that an object breaks, as a server finds them: of an object alone, or as the change of another.
    fn broken(rules: &[Rule], before: Option<&Value>, now: &Value) -> Vec<String> {
        let is_broken = |rule: &&Rule| {
            let mut context = cel::Context::default();
            let value = |of: &Value| cel::to_value(of.pointer(rule.part).unwrap()).unwrap();
            context.add_variable_from_value("self", value(now));
            match before {
                None if rule.is_of_changes => return false,
                None => {}
                Some(before) => context.add_variable_from_value("oldSelf", value(before)),
            }
            let holds = rule.program.execute(&context);
            holds.unwrap_or_else(|why| panic!("{}: {why} of {now}", rule.message)) != cel::Value::Bool(true)
        };
        rules.iter().filter(is_broken).map(|rule| rule.message.clone()).collect()
    }

    #[test]
    fn each_rule_says_what_alone_is_wrong_of_a_job_or_a_plan_or_of_the_change_of_one() {
        let rules: Vec<Vec<Rule>> = definitions().iter().map(compiled).collect();
        let [of_jobs, of_plans] = &rules[..] else { panic!("a definition more: it wants cases of its own") };
        let mut told = BTreeSet::new();
        for Case { before, now, said } in cases() {
            let rules = if now["kind"] == "ScalePlan" { of_plans } else { of_jobs };
            let broken = broken(rules, before.as_ref(), &now);
            let is_alone = said.is_none_or(|said| broken.len() == 1 && broken[0].starts_with(said));
            assert!(
                is_alone && said.is_some() != broken.is_empty(),
                "{before:?} {now}: {said:?}: {broken:?}"
            );
            told.extend(broken);
        }
        for rule in rules.iter().flatten() {
            assert!(told.contains(&rule.message), "no case breaks the rule: {}", rule.message);
        }
    }

    #[test]
    fn jobs_that_were_taken_before_a_rule_are_seen_changed_and_freed() {
        let rules = compiled(&definitions()[0]);
        for job in stored() {
            assert!(!broken(&rules, None, &job).is_empty(), "{job}");
            let seen = with(&job, vec![("/status", json!({ "phase": "Pending" }))]);
            let freed = with(&seen, vec![("/metadata/finalizers", json!([]))]);
            let other = with(&seen, vec![("/spec/copies", json!(1))]);
            for (before, now) in [(&job, &seen), (&seen, &freed), (&seen, &other)] {
                assert_eq!(broken(&rules, Some(before), now), Vec::<String>::new(), "{now}");
            }
        }
    }

    #[test]
    fn every_pinned_field_is_one_of_the_schema() {
        let job = &definitions()[0];
        for path in PINNED.iter() {
            let at = format!("{SPEC}/properties/{}", path.replace('.', "/properties/"));
            assert!(job.pointer(&at).is_some(), "{path}");
        }
    }
}
