//! What a job is, told once: its settings ([`spec`]), what its members count ([`counters`]), and what the end of one of its processes means
//! ([`ends`]). `shoal run`, the operator and the roles all take these from here. Pure: no clock, no file, no network.

#![forbid(unsafe_code)]

pub mod counters;
pub mod ends;
pub mod numbered;
mod role;
pub mod spec;

pub use role::Role;
