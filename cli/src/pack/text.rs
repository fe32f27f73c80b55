//! A text file as UTF-8, whatever it was written in: by its mark, by the name it is given, or because it is UTF-8.
//! It must never pass a byte that its encoding does not know, nor hold more than a buffer of it.

use std::io::{self, BufRead, Cursor, Read};
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use encoding_rs::{Decoder, DecoderResult, Encoding};

use super::content::Wanted;

/// How the characters of a text are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextEncoding {
    /// Unknown: the bytes are passed as they are.
    Bytes,
    /// ISO 8859-1 proper, each byte the character of its number, as Python has it; on the web the name means windows-1252.
    Latin1,
    /// UTF-16 in the order of its mark, little-endian without one.
    Utf16,
    /// Any other.
    Named(&'static Encoding),
}

impl TextEncoding {
    /// The encoding of a name: those of the web's standard, and Python's for the same.
    pub(crate) fn parse(name: &str) -> Result<TextEncoding, String> {
        let folded = name.trim().to_ascii_lowercase().replace('_', "-");
        let label = match folded.as_str() {
            "bytes" => return Ok(Self::Bytes),
            "latin-1" | "latin1" | "l1" | "iso-8859-1" | "iso8859-1" | "cp819" => return Ok(Self::Latin1),
            "utf-16" | "utf16" => return Ok(Self::Utf16),
            "utf-32" | "utf32" | "utf-32le" | "utf-32be" | "utf-32-le" | "utf-32-be" => {
                return Err(UTF_32.to_owned());
            }
            // What is ASCII is UTF-8, and what is not should not be guessed at.
            "ascii" | "us-ascii" | "utf-8-sig" => "utf-8",
            "utf-16-le" => "utf-16le",
            "utf-16-be" => "utf-16be",
            "cp932" => "shift_jis",
            "cp936" => "gbk",
            "cp949" => "euc-kr",
            "cp950" => "big5",
            "mac-roman" => "macintosh",
            other => other,
        };
        Encoding::for_label(label.as_bytes())
            .or_else(|| Encoding::for_label(name.as_bytes()))
            .filter(|encoding| *encoding != encoding_rs::REPLACEMENT)
            .map(Self::Named)
            .ok_or_else(|| {
                format!(
                    "{name:?} is not an encoding that is known: convert the file with iconv, or say bytes"
                )
            })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Latin1 => "ISO-8859-1",
            Self::Utf16 => "UTF-16",
            Self::Named(encoding) => encoding.name(),
        }
    }

    /// Whether a text that is said to be in this encoding may have that one's mark.
    fn may_be(self, marked: &'static Encoding) -> bool {
        match self {
            Self::Utf16 => marked != encoding_rs::UTF_8,
            Self::Named(encoding) => encoding == marked,
            Self::Bytes | Self::Latin1 => false,
        }
    }
}

const UTF_32: &str = "UTF-32 is not read: convert it first, for example with iconv -f UTF-32 -t UTF-8";

/// A text, as UTF-8 unless its bytes are wanted.
pub(super) struct Text {
    pub(super) source: Box<dyn BufRead>,
    /// What it is converted from. None where its bytes are passed as they are.
    pub(super) converted_from: Option<&'static str>,
}

/// Opens a text file. `said` is what it is said to be; None leaves it to its mark, and without one it is UTF-8.
pub(super) fn open(file: &Path, said: Option<TextEncoding>, wanted: Wanted) -> anyhow::Result<Text> {
    let (sample, source) = super::open(file, wanted)?;
    decode(&sample, source, said).with_context(|| file.display().to_string())
}

fn decode(sample: &[u8], mut source: Box<dyn BufRead>, said: Option<TextEncoding>) -> anyhow::Result<Text> {
    if said == Some(TextEncoding::Bytes) {
        return Ok(Text { source, converted_from: None });
    }
    let mark = Encoding::for_bom(sample);
    ensure!(said.is_some() || !is_utf_32(sample), "begins with the mark of UTF-32: {UTF_32}");
    let encoding = match (said, mark) {
        (None, None) => {
            check_unmarked(sample)?;
            TextEncoding::Named(encoding_rs::UTF_8)
        }
        (Some(TextEncoding::Utf16), None) => TextEncoding::Named(encoding_rs::UTF_16LE),
        (Some(said), None) => said,
        (None, Some((marked, _))) => TextEncoding::Named(marked),
        (Some(said), Some((marked, _))) if said.may_be(marked) => TextEncoding::Named(marked),
        (Some(said), Some((marked, _))) => bail!(
            "begins with the mark of {} and cannot be {}: leave --encoding out, or say --encoding bytes",
            marked.name(),
            said.name()
        ),
    };
    let mark_bytes = mark.map_or(0, |(_, bytes)| bytes);
    io::copy(&mut source.by_ref().take(mark_bytes as u64), &mut io::sink())?;
    let is_utf_8 = encoding == TextEncoding::Named(encoding_rs::UTF_8);
    let decoded = Decoded::new(source, encoding, mark_bytes as u64);
    Ok(Text { source: Box::new(decoded), converted_from: (!is_utf_8).then(|| encoding.name()) })
}

