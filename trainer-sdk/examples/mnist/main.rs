//! Trains LeNet-5 on MNIST, or on any set in its format (Fashion-MNIST). docs/examples.md has the commands.
//!
//! `fetch.py mnist data/mnist` fetches it, `shoal recordio pack idx …` packs it, and `shoal run --data train.recordio --
//! target/release/examples/mnist` trains on it.

mod convolution;
#[path = "../layers/dense.rs"]
mod dense;
mod lenet;
mod model;

use std::process::ExitCode;

fn main() -> ExitCode {
    shoal_trainer_sdk::main(model::Mnist::new(clap::Parser::parse()))
}
