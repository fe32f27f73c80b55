//! One record a CSV row: its text as it is, so that what trains on it parses it. Where rows begin and end, and which lines are
//! blank, is as pandas has it.
//! It must never cut a row at a line end inside quotes, nor pass a row with another number of columns.

use std::io::BufRead;
use std::path::Path;

use anyhow::{Context, ensure};
use csv_core::{ReadRecordResult, Reader};

use super::content::Wanted;
use super::text::{self, TextEncoding};
use super::{Emit, record_ceiling};

/// Packs a file. What it was converted from, if it was.
pub(crate) fn pack(
    file: &Path,
    skip_header: bool,
    encoding: Option<TextEncoding>,
    emit: Emit<'_>,
) -> anyhow::Result<Option<&'static str>> {
    let mut text = text::open(file, encoding, Wanted::Csv)?;
    let rows = Rows::new(&mut *text.source, record_ceiling());
    rows.pack(skip_header, emit).with_context(|| file.display().to_string())?;
    Ok(text.converted_from)
}

/// The rows of a text, one after another in the same memory.
struct Rows<'s> {
    source: &'s mut dyn BufRead,
    ceiling: u64,
    parser: Reader,
    /// The present row's text.
    row: Vec<u8>,
    /// The present row, from 1. Blank lines are none.
    number: u64,
    /// Where the present row begins.
    begins: Position,
    /// Where the source is read to.
    read: Position,
    /// Where the parser puts fields, which nobody reads.
    fields: Box<[u8]>,
    ends: [usize; 256],
}

#[derive(Clone, Copy)]
struct Position {
    byte: u64,
    /// From 1.
    line: u64,
    is_after_return: bool,
}

impl Position {
    fn advance(&mut self, bytes: &[u8]) {
        for at in memchr::memchr2_iter(b'\n', b'\r', bytes) {
            let is_after_return = if at == 0 { self.is_after_return } else { bytes[at - 1] == b'\r' };
            self.line += u64::from(bytes[at] == b'\r' || !is_after_return);
        }
        self.byte += bytes.len() as u64;
        self.is_after_return = bytes.last().map_or(self.is_after_return, |byte| *byte == b'\r');
    }
}

