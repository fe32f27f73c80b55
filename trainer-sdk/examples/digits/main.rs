//! Trains a perceptron on the 1,797 real 8x8 digits that the crate `smartcore` carries.
//!
//! `digits --pack DIR` writes the data set; `shoal run --data 'DIR/train-*.recordio' --eval-data 'DIR/test-*.recordio' --
//! target/release/examples/digits` trains on it and tells how many of those held out it tells right.

#![allow(clippy::print_stderr, reason = "a program of a user's prints as it likes")]

#[allow(dead_code)] // The demo, which includes these files too, uses the rest.
mod data;
#[allow(dead_code)] // As above.
mod mlp;
mod model;
#[allow(dead_code)] // As in `count`.
#[path = "../count/oracle.rs"]
mod oracle;

use std::path::PathBuf;
use std::process::ExitCode;

#[derive(clap::Parser)]
#[command(about = "A perceptron on 8x8 digits; without --pack it trains, as `shoal run` starts it")]
struct Arguments {
    /// Write train-*.recordio and test-*.recordio of a fixed split into this folder, and end
    #[arg(long, value_name = "DIR")]
    pack: Option<PathBuf>,
    /// Scale gradients down whose norm over all parameters is larger
    #[arg(long, value_name = "NORM")]
    clip_norm: Option<f32>,
    /// Multiply the loss with a scale that begins here, a power of two; steps that overflow are skipped
    #[arg(long, value_name = "SCALE")]
    loss_scale: Option<f32>,
    /// Make the gradient of every so many-th step infinite, to see such steps skipped
    #[arg(long, value_name = "STEPS")]
    spoil_every: Option<u64>,
    /// With --eval-data: end after so many evaluations in a row that told no more digits right
    #[arg(long, value_name = "EVALUATIONS")]
    stop_after: Option<u32>,
    /// With --eval-data: halve the learning rate after so many such evaluations
    #[arg(long, value_name = "EVALUATIONS")]
    lower_after: Option<u32>,
    /// With --eval-data: keep the checkpoint that tells most digits right
    #[arg(long)]
    keep_best: bool,
    /// Have the weights and their gradients on this CUDA device, as programs with kernels of their own do; a pserver of this
    /// machine finds them there
    #[arg(long, value_name = "N")]
    device: Option<u32>,
}

fn main() -> ExitCode {
    let arguments: Arguments = clap::Parser::parse();
    let Arguments { pack, clip_norm, loss_scale, spoil_every, stop_after, lower_after, keep_best, device } =
        arguments;
    let Some(dir) = pack else {
        return shoal_trainer_sdk::main(model::Digits::with(model::Extras {
            clip_norm,
            loss_scale,
            spoil_every,
            stop_after,
            lower_after,
            keep_best,
            device,
        }));
    };
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
