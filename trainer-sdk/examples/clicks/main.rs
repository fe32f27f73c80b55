//! A DeepFM (Guo et al. 2017) that tells clicks from categories, over two embedding tables. docs/examples.md has the
//! commands.
//!
//! `clicks --set SET --pack DIR --from FOLDER` writes train.recordio and test.recordio; `shoal run --data
//! DIR/train.recordio -- target/release/examples/clicks --set SET` trains on it.

#![allow(clippy::print_stderr, reason = "a program of a user's prints as it likes")]

mod columns;
mod deepfm;
#[allow(dead_code)] // Its softmax is for programs with classes.
#[path = "../layers/dense.rs"]
mod dense;
#[path = "../split/held_out.rs"]
mod held_out;
mod model;
mod records;
mod sets;

use std::path::PathBuf;
use std::process::ExitCode;

#[derive(clap::Parser)]
#[command(about = "DeepFM on Adult or MovieLens; without --pack it trains, as `shoal run` starts it")]
struct Arguments {
    /// Which fields a record has
    #[arg(long, value_enum)]
    set: sets::Set,
    /// Write train and test of a fixed split into this folder, each as .recordio and .tsv, and end
    #[arg(long, value_name = "DIR", requires = "from")]
    pack: Option<PathBuf>,
    /// The folder that has the set's Parquet files
    #[arg(long, value_name = "FOLDER", requires = "pack")]
    from: Option<PathBuf>,
    /// AdaGrad's learning rate at the start; it falls to 0 along half a cosine over the whole job
    #[arg(long, default_value_t = 0.02)]
    rate: f32,
}

fn main() -> ExitCode {
    let Arguments { set, pack, from, rate } = clap::Parser::parse();
    let Some((dir, from)) = pack.zip(from) else {
        return shoal_trainer_sdk::main(model::Clicks::new(set.fields(), rate));
    };
    match set.rows(&from).and_then(|rows| records::pack(set.fields(), &rows, &dir)) {
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