impl<'s> Rows<'s> {
    fn new(source: &'s mut dyn BufRead, ceiling: u64) -> Rows<'s> {
        let start = Position { byte: 0, line: 1, is_after_return: false };
        Rows {
            source,
            ceiling,
            parser: Reader::new(),
            row: Vec::new(),
            number: 0,
            begins: start,
            read: start,
            fields: vec![0; 1 << 16].into(),
            ends: [0; 256],
        }
    }

    fn pack(mut self, skip_header: bool, emit: Emit<'_>) -> anyhow::Result<()> {
        let mut columns_of_first = None;
        while let Some(columns) = self.read_row()? {
            let expected = *columns_of_first.get_or_insert(columns);
            ensure!(
                columns == expected,
                "{} has {columns} columns and the first row {expected}",
                self.place()
            );
            if self.number > 1 || !skip_header {
                emit(&self.row)?;
            }
        }
        Ok(())
    }

    /// Reads the next row that is not blank: how many columns it has. None where the source has ended.
    fn read_row(&mut self) -> anyhow::Result<Option<usize>> {
        self.number += 1;
        loop {
            let columns = self.read_to_row_end()?;
            if columns == 0 {
                return Ok(None);
            }
            if self.row.iter().any(|byte| !b" \t".contains(byte)) {
                return Ok(Some(columns));
            }
        }
    }

    /// Reads until a line ends outside quotes: how many columns there are before it, 0 where the source has ended.
    fn read_to_row_end(&mut self) -> anyhow::Result<usize> {
        self.row.clear();
        let mut columns = 0;
        loop {
            let input = self.source.fill_buf()?;
            if input.is_empty() {
                return Ok(columns + self.end()?);
            }
            let (result, read, _, ends) = self.parser.read_record(input, &mut self.fields, &mut self.ends);
            let mut text = &input[..read];
            if self.row.is_empty() {
                let (blank, rest) = text.split_at(blank_bytes(text));
                self.read.advance(blank);
                (self.begins, text) = (self.read, rest);
            }
            self.row.extend_from_slice(text);
            self.read.advance(text);
            self.source.consume(read);
            columns += ends;
            if result == ReadRecordResult::Record {
                // The line end's first byte; the second, if it has two, is before the next row.
                self.row.pop();
            }
            ensure!(
                self.row.len() as u64 <= self.ceiling,
                "{} is longer than a record may be ({} bytes): is a quote not closed?",
                self.place(),
                self.ceiling
            );
            if result == ReadRecordResult::Record {
                return Ok(columns);
            }
        }
    }

    /// The columns that the source's end completes. A line end would end the row, unless a quote is open.
    fn end(&mut self) -> anyhow::Result<usize> {
        if self.row.is_empty() {
            return Ok(0);
        }
        let (result, _, _, ends) = self.parser.read_record(b"\n", &mut self.fields, &mut self.ends);
        ensure!(result == ReadRecordResult::Record, "a quote in {} is not closed", self.place());
        Ok(ends)
    }

    fn place(&self) -> String {
        format!("row {} (line {}, byte {})", self.number, self.begins.line, self.begins.byte)
    }
}

/// How many bytes of line ends there are before anything else: blank lines, and what is left of the last row's.
fn blank_bytes(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| b"\r\n".contains(byte)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    fn rows(text: &[u8], skip_header: bool, ceiling: u64) -> anyhow::Result<Vec<Vec<u8>>> {
        let mut whole = None;
        for buffer_bytes in [1, 2, 3, 5, 64] {
            let mut rows = Vec::new();
            let mut source = BufReader::with_capacity(buffer_bytes, text);
            let packed = Rows::new(&mut source, ceiling).pack(skip_header, &mut |row| {
                rows.push(row.to_vec());
                Ok(())
            });
            let packed = packed.map(|()| rows);
            let said = packed.as_ref().map_err(ToString::to_string).cloned();
            let before = whole.get_or_insert_with(|| said.clone());
            assert_eq!(&said, before, "buffers of {buffer_bytes} bytes");
            if buffer_bytes == 64 {
                return packed;
            }
        }
        unreachable!()
    }

    #[test]
    fn a_row_is_its_text_without_the_line_end() {
        assert_eq!(rows(b"a,b\r\n1,2\n3,", false, 99).unwrap(), [b"a,b".as_slice(), b"1,2", b"3,"]);
        assert_eq!(rows(b"a,b\r\n1,2\n", true, 99).unwrap(), [b"1,2"]);
        assert!(rows(b"", true, 99).unwrap().is_empty());
    }

    #[test]
    fn a_carriage_return_alone_ends_a_row_and_the_header() {
        assert_eq!(rows(b"x,y\r1,10\r2,20\r", true, 99).unwrap(), [b"1,10", b"2,20"]);
        assert_eq!(rows(b"x\r\"a\rb\"\r\r\n\n\r2", false, 99).unwrap(), [b"x".as_slice(), b"\"a\rb\"", b"2"]);
    }

    #[test]
    fn quoted_commas_line_ends_and_quotes_belong_to_their_field() {
        let text = b"\"a,\"\"x\"\"\n\",b\n\"\",\"\r\n\n\"\n";
        assert_eq!(rows(text, false, 99).unwrap(), [b"\"a,\"\"x\"\"\n\",b".as_slice(), b"\"\",\"\r\n\n\""]);
    }

    #[test]
    fn a_quote_inside_an_unquoted_field_means_itself() {
        assert_eq!(rows(b"5\" disk,1\n6,2\n", false, 99).unwrap(), [b"5\" disk,1".as_slice(), b"6,2"]);
        assert_eq!(rows(b"\"a\"x\"y\",1\n6,2\n", false, 99).unwrap(), [b"\"a\"x\"y\",1".as_slice(), b"6,2"]);
        assert_eq!(rows(b"a,\0b\n6,\"\0\n\"\n", false, 99).unwrap(), [b"a,\0b".as_slice(), b"6,\"\0\n\""]);
    }

    #[test]
    fn lines_of_nothing_but_spaces_are_blank_and_skipped() {
        assert_eq!(rows(b"\na,b\n\r\n1,2\n\n", true, 99).unwrap(), [b"1,2"]);
        assert_eq!(rows(b" \t\na\n  \n\"\"\n b\n ", true, 99).unwrap(), [b"\"\"".as_slice(), b" b"]);
    }

    #[test]
    fn blank_lines_take_no_memory() {
        let blank = b"\r\n".repeat(60);
        assert_eq!(rows(&[&blank[..], b"1,2\n", &blank].concat(), false, 3).unwrap(), [b"1,2"]);
    }

    #[test]
    fn rows_of_many_columns_are_counted_whole() {
        let row = b"1,".repeat(1000);
        let text = [&row[..], b"\n", &row, b"\n"].concat();
        assert_eq!(rows(&text, false, 9999).unwrap(), [row.as_slice(), &row]);
        let text = [&row[..], b"\n1,", &row, b"\n"].concat();
        assert!(rows(&text, false, 9999).unwrap_err().to_string().contains("has 1002 columns"));
    }

    #[test]
    fn a_row_with_another_number_of_columns_is_refused_by_its_place() {
        let error = rows(b"\"a\n\",b\r\n1,2\r\n\n1,2,3\n", false, 99).unwrap_err().to_string();
        assert_eq!(error, "row 3 (line 5, byte 14) has 3 columns and the first row 2");
        assert!(rows(b"a,b\n1\n", true, 99).is_err());
    }

    #[test]
    fn a_quote_that_is_never_closed_is_refused_before_more_is_read_than_a_record_may_have() {
        let error = rows(b"1,2\n\"1,2\n3,4\n", false, 99).unwrap_err().to_string();
        assert_eq!(error, "a quote in row 2 (line 2, byte 4) is not closed");
        let error = rows(b"1,2\n\"1,2\n3,4\n5,6\n", false, 9).unwrap_err().to_string();
        assert!(error.starts_with("row 2 (line 2, byte 4) is longer"), "{error}");
    }
}
