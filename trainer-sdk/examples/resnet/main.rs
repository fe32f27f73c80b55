//! Trains a small residual network with batch norm on images of 28×28×1 (MNIST, Fashion-MNIST) or 32×32×3 (CIFAR-10).
//!
//! Records are a label and then the planes, as `shoal recordio pack idx` makes them; `shoal run --data train.recordio --
//! target/release/examples/resnet` trains on them. docs/examples.md has the commands.

mod convolution;
#[allow(dead_code)] // `mnist` uses the rest.
#[path = "../layers/dense.rs"]
mod dense;
mod model;
mod network;
mod norm;
mod sizes;

use std::process::ExitCode;

fn main() -> ExitCode {
    shoal_trainer_sdk::main(model::Resnet::new(clap::Parser::parse()))
}
