//! Gzip as files have it: members one after another, perhaps with zeros behind the last. It must never end quietly where something
//! is missing, damaged or left over.

use std::io::{self, BufRead, Read};

use flate2::bufread::GzDecoder;

/// The members' contents, one after another.
pub(super) struct Gunzip<R> {
    /// None only while one member gives way to the next.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> Gunzip<R> {
    pub(super) fn new(source: R) -> Gunzip<R> {
        Gunzip { member: Some(GzDecoder::new(source)) }
    }

    /// Begins the next member. False where nothing follows but zeros.
    fn next_member(&mut self) -> io::Result<bool> {
        let Some(mut source) = self.member.take().map(GzDecoder::into_inner) else { return Ok(false) };
        loop {
            let rest = source.fill_buf()?;
            let zeros = rest.iter().take_while(|byte| **byte == 0).count();
            match rest.get(zeros) {
                Some(0x1f) => break,
                Some(_) => return Err(fault("something that is no gzip follows its gzip data: cut it off")),
                None if rest.is_empty() => return Ok(false),
                None => source.consume(zeros),
            }
        }
        let zeros = source.fill_buf()?.iter().take_while(|byte| **byte == 0).count();
        source.consume(zeros);
        self.member = Some(GzDecoder::new(source));
        Ok(true)
    }
}

impl<R: BufRead> Read for Gunzip<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            match member.read(into) {
                Ok(0) if !into.is_empty() => {
                    self.next_member()?;
                }
                Ok(read) => return Ok(read),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(fault("its gzip data end too early: it was cut short, copy it again"));
                }
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) =>
                {
                    return Err(fault(&format!("its gzip data are damaged, copy it again ({error})")));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(0)
    }
}

fn fault(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn read(stored: &[u8]) -> Result<String, String> {
        let mut text = String::new();
        let read = Gunzip::new(stored).read_to_string(&mut text);
        read.map(|_| text).map_err(|error| error.to_string())
    }

    #[test]
    fn members_are_read_one_after_another_and_zeros_behind_them_are_nothing() {
        let two = [gzip(b"one "), gzip(b"two")].concat();
        assert_eq!(read(&two).unwrap(), "one two");
        assert_eq!(read(&[&two[..], &[0; 700]].concat()).unwrap(), "one two");
        assert_eq!(read(&[gzip(b""), gzip(b"two")].concat()).unwrap(), "two");
    }

    #[test]
    fn a_stream_cut_anywhere_is_refused_except_between_members() {
        let (first, second) = (gzip(b"one "), gzip(b"two"));
        let both = [&first[..], &second].concat();
        for cut in 1..both.len() {
            match read(&both[..cut]) {
                Ok(text) => assert_eq!((cut, text.as_str()), (first.len(), "one ")),
                Err(error) => assert!(error.contains("cut short"), "{cut}: {error}"),
            }
        }
    }

    #[test]
    fn what_follows_or_is_damaged_is_refused() {
        for rest in [&b"x"[..], b"garbage of more than ten bytes", b"\0\0x"] {
            let error = read(&[&gzip(b"one")[..], rest].concat()).unwrap_err();
            assert!(error.starts_with("something that is no gzip follows"), "{error}");
        }
        let mut damaged = gzip(b"one");
        let checksum = damaged.len() - 8;
        damaged[checksum] ^= 1;
        assert!(read(&damaged).unwrap_err().starts_with("its gzip data are damaged"));
    }
}
