//! The text of a `shoal.toml` as tables and settings, each with its line. It knows no command and no flag: what a key means is said
//! elsewhere.

use std::ops::Range;
use toml_edit::{Document, Item, Key, TableLike, Value};

/// A file of settings is no longer than that, in bytes; the longest that is of use has a thousandth of it.
pub(crate) const BYTES_MAX: u64 = 1 << 20;
/// Tables in tables: no command is called by more words.
const DEPTH_MAX: usize = 8;

/// One table: the settings of one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    /// The words that call the command, such as `recordio` and `ls`; none for what stands above all tables.
    pub(crate) command: Vec<String>,
    /// Where it begins, counted from 1.
    pub(crate) line: usize,
    /// In the order of the file.
    pub(crate) settings: Vec<Setting>,
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) key: String,
    pub(crate) value: Given,
    /// Where the key stands, counted from 1.
    pub(crate) line: usize,
}

/// A value as words of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Given {
    /// Whether a flag is given at all.
    Switch(bool),
    /// A string, a number or a time, as it would be typed.
    Word(String),
    /// A list of those.
    Words(Vec<String>),
}

/// What is wrong with a file, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Counted from 1.
    pub(crate) line: usize,
    pub(crate) what: String,
}

/// The tables of a file, in their order; those that are begun and have nothing in them, too.
///
/// # Errors
/// The text is no TOML, or has what no flag can be told.
pub(crate) fn tables(text: &str) -> Result<Vec<Table>, Fault> {
    let lines = Lines::of(text);
    let document = Document::parse(text).map_err(|error| Fault {
        line: error.span().map_or(1, |span| lines.at(&span)),
        what: format!("no TOML: {}", error.message().trim().replace('\n', "; ")),
    })?;
    let mut tables = Vec::new();
    lines.read(document.as_table(), Vec::new(), 1, &mut tables)?;
    tables.retain(|table| !(table.command.is_empty() && table.settings.is_empty()));
    Ok(tables)
}

