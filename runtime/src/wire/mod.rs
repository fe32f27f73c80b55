//! Generated protobuf code and its conversions to the cluster's types. Protobuf types stop here.
//!
//! A conversion from the wire checks everything that a type promises and answers a
//! [`Refusal`] that names the field; it must never panic on what a stranger sent.

mod block_copy;
pub mod checkpoint;
mod counters;
mod decisions;
mod declaration;
pub mod description;
mod environment;
mod exclusions;
mod format;
mod job;
mod ledger;
pub mod pieces;
mod recording;
mod refusal;
pub mod rope;
mod routing;
pub mod rows;
#[cfg(test)]
pub(crate) mod sample;
mod staleness;
mod task;
pub mod tensors;
mod verification;
mod version;
pub mod waits;
mod written;

/// Code generated from `proto/shoal/v1/`.
pub mod proto {
    #![allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::pedantic)]
    tonic::include_proto!("shoal.v1");
}

pub use format::OtherFormat;
pub use refusal::{Fault, status_of};
pub(crate) use refusal::{causes, words};
pub use version::{Side, WireVersion};

use crate::cluster::{Refusal, RefusalKind};

/// A field that must be there.
fn required<T>(value: Option<T>, field: &str) -> Result<T, Refusal> {
    value.ok_or_else(|| malformed(field, "the field is missing"))
}

/// What is answered to a message that cannot be understood.
pub fn malformed(field: &str, detail: impl ToString) -> Refusal {
    Refusal::new(RefusalKind::Malformed, field, detail)
}
