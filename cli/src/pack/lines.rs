//! One record a line of text, as UTF-8. A line ends where Python ends one in text mode: at `\n`, `\r\n` or `\r`.
//! It must never drop a line: an empty one is an empty record.

use std::io::BufRead;
use std::path::Path;

use anyhow::{Context, ensure};
use memchr::memchr2;

use super::content::Wanted;
use super::text::{self, TextEncoding};
use super::{Emit, record_ceiling};

/// Packs a file. What it was converted from, if it was.
pub(crate) fn pack(
    file: &Path,
    encoding: Option<TextEncoding>,
    emit: Emit<'_>,
) -> anyhow::Result<Option<&'static str>> {
    let mut text = text::open(file, encoding, Wanted::Lines)?;
    split(&mut *text.source, record_ceiling(), emit).with_context(|| file.display().to_string())?;
    Ok(text.converted_from)
}

fn split(source: &mut dyn BufRead, ceiling: u64, emit: Emit<'_>) -> anyhow::Result<()> {
    let mut line = Vec::new();
    for number in 1_u64.. {
        let is_there = read_line(source, &mut line, ceiling).with_context(|| format!("line {number}"))?;
        if !is_there {
            break;
        }
        emit(&line)?;
    }
    Ok(())
}

/// Reads a line without its ending. False where the source has ended.
fn read_line(source: &mut dyn BufRead, line: &mut Vec<u8>, ceiling: u64) -> anyhow::Result<bool> {
    line.clear();
    loop {
        let buffer = source.fill_buf()?;
        if buffer.is_empty() {
            return Ok(!line.is_empty());
        }
        let end = memchr2(b'\n', b'\r', buffer);
        let (text, is_return) = match end {
            Some(at) => (&buffer[..at], buffer[at] == b'\r'),
            None => (buffer, false),
        };
        ensure!(
            (line.len() + text.len()) as u64 <= ceiling,
            "is longer than a record may be ({ceiling} bytes)"
        );
        line.extend_from_slice(text);
        let read = text.len() + usize::from(end.is_some());
        source.consume(read);
        if is_return && source.fill_buf()?.first() == Some(&b'\n') {
            source.consume(1);
        }
        if end.is_some() {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    fn records(text: &[u8], ceiling: u64) -> anyhow::Result<Vec<Vec<u8>>> {
        let mut records = Vec::new();
        split(&mut &*text, ceiling, &mut |record| {
            records.push(record.to_vec());
            Ok(())
        })?;
        Ok(records)
    }

    #[test]
    fn every_line_is_a_record_with_or_without_a_last_line_end() {
        assert_eq!(records(b"one\r\n\ntwo", 9).unwrap(), [b"one".as_slice(), b"", b"two"]);
        assert_eq!(records(b"one\n", 9).unwrap(), [b"one"]);
        assert!(records(b"", 9).unwrap().is_empty());
    }

    #[test]
    fn lines_end_as_in_pythons_text_mode_wherever_buffers_do() {
        let expected = [b"one".as_slice(), b"two\0", b"", b"three", b"", b"four"];
        let text = b"one\rtwo\0\r\r\nthree\r\n\nfour\r";
        assert_eq!(records(text, 9).unwrap(), expected);
        for bytes in 1..text.len() {
            let mut lines = Vec::new();
            let mut source = BufReader::with_capacity(bytes, &text[..]);
            split(&mut source, 9, &mut |record| {
                lines.push(record.to_vec());
                Ok(())
            })
            .unwrap();
            assert_eq!(lines, expected, "buffers of {bytes}");
        }
    }

    #[test]
    fn a_line_that_no_record_can_hold_is_refused_by_number() {
        assert_eq!(records(b"a\n123\r\n", 3).unwrap(), [b"a".as_slice(), b"123"]);
        let error = format!("{:#}", records(b"a\n1234\n", 3).unwrap_err());
        assert!(error.starts_with("line 2: is longer"), "{error}");
    }
}
