//! One record a line of text, whatever its encoding.
//! It must never drop a line: an empty one is an empty record.

use std::io::BufRead;
use std::path::Path;

use anyhow::{Context, ensure};

use super::{Emit, open, read_line, record_ceiling, without_ending};

pub(in super::super) fn pack(file: &Path, emit: Emit<'_>) -> anyhow::Result<()> {
    split(&mut *open(file)?, record_ceiling(), emit).with_context(|| file.display().to_string())
}

fn split(source: &mut dyn BufRead, ceiling: u64, emit: Emit<'_>) -> anyhow::Result<()> {
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        // Two bytes more than a record may have, for the longest line end.
        if !read_line(source, &mut line, ceiling + 2)? {
            break;
        }
        let record = without_ending(&line);
        ensure!(
            record.len() as u64 <= ceiling,
            "line {number} is longer than a record may be ({ceiling} bytes)"
        );
        emit(record)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_line_that_no_record_can_hold_is_refused_by_number() {
        assert_eq!(records(b"a\n123\r\n", 3).unwrap(), [b"a".as_slice(), b"123"]);
        let error = records(b"a\n1234\n", 3).unwrap_err().to_string();
        assert!(error.starts_with("line 2 is longer"), "{error}");
    }
}
