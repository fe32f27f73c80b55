//! Trains a perceptron on the 1,797 real 8x8 digits that the crate `smartcore` carries.
//!
//! `digits --pack DIR` writes the data set; `shoal run --data 'DIR/train-*.recordio' -- target/release/examples/digits`
//! trains on it.

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
}

fn main() -> ExitCode {
    let arguments: Arguments = clap::Parser::parse();
    let Some(dir) = arguments.pack else { return shoal_trainer_sdk::main(model::Digits::default()) };
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