/// Whether the first bytes are UTF-32's mark; where UTF-16 is said, they are its own, and a NUL.
fn is_utf_32(sample: &[u8]) -> bool {
    sample.starts_with(&[0xff, 0xfe, 0, 0]) || sample.starts_with(&[0, 0, 0xfe, 0xff])
}

/// Refuses what would be read as UTF-8 with a NUL beside every letter.
fn check_unmarked(sample: &[u8]) -> anyhow::Result<()> {
    let name = match sample.first_chunk::<4>().map(|bytes| bytes.map(|byte| byte == 0)) {
        Some([false, true, false, true]) => "utf-16le",
        Some([true, false, true, false]) => "utf-16be",
        Some([false, true, true, true] | [true, true, true, false]) => bail!("seems to be UTF-32: {UTF_32}"),
        _ => return Ok(()),
    };
    bail!("seems to be UTF-16 without a mark: say --encoding {name}, or --encoding utf-8 if it is not")
}

/// What turns stored bytes into UTF-8.
enum Conversion {
    Latin1,
    Decoder(Decoder),
}

/// UTF-8, a buffer at a time.
struct Decoded {
    source: Box<dyn BufRead>,
    encoding: TextEncoding,
    conversion: Conversion,
    /// Bytes of the source that are converted or were its mark.
    read: u64,
    utf_8: Box<[u8]>,
    ready: Range<usize>,
    is_over: bool,
}

/// UTF-8 that is ready at a time. One stored byte becomes at most three.
const UTF_8_BYTES: usize = 1 << 16;

impl Decoded {
    fn new(source: Box<dyn BufRead>, encoding: TextEncoding, read: u64) -> Decoded {
        let conversion = match encoding {
            TextEncoding::Named(encoding) => Conversion::Decoder(encoding.new_decoder_without_bom_handling()),
            _ => Conversion::Latin1,
        };
        Decoded {
            source,
            encoding,
            conversion,
            read,
            utf_8: vec![0; UTF_8_BYTES].into(),
            ready: 0..0,
            is_over: false,
        }
    }

    /// Converts what the source has next.
    fn convert(&mut self) -> io::Result<()> {
        let stored = self.source.fill_buf()?;
        self.is_over = stored.is_empty();
        let (read, written) = match &mut self.conversion {
            Conversion::Latin1 => {
                let stored = &stored[..stored.len().min(UTF_8_BYTES / 2)];
                (stored.len(), encoding_rs::mem::convert_latin1_to_utf8(stored, &mut self.utf_8))
            }
            Conversion::Decoder(decoder) => {
                let converted =
                    decoder.decode_to_utf8_without_replacement(stored, &mut self.utf_8, self.is_over);
                let (result, read, written) = converted;
                if let DecoderResult::Malformed(bytes, after) = result {
                    let at = self.read + read as u64 - u64::from(bytes) - u64::from(after);
                    return Err(malformed(self.encoding, at));
                }
                (read, written)
            }
        };
        self.source.consume(read);
        self.read += read as u64;
        self.ready = 0..written;
        Ok(())
    }
}

fn malformed(encoding: TextEncoding, at: u64) -> io::Error {
    let name = encoding.name();
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!(
            "is not {name} at byte {at}: name its encoding, such as --encoding latin-1, utf-16 or shift_jis, or take its \
             bytes as they are with --encoding bytes"
        ),
    )
}

impl BufRead for Decoded {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.ready.is_empty() && !self.is_over {
            self.convert()?;
        }
        Ok(&self.utf_8[self.ready.clone()])
    }

    fn consume(&mut self, amount: usize) {
        self.ready.start = (self.ready.start + amount).min(self.ready.end);
    }
}

impl Read for Decoded {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = Cursor::new(self.fill_buf()?).read(into)?;
        self.consume(read);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(stored: &[u8], said: Option<&str>) -> Result<(String, Option<&'static str>), String> {
        let said = said.map(|name| TextEncoding::parse(name).unwrap());
        let mut whole = None;
        for buffer_bytes in [1, 3, 1 << 16] {
            let source = io::BufReader::with_capacity(buffer_bytes, Cursor::new(stored.to_vec()));
            let read = decode(stored, Box::new(source), said).and_then(|mut text| {
                let mut bytes = Vec::new();
                text.source.read_to_end(&mut bytes)?;
                Ok((String::from_utf8_lossy(&bytes).into_owned(), text.converted_from))
            });
            let read = read.map_err(|error| format!("{error:#}"));
            assert_eq!(whole.get_or_insert_with(|| read.clone()), &read, "buffers of {buffer_bytes} bytes");
        }
        whole.unwrap()
    }

    fn utf_16(text: &str, bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
        text.encode_utf16().flat_map(bytes).collect()
    }

    const TEXT: &str = "\u{feff}ä,表,😀\n";

