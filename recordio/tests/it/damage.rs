//! Damaged and hostile files: each is refused with a typed error that names file, chunk and offset.
//! It must never pass a file whose records differ from those written.

use std::path::Path;

use crate::agree::{SMALL, read_both_ways};
use crate::made::{self, COMPRESSORS, WORDS, by_hand, go, hand_chunk, header};
use proptest::prelude::*;
use shoal_recordio::{
    Compressor, Error, HeaderFault, Index, Layout, Limits, PayloadFault, Reader, StreamReader, decode_chunk,
    verify,
};

const LAYOUTS: [Layout; 2] = [Layout::Go, Layout::Fluid];

/// Every compressor in both layouts, by hand, and what the writer makes.
fn samples() -> Vec<Vec<u8>> {
    let hand = COMPRESSORS.into_iter().flat_map(|c| LAYOUTS.map(|layout| by_hand(&WORDS, c, layout)));
    hand.chain(COMPRESSORS.map(|compressor| go(&WORDS, compressor, 24))).collect()
}

fn written(bytes: &[u8]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    file
}

/// The faults that `verify` finds, as (chunk, offset, variant).
fn faults(bytes: &[u8]) -> Vec<(usize, u64, &'static str)> {
    let file = written(bytes);
    let place = |error: Error| match error {
        Error::Truncated { chunk, offset, .. } => (chunk, offset, "truncated"),
        Error::BrokenHeader { chunk, offset, .. } => (chunk, offset, "header"),
        Error::Corrupt { chunk, offset, .. } => (chunk, offset, "corrupt"),
        Error::TooLarge { chunk, offset, .. } => (chunk, offset, "large"),
        other => panic!("{other}"),
    };
    verify(file.path(), &SMALL).into_iter().map(place).collect()
}

fn one_chunk(bytes: &[u8]) -> Error {
    let error = decode_chunk(Path::new("a.recordio"), bytes, 0, 0, &SMALL).unwrap_err();
    assert!(read_both_ways(bytes, &SMALL).is_err());
    error
}

#[test]
fn every_truncation_is_found_except_between_chunks_where_it_is_a_shorter_file() {
    for bytes in samples() {
        let index = Index::of_bytes("whole".as_ref(), &bytes, &SMALL).unwrap();
        let boundaries: Vec<usize> = index.chunks.iter().map(|chunk| chunk.offset as usize).collect();
        for cut in 0..bytes.len() {
            let result = read_both_ways(&bytes[..cut], &SMALL);
            match boundaries.iter().position(|&boundary| boundary == cut) {
                Some(chunks) => {
                    let records: u32 = index.chunks[..chunks].iter().map(|chunk| chunk.records).sum();
                    assert_eq!(result.unwrap(), WORDS[..records as usize]);
                }
                None => {
                    let chunk = boundaries.iter().filter(|&&boundary| boundary < cut).count() - 1;
                    assert!(
                        matches!(result, Err(Error::Truncated { chunk: c, .. }) if c == chunk),
                        "cut at {cut}"
                    );
                    assert_eq!(
                        faults(&bytes[..cut]).last(),
                        Some(&(chunk, boundaries[chunk] as u64, "truncated"))
                    );
                }
            }
        }
    }
}

#[test]
fn every_single_bit_flip_is_found_in_headers_and_payloads() {
    for bytes in samples() {
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(read_both_ways(&flipped, &SMALL).is_err(), "bit {bit} of {bytes:02x?}");
            assert!(!faults(&flipped).is_empty(), "bit {bit}");
        }
    }
}

#[test]
fn a_flipped_payload_bit_is_one_fault_in_its_own_chunk() {
    for bytes in samples() {
        let index = Index::of_bytes("whole".as_ref(), &bytes, &SMALL).unwrap();
        for (number, chunk) in index.chunks.iter().enumerate() {
            let mut flipped = bytes.clone();
            flipped[chunk.end() as usize - 1] ^= 0x10;
            assert_eq!(faults(&flipped), [(number, chunk.offset, "corrupt")]);
        }
    }
}

#[test]
fn verify_goes_on_after_damaged_payloads_and_ends_at_a_broken_header() {
    let mut bytes = by_hand(&[WORDS, WORDS].concat(), Compressor::None, Layout::Fluid);
    let offsets: Vec<u64> = Index::of_bytes("whole".as_ref(), &bytes, &SMALL)
        .unwrap()
        .chunks
        .iter()
        .map(|chunk| chunk.offset)
        .collect();
    for damaged in [offsets[0] + 20, offsets[2] + 20, offsets[4]] {
        bytes[damaged as usize] ^= 1;
    }
    assert_eq!(faults(&bytes), [(0, 0, "corrupt"), (2, offsets[2], "corrupt"), (4, offsets[4], "header")]);
}

