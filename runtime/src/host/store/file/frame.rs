//! How the document lies in its file: framed, so that any damage is told from any document. Never touches a disk.
//!
//! Little-endian: magic (8 bytes), format version (u32), revision (u64), length of the document (u64), the document,
//! CRC-32 (IEEE) of everything before it (u32). The magic and the checksum stay where they are in every version.

use crate::host::store::Revision;
use crate::wire::OtherFormat;
use bytes::Bytes;

const MAGIC: &[u8; 8] = b"SHOALST\n";
const FORMAT_VERSION: u32 = 1;
const HEADER_BYTES: usize = 28;
const CHECKSUM_BYTES: usize = 4;

/// The bytes of the file.
pub(super) fn encode(revision: Revision, document: &[u8]) -> Vec<u8> {
    let mut file = Vec::with_capacity(HEADER_BYTES + document.len() + CHECKSUM_BYTES);
    file.extend_from_slice(MAGIC);
    file.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    file.extend_from_slice(&revision.0.to_le_bytes());
    file.extend_from_slice(&(document.len() as u64).to_le_bytes());
    file.extend_from_slice(document);
    let checksum = crc32fast::hash(&file);
    file.extend_from_slice(&checksum.to_le_bytes());
    file
}

/// Why a file is not read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// It is not what was written, and how.
    Damaged(String),
    /// It is sound, and another build's.
    Other(OtherFormat),
}

impl From<String> for Unread {
    fn from(what: String) -> Unread {
        Unread::Damaged(what)
    }
}

/// What [`encode`] was given, or why it is not read.
pub(super) fn decode(file: Bytes) -> Result<(Revision, Bytes), Unread> {
    let cut_short = || format!("it is cut short at {} bytes", file.len());
    let (magic, rest) = file.split_first_chunk().ok_or_else(cut_short)?;
    if magic != MAGIC {
        return Err("it does not begin like a store's document".to_owned().into());
    }
    let (checked, checksum) = file.split_last_chunk::<CHECKSUM_BYTES>().ok_or_else(cut_short)?;
    let (format_version, rest) = rest.split_first_chunk().ok_or_else(cut_short)?;
    let (revision, rest) = rest.split_first_chunk().ok_or_else(cut_short)?;
    let (length, _) = rest.split_first_chunk().ok_or_else(cut_short)?;
    if crc32fast::hash(checked) != u32::from_le_bytes(*checksum) {
        return Err("its checksum is wrong".to_owned().into());
    }
    let format_version = u32::from_le_bytes(*format_version);
    if format_version != FORMAT_VERSION {
        let (what, found) = ("a store's document", format_version);
        return Err(Unread::Other(OtherFormat { what, found, read: FORMAT_VERSION }));
    }
    let (length, is) = (u64::from_le_bytes(*length), file.len());
    if length.checked_add((HEADER_BYTES + CHECKSUM_BYTES) as u64) != Some(is as u64) {
        return Err(format!("its header speaks of a document of {length} bytes, the file has {is}").into());
    }
    let document = file.slice(HEADER_BYTES..is - CHECKSUM_BYTES);
    Ok((Revision(u64::from_le_bytes(*revision)), document))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DOCUMENT: &[u8] = b"routing 7, term 3";

    fn framed() -> Vec<u8> {
        encode(Revision(0x0102_0304_0506_0708), DOCUMENT)
    }

    #[test]
    fn the_layout_is_the_one_that_is_written_down() {
        let file = framed();
        assert_eq!(&file[..8], b"SHOALST\n");
        assert_eq!(&file[8..12], [1, 0, 0, 0]);
        assert_eq!(&file[12..20], [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(&file[20..28], [DOCUMENT.len() as u8, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&file[28..28 + DOCUMENT.len()], DOCUMENT);
        let mut crc = flate2::Crc::new();
        crc.update(&file[..28 + DOCUMENT.len()]);
        assert_eq!(&file[28 + DOCUMENT.len()..], crc.sum().to_le_bytes());
    }

    #[test]
    fn every_flipped_bit_is_detected() {
        for at in 0..framed().len() {
            for bit in 0..8 {
                let mut file = framed();
                file[at] ^= 1 << bit;
                assert!(decode(file.into()).is_err(), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn every_changed_byte_is_detected() {
        for at in 0..framed().len() {
            for byte in 0..=255 {
                let mut file = framed();
                if file[at] != byte {
                    file[at] = byte;
                    assert!(decode(file.into()).is_err(), "{byte} at byte {at}");
                }
            }
        }
    }

    #[test]
    fn truncation_at_every_length_and_every_addition_is_detected() {
        let file = Bytes::from(framed());
        for length in 0..file.len() {
            assert!(decode(file.slice(..length)).is_err(), "{length} bytes");
        }
        for more in 1..40 {
            let longer = [file.as_ref(), &[0; 40][..more]].concat();
            assert!(decode(longer.into()).is_err(), "{more} bytes more");
        }
    }

    /// A file with another byte, and a checksum that agrees with it.
    fn resealed(at: usize, byte: u8) -> Bytes {
        let mut file = framed();
        file[at] = byte;
        let end = file.len() - CHECKSUM_BYTES;
        let checksum = crc32fast::hash(&file[..end]);
        file[end..].copy_from_slice(&checksum.to_le_bytes());
        file.into()
    }

    #[test]
    fn a_format_of_later_times_is_refused_by_name() {
        for found in [0, 2] {
            let other = OtherFormat { what: "a store's document", found, read: 1 };
            assert_eq!(decode(resealed(8, found as u8)), Err(Unread::Other(other)));
        }
    }

    fn damage(file: Bytes) -> String {
        match decode(file).unwrap_err() {
            Unread::Damaged(what) => what,
            Unread::Other(other) => panic!("{other}"),
        }
    }

    #[test]
    fn a_header_that_is_not_its_files_is_refused_though_the_checksum_holds() {
        assert!(damage(resealed(0, b's')).contains("begin"));
        for length in [DOCUMENT.len() - 1, DOCUMENT.len() + 1] {
            assert!(damage(resealed(20, length as u8)).contains("header"));
        }
        assert!(damage(resealed(27, 255)).contains("header"), "no overflow");
    }

    proptest! {
        #[test]
        fn what_was_framed_comes_back(revision: u64, document: Vec<u8>) {
            let (found, back) = decode(encode(Revision(revision), &document).into()).unwrap();
            prop_assert_eq!((found.0, back.as_ref()), (revision, document.as_slice()));
        }
        #[test]
        fn no_bytes_make_it_panic(tail: Vec<u8>) {
            prop_assert!(decode([MAGIC.as_slice(), &tail].concat().into()).is_err());
        }
    }
}
