//! The whole system in one process, its time and its network simulated: one test program, a module for each story.
//!
//! | module | what is tested |
//! | --- | --- |
//! | `seeds` | some random seeds keep every promise, and a seed is a whole story |
//! | `directed` | orders of events that seeds miss, built by hand out of real roles |
//! | `model` | the protocol as a model, apart from the code: each of its rules is needed |
//! | `checkpoints` | a whole job killed at every stage of writing, damaged at every byte, restored to the same bits |
//! | `refusals`, `versions` | calls and builds that do not fit are refused by name and change nothing |
//! | `batch_norm`, `metrics` | running statistics by `Ema`; what roles show to Prometheus |
//!
//! One of them: `cargo test -p shoal-tests --test sim directed::copies`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]
#![allow(clippy::print_stdout, reason = "how much was walked, and what a failing seed has to tell")]

mod batch_norm;
mod checkpoints;
mod directed;
mod metrics;
mod model;
mod refusals;
mod seeds;
mod versions;
