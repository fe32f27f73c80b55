//! What a job is, told once: its settings ([`spec`]), what is counted of it, and what the end of one of its processes means ([`ends`]). `shoal
//! run`, the operator and the master all take these from here. Pure: no clock, no file, no network.

#![forbid(unsafe_code)]

pub mod ends;
pub mod numbered;
mod role;
pub mod spec;

pub use role::Role;
