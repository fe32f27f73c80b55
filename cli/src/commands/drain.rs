//! `shoal drain`, `shoal migrate`: a pserver's blocks go elsewhere while training goes on. The master moves them.

use anyhow::bail;
use serde_json::json;
use shoal_runner::client::{Client, JobChoice};
use shoal_runner::output::{Output, print_outcome};
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::Instant;

/// How long `--wait` waits.
const WAIT_MAX: Duration = Duration::from_secs(600);

/// Let a pserver go: its blocks move to the others, and one fewer is wanted
#[derive(clap::Args)]
#[command(after_help = "Example: shoal drain --pserver pserver-1 --wait\n\
`shoal status` lists the pservers. The pserver ends by itself when nothing is left on it.")]
pub(crate) struct DrainArguments {
    #[command(flatten)]
    which: Which,
}

/// Let another pserver take the place of one: its blocks move there, and it ends
#[derive(clap::Args)]
#[command(after_help = "Example: shoal migrate --pserver pserver-1 --wait\n\
`shoal status` lists the pservers. The supervisor of the job starts the one that takes its place.")]
pub(crate) struct MigrateArguments {
    #[command(flatten)]
    which: Which,
}

#[derive(clap::Args)]
struct Which {
    /// Name of the pserver
    #[arg(long, value_name = "NAME")]
    pserver: String,
    /// Come back only when it is gone, after 600 s at the latest
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    job: JobChoice,
    /// How to print the answer
    #[arg(short, long, default_value = "text")]
    output: Output,
}

pub(crate) async fn drain(arguments: DrainArguments) -> anyhow::Result<ExitCode> {
    run(arguments.which, false).await
}

pub(crate) async fn migrate(arguments: MigrateArguments) -> anyhow::Result<ExitCode> {
    run(arguments.which, true).await
}

async fn run(which: Which, is_replaced: bool) -> anyhow::Result<ExitCode> {
    let Which { pserver, wait, job, output } = which;
    let mut client = job.connect().await?;
    let started = Instant::now();
    let reply = client.drain(&pserver, is_replaced).await?;
    if wait {
        wait_until_gone(&mut client, &pserver, reply.incarnation, started + WAIT_MAX).await?;
    }
    let (seconds, wanted) = (started.elapsed().as_secs_f64(), reply.pservers);
    match output {
        Output::Text if wait => {
            print_outcome(format_args!("{pserver} is gone after {seconds:.1} s; {wanted} pservers wanted"))?;
        }
        Output::Text => print_outcome(format_args!("{pserver} is leaving; {wanted} pservers wanted"))?,
        Output::Json => print_outcome(json!({
            "pserver": pserver, "pservers": wanted, "replaced": is_replaced, "gone": wait,
            "seconds": wait.then_some(seconds),
        }))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Until the pserver is gone. A master that is away for a while is waited for.
async fn wait_until_gone(
    client: &mut Client,
    pserver: &str,
    incarnation: u64,
    deadline: Instant,
) -> anyhow::Result<()> {
    loop {
        let asked = client.status().await;
        if let Ok(status) = &asked {
            let there = status.pservers.iter().find(|one| one.incarnation == incarnation && !one.lost);
            let Some(there) = there else { return Ok(()) };
            if status.phase != "training" && status.phase != "waiting" {
                bail!("the job is {} before {pserver} was gone: nothing moves any more", status.phase);
            }
            if Instant::now() >= deadline {
                let held = there.blocks + there.followers;
                bail!(
                    "{pserver} still holds {held} copies after {} s: see `shoal status`",
                    WAIT_MAX.as_secs()
                );
            }
        } else if Instant::now() >= deadline
            || !asked.as_ref().is_err_and(shoal_runner::exit::Exit::is_unreachable)
        {
            asked?;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
