//! Trains a perceptron on the 1,797 real 8x8 digits that the crate `smartcore` carries.
//!
//! `digits --pack DIR` writes the data set; `shoal run --data 'DIR/train-*.recordio' -- target/release/examples/digits`
//! trains on it.

#[allow(dead_code)] // The demo, which includes these files too, uses the rest.
mod data;
#[path = "../judge/exported.rs"]
mod exported;
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
    /// Print the share of the digits in --data that an exported model tells right, and end
    #[arg(long, value_name = "MODEL", requires = "data", conflicts_with = "pack")]
    judge: Option<PathBuf>,
    /// The RecordIO file that --judge reads
    #[arg(long, value_name = "FILE", requires = "judge")]
    data: Option<PathBuf>,
    /// Scale gradients down whose norm over all parameters is larger
    #[arg(long, value_name = "NORM")]
    clip_norm: Option<f32>,
    /// Multiply the loss with a scale that begins here, a power of two; steps that overflow are skipped
    #[arg(long, value_name = "SCALE")]
    loss_scale: Option<f32>,
    /// Make the gradient of every so many-th step infinite, to see such steps skipped
    #[arg(long, value_name = "STEPS")]
    spoil_every: Option<u64>,
}

fn main() -> ExitCode {
    let Arguments { pack, judge, data, clip_norm, loss_scale, spoil_every } = clap::Parser::parse();
    let done = match (pack, judge.zip(data)) {
        (Some(dir), _) => {
            data::pack(&dir).map(|packed| eprintln!("packed into {}: {packed:?}", dir.display()))
        }
        (None, Some((judge, data))) => {
            exported::Exported::open(&judge).and_then(|model| model.judge(&data, tell))
        }
        (None, None) => {
            let extras = model::Extras { clip_norm, loss_scale, spoil_every };
            return shoal_trainer_sdk::main(model::Digits::with(extras));
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// How many of some records a model tells right.
fn tell(model: &exported::Exported, records: &[&[u8]]) -> anyhow::Result<Vec<exported::Told>> {
    let mut digits = data::Digits::default();
    for record in records {
        let (label, pixels) = data::decode(record)?;
        digits.labels.push(label);
        digits.pixels.extend_from_slice(pixels);
    }
    let share =
        mlp::accuracy(&model::weights_of(|name| model.slice(name))?, &digits.unit_pixels(), &digits.labels);
    let count = digits.labels.len() as f64;
    Ok(vec![("accuracy", share * count, count)])
}
