//! Feeds arbitrary bytes to `bodies::manifest`, which says what must hold. Run it as `docs/testing.md` says.
#![no_main]
#![allow(dead_code, reason = "each target uses one of the bodies")]

#[path = "../bodies/mod.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::manifest(bytes));
