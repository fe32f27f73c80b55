//! Whether a Kubernetes cluster takes jobs of this person: its version, its definitions, its operator, and what is permitted.

use crate::doctor::outcome::Outcome;
use serde_json::{Value, json};

/// The oldest server that is tried: Kubernetes 1.20.
const MINOR_MIN: u64 = 20;
/// What to do for definitions and the operator.
const INSTALL: &str = "kubectl apply -k deploy/, or helm upgrade --install shoal deploy/chart -n shoal-system --create-namespace";

/// Judges the server's version, as it says it: major and minor; or why it does not answer.
pub(crate) fn judge_server(found: Result<(&str, &str), &str>) -> Outcome {
    let advice = "kubectl cluster-info; another cluster by --context or KUBECONFIG";
    let (major, minor) = match found {
        Ok(version) => version,
        Err(why) => return Outcome::failed(why, advice),
    };
    // Providers write such as `27+`.
    let number: String = minor.chars().take_while(char::is_ascii_digit).collect();
    let is_old = major == "1" && number.parse::<u64>().is_ok_and(|minor| minor < MINOR_MIN);
    let said = format!("Kubernetes {major}.{minor}");
    let outcome = match is_old {
        true => Outcome::warning(
            format!("{said}, older than what is tried (1.{MINOR_MIN})"),
            "upgrade the cluster",
        ),
        false => Outcome::ok(said),
    };
    outcome.with(json!({ "major": major, "minor": minor }))
}

/// Judges the versions of our group that the server has, and fields of a job that this build knows and the server does not. `None`: it
/// may not be looked at.
pub(crate) fn judge_definitions(ours: &str, served: &[String], unknown_fields: Option<&[String]>) -> Outcome {
    let said = served.join(", ");
    let outcome = if served.is_empty() {
        Outcome::failed("the cluster knows no TrainingJobs", INSTALL)
    } else if !served.iter().any(|version| version == ours) {
        Outcome::failed(
            format!("the cluster has {said}, and this command speaks {ours}"),
            format!("install both of one version: {INSTALL}"),
        )
    } else {
        match unknown_fields {
            Some([]) => Outcome::ok(format!("{said}, with every field that this command knows")),
            None => Outcome::ok(format!("{said}; its fields may not be looked at")),
            Some(fields) => Outcome::warning(
                format!("{said}, but without {}: older than this command", fields.join(", ")),
                "kubectl apply -f deploy/crds.yaml: it is compatible with the jobs that are there",
            ),
        }
    };
    outcome.with(json!({ "served": served, "expected": ours, "unknown_fields": unknown_fields }))
}

/// Fields of a job that one definition has, `ours`, and another has not, as paths such as `spec.tls`; of one that is absent nothing below
/// it is told.
pub(crate) fn unknown_fields(ours: &Value, theirs: &Value, version: &str) -> Vec<String> {
    let schema = |definition: &Value| {
        let versions = definition["spec"]["versions"].as_array().cloned().unwrap_or_default();
        let of = versions.into_iter().find(|one| one["name"] == version);
        of.map_or(Value::Null, |one| one["schema"]["openAPIV3Schema"].clone())
    };
    let mut found = Vec::new();
    let mut open = vec![(
        "spec".to_owned(),
        schema(ours)["properties"]["spec"].clone(),
        schema(theirs)["properties"]["spec"].clone(),
    )];
    while let Some((path, ours, theirs)) = open.pop() {
        for (name, inner) in ours["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            match theirs["properties"].get(name) {
                Some(theirs) => open.push((path, inner.clone(), theirs.clone())),
                None => found.push(path),
            }
        }
    }
    found.sort();
    found
}

/// A right that a command needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Right {
    /// Such as `create trainingjobs.shoal.dev`.
    pub(crate) what: String,
    /// Commands that need it.
    pub(crate) needed_by: &'static str,
    pub(crate) is_given: bool,
}

/// Judges rights in a namespace.
pub(crate) fn judge_rights(namespace: &str, rights: &[Right]) -> Outcome {
    let missing: Vec<&Right> = rights.iter().filter(|right| !right.is_given).collect();
    let outcome = if missing.is_empty() {
        Outcome::ok(format!("all {} that commands need in namespace {namespace}", rights.len()))
    } else {
        let said: Vec<String> =
            missing.iter().map(|right| format!("{} ({})", right.what, right.needed_by)).collect();
        Outcome::warning(
            format!("in namespace {namespace} not permitted: {}", said.join(", ")),
            format!(
                "whoever administers it grants them: kubectl create rolebinding shoal-$USER --clusterrole=edit --user=$USER -n {namespace}"
            ),
        )
    };
    let facts = rights.iter().map(|right| json!({ "right": right.what, "is_given": right.is_given }));
    outcome.with(json!({ "namespace": namespace, "rights": facts.collect::<Vec<_>>() }))
}

