//! An index made of pieces is the index of the whole file, or fails as that does.

use std::path::Path;

use crate::made::{COMPRESSORS, WORDS, by_hand, go};
use proptest::prelude::*;
use shoal_recordio::{Index, Layout, Limits, Scan};

/// Scans `bytes` in pieces that hold what is needed and, in turn, so many bytes more or less of it.
fn in_pieces(bytes: &[u8], limits: Limits, ahead: &[usize]) -> Result<Index, String> {
    let mut scan = Scan::new(Path::new("a"), bytes.len() as u64, limits);
    let mut turn = ahead.iter().cycle();
    while let Some(needed) = scan.needs() {
        let (from, needed) = (needed.start as usize, (needed.end - needed.start) as usize);
        let ahead = turn.next().unwrap();
        // All of a header; of a payload, which is longer here, also less.
        let length = if needed > 20 { 1 + ahead } else { needed + ahead };
        let before = scan.needs();
        scan.give(&bytes[from..bytes.len().min(from + length)]).map_err(|error| error.to_string())?;
        assert_ne!(scan.needs(), before, "it goes on");
    }
    Ok(scan.finish())
}

fn samples() -> Vec<Vec<u8>> {
    let long: Vec<Vec<u8>> = (0..40).map(|n| vec![n; usize::from(n) * 7]).collect();
    let long: Vec<&[u8]> = long.iter().map(Vec::as_slice).collect();
    let hand = COMPRESSORS
        .into_iter()
        .flat_map(|compressor| [Layout::Go, Layout::Fluid].map(|layout| by_hand(&WORDS, compressor, layout)));
    let written = COMPRESSORS.map(|compressor| go(&long, compressor, 100));
    hand.chain(written).chain([Vec::new(), go(&[], COMPRESSORS[0], 1)]).collect()
}

proptest! {
    #[test]
    fn pieces_of_any_size_give_the_index_of_the_whole_file(
        sample in 0..11_usize,
        cut in proptest::option::of(0.0..1.0_f64),
        flip in proptest::option::of((0.0..1.0_f64, 1..=255_u8)),
        max_chunks in prop_oneof![Just(1_usize), Just(3), Just(1000)],
        ahead in proptest::collection::vec(prop_oneof![Just(0_usize), 0..30_usize, 0..5000_usize], 1..6),
    ) {
        let mut bytes = samples().swap_remove(sample);
        if let Some((at, bits)) = flip && !bytes.is_empty() {
            let at = (bytes.len() as f64 * at) as usize;
            bytes[at] ^= bits;
        }
        if let Some(cut) = cut {
            bytes.truncate((bytes.len() as f64 * cut) as usize);
        }
        let limits = Limits { max_chunks, ..Limits::default() };
        let whole = Index::of_bytes(Path::new("a"), &bytes, &limits).map_err(|error| error.to_string());
        prop_assert_eq!(in_pieces(&bytes, limits, &ahead), whole);
    }
}

#[test]
fn one_flipped_bit_anywhere_is_told_as_in_the_whole_file() {
    for sample in samples() {
        for bit in 0..sample.len() * 8 {
            let mut bytes = sample.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let whole = Index::of_bytes(Path::new("a"), &bytes, &Limits::default());
            assert_eq!(in_pieces(&bytes, Limits::default(), &[0, 9]), whole.map_err(|e| e.to_string()));
        }
    }
}

#[test]
fn of_a_long_file_only_the_first_payload_and_the_headers_are_needed() {
    let records: Vec<&[u8]> = vec![&[7; 1000]; 50];
    let bytes = go(&records, COMPRESSORS[0], 1000);
    let mut scan = Scan::new(Path::new("a"), bytes.len() as u64, Limits::default());
    let (mut asked, mut times) = (0, 0);
    while let Some(needed) = scan.needs() {
        asked += needed.end - needed.start;
        times += 1;
        scan.give(&bytes[needed.start as usize..needed.end as usize]).unwrap();
    }
    assert_eq!((asked, times), (50 * 20 + 1004, 51));
}
