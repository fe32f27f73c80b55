//! What a file's first bytes say it is. It must never take a text for something else: a magic number that a text could begin with
//! counts only where the bytes after it are no text.

use std::fmt::Display;

use anyhow::bail;

use super::tfrecord;

/// Bytes that are looked at. A tar archive says what it is in the last 6 of its first 263.
pub(super) const SAMPLE_BYTES: usize = 512;

/// What a command packs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Lines,
    Csv,
    Idx,
    Parquet,
    TfRecord,
}

impl Wanted {
    fn command(self) -> &'static str {
        match self {
            Self::Lines => "lines",
            Self::Csv => "csv",
            Self::Idx => "idx",
            Self::Parquet => "parquet",
            Self::TfRecord => "tfrecord",
        }
    }

    /// Whether the command takes one file after another from beginning to end, so that a pipe will do.
    fn takes_a_pipe(self) -> bool {
        matches!(self, Self::Lines | Self::Csv | Self::TfRecord)
    }
}

/// A format that says what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    /// Something else in other bytes, and the command that writes it to its standard output.
    Wrapped { name: &'static str, tool: &'static str },
    /// What one of the commands packs.
    Source(Wanted, &'static str),
    /// Whatever no command packs, and what to do.
    Other { name: &'static str, way_out: &'static str },
}

/// Whether a file begins as gzip does, which is read. The length of a TFRecord may be the same number, but has a checksum.
pub(super) fn is_gzip(sample: &[u8]) -> bool {
    sample.starts_with(&[0x1f, 0x8b, 8]) && !tfrecord::begins(sample)
}

/// Refuses a file that holds something else than is wanted, with the way out. `file` is what a shell takes for it.
pub(super) fn check(sample: &[u8], file: impl Display, wanted: Wanted) -> anyhow::Result<()> {
    match identify(sample) {
        Some(Content::Wrapped { name, .. }) if name == "ZLIB" && wanted == Wanted::TfRecord => {
            bail!(
                "is compressed with ZLIB, which is not supported: use GZIP, tf.io.TFRecordOptions(compression_type=\"GZIP\")"
            )
        }
        Some(Content::Wrapped { name, tool }) if wanted.takes_a_pipe() => bail!(
            "is compressed or packed with {name}, which is not read here; read it from a pipe: \
             {tool} {file} | shoal recordio pack {} /dev/stdin …",
            wanted.command()
        ),
        Some(Content::Wrapped { name, tool }) => bail!(
            "is compressed or packed with {name}, which is not read here: take it out first, for example with \
             {tool} {file} > PLAIN"
        ),
        Some(Content::Source(other, name)) if other != wanted => {
            bail!(
                "is {name} and cannot be packed as {}: use shoal recordio pack {}",
                wanted.command(),
                other.command()
            )
        }
        Some(Content::Other { name, way_out }) => bail!("is {name}, which cannot be packed: {way_out}"),
        Some(Content::Source(..)) | None => Ok(()),
    }
}

/// The format of what begins so. Nothing for what says nothing: texts, and formats without a magic number.
fn identify(sample: &[u8]) -> Option<Content> {
    // Any number may be the length of a TFRecord, and only there has it a checksum.
    if tfrecord::begins(sample) {
        return Some(Content::Source(Wanted::TfRecord, "a TFRecord file"));
    }
    wrapped(sample).or_else(|| source(sample)).or_else(|| other(sample))
}

fn wrapped(sample: &[u8]) -> Option<Content> {
    let (name, tool) = match sample {
        [0x1f, 0x8b, ..] => ("gzip", "gzip -dc"),
        [0x1f, 0x1e | 0x9d | 0xa0, ..] => ("compress", "gzip -dc"),
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, 0x59, 0x26, 0x53, 0x59, ..]
        | [b'B', b'Z', b'h', b'1'..=b'9', 0x17, 0x72, 0x45, 0x38, 0x50, 0x90, ..] => ("bzip2", "bzip2 -dc"),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => ("xz", "xz -dc"),
        [0x5d, 0, 0, ..] => ("lzma", "xz --format=lzma -dc"),
        [b'L', b'Z', b'I', b'P', 0 | 1, ..] => ("lzip", "lzip -dc"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => ("zstd", "zstd -dc"),
        [0x04, 0x22, 0x4d, 0x18, ..] | [0x02, 0x21, 0x4c, 0x18, ..] => ("lz4", "lz4 -dc"),
        [0xff, 6, 0, 0, b's', b'N', b'a', b'P', b'p', b'Y', ..] => ("snappy", "snzip -dc"),
        [b'P', b'K', 3, 4, ..] | [b'P', b'K', 5, 6, ..] | [b'P', b'K', 7, 8, ..] => {
            ("zip (as are .npz and .xlsx)", "unzip -p")
        }
        [b'7', b'z', 0xbc, 0xaf, 0x27, 0x1c, ..] => ("7z", "7z x -so"),
        [b'R', b'a', b'r', b'!', 0x1a, 7, ..] => ("rar", "unrar p -inul"),
        _ if sample.get(257..262) == Some(b"ustar") && !is_text(sample) => ("tar", "tar -xOf"),
        _ if is_zlib(sample) => ("ZLIB", "zlib-flate -uncompress <"),
        _ => return None,
    };
    Some(Content::Wrapped { name, tool })
}

