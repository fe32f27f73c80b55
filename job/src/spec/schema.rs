//! What the fields' attributes say of settings, as data: their bounds, and which of them are pinned.

use super::Spec;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;
use std::sync::LazyLock;

/// The attribute of a field that may not change once a job has begun.
const PINNED: &str = "x-pinned";

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
    /// What its comment says, and whether it may change.
    pub description: String,
    /// Whether it may not change once a job has begun: its schema says `x-pinned`.
    pub is_pinned: bool,
}

/// The fields of a type, in the order of names.
pub fn fields<T: JsonSchema>() -> Vec<Field> {
    let mut found = Vec::new();
    walk(&schema_of::<T>(), "", &mut |path, schema| {
        let is_pinned = schema[PINNED] == Value::Bool(true);
        let said = schema["description"].as_str().unwrap_or_default();
        let description = if is_pinned {
            format!("{said} May not change once the job has begun.")
        } else {
            said.to_owned()
        };
        found.push(Field { path: path.to_owned(), description, is_pinned });
    });
    found
}

/// Tells of each field of an object's schema, and of theirs.
pub(super) fn walk(schema: &Value, at: &str, tell: &mut impl FnMut(&str, &Value)) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
        tell(&path, field);
        walk(field, &path, tell);
    }
}
