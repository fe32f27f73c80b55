//! Tests of devices on machines without one: the kernel's source runs on the processor, under a driver of ours.

#[path = "../../../../runtime/src/host/cuda/fake/mod.rs"]
mod fake;
mod kernel;
mod opening;
mod updates;

pub(crate) use fake::Fake;
