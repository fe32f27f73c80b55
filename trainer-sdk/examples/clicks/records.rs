//! Rows as records: the label, 0 or 1, then a value for each field, with tabs between them, in UTF-8. The same lines
//! stand in a .tsv beside, for whoever wants to compare. It must never put rows of the same text on different sides.

use super::held_out::is_held_out;
use anyhow::{Context, bail, ensure};
use shoal_recordio::{Writer, WriterOptions};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

/// Far below a sensible chunk: a small data set shall still be many chunks, so that there are leases to lose.
const CHUNK_BYTES: u64 = 1 << 14;

/// What a record says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Click<'a> {
    pub(crate) is_positive: bool,
    /// One for each field.
    pub(crate) values: Vec<&'a str>,
}

/// A record of so many fields.
///
/// # Errors
/// No UTF-8, another label than 0 and 1, another number of values.
pub(crate) fn decode(record: &[u8], fields: usize) -> anyhow::Result<Click<'_>> {
    let text = std::str::from_utf8(record).context("a record is text in UTF-8, and this one is not")?;
    let mut parts = text.split('\t');
    let is_positive = match parts.next() {
        Some("0") => false,
        Some("1") => true,
        other => {
            bail!("a record begins with its label, 0 or 1, and not with {:?}", other.unwrap_or_default())
        }
    };
    let values: Vec<&str> = parts.collect();
    ensure!(
        values.len() == fields,
        "a record of this set has {fields} values and not {}: is --set the one it was packed with?",
        values.len()
    );
    Ok(Click { is_positive, values })
}

/// The record of a row.
///
/// # Errors
/// A value that a line cannot hold.
pub(crate) fn encode(is_positive: bool, values: &[&str]) -> anyhow::Result<String> {
    let mut record = u8::from(is_positive).to_string();
    for value in values {
        ensure!(!value.contains(['\t', '\n', '\r']), "{value:?} has a tab or a line end: take it out");
        record.push('\t');
        record.push_str(value);
    }
    Ok(record)
}

/// Writes the four files, each side in the rows' order, and returns what there is to tell.
///
/// # Errors
/// Too few rows, a folder that cannot be written.
pub(crate) fn pack(fields: &[&str], rows: &[String], dir: &Path) -> anyhow::Result<String> {
    let (test, train): (Vec<&str>, Vec<&str>) =
        rows.iter().map(String::as_str).partition(|row| is_held_out(row));
    ensure!(!train.is_empty() && !test.is_empty(), "{} rows are too few to hold some out", rows.len());
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make the folder {}", dir.display()))?;
    for (name, rows) in [("train", &train), ("test", &test)] {
        write_records(&dir.join(name).with_extension("recordio"), rows)?;
        let (path, header) = (dir.join(name).with_extension("tsv"), format!("label\t{}", fields.join("\t")));
        let lines: String = [header.as_str()].iter().chain(rows).flat_map(|line| [line, "\n"]).collect();
        std::fs::write(&path, lines).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(format!("{} rows to train on, {} held out", train.len(), test.len()))
}

fn write_records(path: &Path, rows: &[&str]) -> anyhow::Result<()> {
    let cannot = || format!("cannot write {}", path.display());
    let file = BufWriter::new(File::create(path).with_context(cannot)?);
    let mut writer =
        Writer::new(file, WriterOptions { chunk_bytes: CHUNK_BYTES, ..WriterOptions::default() });
    rows.iter().try_for_each(|row| writer.write(row.as_bytes())).with_context(cannot)?;
    writer.finish().with_context(cannot)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_recordio::Reader;

    fn read(path: &Path) -> Vec<String> {
        let reader = Reader::open(path).unwrap();
        let chunks = (0..reader.index().chunks.len()).map(|index| reader.chunk(index).unwrap());
        let text = |record: &[u8]| String::from_utf8(record.to_vec()).unwrap();
        chunks
            .flat_map(|chunk| (0..chunk.len()).map(|at| text(chunk.record(at))).collect::<Vec<_>>())
            .collect()
    }

    #[test]
    fn every_row_is_on_one_side_and_the_tsv_has_the_lines_of_the_records() {
        // Each text twice.
        let row = |row: i32| encode(row % 3 == 0, &[&(row % 150).to_string(), "é x"]).unwrap();
        let rows: Vec<String> = (0..300).map(row).collect();
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("made/on/demand");
        let told = pack(&["number", "word"], &rows, &dir).unwrap();
        let sides = ["train", "test"].map(|name| read(&dir.join(name).with_extension("recordio")));
        assert_eq!(told, format!("{} rows to train on, {} held out", sides[0].len(), sides[1].len()));
        assert!((40..80).contains(&sides[1].len()), "{told}");
        for (name, side) in ["train", "test"].iter().zip(&sides) {
            let tsv = std::fs::read_to_string(dir.join(name).with_extension("tsv")).unwrap();
            assert_eq!(tsv, format!("label\tnumber\tword\n{}\n", side.join("\n")));
            let kept: Vec<&String> = rows.iter().filter(|row| side.contains(row)).collect();
            assert_eq!(kept, side.iter().collect::<Vec<_>>(), "in the rows' order, twins included");
        }
        assert_eq!(sides[0].len() + sides[1].len(), rows.len());
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_others_are_refused() {
        let record = encode(true, &["a b", "", "ü"]).unwrap();
        let click = Click { is_positive: true, values: vec!["a b", "", "ü"] };
        assert_eq!(decode(record.as_bytes(), 3).unwrap(), click);
        let refusal = |record: &[u8]| decode(record, 3).unwrap_err().to_string();
        assert!(refusal(b"1\ta\tb").contains("3 values and not 2: is --set"));
        assert!(refusal(b"1\ta\tb\tc\td").contains("3 values and not 4"));
        assert!(refusal(b"2\ta\tb\tc").contains("not with \"2\""));
        assert!(refusal(b"").contains("not with \"\""));
        assert!(refusal(b"1\ta\tb\t\xff").contains("UTF-8"));
        assert!(encode(false, &["a\tb"]).is_err() && encode(false, &["a\n"]).is_err());
        assert!(
            pack(&["a"], &["0\t1".to_owned()], Path::new(".")).unwrap_err().to_string().contains("too few")
        );
    }
}
