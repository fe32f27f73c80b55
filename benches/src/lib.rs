//! The benches, a folder for each (`blocks`, `curves`, `device`, `instructions`, `planner`, `roofline`, `rows`; the programs of these
//! names only call them), and what they have in common: the stopwatch, rows of ours beside a limit, whole jobs' programs, a pserver,
//! plain bytes and other parameter servers in processes of their own, and some hot paths.

#![allow(clippy::print_stderr, reason = "benches say how far they are")]
#![deny(unsafe_code)]

pub mod blocks;
pub mod curves;
pub mod device;
pub mod instructions;
pub mod measure;
pub mod paths;
pub mod peers;
pub mod plain;
pub mod planner;
pub mod process;
mod programs;
pub mod pserver;
pub mod report;
pub mod roofline;
pub mod rows;
pub mod tcp;
