//! Feeds arbitrary bytes to every way of reading a file. It must never panic, and the ways must agree.
//! Run it from `recordio/`: `cargo +nightly fuzz run decode` (on stable: `RUSTC_BOOTSTRAP=1 cargo fuzz run decode`).
#![no_main]

#[path = "../agree.rs"]
mod agree;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = agree::read_both_ways(bytes, &agree::SMALL);
});
