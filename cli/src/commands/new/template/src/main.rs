//! The program that `shoal run` starts once for each trainer, on as many machines as there are. It parses, and hands
//! over: what it learns is in `model.rs`, with what mathematics in `step.rs`, from what data in `samples.rs`.

mod model;
mod samples;
mod step;

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;

/// Tells two kinds of points apart; without --pack it trains, as `shoal run` starts it
#[derive(Parser)]
struct Arguments {
    /// Write train-*.recordio and test-0.recordio into this folder, and end
    #[arg(long, value_name = "DIR")]
    pack: Option<PathBuf>,
    /// Adam's learning rate
    #[arg(long, value_name = "RATE", default_value_t = 0.05)]
    learning_rate: f32,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let Some(folder) = arguments.pack else {
        return shoal_trainer_sdk::main(model::Points {
            learning_rate: arguments.learning_rate,
        });
    };
    match samples::pack(&folder) {
        Ok(records) => {
            eprintln!("packed {records} records into {}", folder.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
