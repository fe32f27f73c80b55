//! Files made for the tests, the Fluid ones by hand from the layout table.
//! It must never read with the code under test.

use std::io::Write;

use shoal_recordio::{Compressor, Layout, Writer, WriterOptions};

pub(crate) const COMPRESSORS: [Compressor; 3] = [Compressor::None, Compressor::Snappy, Compressor::Gzip];

/// Three chunks of two records each, one of them empty.
pub(crate) const WORDS: [&[u8]; 6] =
    [b"alpha alpha alpha", b"", b"beta beta beta", b"gamma", b"delta", b"epsilon epsilon"];

/// What the crate's writer makes of `records`, cut after `chunk_bytes`.
pub(crate) fn go(records: &[&[u8]], compressor: Compressor, chunk_bytes: u64) -> Vec<u8> {
    let options = WriterOptions { compressor, chunk_bytes, ..Default::default() };
    let mut writer = Writer::new(Vec::new(), options);
    for record in records {
        writer.write(record).unwrap();
    }
    writer.finish().unwrap()
}

/// `records` as chunks of two, built by hand in either layout.
pub(crate) fn by_hand(records: &[&[u8]], compressor: Compressor, layout: Layout) -> Vec<u8> {
    let chunk =
        |records: &[&[u8]]| hand_chunk(&plain_payload(records), records.len() as u32, compressor, layout);
    records.chunks(2).flat_map(chunk).collect()
}

pub(crate) fn plain_payload(records: &[&[u8]]) -> Vec<u8> {
    let record = |record: &&[u8]| [&(record.len() as u32).to_le_bytes(), *record].concat();
    records.iter().flat_map(record).collect()
}

/// One chunk whose header is true of `payload` in all but, perhaps, the record count.
pub(crate) fn hand_chunk(payload: &[u8], records: u32, compressor: Compressor, layout: Layout) -> Vec<u8> {
    let (code, stored) = match compressor {
        Compressor::None => (0, payload.to_vec()),
        Compressor::Snappy => (1, snappy(payload)),
        Compressor::Gzip => (2, gzip(payload)),
    };
    let (checksum, size) = (bitwise_crc32(&stored), stored.len() as u32);
    let fields = match layout {
        Layout::Go => [checksum, code, size, records],
        Layout::Fluid => [records, checksum, code, size],
    };
    [header(fields), stored].concat()
}

pub(crate) fn header(fields: [u32; 4]) -> Vec<u8> {
    [0x0102_0304].into_iter().chain(fields).flat_map(u32::to_le_bytes).collect()
}

fn snappy(payload: &[u8]) -> Vec<u8> {
    let mut encoder = snap::write::FrameEncoder::new(Vec::new());
    encoder.write_all(payload).unwrap();
    encoder.into_inner().unwrap()
}

fn gzip(payload: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(payload).unwrap();
    encoder.finish().unwrap()
}

/// CRC32-IEEE by its definition, so that the tests do not lean on the crate that the code leans on.
pub(crate) fn bitwise_crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(
            crc ^ u32::from(byte),
            |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 },
        )
    })
}