/// An operator's deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operator {
    pub(crate) namespace: String,
    pub(crate) image: String,
    pub(crate) ready: i32,
    pub(crate) wanted: i32,
}

/// Judges the operators that were found; why they may not be looked for otherwise.
pub(crate) fn judge_operator(found: Result<&[Operator], &str>) -> Outcome {
    let operators = match found {
        Err(why) => return Outcome::not_applicable(format!("deployments cannot be looked at: {why}")),
        Ok([]) => {
            return Outcome::failed("no operator is deployed: jobs stay as they are submitted", INSTALL);
        }
        Ok(operators) => operators,
    };
    let said =
        |one: &Operator| format!("{}: {} of {} ready, {}", one.namespace, one.ready, one.wanted, one.image);
    let words: Vec<String> = operators.iter().map(said).collect();
    let outcome = match operators.iter().find(|one| one.ready == 0) {
        Some(dead) if operators.iter().all(|one| one.ready == 0) => Outcome::failed(
            words.join("; "),
            format!(
                "kubectl -n {} get pods -l app.kubernetes.io/name=shoal-operator; kubectl -n {0} describe deployment shoal-operator",
                dead.namespace
            ),
        ),
        Some(dead) => Outcome::warning(words.join("; "), format!("kubectl -n {} get pods", dead.namespace)),
        None => Outcome::ok(words.join("; ")),
    };
    let facts = operators.iter().map(|one| {
        json!({ "namespace": one.namespace, "image": one.image, "ready": one.ready, "wanted": one.wanted })
    });
    outcome.with(json!({ "operators": facts.collect::<Vec<_>>() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::outcome::Level;

    #[test]
    fn a_cluster_that_does_not_answer_fails_and_an_old_one_is_warned_of() {
        assert_eq!(judge_server(Err("refused")).level, Level::Failed);
        assert_eq!(judge_server(Ok(("1", "27+"))).level, Level::Ok);
        assert_eq!(judge_server(Ok(("1", "19"))).level, Level::Warning);
    }

    #[test]
    fn definitions_are_absent_of_another_version_older_or_right() {
        let judge = |served: &[&str], unknown: Option<&[&str]>| {
            let strings = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
            judge_definitions("v1alpha1", &strings(served), unknown.map(strings).as_deref())
        };
        assert_eq!(judge(&[], None).level, Level::Failed);
        assert_eq!(judge(&["v1"], Some(&[])).level, Level::Failed);
        assert_eq!(judge(&["v1", "v1alpha1"], Some(&[])).level, Level::Ok);
        assert_eq!(judge(&["v1alpha1"], None).level, Level::Ok);
        let older = judge(&["v1alpha1"], Some(&["spec.tls"]));
        assert!(older.level == Level::Warning && older.found.contains("spec.tls"), "{older:?}");
    }

    #[test]
    fn fields_that_only_one_definition_has_are_found_at_any_depth() {
        let definition = |spec: Value| json!({ "spec": { "versions": [{ "name": "v1", "schema": { "openAPIV3Schema": { "properties": { "spec": spec } } } }] } });
        let ours = definition(
            json!({ "properties": { "a": { "properties": { "b": {}, "c": { "properties": { "d": {} } } } }, "e": {} } }),
        );
        let theirs =
            definition(json!({ "properties": { "a": { "properties": { "b": {}, "x": {} } }, "e": {} } }));
        assert_eq!(unknown_fields(&ours, &theirs, "v1"), ["spec.a.c"]);
        assert_eq!(unknown_fields(&theirs, &ours, "v1"), ["spec.a.x"]);
        assert!(unknown_fields(&ours, &ours, "v1").is_empty());
    }

    #[test]
    fn a_missing_right_is_named_with_the_commands_that_need_it() {
        let right = |what: &str, is_given| Right { what: what.to_owned(), needed_by: "submit", is_given };
        assert_eq!(judge_rights("team", &[right("a", true)]).level, Level::Ok);
        let missing = judge_rights("team", &[right("a", true), right("create jobs", false)]);
        assert!(
            missing.level == Level::Warning && missing.found.contains("create jobs (submit)"),
            "{missing:?}"
        );
    }

    #[test]
    fn an_operator_that_is_absent_or_not_ready_fails() {
        let operator = |ready| Operator { namespace: "s".into(), image: "i".into(), ready, wanted: 2 };
        assert_eq!(judge_operator(Ok(&[operator(1)])).level, Level::Ok);
        assert_eq!(judge_operator(Ok(&[operator(0)])).level, Level::Failed);
        assert_eq!(judge_operator(Ok(&[operator(2), operator(0)])).level, Level::Warning);
        assert_eq!(judge_operator(Ok(&[])).level, Level::Failed);
        assert_eq!(judge_operator(Err("forbidden")).level, Level::NotApplicable);
    }
}
