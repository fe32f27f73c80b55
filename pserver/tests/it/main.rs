//! Tests of the pserver from outside: one program. `fuzzed`: the fuzz target over its corpus and changed copies of it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

#[path = "../../fuzz/bodies/mod.rs"]
mod bodies;
mod fuzzed;
#[path = "../../../runtime/fuzz/mutate.rs"]
mod mutate;
