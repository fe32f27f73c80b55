//! What the benches have in common: the stopwatch, and rows of ours beside a limit. It must never know what is measured.

#![forbid(unsafe_code)]

pub mod measure;
pub mod report;