#[test]
fn what_is_not_recordio_is_refused_by_its_magic() {
    let error = one_chunk(b"P6 640 480 255 not a RecordIO file");
    assert!(
        matches!(error, Error::BrokenHeader { fault: HeaderFault::Magic { found: 0x3620_3650 }, .. }),
        "{error}"
    );
    assert_eq!(faults(b"P6 640 480 255 not a RecordIO file").len(), 1);
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(Reader::open(folder.path()), Err(Error::Io { .. })));
    assert!(matches!(verify(folder.path().join("absent"), &SMALL)[..], [Error::Io { .. }]));
}

#[test]
fn an_unknown_compressor_is_refused() {
    let header = header([9, 9, 9, 9]);
    assert!(matches!(one_chunk(&header), Error::BrokenHeader { fault: HeaderFault::NoLayout, .. }));
    let mut second = by_hand(&WORDS[..4], Compressor::None, Layout::Go);
    let offset = Index::of_bytes("whole".as_ref(), &second, &SMALL).unwrap().chunks[1].offset as usize;
    second[offset + 8] = 3;
    let error = read_both_ways(&second, &SMALL).unwrap_err();
    assert!(matches!(
        error,
        Error::BrokenHeader { chunk: 1, fault: HeaderFault::Compressor { code: 3 }, .. }
    ));
}

#[test]
fn a_record_length_past_the_payload_is_refused() {
    let lie = |payload: &[u8]| one_chunk(&hand_chunk(payload, 1, Compressor::Snappy, Layout::Go));
    let past_end = |error, claimed, left| matches!(error, Error::Corrupt { fault: PayloadFault::RecordPastEnd { record: 0, claimed_bytes, left_bytes }, .. } if (claimed_bytes, left_bytes) == (claimed, left));
    assert!(past_end(lie(&[0xff, 0xff, 0xff, 0xff, b'x']), 0xffff_ffff, 1));
    assert!(past_end(lie(&[2, 0, 0, 0, b'x']), 2, 1));
    assert!(past_end(lie(&[2, 0, 0]), 4, 3));
}

#[test]
fn a_record_count_that_is_not_the_payloads_is_refused() {
    for claimed in [0, 1, 3, u32::MAX] {
        let bytes = hand_chunk(&made::plain_payload(&WORDS[..2]), claimed, Compressor::None, Layout::Go);
        let counted = PayloadFault::RecordCount { claimed, found: 2 };
        assert!(matches!(one_chunk(&bytes), Error::Corrupt { fault, .. } if fault == counted));
    }
}

#[test]
fn a_payload_that_is_not_in_its_compression_is_refused() {
    for code in [1, 2] {
        let payload = made::plain_payload(&WORDS);
        let header = header([made::bitwise_crc32(&payload), code, payload.len() as u32, 6]);
        let error = one_chunk(&[header, payload].concat());
        assert!(matches!(error, Error::Corrupt { fault: PayloadFault::Undecodable { .. }, .. }), "{error}");
    }
}

#[test]
fn bytes_after_the_payload_are_refused_by_decode_chunk() {
    let bytes = [hand_chunk(b"", 0, Compressor::None, Layout::Go), vec![7]].concat();
    let surplus = HeaderFault::Surplus { claimed_bytes: 0, found_bytes: 1 };
    assert!(matches!(one_chunk(&bytes), Error::BrokenHeader { fault, .. } if fault == surplus));
}

#[test]
fn limits_hold_for_stored_and_plain_payloads_records_and_chunks() {
    let too_large = |result: Result<Vec<Vec<u8>>, Error>, at: u64| matches!(result, Err(Error::TooLarge { limit, .. }) if limit == at);
    let record = vec![b'a'; 96];
    for compressor in COMPRESSORS {
        let bytes = go(&[&record], compressor, 1);
        let with = |max_chunk_bytes| Limits { max_chunk_bytes, ..SMALL };
        assert_eq!(read_both_ways(&bytes, &with(100)).unwrap(), [record.as_slice()]);
        assert!(too_large(read_both_ways(&bytes, &with(99)), 99), "{compressor}");
        assert!(too_large(read_both_ways(&bytes, &Limits { max_record_bytes: 95, ..SMALL }), 95));
    }
    let three = Index::of_bytes(
        "whole".as_ref(),
        &by_hand(&WORDS, Compressor::None, Layout::Go),
        &Limits { max_chunks: 2, ..SMALL },
    );
    assert!(matches!(three, Err(Error::TooLarge { chunk: 2, limit: 2, .. })));
}

