//! One record a CSV row (RFC 4180): the row's bytes as they are, so that what trains on them parses them.
//! It must never cut a row at a line end inside quotes, nor pass a row with another number of columns.

use std::io::BufRead;
use std::path::Path;

use anyhow::{Context, bail, ensure};

use super::{Emit, open, read_line, record_ceiling, without_ending};

pub(in super::super) fn pack(file: &Path, skip_header: bool, emit: Emit<'_>) -> anyhow::Result<()> {
    let source = &mut *open(file)?;
    split(source, skip_header, record_ceiling(), emit).with_context(|| file.display().to_string())
}

fn split(source: &mut dyn BufRead, skip_header: bool, ceiling: u64, emit: Emit<'_>) -> anyhow::Result<()> {
    let mut columns_of_first = None;
    let mut row = Vec::new();
    let mut line = 1_u64;
    while let Some(RowShape { columns, lines }) = read_row(source, &mut row, line, ceiling)? {
        let row = without_ending(&row);
        if !row.is_empty() {
            let header = skip_header && columns_of_first.is_none();
            let expected = *columns_of_first.get_or_insert(columns);
            ensure!(
                columns == expected,
                "the row at line {line} has {columns} columns and the first row {expected}"
            );
            if !header {
                emit(row)?;
            }
        }
        line += lines;
    }
    Ok(())
}

struct RowShape {
    columns: usize,
    lines: u64,
}

/// Reads lines into `row` until one ends outside quotes. Nothing where the source has ended; `line` is for errors.
fn read_row(
    source: &mut dyn BufRead,
    row: &mut Vec<u8>,
    line: u64,
    ceiling: u64,
) -> anyhow::Result<Option<RowShape>> {
    row.clear();
    let mut scan = Scan { columns: 1, at: At::FieldStart };
    for lines in 1.. {
        let scanned = row.len();
        // Two bytes more than a record may have, for the longest line end.
        let left = (ceiling + 2).saturating_sub(scanned as u64);
        if !read_line(source, row, left)? && scanned == 0 {
            return Ok(None);
        }
        let too_long = without_ending(row).len() as u64 > ceiling;
        scan.read(&row[scanned..]);
        if too_long {
            bail!(
                "the row at line {line} is longer than a record may be ({ceiling} bytes): is a quote not closed?"
            );
        }
        if scan.at != At::Quoted {
            return Ok(Some(RowShape { columns: scan.columns, lines }));
        }
        ensure!(row.len() > scanned, "a quote in the row at line {line} is not closed");
    }
    Ok(None)
}

/// Counts a row's columns, remembering between lines whether a quote is open.
struct Scan {
    columns: usize,
    at: At,
}

#[derive(Clone, Copy, PartialEq)]
enum At {
    FieldStart,
    Plain,
    Quoted,
    /// After a quote inside a quoted field: the field's end, or the first half of `""`.
    Closed,
}

impl Scan {
    fn read(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.columns += usize::from(*byte == b',' && self.at != At::Quoted);
            self.at = match (self.at, byte) {
                (At::Quoted, b'"') => At::Closed,
                (At::Quoted, _) => At::Quoted,
                (_, b',') => At::FieldStart,
                (At::FieldStart | At::Closed, b'"') => At::Quoted,
                // A quote inside an unquoted field means itself.
                _ => At::Plain,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &[u8], skip_header: bool, ceiling: u64) -> anyhow::Result<Vec<Vec<u8>>> {
        let mut rows = Vec::new();
        split(&mut &*text, skip_header, ceiling, &mut |row| {
            rows.push(row.to_vec());
            Ok(())
        })?;
        Ok(rows)
    }

    #[test]
    fn a_row_is_its_bytes_without_the_line_end() {
        assert_eq!(rows(b"a,b\r\n1,2\n3,", false, 99).unwrap(), [b"a,b".as_slice(), b"1,2", b"3,"]);
        assert_eq!(rows(b"a,b\r\n1,2\n", true, 99).unwrap(), [b"1,2"]);
        assert!(rows(b"", true, 99).unwrap().is_empty());
    }

    #[test]
    fn quoted_commas_line_ends_and_quotes_belong_to_their_field() {
        let text = b"\"a,\"\"x\"\"\n\",b\n\"\",\"\r\n\n\"\n";
        assert_eq!(rows(text, false, 99).unwrap(), [b"\"a,\"\"x\"\"\n\",b".as_slice(), b"\"\",\"\r\n\n\""]);
    }

    #[test]
    fn a_quote_inside_an_unquoted_field_means_itself() {
        assert_eq!(rows(b"5\" disk,1\n6,2\n", false, 99).unwrap(), [b"5\" disk,1".as_slice(), b"6,2"]);
    }

    #[test]
    fn blank_lines_are_skipped() {
        assert_eq!(rows(b"\na,b\n\r\n1,2\n\n", true, 99).unwrap(), [b"1,2"]);
    }

    #[test]
    fn a_row_with_another_number_of_columns_is_refused_by_its_line() {
        let error = rows(b"\"a\n\",b\n1,2\n1,2,3\n", false, 99).unwrap_err().to_string();
        assert_eq!(error, "the row at line 4 has 3 columns and the first row 2");
        assert!(rows(b"a,b\n1\n", true, 99).is_err());
    }

    #[test]
    fn a_quote_that_is_never_closed_is_refused() {
        let error = rows(b"1,2\n\"1,2\n3,4\n", false, 99).unwrap_err().to_string();
        assert_eq!(error, "a quote in the row at line 2 is not closed");
        let error = rows(b"1,2\n\"1,2\n3,4\n5,6\n", false, 9).unwrap_err().to_string();
        assert!(error.starts_with("the row at line 2 is longer"), "{error}");
    }
}