    #[test]
    fn a_mark_tells_the_encoding_and_is_no_part_of_the_text() {
        let plain = TEXT.trim_start_matches('\u{feff}').to_owned();
        assert_eq!(text(TEXT.as_bytes(), None).unwrap(), (plain.clone(), None));
        assert_eq!(text(TEXT.as_bytes(), Some("utf-8")).unwrap(), (plain.clone(), None));
        for (bytes, name, python) in [
            (u16::to_le_bytes as fn(u16) -> [u8; 2], "UTF-16LE", "utf_16_le"),
            (u16::to_be_bytes, "UTF-16BE", "utf-16-be"),
        ] {
            let expected = (plain.clone(), Some(name));
            for said in [None, Some("utf-16"), Some(python)] {
                assert_eq!(text(&utf_16(TEXT, bytes), said).unwrap(), expected);
            }
            assert_eq!(text(&utf_16(&plain, bytes), Some(python)).unwrap(), expected);
        }
        assert_eq!(text(&utf_16(&plain, u16::to_le_bytes), Some("utf-16")).unwrap().0, plain);
        assert_eq!(text(b"\xff\xfe\0\0", Some("utf-16")).unwrap().0, "\0");
        assert_eq!(text(b"\xef\xbb\xbf", None).unwrap().0, "");
    }

    #[test]
    fn names_are_the_webs_and_pythons() {
        let known = [
            ("latin-1", b"\xe4\x80".as_slice(), "ä\u{80}"),
            ("ISO-8859-1", b"\xe4\x80", "ä\u{80}"),
            ("cp1252", b"\xe4\x80", "ä€"),
            ("shift_jis", b"\x95\x5c,", "表,"),
            ("SJIS", b"\x95\x5c,", "表,"),
            ("cp932", b"\x87\x40", "①"),
            ("euc_jp", b"\xc6\xfc", "日"),
            ("gbk", b"\xba\xba", "汉"),
            ("cp936", b"\xba\xba", "汉"),
            ("big5", b"\xba\x7e", "漢"),
            ("cp949", b"\xc7\xd1", "한"),
            ("koi8_r", b"\xc1", "а"),
            ("iso8859_15", b"\xa4", "€"),
            ("mac-roman", b"\x8a", "ä"),
            ("utf_8", "ä".as_bytes(), "ä"),
            ("ascii", b"a", "a"),
        ];
        for (name, stored, expected) in known {
            assert_eq!(text(stored, Some(name)).unwrap().0, expected, "{name}");
        }
        for (name, needle) in
            [("klingon", "iconv"), ("utf-32", "UTF-32 is not read"), ("iso-2022-kr", "is not an encoding")]
        {
            assert!(TextEncoding::parse(name).unwrap_err().contains(needle), "{name}");
        }
    }

    #[test]
    fn a_byte_that_the_encoding_does_not_know_is_refused_by_its_place() {
        for (stored, said, expected) in [
            (b"caf\xe9\n".as_slice(), None, "is not UTF-8 at byte 3: name its encoding"),
            (b"\xef\xbb\xbfone\xe2\x82", None, "is not UTF-8 at byte 6: "),
            (b"caf\xe9", Some("ascii"), "is not UTF-8 at byte 3: "),
            (b"\xff\xfea\0\x00\xd8b\0", None, "is not UTF-16LE at byte 4: "),
            (b"\xff\xfea\0b", None, "is not UTF-16LE at byte 4: "),
            (b"ab\xa0", Some("shift_jis"), "is not Shift_JIS at byte 2: "),
        ] {
            let said = text(stored, said).unwrap_err();
            assert!(said.starts_with(expected), "{said}");
        }
        assert_eq!(
            text(b"caf\xe9\n\xef", Some("bytes")).unwrap(),
            ("caf\u{fffd}\n\u{fffd}".to_owned(), None)
        );
    }

    #[test]
    fn marks_that_contradict_and_texts_of_wide_characters_without_one_are_refused() {
        assert!(
            text(TEXT.as_bytes(), Some("latin-1"))
                .unwrap_err()
                .contains("mark of UTF-8 and cannot be ISO-8859-1")
        );
        assert!(text(b"\xff\xfea\0", Some("utf-16-be")).unwrap_err().contains("mark of UTF-16LE"));
        assert!(text(TEXT.as_bytes(), Some("utf-16")).unwrap_err().contains("mark of UTF-8"));
        assert!(text(b"a\0b\0", None).unwrap_err().contains("--encoding utf-16le"));
        assert!(text(b"\0a\0b", None).unwrap_err().contains("--encoding utf-16be"));
        assert_eq!(text(b"a\0b\0", Some("utf-8")).unwrap().0, "a\0b\0");
        for stored in [b"\xff\xfe\0\0a\0\0\0", b"\0\0\xfe\xff\0\0\0a", b"a\0\0\0b\0\0\0", b"\0\0\0a\0\0\0b"] {
            assert!(text(stored, None).unwrap_err().contains("UTF-32 is not read"), "{stored:?}");
        }
    }
}
