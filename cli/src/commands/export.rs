//! `shoal export`: the model of a job as safetensors.

use super::{Output, print};
use crate::client::JobChoice;
use crate::model_state::ModelState;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::Instant;

/// Write the model of a job as safetensors
#[derive(clap::Args)]
#[command(after_help = "Example: shoal export --file model.safetensors\n\
The model of a run that has ended lies in its folder: runs/latest/model.safetensors")]
pub(crate) struct ExportArguments {
    /// File to write
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    /// Add the update rules' state as PARAMETER.SLOT
    #[arg(long)]
    with_state: bool,
    #[command(flatten)]
    job: JobChoice,
    /// How to print the answer
    #[arg(short, long, default_value = "text")]
    output: Output,
}

/// A running job moves on while it is read, and its blocks move: so long it is tried to catch one version.
const TRYING: Duration = Duration::from_secs(30);

pub(crate) async fn run(arguments: ExportArguments) -> anyhow::Result<ExitCode> {
    let finished = arguments.job.run.join("model.safetensors");
    if arguments.job.master.is_none() && finished.is_file() && !arguments.with_state {
        std::fs::copy(&finished, &arguments.file)?;
        print_exported(&arguments.file, arguments.output, None);
        return Ok(ExitCode::SUCCESS);
    }
    let mut client = arguments.job.connect().await?;
    let deadline = Instant::now() + TRYING;
    let model = loop {
        // Each attempt with the routing of its moment.
        let tried = match client.status().await {
            Ok(status) => {
                let read = ModelState::read(&status, client.security()).await;
                read.map_err(|error| (error, status.phase == "training"))
            }
            Err(error) => Err((error, true)),
        };
        match tried {
            Ok(model) => break model,
            Err((_, true)) if Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Err((error, _)) => return Err(error),
        }
    };
    model.export(&arguments.file, arguments.with_state)?;
    print_exported(&arguments.file, arguments.output, Some(&model));
    Ok(ExitCode::SUCCESS)
}

/// Says what was written where.
pub(crate) fn print_exported(file: &Path, output: Output, model: Option<&ModelState>) {
    let file = file.display().to_string();
    match output {
        Output::Text => print(format_args!("wrote {file}")),
        Output::Json => {
            let (version, sha256) = (model.map(|m| m.version), model.map(ModelState::sha256));
            print(json!({ "file": file, "version": version, "parameters_sha256": sha256 }));
        }
    }
}
