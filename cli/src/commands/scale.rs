//! `shoal scale`: other numbers of trainers and pservers for a running job.

use serde_json::json;
use shoal_runner::client::JobChoice;
use shoal_runner::exit::Exit;
use shoal_runner::folder::RunFolder;
use shoal_runner::output::{Output, print_outcome};
use std::process::ExitCode;

/// Change the number of trainers or pservers of a running job
#[derive(clap::Args)]
#[command(
    after_help = "Example: shoal scale --trainers 4 --pservers 3\nThe supervisor of the job starts what is missing; trainers within the bounds it was started with. Pservers that are\ntoo many leave when others have their blocks, while training goes on.",
    group = clap::ArgGroup::new("numbers").required(true).multiple(true)
)]
pub(crate) struct ScaleArguments {
    /// Trainers to run from now on
    #[arg(long, group = "numbers", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    trainers: Option<u32>,
    /// Parameter servers to share the model from now on
    #[arg(long, group = "numbers", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pservers: Option<u32>,
    #[command(flatten)]
    job: JobChoice,
    /// How to print the answer
    #[arg(short, long, default_value = "text")]
    output: Output,
}

/// Refuses a number of trainers that the supervisor of a local run would not start.
fn check(job: &JobChoice, trainers: u32) -> Result<(), Exit> {
    let of_run = job.master.is_none().then(|| RunFolder(job.run.clone()).trainers()).flatten();
    let Some(bounds) = of_run.filter(|bounds| !(bounds.min..=bounds.max).contains(&trainers)) else {
        return Ok(());
    };
    Err(Exit::Usage(format!(
        "--trainers {trainers}: this run was started with --trainers {bounds}; start one with --trainers MIN:MAX to scale it"
    )))
}

pub(crate) async fn run(arguments: ScaleArguments) -> anyhow::Result<ExitCode> {
    if let Some(trainers) = arguments.trainers {
        check(&arguments.job, trainers)?;
    }
    let mut client = arguments.job.connect().await?;
    let reply = client.scale(arguments.trainers, arguments.pservers).await?;
    match arguments.output {
        Output::Text => {
            let asked = [
                (arguments.trainers, "trainers", reply.trainers_before, reply.trainers),
                (arguments.pservers, "pservers", reply.pservers_before, reply.pservers),
            ];
            for (_, what, before, now) in asked.iter().filter(|(asked, ..)| asked.is_some()) {
                print_outcome(format_args!("{what}: {before} -> {now}"))?;
            }
        }
        Output::Json => print_outcome(json!({
            "trainers_before": reply.trainers_before, "trainers": reply.trainers,
            "pservers_before": reply.pservers_before, "pservers": reply.pservers,
        }))?,
    }
    Ok(ExitCode::SUCCESS)
}
