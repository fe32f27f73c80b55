//! Every setting of a command with its value and where it comes from, as text that is itself a file of settings, or as JSON. Pure.

use super::flags::{flags, takes_list};
use super::order::counted;
use super::text::{Given, Setting};
use clap::{Arg, Command};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    File {
        path: String,
        line: usize,
    },
    Variable(String),
    Default,
    /// There is no value.
    Nowhere,
}

/// One flag of one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// The words that call the command.
    pub(crate) command: Vec<String>,
    pub(crate) flag: String,
    pub(crate) value: Option<Given>,
    pub(crate) origin: Origin,
}

/// The flags of a command, in the order of its help. `variables` are those that are set, by flag: name and value.
pub(crate) fn rows(
    words: &[String],
    command: &Command,
    files: &[(String, &[Setting])],
    variables: &BTreeMap<String, (String, String)>,
) -> Vec<Row> {
    let settings: Vec<&[Setting]> = files.iter().map(|(_, settings)| *settings).collect();
    let counted = counted(command, &settings, &variables.keys().cloned().collect());
    let row = |flag: &Arg| {
        let (value, origin) = if let Some((name, value)) = variables.get(flag.get_id().as_str()) {
            let value =
                if is_bare(flag) { Given::Switch(value == "true") } else { Given::Word(value.clone()) };
            (Some(value), Origin::Variable(name.clone()))
        } else if let Some(one) = counted.iter().find(|one| flag.get_id() == one.flag.as_str()) {
            let origin = Origin::File { path: files[one.file].0.clone(), line: one.setting.line };
            (Some(one.setting.value.clone()), origin)
        } else {
            let value = default(flag);
            let origin = if value.is_some() { Origin::Default } else { Origin::Nowhere };
            (value, origin)
        };
        Row { command: words.to_vec(), flag: flag.get_long().unwrap_or_default().to_owned(), value, origin }
    };
    flags(command).map(row).collect()
}

/// Whether a flag takes no value.
fn is_bare(flag: &Arg) -> bool {
    flag.get_num_args().is_some_and(|count| !count.takes_values())
}

/// What a flag is by itself.
fn default(flag: &Arg) -> Option<Given> {
    let mut words = flag.get_default_values().iter().map(|word| word.to_string_lossy().into_owned());
    match words.next() {
        None if is_bare(flag) => Some(Given::Switch(false)),
        None => None,
        Some(word) if is_bare(flag) => Some(Given::Switch(word == "true")),
        Some(word) if takes_list(flag) => Some(Given::Words([word].into_iter().chain(words).collect())),
        Some(word) => Some(Given::Word(word)),
    }
}

/// As a file of settings, in which what is nobody's wish is a comment.
pub(crate) fn text(rows: &[Row], has_origins: bool) -> String {
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        if index == 0 || rows[index - 1].command != row.command {
            let blank = if index == 0 { "" } else { "\n" };
            let _ = writeln!(text, "{blank}[{}]", row.command.join("."));
        }
        let is_wished = matches!(row.origin, Origin::File { .. } | Origin::Variable(_));
        let value = row.value.as_ref().map_or_else(String::new, |value| format!(" {}", toml(value)));
        let line = format!("{}{} ={value}", if is_wished { "" } else { "# " }, row.flag);
        match (has_origins, &row.origin) {
            (true, Origin::File { path, line: at }) => writeln!(text, "{line:<40} # {path}:{at}"),
            (true, Origin::Variable(name)) => writeln!(text, "{line:<40} # variable {name}"),
            (true, Origin::Default) => writeln!(text, "{line:<40} # default"),
            _ => writeln!(text, "{line}"),
        }
        .unwrap_or_default();
    }
    text
}

fn toml(value: &Given) -> String {
    match value {
        Given::Switch(is_on) => is_on.to_string(),
        Given::Word(word) => quoted(word),
        Given::Words(words) => {
            format!("[{}]", words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(", "))
        }
    }
}

/// A number as it is, anything else as a basic string of TOML.
fn quoted(word: &str) -> String {
    if word.parse::<i64>().is_ok_and(|number| number.to_string() == word) {
        return word.to_owned();
    }
    let mut quoted = String::from("\"");
    for c in word.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

/// For programs.
pub(crate) fn object(rows: &[Row], files: &[String]) -> Value {
    let rows: Vec<Value> = rows
        .iter()
        .map(|row| {
            let value = match &row.value {
                None => Value::Null,
                Some(Given::Switch(is_on)) => json!(is_on),
                Some(Given::Word(word)) => json!(word),
                Some(Given::Words(words)) => json!(words),
            };
            let origin = match &row.origin {
                Origin::File { path, line } => json!({ "kind": "file", "file": path, "line": line }),
                Origin::Variable(name) => json!({ "kind": "variable", "name": name }),
                Origin::Default => json!({ "kind": "default" }),
                Origin::Nowhere => json!({ "kind": "none" }),
            };
            json!({ "command": row.command.join(" "), "flag": row.flag, "value": value, "origin": origin })
        })
        .collect();
    json!({ "files": files, "settings": rows })
}
