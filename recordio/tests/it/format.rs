//! The bytes of both layouts, against fixtures and an independent construction.
//! It must never accept a change of the bytes that the writer makes.

use crate::agree::{SMALL, read_both_ways};
use crate::made::{self, COMPRESSORS, WORDS, by_hand, go, hand_chunk};
use proptest::prelude::*;
use shoal_recordio::{
    Compressor, Error, Index, Layout, Limits, Reader, StreamReader, Writer, WriterOptions, decode_chunk,
};

/// `["hi", "", "shoal"]` in one chunk of each layout; the checksum is Python's `zlib.crc32` of the payload.
#[rustfmt::skip]
const GO: [u8; 39] = [
    0x04, 0x03, 0x02, 0x01,  CRC[0], CRC[1], CRC[2], CRC[3],  0, 0, 0, 0,  19, 0, 0, 0,  3, 0, 0, 0,
    2, 0, 0, 0, b'h', b'i',  0, 0, 0, 0,  5, 0, 0, 0, b's', b'h', b'o', b'a', b'l',
];
#[rustfmt::skip]
const FLUID: [u8; 39] = [
    0x04, 0x03, 0x02, 0x01,  3, 0, 0, 0,  CRC[0], CRC[1], CRC[2], CRC[3],  0, 0, 0, 0,  19, 0, 0, 0,
    2, 0, 0, 0, b'h', b'i',  0, 0, 0, 0,  5, 0, 0, 0, b's', b'h', b'o', b'a', b'l',
];
const CRC: [u8; 4] = [0xa7, 0xcd, 0x9e, 0x70];
const FIXTURE_RECORDS: [&[u8]; 3] = [b"hi", b"", b"shoal"];

fn on_disk(bytes: &[u8]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    file
}

fn mapped_records(reader: &Reader) -> Vec<Vec<u8>> {
    let chunks = (0..reader.index().chunks.len()).map(|chunk| reader.chunk(chunk).unwrap());
    chunks.flat_map(|chunk| chunk.iter().map(<[u8]>::to_vec).collect::<Vec<_>>()).collect()
}

#[test]
fn the_writer_makes_the_fixture_byte_for_byte() {
    assert_eq!(go(&FIXTURE_RECORDS, Compressor::None, 1 << 20), GO);
}

#[test]
fn the_fixtures_of_both_layouts_are_read_by_map_and_by_stream() {
    for (bytes, layout) in [(GO, Layout::Go), (FLUID, Layout::Fluid)] {
        let file = on_disk(&bytes);
        let reader = Reader::open(file.path()).unwrap();
        assert_eq!((reader.index().layout, reader.index().file_bytes), (layout, 39));
        assert_eq!(mapped_records(&reader), FIXTURE_RECORDS);

        let mut stream = StreamReader::new("pipe", bytes.as_slice(), Limits::default());
        assert_eq!(stream.next().unwrap().unwrap().iter().collect::<Vec<_>>(), FIXTURE_RECORDS);
        assert_eq!(stream.layout(), Some(layout));
        assert!(stream.next().is_none());
    }
}

#[test]
fn hand_made_files_of_both_layouts_and_all_compressors_are_read() {
    for (compressor, layout) in COMPRESSORS.into_iter().flat_map(|c| [(c, Layout::Go), (c, Layout::Fluid)]) {
        let bytes = by_hand(&WORDS, compressor, layout);
        assert_eq!(read_both_ways(&bytes, &SMALL).unwrap(), WORDS, "{compressor} {layout}");
        let index = Index::of_bytes("made".as_ref(), &bytes, &SMALL).unwrap();
        assert_eq!((index.layout, index.chunks.len(), index.records()), (layout, 3, 6));
        assert!(index.chunks.iter().all(|chunk| chunk.compressor == compressor));
    }
}

#[test]
fn an_empty_file_has_no_chunks_and_is_called_go() {
    assert!(go(&[], Compressor::Gzip, 1).is_empty());
    let file = on_disk(b"");
    let reader = Reader::open(file.path()).unwrap();
    assert_eq!(reader.index(), &Index { layout: Layout::Go, chunks: vec![], file_bytes: 0 });
    assert!(matches!(reader.chunk(0), Err(Error::NoSuchChunk { chunk: 0, chunks: 0, .. })));
    assert!(StreamReader::new("pipe", b"".as_slice(), SMALL).next().is_none());
    assert!(shoal_recordio::verify(file.path(), &SMALL).is_empty());
}

#[test]
fn a_gzip_payload_may_have_several_members() {
    let halves = [made::plain_payload(&WORDS[..2]), made::plain_payload(&WORDS[2..])];
    let stored =
        halves.map(|half| hand_chunk(&half, 0, Compressor::Gzip, Layout::Go)[20..].to_vec()).concat();
    let header = made::header([made::bitwise_crc32(&stored), 2, stored.len() as u32, 6]);
    assert_eq!(read_both_ways(&[header, stored].concat(), &SMALL).unwrap(), WORDS);
}

