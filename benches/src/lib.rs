//! What the benches have in common: the stopwatch, rows of ours beside a limit, a pserver, plain bytes and
//! other parameter servers in processes of their own, and some hot paths. But for these it must never know what is measured.

#![forbid(unsafe_code)]

pub mod measure;
pub mod paths;
pub mod peers;
pub mod plain;
pub mod process;
pub mod pserver;
pub mod report;
pub mod tcp;
