//! `shoal scale`: another number of trainers for a running job.

use super::{Output, print};
use crate::client::JobChoice;
use serde_json::json;
use std::process::ExitCode;

/// Change the number of trainers of a running job
#[derive(clap::Args)]
#[command(
    after_help = "Example: shoal scale --trainers 4\nThe supervisor of the job starts or stops trainers, within the bounds it was started with."
)]
pub(crate) struct ScaleArguments {
    /// Trainers to run from now on
    #[arg(long)]
    trainers: u32,
    #[command(flatten)]
    job: JobChoice,
    /// How to print the answer
    #[arg(short, long, default_value = "text")]
    output: Output,
}

pub(crate) async fn run(arguments: ScaleArguments) -> anyhow::Result<ExitCode> {
    let reply = arguments.job.connect().await?.scale(arguments.trainers).await?;
    match arguments.output {
        Output::Text => print(format_args!("trainers: {} -> {}", reply.trainers_before, reply.trainers)),
        Output::Json => {
            print(json!({ "trainers_before": reply.trainers_before, "trainers": reply.trainers }));
        }
    }
    Ok(ExitCode::SUCCESS)
}
