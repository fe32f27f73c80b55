//! `shoal delete`: a job goes, with all that belongs to it. Its checkpoints stay.

use crate::cluster::follow::{Followed, follow};
use crate::cluster::text::duration;
use crate::cluster::{ClusterChoice, explained};
use kube::ResourceExt;
use kube::api::{DeleteParams, Preconditions};
use serde_json::json;
use shoal_operator::api::TrainingJob;
use shoal_runner::exit::Exit;
use shoal_runner::output::{Output, print};
use std::process::ExitCode;
use std::time::Duration;

/// Delete a training job of a Kubernetes cluster; its checkpoints stay
#[derive(clap::Args)]
#[command(after_help = "Example: shoal delete digits\n\
To stop a job and go on later, set spec.suspend.")]
pub(crate) struct DeleteArguments {
    /// Name of the job
    #[arg(value_name = "JOB")]
    job: String,
    /// Come back at once, and not only when nothing is left of it
    #[arg(long)]
    no_wait: bool,
    /// How long to wait at most, such as 90s or 10m
    #[arg(long, value_parser = duration, default_value = "10m", value_name = "TIME", conflicts_with = "no_wait")]
    timeout: Duration,
    #[command(flatten)]
    cluster: ClusterChoice,
    /// How to print the answer
    #[arg(short, long, default_value = "text")]
    output: Output,
}

pub(crate) async fn delete(arguments: DeleteArguments) -> anyhow::Result<ExitCode> {
    let DeleteArguments { job: name, no_wait, timeout, cluster, output } = arguments;
    let cluster = cluster.connect().await?;
    let job = cluster.job(&name).await?;
    let uid = job.uid();
    // Another job of the name, made in this moment, is not meant.
    let this = Preconditions { uid: uid.clone(), resource_version: None };
    let parameters = DeleteParams { preconditions: Some(this), ..DeleteParams::default() };
    cluster.jobs().delete(&name, &parameters).await.map_err(explained)?;
    if !no_wait {
        let is_another = |job: &TrainingJob| (job.uid() != uid).then_some(());
        if let Followed::TimedOut = follow(&cluster, &name, Some(timeout), is_another).await? {
            let why = format!(
                "{name} is still being deleted: its pods are gone first; is the operator running? `shoal why {name}`"
            );
            return Err(Exit::TimedOut(why).into());
        }
    }
    match output {
        Output::Json => print(json!({ "name": name, "gone": !no_wait }))?,
        Output::Text if no_wait => print(format_args!("{name} is being deleted"))?,
        Output::Text => print(format_args!("{name} deleted"))?,
    }
    Ok(ExitCode::SUCCESS)
}
