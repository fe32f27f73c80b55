//! What a program says of a job before that begins: the file `program.json` in the folder that `SHOAL_DESCRIBE` names. Pure.
//! A field that is not known is refused: what a program wants must not be passed over.

use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The variable that asks a program to describe itself, and names the folder for that.
pub const VARIABLE: &str = "SHOAL_DESCRIBE";
/// The file that says so; without it a program has nothing to say.
pub const FILE: &str = "program.json";
/// Initial values by parameter, as a model is exported, beside it.
pub const INITIAL: &str = "initial.safetensors";
/// The most bytes of the file.
pub const BYTES_MAX: u64 = 1 << 20;

const VERSION: u64 = 1;

/// What is said of the data, and of the job that the program would be by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramDescription {
    /// How many records the program trains on, where it knows a record by its number; none where the data are somebody else's.
    pub records: Option<u64>,
    /// How many it is evaluated on, likewise.
    pub eval_records: Option<u64>,
    /// What it asks for where it is started alone: flags of `shoal run` without their dashes, and their values, none of a switch. Of
    /// those that are settings of a job a run takes what nobody has stated otherwise.
    pub asks: BTreeMap<String, Vec<String>>,
}

impl ProgramDescription {
    /// Reads what a program has written.
    ///
    /// # Errors
    /// What is wrong, by the field.
    pub fn parse(bytes: &[u8]) -> Result<ProgramDescription, String> {
        let value: Value =
            serde_json::from_slice(bytes).map_err(|error| format!("it is no JSON: {error}"))?;
        let Value::Object(fields) = value else { return Err("it is no JSON object".to_owned()) };
        match fields.get("version") {
            Some(version) if version.as_u64() == Some(VERSION) => {}
            Some(version) => return Err(format!("\"version\" is {version}, and {VERSION} is read here")),
            None => return Err(format!("\"version\" is missing: it is {VERSION}")),
        }
        let known = ["version", "records", "eval_records", "asks"];
        if let Some(unknown) = fields.keys().find(|name| !known.contains(&name.as_str())) {
            return Err(format!("{unknown:?} is no field of it: there are {}", known.join(", ")));
        }
        Ok(ProgramDescription {
            records: number(&fields, "records")?,
            eval_records: number(&fields, "eval_records")?,
            asks: words(&fields, "asks")?,
        })
    }

    /// The file's content.
    pub fn to_json(&self) -> String {
        let numbers = [("records", self.records), ("eval_records", self.eval_records)];
        let numbers =
            numbers.into_iter().filter_map(|(name, number)| Some((name.to_owned(), number?.into())));
        let mut fields: Map<String, Value> =
            std::iter::once(("version".to_owned(), VERSION.into())).chain(numbers).collect();
        if !self.asks.is_empty() {
            let said = |values: &[String]| match values {
                [] => Value::Bool(true),
                [one] => Value::from(one.as_str()),
                several => Value::from(several),
            };
            let asks = self.asks.iter().map(|(flag, values)| (flag.clone(), said(values)));
            fields.insert("asks".to_owned(), Value::Object(asks.collect()));
        }
        format!("{}\n", Value::Object(fields))
    }
}

fn number(fields: &Map<String, Value>, name: &str) -> Result<Option<u64>, String> {
    let Some(value) = fields.get(name) else { return Ok(None) };
    let number = value.as_u64().filter(|number| *number > 0);
    match number {
        Some(number) => Ok(Some(number)),
        None => Err(format!("{name:?} is {value}: give a whole number from 1 on, or leave it out")),
    }
}

fn words(fields: &Map<String, Value>, name: &str) -> Result<BTreeMap<String, Vec<String>>, String> {
    let wrong = |value: &Value| {
        format!(
            "{name:?} is {value}: give an object of texts, lists of texts, or true for a switch; or leave it out"
        )
    };
    let Some(value) = fields.get(name) else { return Ok(BTreeMap::new()) };
    let Value::Object(given) = value else { return Err(wrong(value)) };
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let values = |(flag, value): (&String, &Value)| {
        let values = match value {
            Value::Bool(true) => Vec::new(),
            Value::Array(several) => {
                several.iter().map(text).collect::<Option<Vec<_>>>().filter(|all| !all.is_empty())?
            }
            one => vec![text(one)?],
        };
        Some((flag.clone(), values))
    };
    given.iter().map(values).collect::<Option<_>>().ok_or_else(|| wrong(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for (records, eval_records) in
            [(None, None), (Some(1), None), (None, Some(7)), (Some(u64::MAX), Some(2))]
        {
            let some = [("data", vec!["a", "b"]), ("epochs", vec!["3"]), ("untrained", vec![])];
            let some =
                some.map(|(flag, values)| (flag.to_owned(), values.into_iter().map(str::to_owned).collect()));
            for asks in [BTreeMap::new(), some.into()] {
                let said = ProgramDescription { records, eval_records, asks };
                assert_eq!(ProgramDescription::parse(said.to_json().as_bytes()), Ok(said));
            }
        }
    }

    #[test]
    fn what_is_wrong_is_named_by_its_field() {
        for (text, words) in [
            ("", "no JSON"),
            ("{\"version\": 1", "no JSON"),
            ("[1]", "no JSON object"),
            ("{}", "\"version\" is missing"),
            ("{\"version\": 2, \"layers\": 3}", "\"version\" is 2, and 1 is read here"),
            ("{\"version\": \"1\"}", "\"version\" is \"1\""),
            ("{\"version\": 1, \"layers\": 3}", "\"layers\" is no field of it"),
            ("{\"version\": 1, \"Records\": 3}", "\"Records\" is no field of it"),
            ("{\"version\": 1, \"records\": 0}", "\"records\" is 0: "),
            ("{\"version\": 1, \"records\": -1}", "\"records\" is -1: "),
            ("{\"version\": 1, \"records\": 1.5}", "\"records\" is 1.5: "),
            ("{\"version\": 1, \"eval_records\": null}", "\"eval_records\" is null: "),
            ("{\"version\": 1, \"eval_records\": \"9\"}", "\"eval_records\" is \"9\": "),
            ("{\"version\": 1, \"asks\": [\"epochs\"]}", "\"asks\" is [\"epochs\"]: "),
            ("{\"version\": 1, \"asks\": {\"epochs\": 3}}", "\"asks\" is {\"epochs\":3}: "),
            (
                "{\"version\": 1, \"records\": 18446744073709551616}",
                "\"records\" is 1.8446744073709552e+19: ",
            ),
        ] {
            let why = ProgramDescription::parse(text.as_bytes()).unwrap_err();
            assert!(why.contains(words), "{text}: {why}");
        }
    }
}
