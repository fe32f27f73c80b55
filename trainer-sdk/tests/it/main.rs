//! The examples' own tests, in one program: gradients against finite differences of the textbook's formulas, data that are read
//! right. With the feature `candle` also its gradients against those written by hand.
//!
//! One of them: `cargo test -p shoal-trainer-sdk --test it resnet::`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(dead_code, clippy::duplicate_mod, reason = "examples are programs, which share files by path")]

#[cfg(feature = "candle")]
mod candle;
#[path = "../../examples/clicks/main.rs"]
mod clicks;
#[path = "../../examples/count/main.rs"]
mod count;
#[path = "../../examples/count_rows/main.rs"]
mod count_rows;
#[path = "../../examples/digits/main.rs"]
mod digits;
#[path = "../../examples/housing/main.rs"]
mod housing;
#[path = "../../examples/mnist/main.rs"]
mod mnist;
#[path = "../../examples/resnet/main.rs"]
mod resnet;
#[path = "../../examples/text/main.rs"]
mod text;
