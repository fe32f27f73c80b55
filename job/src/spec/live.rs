//! Which settings are live: those that may change while their job does. All others are pinned.

use super::Spec;
use super::schema::{Change, SCHEMA, walk};
use serde_json::{Value, json};
use std::sync::LazyLock;

/// The paths of all fields with a value of their own, and whether each is pinned.
static VALUES: LazyLock<Vec<(String, bool)>> = LazyLock::new(|| {
    let mut values = Vec::new();
    walk(&SCHEMA, "", &mut |path, field| {
        if field["properties"].is_null() {
            values.push((path.to_owned(), Change::of(field) == Change::Pinned));
        }
    });
    values
});

impl Spec {
    /// The live settings alone, as they are stated here.
    pub fn live(&self) -> Spec {
        self.only(false)
    }

    /// These settings, with the live ones as `other` states them: what it does not state is not stated.
    ///
    /// # Errors
    /// The pinned setting that `other` states in another way than these do.
    pub fn with_live(&self, other: &Spec) -> Result<Spec, String> {
        let (mine, stated) = (json!(self), json!(other));
        let differs = |path: &&String| {
            let theirs = at(&stated, path);
            !theirs.is_null() && theirs != at(&mine, path)
        };
        let mut pinned = VALUES.iter().filter(|(_, is_pinned)| *is_pinned).map(|(path, _)| path);
        match pinned.find(differs) {
            Some(path) => Err(format!("{path}: may not change once the job has begun")),
            None => Ok(other.live().over(&self.only(true))),
        }
    }

    /// The paths of live settings that two state differently.
    pub fn live_differences(&self, other: &Spec) -> Vec<&'static str> {
        let (mine, theirs) = (json!(self), json!(other));
        let live = VALUES.iter().filter(|(_, is_pinned)| !is_pinned).map(|(path, _)| path.as_str());
        live.filter(|path| at(&mine, path) != at(&theirs, path)).collect()
    }

    fn only(&self, kept: bool) -> Spec {
        let mut value = json!(self);
        for (path, _) in VALUES.iter().filter(|(_, is_pinned)| *is_pinned != kept) {
            let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
            if let Some(Value::Object(parent)) = value.pointer_mut(&pointer(parent)) {
                parent.remove(name);
            }
        }
        // What a spec is written as is one, with fewer fields as well: none is required.
        serde_json::from_value(value).unwrap_or_default()
    }
}

/// The value at a path; null where none is stated.
fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    value.pointer(&pointer(path)).unwrap_or(&Value::Null)
}

fn pointer(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!("/{}", path.replace('.', "/")) }
}
