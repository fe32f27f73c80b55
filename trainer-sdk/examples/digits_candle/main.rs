//! The perceptron of `digits` with candle's tensors and gradients instead of hand-written ones: the same parameters by name
//! and shape, so that either goes on with the other's model (`--warm-start`).
//!
//! `digits_candle --pack DIR` writes the data set; `shoal run --data 'DIR/train-*.recordio' --
//! target/release/examples/digits_candle` trains on it.

#![allow(clippy::print_stderr, reason = "a program of a user's prints as it likes")]

#[allow(dead_code)] // The rest is for the demo.
#[path = "../digits/data.rs"]
mod data;
mod model;

use std::path::PathBuf;
use std::process::ExitCode;

#[derive(clap::Parser)]
#[command(
    about = "A perceptron on 8x8 digits, by candle; without --pack it trains, as `shoal run` starts it"
)]
struct Arguments {
    /// Write train-*.recordio and test-*.recordio of a fixed split into this folder, and end
    #[arg(long, value_name = "DIR")]
    pack: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments: Arguments = clap::Parser::parse();
    let Some(dir) = arguments.pack else { return shoal_trainer_sdk::main(model::Digits) };
    match data::pack(&dir) {
        Ok(packed) => {
            eprintln!("packed into {}: {packed:?}", dir.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
