//! The fuzz target's seeds, replayed as an ordinary test so that they stay what their names say.
//! It must never rewrite them unless asked: `cargo test -p shoal-recordio --test it corpus:: -- --ignored`.

use std::path::PathBuf;

use crate::agree::{SMALL, read_both_ways};
use crate::made::{COMPRESSORS, WORDS, by_hand, hand_chunk, header};
use shoal_recordio::{Compressor, Layout};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/decode")
}

/// Name and bytes; a name that begins with a layout is read in full, every other is refused.
fn seeds() -> Vec<(String, Vec<u8>)> {
    let mut seeds = Vec::new();
    for layout in [Layout::Go, Layout::Fluid] {
        for compressor in COMPRESSORS {
            seeds.push((format!("{layout}-{compressor}"), by_hand(&WORDS, compressor, layout)));
        }
    }
    let whole = by_hand(&WORDS, Compressor::Snappy, Layout::Go);
    seeds.push(("truncated".to_owned(), whole[..whole.len() - 3].to_vec()));
    seeds.push(("bomb".to_owned(), hand_chunk(&vec![0; 1 << 20], 1 << 18, Compressor::Gzip, Layout::Go)));
    seeds.push(("size-lie".to_owned(), header([1, 0, u32::MAX, 1])));
    seeds.push(("length-lie".to_owned(), hand_chunk(&[0xff; 8], 1, Compressor::None, Layout::Fluid)));
    seeds
}

#[test]
#[ignore = "rewrites recordio/fuzz/corpus/decode"]
fn write_the_seeds() {
    std::fs::create_dir_all(folder()).unwrap();
    for (name, bytes) in seeds() {
        std::fs::write(folder().join(name), bytes).unwrap();
    }
}

#[test]
fn every_seed_is_read_or_refused_as_its_name_says() {
    for (name, _) in seeds() {
        let bytes = std::fs::read(folder().join(&name)).unwrap();
        let read = read_both_ways(&bytes, &SMALL);
        match name.starts_with("go-") || name.starts_with("fluid-") {
            true => assert_eq!(read.unwrap(), WORDS, "{name}"),
            false => assert!(read.is_err(), "{name}"),
        }
    }
}

#[test]
fn inputs_that_a_fuzzer_added_do_not_panic() {
    for entry in std::fs::read_dir(folder()).unwrap() {
        let _ = read_both_ways(&std::fs::read(entry.unwrap().path()).unwrap(), &SMALL);
    }
}
