//! `shoal checkpoint now`: asks a running master for one, and comes back when it is durable.

use anyhow::bail;
use serde_json::json;
use shoal_runner::client::{Client, JobChoice};
use shoal_runner::exit::Exit;
use shoal_runner::output::{Output, print};
use shoal_runtime::wire::proto::StatusReply;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::Instant;

/// How long it is waited for.
const WAIT_MAX: Duration = Duration::from_secs(600);

/// Make a checkpoint of a running job, and wait until it is durable
#[derive(clap::Args)]
#[command(after_help = "Example: shoal checkpoint now\n\
It is made while training goes on, a few steps ahead; one that is under way already counts.")]
pub(crate) struct NowArguments {
    #[command(flatten)]
    job: JobChoice,
    /// How to print the answer
    #[arg(short, long, default_value = "text")]
    output: Output,
}

pub(crate) async fn run(arguments: NowArguments) -> anyhow::Result<ExitCode> {
    let mut client = arguments.job.connect().await?;
    let started = Instant::now();
    let before = client.checkpoint().await?.newest;
    let status = wait_for_newer(&mut client, before, started + WAIT_MAX).await?;
    let (number, version, seconds) =
        (status.checkpoint, status.checkpoint_version, started.elapsed().as_secs_f64());
    match arguments.output {
        Output::Text => print(format_args!(
            "checkpoint {number} at version {version} is durable after {seconds:.1} s, in {}",
            status.checkpoints
        ))?,
        Output::Json => print(json!({
            "checkpoint": number, "version": version, "place": status.checkpoints, "seconds": seconds,
        }))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Until there is a newer one. A master that is away for a while is waited for.
async fn wait_for_newer(client: &mut Client, before: u64, deadline: Instant) -> anyhow::Result<StatusReply> {
    loop {
        match client.status().await {
            Ok(status) if status.checkpoint > before => return Ok(status),
            Ok(status) if status.phase == "done" || status.phase == "failed" => {
                bail!("the job is {} and makes no checkpoint any more", status.phase);
            }
            Err(error) if !Exit::is_unreachable(&error) || Instant::now() >= deadline => return Err(error),
            Ok(_) if Instant::now() >= deadline => {
                bail!(
                    "not durable after {} s: see `shoal status` and the pservers' logs",
                    WAIT_MAX.as_secs()
                );
            }
            Ok(_) | Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}
