//! Linear regression on the 506 suburbs of the UCI housing set. docs/examples.md has the commands.
//!
//! `housing --pack DIR --csv FILE` writes train.recordio and test.recordio; `shoal run --data DIR/train.recordio --
//! target/release/examples/housing` trains on it.

#![allow(clippy::print_stderr, reason = "a program of a user's prints as it likes")]

#[path = "../split/held_out.rs"]
mod held_out;
mod model;
mod records;
mod regression;

use std::path::PathBuf;
use std::process::ExitCode;

#[derive(clap::Parser)]
#[command(about = "Linear regression on UCI housing; without --pack it trains, as `shoal run` starts it")]
struct Arguments {
    /// Write train.recordio and test.recordio of a fixed split into this folder, and end
    #[arg(long, value_name = "DIR", requires = "csv")]
    pack: Option<PathBuf>,
    /// The table to pack: a header, then 13 features and the price in each row
    #[arg(long, value_name = "FILE", requires = "pack")]
    csv: Option<PathBuf>,
    /// Learning rate at the start; it falls to 0 along half a cosine over the whole job
    #[arg(long, default_value_t = 0.02)]
    rate: f32,
}

fn main() -> ExitCode {
    let Arguments { pack, csv, rate } = clap::Parser::parse();
    let Some((dir, csv)) = pack.zip(csv) else {
        return shoal_trainer_sdk::main(model::Housing { rate });
    };
    match records::pack(&csv, &dir) {
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
