//! Names of columns as `--columns` takes them: a CSV row, so that a name may hold anything.

use std::str::FromStr;

use csv_core::{ReadRecordResult, ReaderBuilder, Terminator};

/// Columns in the order in which they are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ColumnNames(pub(crate) Vec<String>);

impl FromStr for ColumnNames {
    type Err = String;

    fn from_str(said: &str) -> Result<ColumnNames, String> {
        if said.is_empty() {
            return Ok(ColumnNames(vec![String::new()]));
        }
        let (mut text, mut ends) = (vec![0; said.len() + 1], vec![0; said.len() + 1]);
        // No argument holds a NUL, which so ends the row, unless a quote is open.
        let mut parser = ReaderBuilder::new().terminator(Terminator::Any(0)).build();
        // What is asked first of a source that has nothing to say takes no mark off a name.
        parser.read_record(&[], &mut text, &mut ends);
        let (_, _, written, columns) = parser.read_record(said.as_bytes(), &mut text, &mut ends);
        let (result, _, _, last) = parser.read_record(&[0], &mut text[written..], &mut ends[columns..]);
        if result != ReadRecordResult::Record {
            return Err("a quote is not closed".to_owned());
        }
        let mut begins = 0;
        let names = ends[..columns + last].iter().map(|end| {
            let name = String::from_utf8_lossy(&text[begins..*end]).into_owned();
            begins = *end;
            name
        });
        Ok(ColumnNames(names.collect()))
    }
}

/// Names as `--columns` takes them.
pub(super) fn said<'n>(names: impl IntoIterator<Item = &'n String>) -> String {
    let quoted = |name: &String| match name.is_empty() || name.contains([',', '"']) {
        true => format!("\"{}\"", name.replace('"', "\"\"")),
        false => name.clone(),
    };
    names.into_iter().map(quoted).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(said: &str) -> Result<Vec<String>, String> {
        said.parse().map(|ColumnNames(names)| names)
    }

    #[test]
    fn names_stand_between_commas_and_in_quotes_where_they_hold_one() {
        assert_eq!(names("a,deep.x, b").unwrap(), ["a", "deep.x", " b"]);
        assert_eq!(
            names("\"price, usd\",\"say \"\"x\"\"\",5\" disk").unwrap(),
            ["price, usd", "say \"x\"", "5\" disk"]
        );
        assert_eq!(names("").unwrap(), [""]);
        assert_eq!(names("\"\",a,").unwrap(), ["", "a", ""]);
        assert_eq!(names("\u{feff}\"x\"").unwrap(), ["\u{feff}\"x\""]);
        assert_eq!(names("a,\"b").unwrap_err(), "a quote is not closed");
        assert_eq!(names("a\nb,c\r").unwrap(), ["a\nb", "c\r"]);
    }

    proptest! {
        #[test]
        fn whatever_names_there_are_can_be_said(some in proptest::collection::vec("[^\0]{0,5}|[,\"\n\r a]{0,5}", 1..5)) {
            prop_assert_eq!(names(&said(&some)).unwrap(), some);
        }
    }
}
