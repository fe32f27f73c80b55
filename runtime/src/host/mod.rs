//! The single doors to the world: time, randomness, rpc, CUDA devices, files, output, pages for probes, storage, store, telemetry,
//! signals, shutdown.
//!
//! Time is tokio's (`tokio::time`), which a simulation pauses and advances. Everything else here is passed in
//! as a value by the composing `main`, never reached for.

pub mod authority;
pub mod backoff;
pub mod checkpoints;
pub mod clock;
pub mod cuda;
mod dispositions;
pub mod files;
pub mod http;
pub mod memory;
pub mod output;
pub mod panics;
pub mod processor;
pub mod processors;
pub mod program;
pub mod random;
pub mod recorded;
pub mod rpc;
pub mod shutdown;
pub mod signal;
pub mod storage;
pub mod store;
pub mod supervisor;
pub mod telemetry;
pub mod waits;
pub mod warm_start;
