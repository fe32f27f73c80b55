//! A small language model of characters, on speeches. docs/examples.md has the commands.
//!
//! `text --pack DIR --files SPEECHES` writes train.recordio and test.recordio; `shoal run --data DIR/train.recordio --
//! target/release/examples/text` trains on it.

#[path = "../layers/dense.rs"]
mod dense;
#[path = "../judge/exported.rs"]
mod exported;
mod model;
mod network;
mod windows;

use std::path::PathBuf;
use std::process::ExitCode;

#[derive(clap::Parser)]
#[command(
    about = "A small language model of characters; without --pack or --judge it trains, as `shoal run` starts it"
)]
struct Arguments {
    /// Write train.recordio and test.recordio of a fixed split into this folder, and end
    #[arg(long, value_name = "DIR", requires = "files")]
    pack: Option<PathBuf>,
    /// The folder whose *.txt are packed
    #[arg(long, value_name = "DIR", requires = "pack")]
    files: Option<PathBuf>,
    /// Print the loss of an exported model on the records of --data, and end
    #[arg(long, value_name = "MODEL", requires = "data", conflicts_with = "pack")]
    judge: Option<PathBuf>,
    /// The RecordIO file that --judge reads
    #[arg(long, value_name = "FILE", requires = "judge")]
    data: Option<PathBuf>,
    #[command(flatten)]
    hyper: model::Hyper,
}

fn main() -> ExitCode {
    let Arguments { pack, files, judge, data, hyper } = clap::Parser::parse();
    let done = match (pack.zip(files), judge.zip(data)) {
        (Some((dir, files)), _) => windows::pack(&files, &dir).map(|packed| eprintln!("packed: {packed}")),
        (None, Some((judge, data))) => {
            exported::Exported::open(&judge).and_then(|model| model.judge(&data, model::tell))
        }
        (None, None) => return shoal_trainer_sdk::main(model::Text::new(hyper)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
