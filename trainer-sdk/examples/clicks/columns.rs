//! Columns of a Parquet file as texts, row by row. It must never take a row for whole that lacks a value.

use anyhow::{Context, anyhow, bail, ensure};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// The columns of these names: of each row a text for each, in that order.
///
/// # Errors
/// No Parquet file, no such column, a value that is missing or is neither a text nor a whole number.
pub(crate) fn read<const N: usize>(path: &Path, names: [&str; N]) -> anyhow::Result<Vec<[String; N]>> {
    // The library panics on some damaged files.
    let read = catch_unwind(AssertUnwindSafe(|| rows(path, names)));
    let read = read.unwrap_or_else(|_| Err(anyhow!("cannot be decoded")));
    read.map_err(|error| anyhow!("{}: {error:#}; fetch.py brings the right file", path.display()))
}

fn rows<const N: usize>(path: &Path, names: [&str; N]) -> anyhow::Result<Vec<[String; N]>> {
    let file = File::open(path).context("cannot be read")?;
    let reader = SerializedFileReader::new(file).context("is not a Parquet file, or it is damaged")?;
    let schema = reader.metadata().file_metadata().schema();
    let known: Vec<&str> = schema.get_fields().iter().map(|field| field.name()).collect();
    let place = |name| known.iter().position(|known| *known == name);
    for name in names {
        ensure!(place(name).is_some(), "there is no column {name:?}; there are {}", known.join(", "));
    }
    let places = names.map(|name| place(name).unwrap_or_default());
    let mut rows = Vec::new();
    let read = reader.get_row_iter(None).context("cannot be decoded")?;
    for (number, row) in (1..).zip(read) {
        let row = row.with_context(|| format!("row {number} cannot be decoded"))?;
        let fields: Vec<&Field> = row.get_column_iter().map(|(_, field)| field).collect();
        let mut texts = [const { String::new() }; N];
        for ((slot, place), name) in texts.iter_mut().zip(places).zip(names) {
            *slot = text(fields[place]).with_context(|| format!("row {number}, column {name:?}"))?;
        }
        rows.push(texts);
    }
    Ok(rows)
}

fn text(field: &Field) -> anyhow::Result<String> {
    match field {
        Field::Str(text) => Ok(text.clone()),
        Field::Int(number) => Ok(number.to_string()),
        Field::Long(number) => Ok(number.to_string()),
        Field::Null => bail!("has no value"),
        other => bail!("is neither a text nor a whole number: {other}"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use parquet::basic::Compression;
    use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;
    use std::sync::Arc;

    /// A column of a file made up here: texts where its first value is no number.
    pub(crate) type Made<'a> = (&'a str, &'a [&'a str]);

    /// Writes columns as the real files have them: nullable, compressed with brotli. `-` is no value.
    pub(crate) fn write(path: &Path, columns: &[Made<'_>]) {
        let is_text =
            |values: &[&str]| values.iter().any(|value| *value != "-" && value.parse::<i64>().is_err());
        let column = |(name, values): &Made<'_>| match is_text(values) {
            true => format!("optional binary {name} (STRING);"),
            false => format!("optional int64 {name};"),
        };
        let message: String = columns.iter().map(column).collect();
        let schema = Arc::new(parse_message_type(&format!("message made {{ {message} }}")).unwrap());
        let properties = WriterProperties::builder().set_compression(Compression::BROTLI(Default::default()));
        let file = File::create(path).unwrap();
        let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties.build())).unwrap();
        let mut group = writer.next_row_group().unwrap();
        for (_, values) in columns {
            let mut column = group.next_column().unwrap().unwrap();
            let levels: Vec<i16> = values.iter().map(|value| i16::from(*value != "-")).collect();
            let there = values.iter().filter(|value| **value != "-");
            if is_text(values) {
                let texts: Vec<ByteArray> = there.map(|value| ByteArray::from(*value)).collect();
                column.typed::<ByteArrayType>().write_batch(&texts, Some(&levels), None).unwrap();
            } else {
                let numbers: Vec<i64> = there.map(|value| value.parse().unwrap()).collect();
                column.typed::<Int64Type>().write_batch(&numbers, Some(&levels), None).unwrap();
            }
            column.close().unwrap();
        }
        group.close().unwrap();
        writer.close().unwrap();
    }

    #[test]
    fn the_named_columns_come_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made.parquet");
        write(&path, &[("a", &["1", "-2"]), ("b", &["x", "ü y"]), ("c", &["-", "-"])]);
        let rows = read(&path, ["b", "a"]).unwrap();
        assert_eq!(rows, [["x", "1"], ["ü y", "-2"]].map(|row| row.map(str::to_owned)));
    }

    #[test]
    fn bad_files_are_refused_by_name_row_and_column() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made.parquet");
        let refusal = |name: &str| format!("{:#}", read(&path, [name]).unwrap_err());
        assert!(
            refusal("a").contains("made.parquet: cannot be read")
                && refusal("a").contains("; fetch.py brings")
        );
        std::fs::write(&path, b"PAR1 but no more").unwrap();
        assert!(refusal("a").contains("is not a Parquet file"));
        write(&path, &[("a", &["1", "-"]), ("b", &["x", "y"])]);
        assert!(refusal("a").contains("row 2, column \"a\": has no value"), "{}", refusal("a"));
        assert!(refusal("d").contains("no column \"d\"; there are a, b"));
        let whole = std::fs::read(&path).unwrap();
        for at in 4..whole.len() {
            // Whatever is damaged, it ends with an error or with the text that is there.
            let mut damaged = whole.clone();
            damaged[at] ^= 0xff;
            std::fs::write(&path, damaged).unwrap();
            let _ = read(&path, ["b"]);
        }
    }
}
