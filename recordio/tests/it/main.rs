//! Tests of the file format from outside: one program, a module for each story.
//!
//! | module | what is tested |
//! | --- | --- |
//! | `format` | the bytes of both layouts, against fixtures and an independent construction |
//! | `damage`, `memory` | damaged and hostile files are refused by name, and take no more memory than they pay for |
//! | `scan` | an index made of pieces is the index of the whole file |
//! | `corpus` | the fuzz target's seeds are what their names say |
//!
//! One of them: `cargo test -p shoal-recordio --test it damage::`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../../fuzz/agree.rs"]
mod agree;
mod corpus;
#[allow(unsafe_code, reason = "an allocator is unsafe to implement")]
mod counting;
mod damage;
mod format;
mod made;
mod memory;
mod scan;
