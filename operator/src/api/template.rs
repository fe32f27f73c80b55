//! Pod templates within jobs: any object to the API server, read here as a pod template, with what it does not know named.

use k8s_openapi::api::core::v1::{Container, PodTemplateSpec};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// The name of the container that is the author's program, if the template gives none.
pub const TRAINER_CONTAINER: &str = "trainer";

/// The schema of what Kubernetes itself has a schema of, which would be ten thousand lines here. No part of it is written down for the
/// server's rules either: a field named `containers` that is no list ends `kubectl apply -k` of kubectl 1.20.
pub(super) fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// The schema of what a container asks for: Kubernetes' own pattern of quantities.
pub(super) fn resources(_: &mut SchemaGenerator) -> Schema {
    let quantity = json!({ "x-kubernetes-int-or-string": true, "anyOf": [{ "type": "integer" }, { "type": "string" }],
        "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$" });
    let list = json!({ "type": "object", "additionalProperties": quantity });
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "properties": { "requests": list, "limits": list } })
}

/// The template as a pod template.
///
/// # Errors
/// What is no pod template, or has fields that pods do not have; the message names the field below `at`.
pub fn typed_template(template: &Value, at: &str) -> Result<PodTemplateSpec, String> {
    let mut read = template.clone();
    // Kubernetes' types insist on containers; ours may leave them to the operator.
    if let Some(spec) =
        read.as_object_mut().map(|map| map.entry("spec").or_insert_with(|| Value::Object(Default::default())))
        && let Some(spec) = spec.as_object_mut()
    {
        spec.entry("containers").or_insert_with(|| Value::Array(Vec::new()));
    }
    let typed: PodTemplateSpec =
        serde_json::from_value(read.clone()).map_err(|why| format!("{at}: {why}"))?;
    let known = serde_json::to_value(&typed).map_err(|why| format!("{at}: {why}"))?;
    match unknown(&read, &known, at) {
        Some(field) => Err(format!("{field}: pods have no such field; see `kubectl explain pod.spec`")),
        None => Ok(typed),
    }
}

/// The first field of `read` that reading has lost.
fn unknown(read: &Value, known: &Value, at: &str) -> Option<String> {
    match (read, known) {
        (Value::Object(read), Value::Object(known)) => read.iter().find_map(|(key, value)| {
            let at = format!("{at}.{key}");
            match known.get(key) {
                Some(known) => unknown(value, known, &at),
                // Written out or left out, an absent value says the same.
                None if is_nothing(value) => None,
                None => Some(at),
            }
        }),
        (Value::Array(read), Value::Array(known)) => {
            let pairs = read.iter().zip(known).enumerate();
            pairs.into_iter().find_map(|(i, (read, known))| unknown(read, known, &format!("{at}[{i}]")))
        }
        _ => None,
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

/// The container of that name, or else the first.
pub fn container<'a>(template: &'a PodTemplateSpec, name: &str) -> Option<&'a Container> {
    let containers = &template.spec.as_ref()?.containers;
    containers.iter().find(|one| one.name == name).or_else(|| containers.first())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_template_with_a_misspelt_field_is_refused_by_its_place() {
        let good = json!({ "spec": { "containers": [{ "name": "trainer", "image": "i", "env": [] , "resources": {}}] } });
        assert_eq!(
            typed_template(&good, "t").unwrap().spec.unwrap().containers[0].image.as_deref(),
            Some("i")
        );
        let bad = json!({ "spec": { "containers": [{ "name": "trainer" }, { "name": "b", "resourcs": { "a": 1 } }] } });
        let said = typed_template(&bad, "spec.trainer.template").unwrap_err();
        assert!(said.starts_with("spec.trainer.template.spec.containers[1].resourcs: "), "{said}");
        let wrong = json!({ "spec": { "containers": [{ "name": 3 }] } });
        assert!(typed_template(&wrong, "t").unwrap_err().starts_with("t: "));
        assert!(typed_template(&json!({}), "t").unwrap().spec.unwrap().containers.is_empty());
        assert!(typed_template(&json!([1]), "t").is_err());
    }
}
