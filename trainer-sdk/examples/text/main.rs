//! A small language model of characters, on speeches. docs/examples.md has the commands.
//!
//! `text --pack DIR --files SPEECHES` writes train.recordio and test.recordio; `shoal run --data DIR/train.recordio --
//! target/release/examples/text` trains on it.

#![allow(clippy::print_stderr, reason = "a program of a user's prints as it likes")]

#[path = "../layers/dense.rs"]
mod dense;
mod model;
mod network;
mod windows;

use std::path::PathBuf;
use std::process::ExitCode;

#[derive(clap::Parser)]
#[command(about = "A small language model of characters; without --pack it trains, as `shoal run` starts it")]
struct Arguments {
    /// Write train.recordio and test.recordio of a fixed split into this folder, and end
    #[arg(long, value_name = "DIR", requires = "files")]
    pack: Option<PathBuf>,
    /// The folder whose *.txt are packed
    #[arg(long, value_name = "DIR", requires = "pack")]
    files: Option<PathBuf>,
    #[command(flatten)]
    hyper: model::Hyper,
}

fn main() -> ExitCode {
    let Arguments { pack, files, hyper } = clap::Parser::parse();
    let Some((dir, files)) = pack.zip(files) else {
        return shoal_trainer_sdk::main(model::Text::new(hyper));
    };
    match windows::pack(&files, &dir) {
        Ok(packed) => {
            eprintln!("packed into {}: {packed}", dir.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