#[test]
fn a_message_names_the_file_the_chunk_the_offset_and_the_next_step() {
    let mut bytes = by_hand(&WORDS, Compressor::None, Layout::Go);
    let offset = Index::of_bytes("whole".as_ref(), &bytes, &SMALL).unwrap().chunks[1].offset;
    bytes[offset as usize + 21] ^= 1;
    let file = written(&bytes);
    let (name, message) =
        (file.path().display(), Reader::open(file.path()).unwrap().chunk(1).unwrap_err().to_string());
    assert!(
        message.starts_with(&format!("{name}: chunk 1 at offset {offset}: the checksum is ")),
        "{message}"
    );
    assert!(message.contains(&format!("run `shoal recordio verify {name}`")), "{message}");
    let cut = Reader::open(written(&bytes[..30]).path()).unwrap_err().to_string();
    assert!(
        cut.contains(
            "chunk 0 at offset 0: 25 bytes are needed but 10 are left; the file was cut short: copy it again"
        ),
        "{cut}"
    );
}

#[test]
fn the_index_is_made_without_reading_payloads() {
    // A sparse file of 1,000 chunks of nearly 4 GiB: were they read, this would take an hour.
    use std::os::unix::fs::FileExt;
    let file = tempfile::NamedTempFile::new().unwrap();
    let first = by_hand(&WORDS[..2], Compressor::None, Layout::Fluid);
    file.as_file().write_all_at(&first, 0).unwrap();
    let mut offset = first.len() as u64;
    for _ in 0..1_000 {
        file.as_file().write_all_at(&header([7, 0xdead_beef, 2, u32::MAX]), offset).unwrap();
        offset += 20 + u64::from(u32::MAX);
    }
    file.as_file().set_len(offset).unwrap();
    let reader = Reader::open_with(file.path(), Limits { max_chunks: 1_001, ..SMALL }).unwrap();
    assert_eq!((reader.index().chunks.len(), reader.index().records()), (1_001, 7_002));
    assert!(matches!(reader.chunk(1), Err(Error::TooLarge { chunk: 1, .. })));
}

#[test]
fn a_stream_ends_after_its_first_error_and_passes_on_what_the_source_says() {
    let mut bytes = by_hand(&WORDS, Compressor::None, Layout::Go);
    bytes[21] ^= 1;
    let mut stream = StreamReader::new("pipe", bytes.as_slice(), SMALL);
    assert!(matches!(stream.next(), Some(Err(Error::Corrupt { chunk: 0, .. }))));
    assert!(stream.next().is_none());

    struct Broken;
    impl std::io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("cable pulled"))
        }
    }
    assert!(matches!(StreamReader::new("pipe", Broken, SMALL).next(), Some(Err(Error::Io { .. }))));
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_read_alike_by_both_readers_or_refused_by_both(
        bytes in prop::collection::vec(any::<u8>(), 0..200)
    ) {
        let _ = read_both_ways(&bytes, &SMALL);
    }

    #[test]
    fn true_checksums_over_arbitrary_payloads_are_read_alike_or_refused(
        stored in prop::collection::vec(prop_oneof![Just(0_u8), Just(1), any::<u8>()], 0..60),
        compressor in 0_u32..4, records in 0_u32..20, fluid: bool,
    ) {
        let (checksum, size) = (made::bitwise_crc32(&stored), stored.len() as u32);
        let fields = if fluid { [records, checksum, compressor, size] } else { [checksum, compressor, size, records] };
        let bytes = [header(fields), stored].concat();
        if let Ok(read) = read_both_ways(&bytes, &SMALL) {
            prop_assert_eq!(read.len(), records as usize);
        }
        let _ = faults(&bytes);
    }

    #[test]
    fn damaged_real_files_never_panic(sample in 0_usize..9, edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut bytes = samples().swap_remove(sample);
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(read) = read_both_ways(&bytes, &SMALL) {
            prop_assert_eq!(read, WORDS);
        }
        let _ = faults(&bytes);
    }
}
