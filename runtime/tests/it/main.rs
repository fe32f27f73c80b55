//! Tests of what roles share, from outside: one program, a module for each story.
//!
//! | module | what is tested |
//! | --- | --- |
//! | `fixtures` | recorded bytes of every message and every stored format mean what they meant |
//! | `fuzzed` | the fuzz targets over their corpus and changed copies of it |
//! | `buckets` | credentials of buckets, in builds with `--features s3` |
//! | `store_file`, `store_etcd` | the master's document on a disk, and in a real etcd (`SHOAL_ETCD`) |
//!
//! One of them: `cargo test -p shoal-runtime --test it store_file::`.
#![allow(clippy::print_stderr, reason = "tests say what they leave out")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

#[path = "../../fuzz/bodies/mod.rs"]
mod bodies;
#[cfg(feature = "s3")]
mod buckets;
#[allow(unsafe_code, reason = "an allocator is unsafe to implement")]
#[path = "../../../recordio/tests/it/counting.rs"]
mod counting;
mod fixtures;
mod fuzzed;
#[path = "../../fuzz/mutate.rs"]
mod mutate;
mod store_etcd;
mod store_file;
