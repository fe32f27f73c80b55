//! The hot loops: free functions on slices, in a fixed order of plain IEEE f32 operations.
//!
//! They must never know of blocks, steps or messages, and never reorder or contract an operation.

pub mod norm;
pub mod rules;
pub mod sum;
pub mod width;