fn source(sample: &[u8]) -> Option<Content> {
    let (wanted, name) = match sample {
        [0, 0, 8 | 9 | 0x0b..=0x0e, 1..=8, ..] => (Wanted::Idx, "an IDX file"),
        [b'P', b'A', b'R', b'1', ..] if !is_text(sample) => (Wanted::Parquet, "a Parquet file"),
        _ => return None,
    };
    Some(Content::Source(wanted, name))
}

fn other(sample: &[u8]) -> Option<Content> {
    const COLUMNS: &str = "write the table as Parquet, for example with pyarrow.parquet.write_table";
    const ARRAY: &str = "write its rows as CSV, for example with numpy.savetxt, or as Parquet";
    let (name, way_out) = match sample {
        [4, 3, 2, 1, ..] => ("a RecordIO file already", "train on it as it is"),
        [b'P', b'A', b'R', b'E', ..] if !is_text(sample) => {
            ("an encrypted Parquet file", "write it without encryption")
        }
        [0x89, b'H', b'D', b'F', b'\r', b'\n', 0x1a, b'\n', ..] => ("an HDF5 file", ARRAY),
        [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => ("a NumPy array", ARRAY),
        [0x80, 2..=5, 1..=u8::MAX, ..] => {
            ("a Python pickle", "load it in Python and write its rows as CSV or Parquet")
        }
        [b'A', b'R', b'R', b'O', b'W', b'1', 0, 0, ..] => ("an Arrow file", COLUMNS),
        [b'F', b'E', b'A', b'1', ..] if !is_text(sample) => ("a Feather file", COLUMNS),
        [b'O', b'b', b'j', 1, ..] => ("an Avro file", COLUMNS),
        [b'O', b'R', b'C', ..] if !is_text(sample) => ("an ORC file", COLUMNS),
        [b'S', b'Q', b'L', b'i', b't', b'e', b' ', _, _, _, _, _, _, b' ', b'3', 0, ..] => {
            ("an SQLite database", "select what is wanted as CSV: sqlite3 -csv FILE 'SELECT …'")
        }
        [0xd0, 0xcf, 0x11, 0xe0, 0xa1, 0xb1, 0x1a, 0xe1, ..] => {
            ("an old Excel or Word file", "save it as CSV")
        }
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] | [0xff, 0xd8, 0xff, ..] => {
            ("an image", "pack pixels as IDX, or its bytes in a Parquet column")
        }
        _ => return None,
    };
    Some(Content::Other { name, way_out })
}

/// Whether bytes are of a text: UTF-8, perhaps cut in its last character, without the control characters that no text has.
fn is_text(sample: &[u8]) -> bool {
    let valid = std::str::from_utf8(sample).map_or_else(|error| error.error_len().is_none(), |_| true);
    valid && !sample.iter().any(|byte| *byte < b' ' && !b"\t\n\x0b\x0c\r\x1b".contains(byte))
}

