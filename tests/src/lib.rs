//! What the tests of the whole system share. It must never be linked into a product.

#![forbid(unsafe_code)]
#![allow(clippy::expect_used, reason = "a broken harness should say so at once")]

pub mod applied;
pub mod browser;
pub mod costs;
pub mod exposition;
pub mod ledgers;
pub mod model;
pub mod phases;
pub mod processes;
pub mod sim;
pub mod small;
