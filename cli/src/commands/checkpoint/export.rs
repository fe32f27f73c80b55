//! `shoal checkpoint export`: the model in a checkpoint as safetensors. It must never write what a checksum denies.

use super::super::Output;
use super::super::export::print_exported;
use super::choice::{PlaceChoice, reached};
use crate::model_state::ModelState;
use anyhow::Context;
use shoal_runtime::host::checkpoints::load;
use std::path::PathBuf;
use std::process::ExitCode;

/// Write the model of a checkpoint as safetensors
#[derive(clap::Args)]
#[command(after_help = "Example: shoal checkpoint export --file model.safetensors\n\
No job has to run.")]
pub(crate) struct ExportArguments {
    /// File to write
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    /// Which one; by default the newest
    #[arg(long, value_name = "NUMBER")]
    checkpoint: Option<u64>,
    /// The one at the best evaluation, of a job that keeps it
    #[arg(long, conflicts_with = "checkpoint")]
    best: bool,
    /// Add the update rules' state as PARAMETER.SLOT
    #[arg(long)]
    with_state: bool,
    #[command(flatten)]
    place: PlaceChoice,
    /// How to print the answer
    #[arg(short, long, default_value = "text")]
    output: Output,
}

pub(crate) async fn run(arguments: ExportArguments) -> anyhow::Result<ExitCode> {
    let chosen = arguments.place.open().await?;
    let record = if arguments.best { chosen.best()? } else { chosen.record(arguments.checkpoint).await? };
    let other = || format!("checkpoint {}: see `shoal checkpoint ls` for others", record.checkpoint);
    let manifest = load(&chosen.storage, &record).await.map_err(reached).with_context(other)?;
    let model = ModelState::read_checkpoint(&chosen.storage, &manifest).await.with_context(other)?;
    model.export(&arguments.file, arguments.with_state)?;
    print_exported(&arguments.file, arguments.output, Some(&model));
    Ok(ExitCode::SUCCESS)
}