#[test]
fn the_writer_cuts_a_chunk_before_the_record_that_would_pass_its_size() {
    let bytes = go(&[b"1234", b"1234", b"1234", b"123456789012345678901234"], Compressor::None, 16);
    let index = Index::of_bytes("made".as_ref(), &bytes, &SMALL).unwrap();
    assert_eq!(index.chunks.iter().map(|chunk| chunk.records).collect::<Vec<_>>(), [2, 1, 1]);
}

#[test]
fn the_writer_refuses_a_record_that_no_reader_would_take() {
    let limits = Limits { max_record_bytes: 3, ..SMALL };
    let mut writer = Writer::new(Vec::new(), WriterOptions { limits, ..Default::default() });
    assert!(matches!(writer.write(b"four"), Err(Error::RecordTooLarge { bytes: 4, limit: 3 })));
    writer.write(b"one").unwrap();
    assert_eq!(read_both_ways(&writer.finish().unwrap(), &limits).unwrap(), [b"one"]);
}

#[test]
fn the_fullest_chunk_of_noise_that_the_writer_makes_is_within_the_readers_limits() {
    let mut state = 1_u32;
    let mut noise = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    let limits = Limits { max_record_bytes: u64::MAX, ..SMALL };
    for compressor in COMPRESSORS {
        let options = WriterOptions { compressor, chunk_bytes: u64::MAX, limits, ..Default::default() };
        let mut writer = Writer::new(Vec::new(), options);
        let largest = match writer.write(&vec![0; 1 << 20]) {
            Err(Error::RecordTooLarge { limit, .. }) => limit,
            other => panic!("{other:?}"),
        };
        let record: Vec<u8> = (0..largest).map(|_| noise()).collect();
        writer.write(&record).unwrap();
        writer.write(b"next").unwrap();
        assert_eq!(read_both_ways(&writer.finish().unwrap(), &limits).unwrap(), [record, b"next".to_vec()]);
    }
}

#[test]
fn a_view_and_bytes_that_are_given_away_have_the_records_of_the_chunk_without_a_copy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.recordio");
    for compressor in [Compressor::None, Compressor::Snappy, Compressor::Gzip] {
        let options = WriterOptions { compressor, ..Default::default() };
        let mut writer = Writer::new(std::fs::File::create(&path).unwrap(), options);
        for record in [&b"one"[..], b"", b"three"] {
            writer.write(record).unwrap();
        }
        writer.finish().unwrap();
        let reader = Reader::open(&path).unwrap();
        let (chunk, view) = (reader.chunk(0).unwrap(), reader.view(0).unwrap());
        assert_eq!((chunk.record(2), &chunk), (&b"three"[..], &view));
        let bytes = std::fs::read(&path).unwrap();
        let place = bytes.as_ptr_range();
        let given = decode_chunk(&path, bytes, 0, 0, &Limits::default()).unwrap();
        assert_eq!((&given, given.checksum()), (&chunk, chunk.checksum()));
        assert_eq!(place.contains(&given.record(2).as_ptr()), compressor == Compressor::None);
    }
}

#[test]
fn a_record_number_leads_to_its_chunk() {
    let index =
        Index::of_bytes("made".as_ref(), &by_hand(&WORDS, Compressor::None, Layout::Fluid), &SMALL).unwrap();
    assert_eq!(index.locate(0), Some((0, 0)));
    assert_eq!(index.locate(5), Some((2, 1)));
    assert_eq!(index.locate(6), None);
}

#[test]
fn threads_that_share_a_reader_read_what_one_thread_reads() {
    let records: Vec<Vec<u8>> = (0..2_000_u32).map(|n| n.to_le_bytes().repeat(n as usize % 7)).collect();
    let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
    for compressor in COMPRESSORS {
        let file = on_disk(&go(&records, compressor, 256));
        let reader = Reader::open(file.path()).unwrap();
        let chunks = reader.index().chunks.len();
        let share = &|thread: usize| -> Vec<_> {
            (thread..chunks).step_by(4).map(|chunk| (chunk, reader.chunk(chunk).unwrap())).collect()
        };
        let mut parallel: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || share(thread))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        parallel.sort_by_key(|(chunk, _)| *chunk);
        let parallel: Vec<_> = parallel.iter().flat_map(|(_, chunk)| chunk.iter()).collect();
        assert!(chunks > 100 && parallel == records && mapped_records(&reader) == records);
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        records in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..60),
        compressor in prop::sample::select(&COMPRESSORS),
        chunk_bytes in 1_u64..2_000,
    ) {
        let borrowed: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        let bytes = go(&borrowed, compressor, chunk_bytes);
        prop_assert_eq!(read_both_ways(&bytes, &SMALL).unwrap(), records);
    }
}
