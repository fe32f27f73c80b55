//! How much memory hostile files can make a reader take, by a counting allocator.

use std::path::Path;

use crate::counting::peak_bytes;
use crate::made::{hand_chunk, header};
use shoal_recordio::{Compressor, Error, Layout, Limits, Reader, StreamReader, decode_chunk};

fn assert_bounded(
    name: &str,
    bytes: &[u8],
    limits: Limits,
    ceiling_bytes: usize,
    expected: fn(&Error) -> bool,
) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    let mapped = || Reader::open_with(file.path(), limits).and_then(|reader| reader.chunk(0)).unwrap_err();
    let streamed = || StreamReader::new("pipe", bytes, limits).find_map(Result::err).unwrap();
    let decoded = || decode_chunk(Path::new("memory"), bytes, 0, 0, &limits).unwrap_err();
    let ways: [(&str, &dyn Fn() -> Error); 3] =
        [("map", &mapped), ("stream", &streamed), ("decode", &decoded)];
    for (way, read) in ways {
        let ((), peak) = peak_bytes(|| {
            let error = read();
            assert!(expected(&error), "{name} by {way}: {error}");
        });
        assert!(peak < ceiling_bytes, "{name} by {way} took {peak} bytes");
    }
}

#[test]
fn memory_follows_what_exists_and_never_what_is_claimed() {
    const SLACK: usize = 256 << 10; // a decompressor's own tables and windows
    let roomy = Limits { max_chunk_bytes: u64::MAX, max_record_bytes: u64::MAX, max_chunks: usize::MAX };
    let small = Limits { max_chunk_bytes: 1 << 20, ..Limits::default() };
    let truncated: fn(&Error) -> bool = |error| matches!(error, Error::Truncated { chunk: 0, offset: 0, .. });
    let corrupt: fn(&Error) -> bool = |error| matches!(error, Error::Corrupt { chunk: 0, offset: 0, .. });
    let too_large: fn(&Error) -> bool = |error| matches!(error, Error::TooLarge { chunk: 0, offset: 0, .. });

    let lying_size = [header([1, 0, u32::MAX, 1]), vec![0; 100]].concat();
    assert_bounded("a size of 4 GiB", &lying_size, roomy, SLACK, truncated);
    let lying_length = hand_chunk(&[0xff; 100], 1, Compressor::Gzip, Layout::Fluid);
    assert_bounded("a record of 4 GiB", &lying_length, roomy, SLACK, corrupt);
    let lying_count = hand_chunk(&[0; 100], u32::MAX, Compressor::None, Layout::Go);
    assert_bounded("4 Gi records", &lying_count, roomy, SLACK, corrupt);

    // 64 MiB of zeros are 64 KiB of gzip and 3 MiB of snappy; they are 16 Mi empty records too.
    let zeros = vec![0; 64 << 20];
    let gzip = hand_chunk(&zeros, 16 << 20, Compressor::Gzip, Layout::Go);
    let snappy = hand_chunk(&zeros, 16 << 20, Compressor::Snappy, Layout::Go);
    drop(zeros);
    assert_bounded("a gzip bomb", &gzip, small, (8 << 20) + SLACK, too_large);
    assert_bounded(
        "a snappy bomb",
        &snappy,
        Limits { max_chunk_bytes: 4 << 20, ..small },
        (32 << 20) + SLACK,
        too_large,
    );
}
