//! `shoal checkpoint export`: the model in a checkpoint as safetensors, or one of its tables as Parquet. It must never write
//! what a checksum denies.

use super::super::export::{Wanted, is_of_reading};
use super::choice::{PlaceChoice, reached};
use anyhow::Context;
use shoal_runner::at_rest::AtRest;
use shoal_runner::output::Output;
use shoal_runtime::host::checkpoints::load;
use std::process::ExitCode;

#[cfg_attr(
    feature = "parquet",
    doc = "Write the model of a checkpoint as safetensors, or one of its embedding tables as Parquet"
)]
#[cfg_attr(not(feature = "parquet"), doc = "Write the model of a checkpoint as safetensors")]
#[derive(clap::Args)]
#[cfg_attr(
    feature = "parquet",
    command(after_help = "Example: shoal checkpoint export --file model.safetensors\n\
One table: shoal checkpoint export --table user --file user.parquet\n\
No job has to run.")
)]
#[cfg_attr(
    not(feature = "parquet"),
    command(after_help = "Example: shoal checkpoint export --file model.safetensors\n\
No job has to run.")
)]
pub(crate) struct ExportArguments {
    #[command(flatten)]
    wanted: Wanted,
    /// Which one; by default the newest
    #[arg(long, value_name = "NUMBER")]
    checkpoint: Option<u64>,
    /// The one at the best evaluation, of a job that keeps it
    #[arg(long, conflicts_with = "checkpoint")]
    best: bool,
    #[command(flatten)]
    place: PlaceChoice,
    /// How to print the answer
    #[arg(short, long, default_value = "text")]
    output: Output,
}

pub(crate) async fn run(arguments: ExportArguments) -> anyhow::Result<ExitCode> {
    arguments.wanted.check()?;
    let chosen = arguments.place.open().await?;
    let record = if arguments.best { chosen.best()? } else { chosen.record(arguments.checkpoint).await? };
    let other = || format!("checkpoint {}: see `shoal checkpoint ls` for others", record.checkpoint);
    let manifest = load(&chosen.storage, &record).await.map_err(reached).with_context(other)?;
    let written = arguments.wanted.write(&AtRest::in_checkpoint(&chosen.storage, &manifest)).await;
    let written =
        written.map_err(|error| if is_of_reading(&error) { error.context(other()) } else { error })?;
    arguments.wanted.say(arguments.output, &written)?;
    Ok(ExitCode::SUCCESS)
}