/// ZLIB has no magic number but two bytes that a text may begin with: it has to be decompressible, too.
fn is_zlib(sample: &[u8]) -> bool {
    let begins = matches!(sample, [0x78, 0x01 | 0x5e | 0x9c | 0xda, ..]) && !is_text(sample);
    let inflated = |sample| {
        let mut bytes = vec![0; 1 << 20];
        flate2::Decompress::new(true).decompress(sample, &mut bytes, flate2::FlushDecompress::None)
    };
    begins && inflated(sample).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::fuzzed_tests::tf_record;

    fn refusal(sample: &[u8], wanted: Wanted) -> Option<String> {
        check(sample, "a", wanted).err().map(|error| error.to_string())
    }

    #[test]
    fn compressions_and_archives_are_refused_with_the_command_that_undoes_them() {
        let mut tar = vec![0; 512];
        tar[..5].copy_from_slice(b"a.csv");
        tar[257..262].copy_from_slice(b"ustar");
        let cases: [(&[u8], &str); 17] = [
            (b"\x1f\x8b\x07", "gzip -dc a |"),
            (b"\x1f\x9d\x90", "gzip -dc a |"),
            (b"BZh91AY&SY", "bzip2 -dc a |"),
            (b"BZh9\x17\x72\x45\x38\x50\x90", "bzip2 -dc a |"),
            (b"\xfd7zXZ\0", "xz -dc a |"),
            (b"\x5d\0\0\x80\0", "xz --format=lzma -dc a |"),
            (b"LZIP\x01", "lzip -dc a |"),
            (b"\x28\xb5\x2f\xfd", "zstd -dc a |"),
            (b"\x50\x2a\x4d\x18", "zstd -dc a |"),
            (b"\x04\x22\x4d\x18", "lz4 -dc a |"),
            (b"\xff\x06\0\0sNaPpY", "snzip -dc a |"),
            (b"PK\x03\x04", "unzip -p a |"),
            (b"PK\x05\x06", "unzip -p a |"),
            (b"7z\xbc\xaf\x27\x1c", "7z x -so a |"),
            (b"Rar!\x1a\x07", "unrar p -inul a |"),
            (&tar, "tar -xOf a |"),
            (b"\x78\x9c\x4b\x04\0", "zlib-flate -uncompress < a |"),
        ];
        for (sample, way_out) in cases {
            let said = refusal(sample, Wanted::Lines).unwrap();
            assert!(said.contains(way_out) && said.contains("pack lines /dev/stdin"), "{said}");
            assert!(refusal(sample, Wanted::Csv).is_some() && refusal(sample, Wanted::TfRecord).is_some());
            assert!(refusal(sample, Wanted::Idx).unwrap().contains("take it out first"));
        }
        let zlib = refusal(b"\x78\x9c\x4b\x04\0", Wanted::TfRecord).unwrap();
        assert!(zlib.starts_with("is compressed with ZLIB, which is not supported: use GZIP"), "{zlib}");
    }

    #[test]
    fn what_another_command_packs_names_that_command_and_what_none_packs_the_way_out() {
        let records = tf_record(b"one");
        for (sample, command) in
            [(b"\0\0\x08\x03".as_slice(), "idx"), (b"PAR1\x15\x04", "parquet"), (&records, "tfrecord")]
        {
            let said = refusal(sample, Wanted::Lines).unwrap();
            assert!(said.ends_with(&format!("use shoal recordio pack {command}")), "{said}");
        }
        assert_eq!(refusal(b"\0\0\x08\x03", Wanted::Idx), None);
        assert_eq!(refusal(&records, Wanted::TfRecord), None);
        for (sample, name) in [
            (b"\x04\x03\x02\x01".as_slice(), "a RecordIO file already"),
            (b"PARE\x01", "an encrypted Parquet file"),
            (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
            (b"\x93NUMPY", "a NumPy array"),
            (b"\x80\x04\x95", "a Python pickle"),
            (b"ARROW1\0\0", "an Arrow file"),
            (b"FEA1\0", "a Feather file"),
            (b"Obj\x01", "an Avro file"),
            (b"ORC\x0a\x03", "an ORC file"),
            (b"SQLite format 3\0", "an SQLite database"),
            (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Excel"),
            (b"\x89PNG\r\n\x1a\n", "an image"),
        ] {
            let said = refusal(sample, Wanted::Csv).unwrap();
            assert!(said.starts_with(&format!("is {name}")), "{said}");
        }
    }

    #[test]
    fn a_text_is_a_text_whatever_magic_number_it_begins_with() {
        for text in [
            "PAR1,x\n",
            "PARE",
            "ORC\n",
            "FEA1;",
            "LZIP code",
            "BZh9,x",
            "PK,x",
            "x^2,y\n",
            "Rar!",
            "7z,\u{9}",
            "",
            "Obj1",
        ] {
            assert_eq!(refusal(text.as_bytes(), Wanted::Csv), None, "{text}");
        }
    }

    #[test]
    fn a_record_of_any_length_is_a_tfrecord_and_nothing_else() {
        // What magic numbers of two and three bytes are as lengths.
        for length in [93, 0x280, 0x9d1f, 0x8b1f, 0x08_8b1f, 0x06_0000, 0x0108_0000] {
            let sample = &tf_record(&vec![7; length])[..SAMPLE_BYTES.min(length)];
            assert!(!is_gzip(sample));
            assert_eq!(refusal(sample, Wanted::TfRecord), None, "{length}");
        }
    }
}