struct Lines<'a> {
    text: &'a str,
    /// Where lines end.
    ends: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Lines<'a> {
        Lines { text, ends: text.match_indices('\n').map(|(at, _)| at).collect() }
    }

    fn at(&self, span: &Range<usize>) -> usize {
        1 + self.ends.partition_point(|end| *end < span.start)
    }

    fn read(
        &self,
        table: &dyn TableLike,
        command: Vec<String>,
        line: usize,
        tables: &mut Vec<Table>,
    ) -> Result<(), Fault> {
        let mine = tables.len();
        tables.push(Table { command: command.clone(), line, settings: Vec::new() });
        for (name, item) in table.iter() {
            let key = table.get_key_value(name).map(|(key, _)| key);
            let span = item.span().filter(|_| item.is_table()).or_else(|| key.and_then(Key::span));
            let line = span.or_else(|| item.span()).map_or(line, |span| self.at(&span));
            if let Some(inner) = item.as_table_like() {
                let mut command = command.clone();
                command.push(name.to_owned());
                if command.len() > DEPTH_MAX {
                    let what = format!("tables in tables, {DEPTH_MAX} deep: no command has so many words");
                    return Err(Fault { line, what });
                }
                self.read(inner, command, line, tables)?;
            } else {
                let value =
                    self.given(item).map_err(|what| Fault { line, what: format!("{name}: {what}") })?;
                tables[mine].settings.push(Setting { key: name.to_owned(), value, line });
            }
        }
        // A table that only leads to others was never written.
        let is_silent = tables[mine].settings.is_empty() && tables.len() > mine + 1;
        if is_silent && !command.is_empty() {
            tables.remove(mine);
        }
        Ok(())
    }

    fn given(&self, item: &Item) -> Result<Given, String> {
        match item {
            Item::Value(Value::Boolean(is_on)) => Ok(Given::Switch(*is_on.value())),
            Item::Value(Value::Array(words)) => {
                words.iter().map(|word| self.word(word)).collect::<Result<_, _>>().map(Given::Words)
            }
            Item::Value(value) => self.word(value).map(Given::Word),
            Item::ArrayOfTables(_) => Err("[[…]] makes a list of tables: write [command] once".to_owned()),
            Item::None | Item::Table(_) => Err("no value".to_owned()),
        }
    }

    /// As it would be typed. A number has no underscores there; a float keeps the digits that were written.
    fn word(&self, value: &Value) -> Result<String, String> {
        match value {
            Value::String(text) if text.value().contains('\0') => {
                Err("a word of a command line has no NUL".to_owned())
            }
            Value::String(text) => Ok(text.value().clone()),
            Value::Integer(number) => Ok(number.value().to_string()),
            Value::Float(number) => {
                let written = value.span().and_then(|span| self.text.get(span));
                Ok(written.map_or_else(|| number.value().to_string(), |text| text.replace('_', "")))
            }
            Value::Boolean(is_so) => Ok(is_so.value().to_string()),
            Value::Datetime(_) => Err("no flag takes a date: put it in quotes".to_owned()),
            Value::Array(_) => Err("a list in a list: no flag takes that".to_owned()),
            Value::InlineTable(_) => Err("a table in a list: no flag takes that".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Vec<(String, String, Given, usize)> {
        let tables = tables(text).unwrap().into_iter();
        let of_table = |table: Table| {
            let command = table.command.join(" ");
            table
                .settings
                .into_iter()
                .map(move |setting| (command.clone(), setting.key, setting.value, setting.line))
        };
        tables.flat_map(of_table).collect()
    }

    fn word(text: &str) -> Given {
        Given::Word(text.to_owned())
    }

    #[test]
    fn keys_have_the_table_and_the_line_that_they_stand_in() {
        let text =
            "# mine\n[run]\ntrainers = \"2:4\"\nepochs = 1_000\n\n[recordio.pack.csv]\nskip-header = true\n";
        assert_eq!(
            read(text),
            [
                ("run".to_owned(), "trainers".to_owned(), word("2:4"), 3),
                ("run".to_owned(), "epochs".to_owned(), word("1000"), 4),
                ("recordio pack csv".to_owned(), "skip-header".to_owned(), Given::Switch(true), 7),
            ]
        );
    }

    #[test]
    fn however_a_table_is_written_it_is_the_same() {
        let lines = |text| read(text).into_iter().map(|(a, b, c, _)| (a, b, c)).collect::<Vec<_>>();
        let one = lines("[run]\npservers = 2\n");
        assert_eq!(lines("run.pservers = 2\n"), one);
        assert_eq!(lines("run = { pservers = 2 }\n"), one);
    }

    #[test]
    fn numbers_are_words_as_they_would_be_typed() {
        let text = "[run]\na = 1e-3\nb = 0.050\nc = -7\nd = 0x10\ne = [1, 2.50, \"x\", true]\nf = []\n";
        let values: Vec<Given> = read(text).into_iter().map(|(_, _, value, _)| value).collect();
        let list = ["1", "2.50", "x", "true"].map(str::to_owned).to_vec();
        assert_eq!(
            values,
            [word("1e-3"), word("0.050"), word("-7"), word("16"), Given::Words(list), Given::Words(vec![])]
        );
    }

    #[test]
    fn what_stands_above_all_tables_and_tables_without_keys_are_told_as_well() {
        let found = tables("trainers = 1\n\n[rum]\n").unwrap();
        let places: Vec<(String, usize)> = found.iter().map(|t| (t.command.join(" "), t.line)).collect();
        assert_eq!(places, [(String::new(), 1), ("rum".to_owned(), 3)]);
    }

    #[test]
    fn a_fault_names_its_line() {
        for (text, line, word) in [
            ("[run]\ntrainers 2\n", 2, "no TOML"),
            ("[run]\ntrainers = 1\ntrainers = 2\n", 3, "duplicate"),
            ("\n\n[[run]]\na = 1\n", 3, "[[…]]"),
            ("[run]\n\nwhen = 2026-01-01\n", 3, "quotes"),
            ("[run]\nlist = [[1]]\n", 2, "list in a list"),
            ("[run]\nlist = [{ a = 1 }]\n", 2, "table in a list"),
            ("a.b.c.d.e.f.g.h.i.j = 1\n", 1, "deep"),
            ("[run]\nname = \"a\\u0000b\"\n", 2, "NUL"),
        ] {
            let fault = tables(text).unwrap_err();
            assert!(fault.line == line && fault.what.contains(word), "{text:?}: {fault:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic_and_every_line_is_one_of_the_file(text in "[\\PC\n=\\[\\]\"a-c.{}]{0,80}") {
            let count = text.lines().count().max(1) + 1;
            match tables(&text) {
                Ok(tables) => prop_assert!(tables.iter().all(|table| table.line <= count
                    && table.settings.iter().all(|setting| (1..=count).contains(&setting.line)))),
                Err(fault) => prop_assert!((1..=count).contains(&fault.line)),
            }
        }
    }
}
