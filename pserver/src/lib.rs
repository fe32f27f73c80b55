//! The parameter server.

pub mod block;
pub mod exact;
pub mod kernel;
