//! One record a TFRecord: its payload as it is, commonly a serialized `tf.train.Example`.
//! It must never pass a length or a payload whose checksum does not hold.
//!
//! The framing is TensorFlow's `record_writer.h`: u64 length, masked CRC-32C of the length, payload, masked CRC-32C of
//! the payload, little-endian.

use std::io::{BufRead, Read};
use std::path::Path;

use anyhow::{Context, ensure};

use super::content::Wanted;
use super::{Emit, open, record_ceiling};

const LENGTH_BYTES: usize = 8;
const CHECKSUM_BYTES: usize = 4;

pub(crate) fn pack(file: &Path, emit: Emit<'_>) -> anyhow::Result<()> {
    split(&mut *open(file, Wanted::TfRecord)?.1, record_ceiling(), emit)
        .with_context(|| file.display().to_string())
}

/// Whether a file begins with the length of a record and its checksum.
pub(super) fn begins(sample: &[u8]) -> bool {
    checked(sample, LENGTH_BYTES, "length").is_ok()
}

fn split(source: &mut dyn BufRead, ceiling: u64, emit: Emit<'_>) -> anyhow::Result<()> {
    let (mut header, mut payload) = (Vec::new(), Vec::new());
    let mut offset = 0_u64;
    for number in 0_u64.. {
        let at = || format!("record {number} at offset {offset}");
        read(source, &mut header, LENGTH_BYTES + CHECKSUM_BYTES).with_context(at)?;
        if header.is_empty() {
            break;
        }
        let length = checked(&header, LENGTH_BYTES, "length").with_context(at)?;
        let length = length.try_into().map(u64::from_le_bytes).with_context(at)?;
        ensure!(
            length <= ceiling,
            "{}: has {length} bytes, more than a record may have ({ceiling}): split it where the file is made",
            at()
        );
        read(source, &mut payload, length as usize + CHECKSUM_BYTES).with_context(at)?;
        emit(checked(&payload, length as usize, "payload").with_context(at)?)?;
        offset += (header.len() + payload.len()) as u64;
    }
    Ok(())
}

/// Reads `bytes` bytes, or what is left; memory grows with what is there.
fn read(source: &mut dyn BufRead, into: &mut Vec<u8>, bytes: usize) -> anyhow::Result<()> {
    into.clear();
    source.take(bytes as u64).read_to_end(into).context("cannot be read")?;
    Ok(())
}

/// The first `bytes` of `stored`, which the masked checksum after them must be of.
fn checked<'s>(stored: &'s [u8], bytes: usize, what: &str) -> anyhow::Result<&'s [u8]> {
    let (found, needed) = (stored.len(), bytes + CHECKSUM_BYTES);
    let parts =
        stored.split_at_checked(bytes).and_then(|(content, rest)| Some((content, rest.first_chunk()?)));
    let (content, checksum) = parts.with_context(|| {
        format!("{needed} bytes of its {what} are needed but {found} are left; the file was cut short: copy it again")
    })?;
    ensure!(
        masked(crc32c::crc32c(content)) == u32::from_le_bytes(*checksum),
        "the checksum of its {what} does not hold: this is not a TFRecord file, or it is damaged: restore it from its source"
    );
    Ok(content)
}

/// The mask of TensorFlow's `crc32c.h`: a checksum of bytes that hold their own checksum would be too regular.
fn masked(checksum: u32) -> u32 {
    checksum.rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// CRC-32C by its definition, bit by bit.
    fn bitwise_crc32c(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(u32::MAX, |crc, &byte| {
            (0..8).fold(
                crc ^ u32::from(byte),
                |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 },
            )
        })
    }

    fn framed(bytes: &[u8]) -> Vec<u8> {
        let crc = u64::from(bitwise_crc32c(bytes));
        // As the format's description writes it: ((crc >> 15) | (crc << 17)) + 0xa282ead8.
        let masked = (((crc >> 15) | (crc << 17)) as u32).wrapping_add(0xa282_ead8);
        [bytes, &masked.to_le_bytes()].concat()
    }

    fn written(records: &[Vec<u8>]) -> Vec<u8> {
        let record =
            |record: &Vec<u8>| [framed(&(record.len() as u64).to_le_bytes()), framed(record)].concat();
        records.iter().flat_map(record).collect()
    }

    fn records(stored: &[u8], ceiling: u64) -> Result<Vec<Vec<u8>>, String> {
        let mut records = Vec::new();
        let split = split(&mut &*stored, ceiling, &mut |record| {
            records.push(record.to_vec());
            Ok(())
        });
        split.map(|()| records).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn the_checksum_is_the_published_one() {
        // RFC 3720, B.4, and the catalogue's check value; the mask by hand.
        assert_eq!(crc32c::crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(masked(0xe306_9283), 0xc78a_b0e5);
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..8)
        ) {
            prop_assert_eq!(records(&written(&payloads), 300).unwrap(), payloads);
        }
    }

    #[test]
    fn damage_at_any_bit_is_refused_by_record_and_offset() {
        let stored = written(&[b"one".to_vec(), Vec::new(), b"three".to_vec()]);
        let offsets = [0, 19, 35, stored.len()];
        for bit in 0..stored.len() * 8 {
            let mut damaged = stored.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let error = records(&damaged, 1 << 20).unwrap_err();
            let record = offsets.partition_point(|offset| *offset <= bit / 8) - 1;
            assert!(
                error.starts_with(&format!("record {record} at offset {}: ", offsets[record])),
                "{error}"
            );
        }
    }

    #[test]
    fn a_file_cut_short_is_refused_except_between_records() {
        let stored = written(&[b"one".to_vec(), b"two".to_vec()]);
        for cut in 0..stored.len() {
            match records(&stored[..cut], 99) {
                Ok(read) => assert_eq!((cut, read.len()), (cut / 19 * 19, cut / 19)),
                Err(error) => assert!(error.contains("cut short") && cut % 19 != 0, "{error}"),
            }
        }
    }

    #[test]
    fn a_record_larger_than_a_record_may_be_is_refused_before_it_is_read() {
        let header = framed(&u64::MAX.to_le_bytes());
        assert!(records(&header, 99).unwrap_err().contains("more than a record may have (99)"));
        assert!(records(&written(&[vec![0; 4]]), 3).is_err());
    }
}
