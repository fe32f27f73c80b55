//! Tests of the master from outside: one program, a module for each story.
//!
//! `fixtures`: a recorded document of each format says what it said. `fuzzed`: the fuzz targets over their corpus and changed
//! copies of it. `starting`: what a master says and hears before it leads, on a disk that answers late. One of them: `cargo test -p shoal-master --test it fixtures::`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

#[path = "../../fuzz/bodies/mod.rs"]
mod bodies;
mod fixtures;
mod fuzzed;
#[path = "../../../runtime/fuzz/mutate.rs"]
mod mutate;
mod starting;
