//! Sends arbitrary messages to a pserver: see `bodies::service`. Run it as `docs/testing.md` says.
#![no_main]

#[path = "../bodies/mod.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::service(bytes));
