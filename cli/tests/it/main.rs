//! Tests of the command from outside, with its own processes: one program, a module for each story.
//!
//! `logs_and_pages`: roles as a cluster sees them. `versions`: commands and roles that meet another build's master.
//! `runs`: one run and others. `watch_and_report`: a run watched from beside and reported afterwards. `roles` is what they share.
//! `settings`: files of settings. `doctor`: what is wrong with a machine.
//! One of them: `cargo test -p shoal-cli --test it versions::`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod doctor;
#[allow(dead_code, unreachable_pub, reason = "the tests of the whole system use the rest")]
#[path = "../../../tests/src/exposition.rs"]
mod exposition;
mod logs_and_pages;
mod roles;
mod runs;
mod settings;
mod versions;
mod watch_and_report;
