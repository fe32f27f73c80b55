//! What the fields' attributes say of settings, as data: their bounds, and when a change of one counts.

use super::Spec;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;
use std::sync::LazyLock;

/// When a change of a field counts: its schema says so by `x-change`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// At once. Of a field whose schema says nothing.
    Live,
    /// For pods that are made from then on; those that run stay as they are: `"x-change" = "new-pods"`.
    NewPods,
    /// Never, once the job has begun: `"x-change" = "pinned"`.
    Pinned,
}

impl Change {
    pub(super) fn of(schema: &Value) -> Change {
        match schema["x-change"].as_str() {
            Some("pinned") => Change::Pinned,
            Some("new-pods") => Change::NewPods,
            _ => Change::Live,
        }
    }

    /// In a sentence; none where there is nothing to warn of.
    fn sentence(self) -> &'static str {
        match self {
            Change::Live => "",
            Change::NewPods => " A change counts for pods made from then on.",
            Change::Pinned => " May not change once the job has begun.",
        }
    }
}

/// The schema of settings, everything of it in one place.
pub(super) static SCHEMA: LazyLock<Value> = LazyLock::new(schema_of::<Spec>);

fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

/// One field of settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its path, such as `checkpoint.place`.
    pub path: String,
    /// What its comment says, and when a change counts.
    pub description: String,
    /// When a change counts.
    pub change: Change,
    /// Whether it is made of other fields.
    pub is_group: bool,
}

/// The fields of a type, in the order of names.
pub fn fields<T: JsonSchema>() -> Vec<Field> {
    let mut found = Vec::new();
    walk(&schema_of::<T>(), "", &mut |path, schema| {
        let change = Change::of(schema);
        let said = schema["description"].as_str().unwrap_or_default();
        let description = format!("{said}{}", change.sentence());
        found.push(Field {
            path: path.to_owned(),
            description,
            change,
            is_group: !schema["properties"].is_null()
                && schema["x-kubernetes-preserve-unknown-fields"] != true,
        });
    });
    found
}

/// Tells of each field of an object's schema, and of theirs.
pub(super) fn walk(schema: &Value, at: &str, tell: &mut impl FnMut(&str, &Value)) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
        tell(&path, field);
        // What Kubernetes has a schema of is one field here, although a part of it is written down.
        if field["x-kubernetes-preserve-unknown-fields"] != true {
            walk(field, &path, tell);
        }
    }
}
