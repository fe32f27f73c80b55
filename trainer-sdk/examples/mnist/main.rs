//! Trains LeNet-5 on MNIST, or on any set in its format (Fashion-MNIST). docs/examples.md has the commands.
//!
//! `fetch.py mnist data/mnist` fetches it, `shoal recordio pack idx …` packs it, and `shoal run --data train.recordio --
//! target/release/examples/mnist` trains on it.

mod convolution;
#[path = "../layers/dense.rs"]
mod dense;
#[path = "../judge/exported.rs"]
mod exported;
mod lenet;
mod model;

use std::path::PathBuf;
use std::process::ExitCode;

#[derive(clap::Parser)]
#[command(about = "LeNet-5 on MNIST; without --judge it trains, as `shoal run` starts it")]
struct Arguments {
    /// Print the loss and accuracy of an exported model on the records of --data, and end
    #[arg(long, value_name = "MODEL", requires = "data")]
    judge: Option<PathBuf>,
    /// The RecordIO file that --judge reads
    #[arg(long, value_name = "FILE", requires = "judge")]
    data: Option<PathBuf>,
    #[command(flatten)]
    hyper: model::Hyper,
}

fn main() -> ExitCode {
    let Arguments { judge, data, hyper } = clap::Parser::parse();
    let (Some(judge), Some(data)) = (judge, data) else {
        return shoal_trainer_sdk::main(model::Mnist::new(hyper));
    };
    match exported::Exported::open(&judge).and_then(|model| model.judge(&data, model::tell)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
