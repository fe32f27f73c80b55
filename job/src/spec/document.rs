//! Settings as one JSON document: how a master is told all of them, and how those of several sources are put together.

use super::schema::SCHEMA;
use super::{Naming, Spec, check_value};
use clap::{Args, Command, FromArgMatches};
use serde_json::{Value, json};

/// Bytes of one part of a document: an argument of a program has 128 KiB at most.
const PART_BYTES_MAX: usize = 64 << 10;

/// Settings that have travelled as text.
#[derive(Clone, Debug, PartialEq)]
pub struct Document(pub Spec);

impl Document {
    /// Reads what a [`Document`] was written as.
    ///
    /// # Errors
    /// It is no JSON, or has fields that no job has, or values that they cannot have: an older build must not pass over what a newer
    /// one has asked for.
    pub fn parse(text: &str) -> Result<Document, String> {
        let value: Value = serde_json::from_str(text).map_err(|why| format!("no JSON: {why}"))?;
        if !value.is_object() {
            return Err("no JSON object".to_owned());
        }
        let mut faults = Vec::new();
        check_value(&SCHEMA, &value, &mut |path, what| faults.push(format!("{path}: {what}")));
        if let Some(fault) = faults.into_iter().next() {
            return Err(fault);
        }
        serde_json::from_value(value).map(Document).map_err(|why| why.to_string())
    }

    /// The document in parts, each short enough to be an argument of a program; in their order they are the text.
    pub fn parts(&self) -> Vec<String> {
        let text = self.to_string();
        let mut parts = vec![String::new()];
        for letter in text.chars() {
            match parts.last_mut() {
                Some(part) if part.len() + letter.len_utf8() <= PART_BYTES_MAX => part.push(letter),
                _ => parts.push(letter.to_string()),
            }
        }
        parts
    }
}

impl std::fmt::Display for Document {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", json!(self.0))
    }
}

impl Spec {
    /// These settings, and where they state nothing those of `base`. One job has one way to say when it is evaluated, and one model to
    /// begin with: who states it in either way has stated it.
    pub fn over(&self, base: &Spec) -> Spec {
        let mut base = base.clone();
        if self.eval_steps.is_some() || self.eval_epochs.is_some() {
            (base.eval_steps, base.eval_epochs) = (None, None);
        }
        if self.warm_start.is_some() || self.untrained {
            (base.warm_start, base.untrained) = (None, false);
        }
        let (mut merged, stated) = (json!(base), json!(self));
        lay_over(&mut merged, stated);
        // What two specs are written as is a spec's, field by field.
        serde_json::from_value(merged).unwrap_or(base)
    }

    /// Settings from words such as those of a command line, `--epochs=3` or `--untrained`.
    ///
    /// # Errors
    /// There is no such setting, or it cannot have the value.
    pub fn from_words(words: impl IntoIterator<Item = String>) -> Result<Spec, String> {
        // Variables of this process are nobody's words.
        let command = Spec::augment_args(Command::new("job").no_binary_name(true))
            .mut_args(|one| one.env(None::<&str>));
        let matches = command.try_get_matches_from(words).map_err(|why| brief(&why))?;
        let spec = Spec::from_arg_matches(&matches).map_err(|why| brief(&why))?;
        match spec.faults_alone(Naming::Flags).into_iter().next() {
            Some(fault) => Err(fault),
            None => Ok(spec),
        }
    }
}

/// The first line of what is wrong with a command line.
fn brief(error: &clap::Error) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

/// Puts what is stated into a JSON object, object by object.
fn lay_over(base: &mut Value, stated: Value) {
    match (base, stated) {
        (Value::Object(base), Value::Object(stated)) => {
            for (key, value) in stated {
                match base.get_mut(&key) {
                    Some(before) => lay_over(before, value),
                    None => drop(base.insert(key, value)),
                }
            }
        }
        (base, stated) => *base = stated,
    }
}
